"""Weights as planes: a matrix cut into arrays of its parts (words of quants, their high bits, scales) by format."""
