"""KuaiVideo_x1: short videos that 10,000 users clicked or passed over, as FuxiCTR lays them out.

From https://huggingface.co/datasets/reczoo/KuaiVideo_x1, made of the Kuaishou challenge of China MM
2018; the terms are those of that challenge. Nothing of it is part of this repository.
"""
