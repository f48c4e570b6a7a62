"""Avazu: ten days of mobile ads, from a Kaggle competition.

From https://www.kaggle.com/c/avazu-ctr-prediction/data, under the competition's rules. Nothing of
it is part of this repository.
"""
