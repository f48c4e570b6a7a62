"""Sliding-window self-attention over jagged rows, with rotary encoding of place and time."""
