"""Generalised dot-product attention: an activation instead of a softmax, short generated K and V."""
