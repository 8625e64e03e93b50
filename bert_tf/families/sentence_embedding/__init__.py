"""Vectors of texts, trained so that their similarities have a meaning."""
