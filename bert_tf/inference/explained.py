"""What is explained: the rows that a model reads, and a number made of them.

The number is, of whatever a model chooses among, the log odds of the target,
ln(p / (1 - p)): unlike a logit it does not change where all logits grow by the
same, and unlike a probability it does not stop changing near 1.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from bert_tf.checkpoints.parts import (
    HEADS_ON_POOLER,
    TASK_HEADS,
)
from bert_tf.errors import UserError, did_you_mean, excerpt
from bert_tf.families.multiple_choice.answers import ChoiceModel
from bert_tf.families.question_answering.answers import SpanModel
from bert_tf.families.requests import valid_text
from bert_tf.families.row_computer import Tensors
from bert_tf.families.sentence_vectors import ACTIVATIONS
from bert_tf.families.text_classification.answers import SentenceModel
from bert_tf.families.text_model import Answer, TextModel, encoder_of
from bert_tf.families.token_classification.answers import (
    TagModel,
    WordFinder,
    places,
)
from bert_tf.text.packing import TokenIds, Tokenizer
from bert_tf.text.packing_graph import (
    most_context,
    pack_rows,
    row_lengths,
    take,
    token_ids,
    truncate,
)

LOG_ODDS, SCORE = "log odds", "score"
# Tokens, padding included, that go through a model at a time.
TOKENS_AT_ONCE = 2048
# Of one answer: its gradient keeps what was computed of all of them, and its
# attention is as many numbers for each of them in every head.
_MAX_TOKENS = 2048
Target = str | int | None


class Place(NamedTuple):
    """A word's place in a text.

    Attributes:
      column: the text's name.
      start: its first character.
      end: its exclusive end.
    """

    column: str
    start: int
    end: int


class Subject(NamedTuple):
    """An answer to be explained.

    Attributes:
      texts: what was asked, by name.
      words: their words, whether the model reads them or not.
      inputs: the encoder's, int32 [R, S], of the rows that the answer is from.
      owner: int [R, S], the word that each token is of; -1 of [CLS], [SEP]
        and padding.
      target: what is explained, in words.
      unit: what is measured, `LOG_ODDS` or `SCORE`.
      measure: from logits, float32 [M, R, ...] or [M, R, S, ...], to it, [M].
    """

    texts: dict[str, str]
    words: tuple[Place, ...]
    inputs: Tensors
    owner: np.ndarray
    target: str
    unit: str
    measure: Callable[[tf.Tensor], tf.Tensor]


class Forward:
    """From a model's inputs to the logits of its head.

    Unlike the model itself it takes word_embeddings.

    Args:
      model: a model of one task on an encoder.
    """

    def __init__(self, model: keras.Model):
        self.encoder = encoder_of(model)
        (self._head,) = (x for x in model.layers if x.name in TASK_HEADS)

    def __call__(self, inputs: Mapping[str, Any]) -> tf.Tensor:
        """The logits, float32 [R, C], or [R, S, C] of a head on tokens."""
        outputs = self.encoder(inputs, training=False)
        if self._head.name in HEADS_ON_POOLER:
            return self._head(outputs["pooled_output"])
        return self._head(outputs["sequence_output"])

    def in_blocks(self, inputs: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """The same of any number of rows, some at a time."""
        count, length = inputs["input_ids"].shape
        size = max(TOKENS_AT_ONCE // length, 1)
        return tf.concat(
            [
                self({n: v[begin : begin + size] for n, v in inputs.items()})
                for begin in range(0, count, size)
            ],
            0,
        )


class TokenizedTexts:
    """Texts in a row's place A or B: their tokens and words.

    Args:
      tokenizer: of the model.
      find_words: finds the words.
      texts: by name.
      num_before: words that are counted before these.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        find_words: WordFinder,
        texts: Mapping[str, str],
        num_before: int = 0,
    ):
        self.texts = dict(texts)
        strings = valid_text(tf.constant(list(texts.values())))
        ids, begins, ends = tokenizer.tokenize_with_offsets(strings)
        codes = tf.strings.unicode_decode(strings, "UTF-8")
        self.found = find_words(codes, ids, begins, ends)
        self.tokens = token_ids(ids)
        self.begins, self.ends = begins.flat_values, ends.flat_values
        names = list(texts)
        self.words = tuple(
            Place(names[row], start, end)
            for row, start, end in zip(
                self.found.row.numpy().tolist(),
                self.found.begin.numpy().tolist(),
                self.found.end.numpy().tolist(),
                strict=True,
            )
        )
        count = np.arange(len(self.begins))
        self.owner = (
            num_before
            - 1
            + np.searchsorted(self.found.token.numpy(), count, side="right")
        )

    def range_of(self, start: int, end: int) -> tuple[int, int]:
        """The tokens of a stretch of characters, as begin and end."""
        first = np.searchsorted(self.ends, start, side="right")
        return int(first), int(np.searchsorted(self.begins, end))


