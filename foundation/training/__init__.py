"""Training: one pass in time order, checkpoints that resume exactly, evaluation."""
