"""Kunlun, a block a file.

Legend of the axes, for every file here: B rows, L events end to end, N set tokens, S seeds,
P pooled tokens, H heads, K head width, D model width (H * K), F width of the generated networks,
A objectives.
"""