def subject_of(
    served: TextModel,
    forward: Forward,
    row: Mapping[str, Any],
    answer: Answer,
    target: Target,
) -> Subject:
    """What is to be explained of a model's answer.

    Args:
      served: the model.
      forward: its computation.
      row: what was asked, by column.
      answer: what it answered.
      target: see `LoadedModel.explain`.

    Raises:
      UserError: the target is none of the model's, or nothing is left to
        explain.
    """
    if isinstance(served, SentenceModel):
        found = _of_sentences(served, row, answer, target)
    elif isinstance(served, SpanModel):
        found = _of_span(served, forward, row, answer, target)
    elif isinstance(served, TagModel):
        found = _of_tags(served, forward, row, answer, target)
    else:
        assert isinstance(served, ChoiceModel)
        found = _of_choice(served, row, answer, target)
    check_size(served, found)
    return found


def check_size(served: TextModel, found: Subject) -> None:
    """Raises `UserError` where there is nothing to explain, or too much."""
    columns = " and ".join(f"`{name}`" for name in served.columns)
    if (found.owner < 0).all():
        raise UserError(f"{columns}: no word that could be explained.")
    if found.owner.size > _MAX_TOKENS:
        raise UserError(
            f"{columns}: the model reads {len(found.owner)} rows of up to "
            f"{found.owner.shape[1]} tokens; at most {_MAX_TOKENS:,} tokens "
            "can be explained. Shorten it."
        )


def log_odds(logits: tf.Tensor, target: int) -> tf.Tensor:
    """ln(p / (1 - p)) of one of C classes, [...], of logits [..., C]."""
    others = tf.concat([logits[..., :target], logits[..., target + 1 :]], -1)
    return logits[..., target] - tf.reduce_logsumexp(others, -1)


def _of_sentences(
    served: SentenceModel,
    row: Mapping[str, Any],
    answer: Answer,
    target: Target,
) -> Subject:
    names = served.columns
    find_words = WordFinder(served.tokenizer, "text")
    first = TokenizedTexts(served.tokenizer, find_words, {"text": row["text"]})
    second = None
    if len(names) == 2:
        second = TokenizedTexts(
            served.tokenizer,
            find_words,
            {"text_b": row["text_b"]},
            len(first.words),
        )
    _, *rows = served.rows(first.tokens, second.tokens if second else None)
    labels = served.labels
    if not labels:
        if target is not None:
            raise UserError(
                f"`target`={target}: this model gives a score and has no "
                "labels; leave it out."
            )

        def measure(logits: tf.Tensor) -> tf.Tensor:
            scores = tf.reduce_mean(logits, 1)[:, 0]
            return ACTIVATIONS[served.activation](scores)

        return _subject(served, first, second, rows, SCORE, SCORE, measure)
    probabilities = answer["probabilities"]
    label = max(probabilities, key=probabilities.__getitem__)
    if target is not None:
        label = str(target)
    if label not in labels:
        raise UserError(
            f"`target`={label}: is no label of this model; they are "
            f"{', '.join(labels)}.{did_you_mean(label, labels, repr)}"
        )
    number = labels.index(label)
    if served.threshold is None:
        _check_others(len(labels))

    def measure_label(logits: tf.Tensor) -> tf.Tensor:
        # Over the windows of a long text.
        logits = tf.reduce_mean(logits, 1)
        if served.threshold is not None:
            return logits[:, number]
        return log_odds(logits, number)

    return _subject(served, first, second, rows, label, LOG_ODDS, measure_label)


def _of_span(
    served: SpanModel,
    forward: Forward,
    row: Mapping[str, Any],
    answer: Answer,
    target: Target,
) -> Subject:
    find_words = WordFinder(served.tokenizer, "text")
    question, context = row["question"], row["context"]
    first = TokenizedTexts(served.tokenizer, find_words, {"question": question})
    second = TokenizedTexts(
        served.tokenizer, find_words, {"context": context}, len(first.words)
    )
    windows, *rows = served.rows(first.tokens, second.tokens)
    if not len(windows.text):
        raise UserError("`context`: no word that could be explained.")
    start, end = answer["start"], answer["end"]
    if target is not None:
        start = context.find(str(target)) if target else -1
        end = start + len(str(target))
    if start < 0 and target:
        raise UserError(
            f"`target`={excerpt(target)}: is not in `context`; give an answer "
            'that is, or "" for there being none.'
        )
    if start < 0:
        # Of all windows that one where no answer is the least likely counts.
        inputs = _inputs(served, rows)
        logits = forward.in_blocks(inputs)
        window = int(tf.argmin(tf.reduce_sum(logits[:, 0], -1)))
        places_of = 0, 0
    else:
        begin, stop = second.range_of(start, end)
        own_begin, own_end = most_context(windows)
        owned = (windows.offset + own_begin <= begin) & (
            begin < windows.offset + own_end
        )
        window = int(tf.argmax(owned))
        if stop > int((windows.offset + windows.count)[window]):
            raise UserError(
                f"`target`={excerpt(target)}: is longer than what the model "
                "reads at a time."
            )
        before = served.tokenizer.packing.before_second(rows[0].count)
        shift = int((before - windows.offset)[window])
        places_of = begin + shift, stop - 1 + shift

    def measure(logits: tf.Tensor) -> tf.Tensor:
        starts, ends = tf.unstack(logits[:, 0], axis=-1)
        return log_odds(starts, places_of[0]) + log_odds(ends, places_of[1])

    return _subject(
        served,
        first,
        second,
        [take(texts, tf.constant([window])) for texts in rows],
        context[start:end] if start >= 0 else "no answer",
        LOG_ODDS,
        measure,
    )


