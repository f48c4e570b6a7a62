"""The processes: ranker, worker, and the `gemcutter` command."""
