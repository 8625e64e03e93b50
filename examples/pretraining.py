"""Learns a vocabulary and a small BERT from a text file of one's own.

python examples/pretraining.py corpus.txt

The file has a sentence a line, and a blank line between documents.
"""

import sys

import bert_tf

vocabulary = bert_tf.train_vocab(sys.argv[1], vocab_size=2000)
vocabulary.save("out/vocab.txt")

report = bert_tf.create_records(
    *(sys.argv[1], "out/vocab.txt", "out/records"),
    max_seq_length=64,
    held_out=0.1,
)
print(report)

bert_tf.pretrain(
    "out/records",
    "out/model",
    size="tiny",
    train_batch_size=16,
    num_train_steps=50,
    learning_rate=1e-3,
)

# The same three steps are commands, for a corpus of any size; see README.md.
model = bert_tf.load("out/model")
for mask in model("the ferry leaves in the [MASK].")["masks"]:
    print([(each["token"], round(each["probability"], 3)) for each in mask])
