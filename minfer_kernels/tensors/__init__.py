"""Device memory as torch tensors: what the Triton backend and the plain torch one share."""
