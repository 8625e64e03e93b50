"""Ratings of texts from 0 to 10, in steps that have an order."""
