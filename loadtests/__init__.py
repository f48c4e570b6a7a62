"""Open-loop load against the ranking service, seen from outside."""
