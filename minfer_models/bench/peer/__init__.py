"""`minfer-bench peer`: our engine against another one, on the same file, in the same rounds."""
