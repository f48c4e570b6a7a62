"""Criteo: a week of display ads in 39 columns without names, from a Kaggle challenge.

From https://www.kaggle.com/c/criteo-display-ad-challenge/data, which points to the files and
states the terms. Nothing of it is part of this repository.
"""
