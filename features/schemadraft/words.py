"""Words that columns and files are often named with; a name is a hint, never a proof."""

from __future__ import annotations

import re


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


USER = _set("""
    user uid userid customer client household member subscriber person people visitor viewer
    account shopper buyer reader consumer abo abonnent kunde cookie device profile
""")
ITEM = _set("""
    item itemid product sku article artikel ad adid offer creative banner listing movie video song
    track book doc document post news content deal title asset
""")
REQUEST = _set("request req basket session query search auction mailing pageview slate")
EXAMPLE = _set("example impression row exposure send record impid index")
LABEL = _set("""
    label click clicked clk purchase purchased bought buy order ordered conversion convert converted
    cvr install installed like liked target response responded engaged watched redeemed subscribed
""")
SURFACE = _set("""
    surface slot placement page position channel zone section site app platform module area
""")
TIME = _set("""
    ts time timestamp at date datetime when epoch moment created sent shown occurred served
""")
ARRIVAL = _set("""
    arrival arrived received ingest ingested logged loaded exported processed available recorded
    inserted
""")
SHOWN = _set("impression exposure send sent shown display view served slate ranking")
WEIGHT = _set("weight sampling")
ID = _set("id ids key code nr no number num sku uid upc ean isbn uuid hash")
KIND = _set("type kind category class group genre topic department brand")
CATEGORY = KIND | _set("""
    id key code uid upc ean isbn sku hash zip postcode hour day weekday month store campaign region
    country city segment tier level
""")

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\d_]+")


def words_of(name: str) -> frozenset[str]:
    """Give the words of a name in lower case, plurals as singulars too: `userIds` has `id`."""
    found = {word.lower() for word in _WORD.findall(name)}
    return frozenset(found | {word.removesuffix("s") for word in found if len(word) > 2})


def slug(name: str) -> str:
    """Give a name that a schema takes."""
    text = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_").lower()
    return text or "column"
