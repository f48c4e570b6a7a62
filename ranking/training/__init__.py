"""Training of vertical models from a log and a transfer log, up to the bundle."""
