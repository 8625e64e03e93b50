"""Columns of texts: anchors, positives and two negatives of each."""

TEXTS = [
    ["the cat sat", "a dog ran on the mat", "i am", "the dog"],
    ["a cat sat on the mat", "the dog ran", "i am the cat", "dogs !"],
    ["the mat", "search the cafe", "a mat", "cats"],
    ["the cat ran", "the mat sat on a dog", "for the dog", "a dog sat"],
]
