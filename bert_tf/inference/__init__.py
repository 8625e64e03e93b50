"""Answers on one's own texts: in Python, of files, and by similarity."""
