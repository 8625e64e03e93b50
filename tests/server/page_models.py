"""Signatures for the tests of the page, with all that the page can show."""

import tensorflow as tf

EVIL = '<img src=x onerror="document.title = 1">'
DESCRIPTION = {
    "task": EVIL,
    "threshold": -0.5,
    "labels": ["B-PER", "I-PER", "O", EVIL],
    "fine_tuned_for": "squad_v2",
    "init_from": "uncased_L-4",
    "main_metric": "f1",
    "scores": {"dev": {"exact": 0.5, "f1": 0.75, "loss": None}},
    "num_examples": {"train": 1200, "dev": 30},
    "tokenizer": "byte-level BPE",
    "vocab_size": 30522,
    "lower_case": True,
    "scripts": ["Latin"],
}
# What the candidates of `questions` are, of the context CONTEXT.
CONTEXT = (
    "\U0001f600 Lovell's running\n water-mills of 1,901 in 東京都 and Hull"
)
CANDIDATES = (
    *("unning", "running", "running\n water", "mills", "90"),
    *("東", "ull", "and", "in"),
)
SCORES = (0.35, 0.2, 0.1, 0.05, 0.04, 0.03, 0.01, 0.0002, 0.0001)


def _text(name: str = "text") -> tf.TensorSpec:
    return tf.TensorSpec([None], tf.string, name=name)


class PageAnswers(tf.Module):
    """Answers that can be told by hand."""

    @tf.function(input_signature=[_text("question"), _text("context")])
    def questions(self, question, context):
        """The candidates above; no answer to the question "none"."""
        rows = tf.size(question)
        starts = [CONTEXT.index(text) for text in CANDIDATES]
        ends = [s + len(t) for s, t in zip(starts, CANDIDATES, strict=True)]
        answers = [*(" ".join(text.split()) for text in CANDIDATES), ""]

        def rows_of(values):
            return tf.tile(tf.constant([values]), [rows, 1])

        none = question == "none"
        return {
            "answer": tf.where(none, "", answers[0]),
            "start": tf.where(none, -1, starts[0]),
            "end": tf.where(none, -1, ends[0]),
            "score": tf.where(none, 0.7, SCORES[0]),
            "no_answer_probability": tf.where(none, 0.7, 0.1),
            "n_best_answers": rows_of(answers),
            "n_best_scores": rows_of([*SCORES, 0.0]),
            "n_best_starts": rows_of([*starts, -1]),
            "n_best_ends": rows_of([*ends, -1]),
        }

    @tf.function(input_signature=[_text()])
    def several(self, text):
        scores = [0.9999, 0.75, 0.25, 0.0001]
        rows = [tf.size(text), 1]
        return {
            "label": tf.fill([tf.size(text)], f"{EVIL},b"),
            "labels": tf.tile(tf.constant([[EVIL, "b", "c", "d"]]), rows),
            "scores": tf.tile(tf.constant([scores]), rows),
            "holds": tf.tile(tf.constant([[True, True, False, False]]), rows),
            "logits": tf.zeros([tf.size(text), 4]),
        }

    @tf.function(input_signature=[_text()])
    def many(self, text):
        logits = tf.range(14.0)
        rows = [tf.size(text), 1]
        names = [f"label {number}" for number in range(14)]
        return {
            "labels": tf.tile(tf.constant([names]), rows),
            "probabilities": tf.tile(tf.nn.softmax(logits)[None], rows),
        }

    @tf.function(input_signature=[_text()])
    def embed(self, text):
        """A vector of two: how many characters, and how many are blanks."""
        length = tf.strings.length(text, "UTF8_CHAR")
        full = tf.strings.regex_replace(text, " ", "")
        full = tf.strings.length(full, "UTF8_CHAR")
        mean = tf.cast(tf.stack([length, length - full], 1), tf.float32)
        return {"mean": mean, "cls": -mean}

    @tf.function(input_signature=[_text()])
    def short(self, text):
        long = tf.strings.length(text) > 10
        message = "text: the text of row 0 takes 11 windows; at most 10"
        check = tf.debugging.Assert(~tf.reduce_any(long), [message])
        with tf.control_dependencies([check]):
            return {"echo": tf.identity(text)}

    @tf.function(
        input_signature=[
            _text(),
            tf.TensorSpec([None, None], tf.string, name="labels"),
            _text("template"),
        ]
    )
    def zero_shot(self, text, labels, template):
        """The label is what is given; the longest has the largest share."""
        lengths = tf.cast(tf.strings.length(labels), tf.float32)
        return {
            "label": tf.strings.join([template, text], "|"),
            "labels": labels,
            "probabilities": tf.nn.softmax(lengths),
            "scores": tf.sigmoid(lengths),
        }
