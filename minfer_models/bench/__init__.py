"""minfer-bench: how fast a model runs here, and where the time goes."""
