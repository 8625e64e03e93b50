"""Attributes an answer to the words of its input.

Integrated gradients (Sundararajan et al. 2017, equation 1) of the word
embeddings, before segments and positions are added: the gradient, averaged
along the straight line from a baseline of [MASK]s, times the difference from
the embedding of [MASK]. The attributions of all words add up to the difference
of the scores of text and baseline (proposition 1, completeness), up to the
quadrature error, reported as completeness_error. Occlusion (Zeiler and Fergus
2014, section 4) replaces each word in turn by [MASK].
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError, check_choice, whole_number
from bert_tf.families import part_of
from bert_tf.families.explained import (
    TOKENS_AT_ONCE,
    Forward,
    Subject,
    Target,
    check_size,
)
from bert_tf.families.text_model import Answer, TextModel
from bert_tf.features import ENCODER_INPUTS
from bert_tf.inference.explanation import (
    INTEGRATED_GRADIENTS,
    Explanation,
    ReadRow,
    Word,
)
from bert_tf.progress import Progress, log

OCCLUSION = "occlusion"
METHODS = (INTEGRATED_GRADIENTS, OCCLUSION)
# Numbers of steps, increased until the error is small enough.
_STEPS = (32, 64, 128, 256, 512, 1024)
_SMALL_ERROR = 0.01
# Smaller differences are rounding errors.
_LEAST_DIFFERENCE = 1e-4


def check_settings(served: TextModel, method: str, steps: int | None) -> None:
    """Raises `UserError` if the model or the method cannot explain answers."""
    if part_of(type(served), "explained") is None:
        raise UserError(
            f"`folder`: answers of {served.task} are not explained."
        )
    if not served.explains:
        raise UserError(
            "`folder`: its model was not fine-tuned for a task, and gives no "
            "answer that could be explained."
        )
    check_choice("`method`", method, METHODS)
    if steps is None:
        return
    if method == OCCLUSION:
        raise UserError(
            f"`steps`={steps}: occlusion has none; leave it out, or take "
            f"`method`={INTEGRATED_GRADIENTS}."
        )
    whole_number("steps", steps, 1, _STEPS[-1])


def explain(
    served: TextModel,
    row: Mapping[str, Any],
    answer: Answer,
    target: Target,
    method: str,
    steps: int | None,
) -> Explanation:
    """Explains an answer; see `LoadedModel.explain`.

    Args:
      served: a model that `check_settings` accepts.
      row: the input by column.
      answer: the model's answer.
      target: the part of the answer to explain.
      method: one of `METHODS`.
      steps: quadrature nodes; None increases them until the error is small.
    """
    forward = Forward(served.model)
    explained: Any = part_of(type(served), "explained")
    subject = explained.subject_of(served, row, answer, target)
    check_size(served, subject)
    of_logits, temperature = subject.measure, served.calibration_temperature
    subject = subject._replace(
        measure=lambda logits: of_logits(logits / temperature)
    )
    mask = served.tokenizer.vocabulary.blank_id
    ids, is_word = subject.inputs["input_ids"], subject.owner >= 0
    both = tf.stack([ids, tf.where(is_word, mask, ids)])
    score, baseline = _scores(forward, subject, both).tolist()
    read = np.unique(subject.owner[is_word])
    error = None
    if method == INTEGRATED_GRADIENTS:
        tokens, steps, error = _integrated_gradients(
            forward, subject, mask, score - baseline, steps
        )
        attributions = np.zeros(len(subject.words))
        np.add.at(attributions, subject.owner[is_word], tokens[is_word])
        attributions = attributions[read]
    else:
        occluded = subject.owner == read[:, None, None]
        scores = _scores(forward, subject, tf.where(occluded, mask, ids))
        attributions = score - scores
    total = np.abs(attributions).sum() or 1.0
    words = [subject.words[number] for number in read]
    return Explanation(
        texts=subject.texts,
        target=subject.target,
        unit=subject.unit,
        score=score,
        baseline_score=baseline,
        method=method,
        steps=steps,
        completeness_error=error,
        words=tuple(
            Word(
                subject.texts[word.column][word.start : word.end],
                word.column,
                word.start,
                word.end,
                float(value),
                float(value / total),
            )
            for word, value in zip(words, attributions, strict=True)
        ),
        num_unread=len(subject.words) - len(read),
        rows=_attention(served, forward, subject),
    )


def _scores(forward: Forward, subject: Subject, ids: tf.Tensor) -> np.ndarray:
    """Scores M variants of the token ids, int32 [M, R, S]: float64 [M]."""
    count, rows, length = ids.shape
    logits = forward.in_blocks(
        {
            **{n: tf.tile(v, [count, 1]) for n, v in subject.inputs.items()},
            "input_ids": tf.reshape(ids, [-1, length]),
        }
    )
    logits = tf.reshape(logits, [count, rows, *logits.shape[1:]])
    return np.asarray(subject.measure(logits), np.float64)


def _integrated_gradients(
    forward: Forward,
    subject: Subject,
    mask: int,
    difference: float,
    steps: int | None,
) -> tuple[np.ndarray, int, float]:
    """Returns attributions of tokens [R, S], steps and relative error."""
    counts = (steps,) if steps else _STEPS
    for count in counts:
        with Progress(
            "explaining", count, 0, " steps", passing=True
        ) as progress:
            attributions = _quadrature(forward, subject, mask, count, progress)
        missing = abs(attributions.sum() - difference)
        error = missing / max(abs(difference), _LEAST_DIFFERENCE)
        if error < _SMALL_ERROR:
            break
    if error >= _SMALL_ERROR:
        log(
            f"integrated gradients: after {count} steps the words' shares "
            f"are {100 * error:.1f} % off what they should add up to; compare "
            "them with `method`=occlusion."
        )
    return attributions, count, float(error)


def _quadrature(
    forward: Forward,
    subject: Subject,
    mask: int,
    steps: int,
    progress: Progress,
) -> np.ndarray:
    """Integrates the gradients by Gauss-Legendre quadrature, float64 [R, S].

    For smooth gradients its error falls faster than that of equal steps.
    """
    rows, length = subject.owner.shape
    table = forward.encoder.embeddings.word_table.value
    words = tf.cast(tf.gather(table, subject.inputs["input_ids"]), tf.float32)
    start = tf.cast(table[mask], tf.float32)
    start = tf.where(subject.owner[..., None] >= 0, start, words)
    change = words - start
    # On [-1, 1], with weights that add up to 2.
    nodes, weights = np.polynomial.legendre.leggauss(steps)
    nodes, weights = (nodes + 1) / 2, weights / 2
    size = max(TOKENS_AT_ONCE // (rows * length), 1)
    total = np.zeros(change.shape)
    for begin in range(0, steps, size):
        fraction = nodes[begin : begin + size].astype(np.float32)
        path = start + fraction[:, None, None, None] * change
        inputs = {
            name: tf.tile(value, [len(fraction), 1])
            for name, value in subject.inputs.items()
        }
        with tf.GradientTape() as tape:
            tape.watch(path)
            embeddings = tf.reshape(path, [-1, *path.shape[2:]])
            logits = forward({**inputs, "word_embeddings": embeddings})
            shape = [len(fraction), rows, *logits.shape[1:]]
            logits = tf.reshape(logits, shape)
            score = subject.measure(logits)
        gradient = np.asarray(tape.gradient(score, path), np.float64)
        part = weights[begin : begin + size]
        total += np.tensordot(part, gradient, 1)
        progress.update(len(fraction))
    return (total * change.numpy()).sum(-1)


def _attention(
    served: TextModel, forward: Forward, subject: Subject
) -> tuple[ReadRow, ...]:
    """Returns tokens and attention probabilities of each row, unpadded."""
    names = [feature.name for feature in ENCODER_INPUTS]
    outputs = forward.encoder(
        {name: subject.inputs[name] for name in names},
        training=False,
        return_attention_probs=True,
    )
    layers = np.stack(
        [np.asarray(p, np.float32) for p in outputs["attention_probs"]]
    )
    vocabulary = served.tokenizer.vocabulary
    rows = []
    for number, ids in enumerate(subject.inputs["input_ids"].numpy()):
        length = int(tf.reduce_sum(subject.inputs["input_mask"][number]))
        rows.append(
            ReadRow(
                tuple(vocabulary.tokens[token] for token in ids[:length]),
                tuple(vocabulary.texts[token] for token in ids[:length]),
                layers[:, number, :, :length, :length],
            )
        )
    return tuple(rows)
