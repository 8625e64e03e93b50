"""Stock Keras: a text and numbers go in, callbacks watch the training.

python examples/keras_fit.py MODEL
"""

import sys

import keras
import numpy as np
import tensorflow as tf

import bert_tf

TEXTS = ["Works well.", "Broke at once.", "Fine for the price.", "Too loud."]
NUMBERS = np.array([[5.0, 19.9], [1.0, 9.9], [4.0, 4.9], [2.0, 29.9]])
RETURNED = np.array([0, 1, 0, 1])

encoder = bert_tf.BertEncoder.from_checkpoint(sys.argv[1])
tokenizer = bert_tf.BertTokenizer.from_checkpoint(sys.argv[1])
pack = bert_tf.SentencePacker(tokenizer, seq_length=32)

names = ("input_ids", "input_mask", "segment_ids")
tokens = {n: keras.Input([None], dtype="int32", name=n) for n in names}
numbers = keras.Input([2], name="stars_and_price")
scaled = keras.layers.BatchNormalization()(numbers)
both = [encoder(tokens)["pooled_output"], scaled]
both = keras.layers.Concatenate()(both)
logit = keras.layers.Dense(1, dtype="float32")(both)
model = keras.Model({**tokens, "stars_and_price": numbers}, logit)

loss = keras.losses.BinaryCrossentropy(from_logits=True)
model.compile(bert_tf.adamw(3e-5, total_steps=8), loss, metrics=["accuracy"])
rows = tf.data.Dataset.from_tensor_slices((TEXTS, NUMBERS, RETURNED)).batch(2)
rows = rows.map(lambda t, x, y: ({**pack(t), "stars_and_price": x}, y))
stop = keras.callbacks.EarlyStopping("val_loss", patience=2)
best = keras.callbacks.ModelCheckpoint("best.keras", save_best_only=True)
model.fit(rows, validation_data=rows, epochs=4, callbacks=[stop, best])
print(model.predict(rows))
