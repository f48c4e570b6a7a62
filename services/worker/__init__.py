"""The precompute worker as a process."""
