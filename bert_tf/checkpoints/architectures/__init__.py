"""Tables of names, a file for each architecture."""
