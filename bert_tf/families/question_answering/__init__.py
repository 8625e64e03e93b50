"""Questions answered by spans of texts: SQuAD 1.1 and 2.0."""
