"""Trains a head and the upper half of an encoder; the rest stays as it is.

python examples/freezing.py MODEL
"""

import math
import sys

import keras
import tensorflow as tf

import bert_tf

TEXTS = ["Works well.", "Broke at once.", "Fine for the price.", "Too loud."]
LABELS = [1, 0, 1, 0]

encoder = bert_tf.BertEncoder.from_checkpoint(sys.argv[1])
tokenizer = bert_tf.BertTokenizer.from_checkpoint(sys.argv[1])
pack = bert_tf.SentencePacker(tokenizer, seq_length=32)

encoder.embeddings.trainable = False
for block in encoder.blocks[: len(encoder.blocks) // 2]:
    block.trainable = False

model = bert_tf.bert_classifier(encoder, num_classes=2)
trained = sum(math.prod(w.shape) for w in model.trainable_weights)
print(f"{trained:,} of {model.count_params():,} parameters are trained")

model.compile(
    bert_tf.adamw(1e-4, total_steps=6),
    keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)
rows = tf.data.Dataset.from_tensor_slices((TEXTS, LABELS)).batch(2)
model.fit(rows.map(lambda text, label: (pack(text), label)), epochs=3)
# A whole run does it by freeze_layers=6 of bert_tf.finetune.
