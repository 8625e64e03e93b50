"""A model of texts whose vectors and ranks can be told by hand."""

import pathlib

import numpy as np
import tensorflow as tf

SIZE = 4
PROMPTS = {"query": "ask: ", "document": ""}


def _text(name: str = "text") -> tf.TensorSpec:
    return tf.TensorSpec([None], tf.string, name=name)


def vectors_of(texts: list[str]) -> np.ndarray:
    """Counts of letters a to d, and 1, at unit length."""
    counts = [[text.count(letter) for letter in "abc"] for text in texts]
    found = np.array([[*row, 1] for row in counts], np.float32)
    return found / np.linalg.norm(found, axis=1, keepdims=True)


def _count(text: tf.Tensor, letter: str) -> tf.Tensor:
    without = tf.strings.regex_replace(text, letter, "")
    lengths = tf.strings.length(text) - tf.strings.length(without)
    return tf.cast(lengths, tf.float32)


class TextAnswers(tf.Module):
    """The signatures of `bert_tf.server.text_apis`."""

    def __init__(self) -> None:
        super().__init__()
        self.runs = tf.Variable(0)
        self.largest = tf.Variable(0)

    @tf.function(input_signature=[_text()])
    def embed(self, text):
        """Not at unit length; refuses the text "refused"."""
        rows = tf.size(text)
        with tf.control_dependencies(
            [
                self.runs.assign_add(1),
                self.largest.assign(tf.maximum(self.largest, rows)),
            ]
        ):
            counts = [_count(text, letter) for letter in "abc"]
        wrong = tf.equal(text, "refused")
        row = tf.argmax(wrong, output_type=tf.int32)
        message = tf.strings.format("text: row {} is refused", row)
        check = tf.debugging.Assert(~tf.reduce_any(wrong), [message])
        with tf.control_dependencies([check]):
            return {"embedding": tf.stack([*counts, tf.ones([rows])], 1)}

    @tf.function(input_signature=[_text(), _text("prompt_name")])
    def embed_with_prompt(self, text, prompt_name):
        prompt = tf.where(tf.equal(prompt_name, "query"), PROMPTS["query"], "")
        return self.embed(tf.strings.join([prompt, text]))

    @tf.function(input_signature=[_text()])
    def count_tokens(self, text):
        words = tf.strings.split(text).row_lengths()
        return {"num_tokens": tf.cast(words, tf.int32) + 2}

    @tf.function(input_signature=[_text(), _text("text_b")])
    def rank(self, text, text_b):
        """Ten times the difference of the lengths, negated."""
        lengths = tf.strings.length(text) - tf.strings.length(text_b)
        return {"logits": -10.0 * tf.cast(tf.abs(lengths), tf.float32)}

    @tf.function(input_signature=[tf.TensorSpec([1], tf.float32)])
    def load(self, nothing):
        """The runs of embed, and the rows of the largest."""
        del nothing
        return {"runs": self.runs[None], "largest": self.largest[None]}


def write_texts(folder: pathlib.Path) -> pathlib.Path:
    """Writes version 1 of TextAnswers."""
    module = TextAnswers()
    names = ("embed", "embed_with_prompt", "count_tokens", "rank", "load")
    signatures = {name: getattr(module, name) for name in names}
    signatures["serving_default"] = module.embed
    tf.saved_model.save(module, str(folder / "1"), signatures=signatures)
    return folder
