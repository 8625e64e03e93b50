"""Explanations of an entity or of a word's tag."""

import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError, excerpt
from bert_tf.families.explained import (
    Forward,
    Place,
    Subject,
    Target,
    TokenizedTexts,
    check_others,
    encoder_inputs,
    log_odds,
    subject_of_rows,
)
from bert_tf.families.requests import valid_text
from bert_tf.families.text_model import Answer, InputRow
from bert_tf.families.token_classification.answers import TagModel, TextTokens
from bert_tf.text.layout import TokenIds, take


def subject_of(
    served: TagModel, row: InputRow, answer: Answer, target: Target
) -> Subject:
    """Returns what is explained of tags: their mean log odds.

    The target is the text of an entity or word; None is the first entity.

    Raises:
      UserError: the text does not have the target.
    """
    text, entities = row["text"], answer["entities"]
    tokens = served.tokens(valid_text(tf.constant([text])))
    first = _tokenized(text, tokens)
    if target is None and not entities:
        raise UserError(
            "`target` is missing, and the model finds no entity; name a word "
            "of the text, whose tag is explained."
        )
    same = [e for e in entities if target in (None, e["text"])]
    start = same[0]["start"] if same else text.find(str(target))
    end = same[0]["end"] if same else start + len(str(target))
    begin, stop = first.range_of(start, end)
    if start < 0 or begin >= stop:
        raise UserError(
            f"`target`={excerpt(target)}: is not in `text`; give an entity or "
            "a word of it."
        )
    windows = served.rows(tokens)
    # The words of the target in the window that predicts the first of them.
    words = np.unique(first.owner[begin:stop])
    window = windows.row.numpy()[words]
    positions = windows.position.numpy()[words[window == window[0]]]
    positions = (positions + len(served.tokenizer.packing.begin)).tolist()
    rows = [take(windows.texts, tf.constant(window[:1])), None]
    logits = Forward(served.model)(encoder_inputs(served, rows))
    tags = tf.argmax(tf.gather(logits[0], positions), -1).numpy().tolist()
    check_others(len(served.labels))

    def measure(logits: tf.Tensor) -> tf.Tensor:
        odds = [
            log_odds(logits[:, 0, position], tag)
            for position, tag in zip(positions, tags, strict=True)
        ]
        return tf.add_n(odds) / len(odds)

    names = " ".join(served.labels[tag] for tag in tags)
    title = f"{names}: {text[start:end]}"
    return subject_of_rows(served, [first], rows, title, measure)


def _tokenized(text: str, tokens: TextTokens) -> TokenizedTexts:
    """The tokens and words of a single text."""
    _, begin, end, _ = (each.numpy().tolist() for each in tokens.words)
    ids = tokens.ids.flat_values
    return TokenizedTexts(
        {"text": text},
        tuple(Place("text", *place) for place in zip(begin, end, strict=True)),
        TokenIds(ids, tf.constant([0]), tf.size(ids)[tf.newaxis]),
        tokens.begins.flat_values.numpy(),
        tokens.ends.flat_values.numpy(),
        tokens.ids.value_rowids().numpy(),
    )
