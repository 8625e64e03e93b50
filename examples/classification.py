"""Fine-tunes a classifier on texts in memory, and asks it.

python examples/classification.py MODEL
"""

import sys

import bert_tf

TEXTS = [
    "A lovely film.",
    "Warm, funny and very well played.",
    "I would see it again tomorrow.",
    "The best two hours of my week.",
    "So dull that I fell asleep.",
    "A waste of good actors.",
    "Nothing in it makes sense.",
    "Loud, long and empty.",
]
LABELS = ["good"] * 4 + ["bad"] * 4

run = bert_tf.finetune(
    sys.argv[1],
    (TEXTS, LABELS),
    output_dir="out/films",
    learning_rate=3e-5,
    num_train_epochs=3,
    train_batch_size=4,
    dev_share=0.25,
)
print(run.scores["dev"], run.report)

for answer in run.model(["What a lovely evening!", "Dull and empty."]):
    print(answer["label"], round(answer["probability"], 3))
# Tomorrow, in another program: model = bert_tf.load("out/films")
