"""GBNF, llama.cpp's grammar notation: read, checked, and cut into lexemes that lose nothing."""
