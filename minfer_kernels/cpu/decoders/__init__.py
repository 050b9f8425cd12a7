"""Block decoders: what a matmul or get_rows kernel needs to know about one weight format."""
