"""Vectors of tokens and texts, out of a model that is not changed."""
