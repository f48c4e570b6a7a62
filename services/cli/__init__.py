"""The `gemcutter` command: each step of the flow, and the whole of it in one go."""
