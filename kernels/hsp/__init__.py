"""Hierarchical seed pooling: seeds attend to a jagged row, then a sum of Kronecker products."""
