"""Corpora of every kind as documents of sentences."""
