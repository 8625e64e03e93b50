"""Shows which words of a text an answer is due to.

python examples/explain.py MODEL "A moving film."

MODEL is a folder that was fine-tuned, such as classification.py leaves.
"""

import sys

import bert_tf

folder, text = sys.argv[1:]
model = bert_tf.load(folder)
print(model(text))

explanation = model.explain(text)
print(explanation)
explanation.write("why.html")

# A second opinion: each word masked in turn.
occluded = model.explain(text, method="occlusion")
for word, other in zip(explanation.words, occluded.words, strict=True):
    print(f"{word.text:15} {word.share:7.3f} {other.share:7.3f}")
