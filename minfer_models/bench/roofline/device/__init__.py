"""The roofline of a model on a GPU: launches instead of instructions, the device's memory and matrix units."""
