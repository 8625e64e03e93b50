"""Fine-tunes a tagger of words on sentences in memory, and asks it.

python examples/named_entities.py MODEL
"""

import sys

import bert_tf

# B- begins an entity, I- goes on with it, O is none.
SENTENCES = [
    ["Ada", "Lovelace", "lived", "in", "London", "."],
    ["Paris", "is", "far", "from", "Oslo", "."],
    ["Anna", "met", "Bertil", "Holm", "in", "Oslo", "."],
    ["It", "rains", "in", "London", "."],
]
TAGS = [
    ["B-PER", "I-PER", "O", "O", "B-LOC", "O"],
    ["B-LOC", "O", "O", "O", "B-LOC", "O"],
    ["B-PER", "O", "B-PER", "I-PER", "O", "B-LOC", "O"],
    ["O", "O", "O", "B-LOC", "O"],
]

run = bert_tf.finetune(
    sys.argv[1],
    (SENTENCES, TAGS),
    dev=(SENTENCES[:2], TAGS[:2]),
    task="tagging",
    output_dir="out/names",
    num_train_epochs=5,
    train_batch_size=2,
)
text = "Anna lives in London."
for entity in run.model(text)["entities"]:
    place = f"{entity['start']} to {entity['end']}"
    print(f"{entity['label']}: {entity['text']!r}, {place}")
