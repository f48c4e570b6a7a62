"""Drafts `schema.yaml` and `splits.yaml` from a user's files, for the user to correct.

It looks at the head of every file and at some rows further down, in bounded memory, and says of
every guess what it rests on. It decides nothing: a draft is a text to start from.
"""

from features.schemadraft.draft import Draft, draft_schema

__all__ = ["Draft", "draft_schema"]
