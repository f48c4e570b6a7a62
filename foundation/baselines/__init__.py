"""Opponents that a learned history has to beat."""
