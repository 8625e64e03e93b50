"""Tokenizer, packers and vocabulary."""
