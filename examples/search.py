"""Finds the texts that mean what a question means.

python examples/search.py MODEL

MODEL is a folder of any family or a name such as
hf://sentence-transformers/all-MiniLM-L6-v2.
"""

import sys

import bert_tf

TEXTS = [
    "The ferry leaves at seven in the morning.",
    "Bread is baked in the night and sold warm.",
    "The lighthouse was built after a shipwreck.",
    "Winter timetables begin in October.",
]

model = bert_tf.load(sys.argv[1])
# Of a large corpus, keep these: numpy.save("vectors.npy", vectors).
vectors = bert_tf.embed(model, TEXTS, normalize=True)

queries = ["When does the boat go?", "fresh rolls"]
places, cosines = bert_tf.search(
    bert_tf.embed(model, queries, normalize=True), vectors, top_k=2
)
for query, row, scores in zip(queries, places, cosines, strict=True):
    print(query)
    for place, score in zip(row, scores, strict=True):
        print(f"  {score:.3f}  {TEXTS[place]}")
