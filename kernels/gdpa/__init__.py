"""Generalised dot-product attention: an activation, no softmax, short generated K and V."""
