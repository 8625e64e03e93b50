"""Tagging of words: CoNLL-style files, windows of words, entity scores."""
