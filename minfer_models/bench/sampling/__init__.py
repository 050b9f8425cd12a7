"""`minfer-bench sampling`: what choosing a token costs, next to computing its logits."""
