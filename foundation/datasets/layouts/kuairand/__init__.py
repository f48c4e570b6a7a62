"""KuaiRand: a month of a short-video app, some of it shown at random. The 1K and Pure versions.

From https://kuairand.com (files at https://zenodo.org/records/10439422), CC BY-SA 4.0: who
publishes anything derived from the data names the source and keeps the licence. Nothing of it is
part of this repository.
"""
