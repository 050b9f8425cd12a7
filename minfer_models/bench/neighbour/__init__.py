"""`minfer-bench neighbour`: how decoding fares while another process keeps a core busy."""
