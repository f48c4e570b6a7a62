"""TaobaoAd: eight days of display ads of 1.14 million users, and 22 days of what they shopped.

From https://tianchi.aliyun.com/dataset/56 (Ali_Display_Ad_Click), which also states the terms of
use. Nothing of it is part of this repository.
"""
