"""Architectures as data, a file for each; encoders/ computes them."""
