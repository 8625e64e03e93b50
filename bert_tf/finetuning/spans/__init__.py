"""Questions about a text: SQuAD 1.1 and 2.0 and files laid out alike."""
