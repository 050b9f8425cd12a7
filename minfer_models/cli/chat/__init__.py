"""`minfer chat`: a conversation at the terminal, or line by line where there is none."""
