"""What offline and online share, so that training and serving cannot disagree."""
