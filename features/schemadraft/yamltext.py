"""YAML with comments, a line at a time."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

import yaml

TODO = "TODO"

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./*-]*")


def todo(what: str) -> dict[str, str]:
    """Give a value that no schema takes, so that the error names what is to be done."""
    return {TODO: what}


def inline(value: object) -> str:
    """Give a value on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{inline(k)}: {inline(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(inline, value)) + "]"
    if isinstance(value, str) and not (_PLAIN.fullmatch(value) and yaml.safe_load(value) == value):
        return json.dumps(value, ensure_ascii=not value.isprintable())
    return value if isinstance(value, str) else json.dumps(value)


def commented(text: str, comment: str) -> str:
    """Give a line with a comment at its end; the comment is kept to one line."""
    return f"{text}  # {' '.join(comment.split())}" if comment else text


def comment_line(text: str) -> str:
    """Give a line that is a comment only."""
    return f"# {' '.join(text.split())}"
