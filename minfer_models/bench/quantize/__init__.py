"""What each quantized type costs a model in size and in predictions."""
