"""AmazonElectronics_x1: which product somebody reviews next, as FuxiCTR lays it out.

From https://huggingface.co/datasets/reczoo/AmazonElectronics_x1, made of the Amazon reviews of
https://cseweb.ucsd.edu/~jmcauley/datasets.html, whose page asks to be cited. Nothing of it is part
of this repository.
"""
