"""Draws what the tokens of a text attend to, a picture for each head.

python examples/attention_maps.py MODEL "The cat sat on the mat."
"""

import sys

import matplotlib.pyplot as plt
import numpy as np

import bert_tf

folder, text = sys.argv[1:]
encoder = bert_tf.BertEncoder.from_checkpoint(folder)
tokenizer = bert_tf.BertTokenizer.from_checkpoint(folder)
length = len(tokenizer(text)) + 2
inputs = bert_tf.SentencePacker(tokenizer, length)([text])
tokens = [
    t.decode() for t in tokenizer.id_to_token(inputs["input_ids"][0]).numpy()
]

# L arrays [1, N, S, S]: of each layer and head, from each token to each.
attention = encoder(inputs, return_attention_probs=True)["attention_probs"]
layers, heads = len(attention), attention[0].shape[1]
figure, places = plt.subplots(
    layers, heads, squeeze=False, figsize=(3 * heads, 3 * layers)
)
for layer, row in zip(attention, places, strict=True):
    for head, place in enumerate(row):
        place.imshow(np.array(layer[0, head]), vmin=0, vmax=1, cmap="Blues")
        place.set_xticks(range(length), tokens, rotation=90)
        place.set_yticks(range(length), tokens)
figure.savefig("attention.png", bbox_inches="tight")
print(f"attention.png: {layers} layers of {heads} heads, {length} tokens")
