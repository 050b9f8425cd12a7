"""Attention kernels: `split` with `merge` for a few rows, `flash` over `tiles` for many."""
