"""Models: file formats, architectures, tokenizers, the engine and the command line."""
