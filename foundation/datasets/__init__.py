"""Public logs in the layout that the loader reads."""
