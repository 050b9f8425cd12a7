"""Every IR op in plain torch ops, on any torch device: the portable column, and the route to mps and xpu."""
