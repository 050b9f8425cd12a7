"""Running tapes: the program as data, and the threads that walk it."""
