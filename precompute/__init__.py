"""Nearline work: events in, foundation-model vectors out into the store, ahead of any request."""
