"""Property tests have no time limit of their own: a slow machine is not a failure."""

from hypothesis import settings

settings.register_profile("gemcutter", deadline=None)
settings.load_profile("gemcutter")