def _of_tags(
    served: TagModel,
    forward: Forward,
    row: Mapping[str, Any],
    answer: Answer,
    target: Target,
) -> Subject:
    text, entities = row["text"], answer["entities"]
    first = TokenizedTexts(served.tokenizer, served.find_words, {"text": text})
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
    windows, read = served.rows(first.tokens)
    before = len(served.tokenizer.packing.begin)
    asked = places(first.found, first.tokens, windows, before).numpy()
    # The words whose first tokens these are, in the window of the first one.
    words = np.unique(first.owner[begin:stop])
    window = int(asked[words[0], 0])
    positions = asked[words[asked[words, 0] == window], 1].tolist()
    rows = [take(read, tf.constant([window])), None]
    logits = tf.gather(forward(_inputs(served, rows))[0], positions)
    tags = tf.argmax(logits, -1).numpy().tolist()
    _check_others(len(served.labels))

    def measure(logits: tf.Tensor) -> tf.Tensor:
        odds = [
            log_odds(logits[:, 0, position], tag)
            for position, tag in zip(positions, tags, strict=True)
        ]
        return tf.add_n(odds) / len(odds)

    names = " ".join(served.labels[tag] for tag in tags)
    title = f"{names}: {text[start:end]}"
    return _subject(served, first, None, rows, title, LOG_ODDS, measure)


def _of_choice(
    served: ChoiceModel,
    row: Mapping[str, Any],
    answer: Answer,
    target: Target,
) -> Subject:
    # "" stands for no choice.
    given = {n: each for n, each in enumerate(row["choices"]) if each}
    number = answer["choice"] if target is None else target
    if isinstance(number, str):
        texts = {each: n for n, each in reversed(given.items())}
        is_number = number not in texts and number.isdecimal()
        number = int(number) if is_number else texts.get(number, number)
    if number not in given:
        raise UserError(
            f"`target`={excerpt(target)}: is no choice; give the number of "
            "one, from 0, or its text."
        )
    _check_others(len(given))
    place = list(given).index(number)
    start = f"{row['start']} " if "start" in row else ""
    endings = {f"choices[{n}]": start + each for n, each in given.items()}
    find_words = WordFinder(served.tokenizer, "text")
    first = TokenizedTexts(served.tokenizer, find_words, {"text": row["text"]})
    second = TokenizedTexts(
        served.tokenizer, find_words, endings, len(first.words)
    )
    rows = truncate(
        take(first.tokens, tf.zeros(len(given), tf.int32)),
        second.tokens,
        served.max_seq_length - served.tokenizer.packing.num_special(2),
    )

    def measure(logits: tf.Tensor) -> tf.Tensor:
        return log_odds(logits[:, :, 0], place)

    return _subject(
        served, first, second, rows, given[number], LOG_ODDS, measure
    )


def _check_others(count: int) -> None:
    if count < 2:
        raise UserError(
            "`target`: the model has nothing else to choose, so its answer "
            "does not depend on the text."
        )


def _inputs(
    served: TextModel, rows: Sequence[TokenIds | None]
) -> dict[str, tf.Tensor]:
    """The encoder's inputs of rows."""
    first, second = rows
    assert first is not None
    packing = served.tokenizer.packing
    length = tf.reduce_max(row_lengths(first, second, packing))
    return pack_rows(first, second, packing, length)


def _subject(
    served: TextModel,
    first: TokenizedTexts,
    second: TokenizedTexts | None,
    rows: Sequence[TokenIds | None],
    target: str,
    unit: str,
    measure: Callable[[tf.Tensor], tf.Tensor],
) -> Subject:
    """A subject of rows of one or two texts."""
    inputs, packing = _inputs(served, rows), served.tokenizer.packing
    owner = np.full(inputs["input_ids"].shape, -1)
    for number, places_of_row in enumerate(owner):
        begin = len(packing.begin)
        for texts, read in zip((first, second), rows, strict=True):
            if texts is None or read is None:
                continue
            count, start = int(read.count[number]), int(read.begin[number])
            places_of_row[begin : begin + count] = texts.owner[
                start : start + count
            ]
            begin += count + len(packing.middle)
    return Subject(
        {**first.texts, **(second.texts if second else {})},
        (*first.words, *(second.words if second else ())),
        inputs,
        owner,
        target,
        unit,
        measure,
    )
