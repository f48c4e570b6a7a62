"""The small vertical models: how they are trained, shipped and served.

`ranking.training` needs torch and makes bundles; `ranking.runtime` needs none and serves them. What
both agree on is here: the bundle with its manifest, and calibration.
"""
