"""Tags of words: CoNLL-2003 and files like it."""
