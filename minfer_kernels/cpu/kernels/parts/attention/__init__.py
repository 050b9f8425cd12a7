"""Attention in blocks of cells: where cells lie, scores, weights, values and their merge, and a thread's scratch."""
