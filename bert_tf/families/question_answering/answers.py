"""Questions about a text: question and context in, an answer out."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError, whole_number
from bert_tf.families.question_answering.answer_texts import (
    Candidates,
    Characters,
    ContextCharacters,
    best_answers,
    score_of,
)
from bert_tf.families.question_answering.config import QuestionAnsweringConfig
from bert_tf.families.requests import (
    QUESTIONS,
    Request,
    Tensors,
    checked_windows,
    equal_rows,
    requests_of,
    sample_lengths,
    sample_text,
    valid_text,
)
from bert_tf.families.text_model import (
    SERVING_DEFAULT,
    Answer,
    TextModel,
    encoder_of,
    largest,
)
from bert_tf.text.layout import (
    HOST,
    TokenIds,
    Windows,
    most_context,
    pack_rows,
    take,
    token_ids,
    tokenize,
)
from bert_tf.text.token_table import Packing
from bert_tf.text.tokenizer_protocol import Tokenizer


class SpanModel(TextModel):
    """A model that marks answers in a context, which takes text.

    Signatures:
      serving_default: question and context, string [B] -> answer, string [B];
        start and end, int32 [B], where it stands in the context, in
        characters; score, float32 [B], its share among the n best;
        no_answer_probability, float32 [B], the share of there being none;
        n_best_answers, string [B, n], n_best_scores, float32 [B, n], and
        n_best_starts and n_best_ends, int32 [B, n], the best first. Where
        there is no answer, answer is "" and start and end are -1; unused
        places among the n best have "", 0 and -1. As in run_squad.py, an
        answer begins and ends with a token, which may be part of a word.
      tokens: input_ids, input_mask, segment_ids, int32 [B, S] ->
        start_logits and end_logits, float32 [B, S].

    Args:
      model: from the encoder's inputs to start_logits and end_logits.
      tokenizer: the tokenizer it was trained with.
      config: how it is used.
      max_windows: of a context; longer ones are refused.

    Raises:
      UserError: see `TextModel`; or lengths that leave no room or are not
        positive.
    """

    def __init__(
        self,
        model: keras.Model,
        tokenizer: Tokenizer,
        config: QuestionAnsweringConfig,
        max_windows: int = 128,
    ):
        length = config.max_seq_length
        super().__init__(model, encoder_of(model), tokenizer, length)
        for name in (
            "doc_stride",
            "max_query_length",
            "max_answer_length",
            "n_best_size",
        ):
            whole_number(name, getattr(config, name), 1)
        self._room = length - tokenizer.packing.num_special(2)
        if self._room <= config.max_query_length:
            raise UserError(
                f"max_seq_length={length}: leaves no room for a context beside "
                f"a question of {config.max_query_length} tokens "
                "(max_query_length) and special ones."
            )
        self._characters = ContextCharacters(tokenizer)
        self.usage, self._max_windows = config, max_windows
        if config.with_null:
            self.threshold = config.null_threshold

    task = "question answering"

    @property
    def columns(self) -> tuple[str, ...]:
        """question and context."""
        return ("question", "context")

    def requests(self) -> list[Request]:
        """Contexts of several lengths, one of them of several windows."""
        lengths = sample_lengths(self.max_seq_length)
        contexts = [sample_text(n) for n in (*lengths, 2 * lengths[-1])]
        questions = list(
            itertools.islice(itertools.cycle(QUESTIONS), len(contexts))
        )
        return requests_of(
            SERVING_DEFAULT, question=questions, context=contexts
        )

    def answers(self, question: tf.Tensor, context: tf.Tensor) -> Tensors:
        """The outputs of serving_default; see the class."""
        with tf.device(HOST):
            question, context = equal_rows(question=question, context=context)
            context = valid_text(context)
            tokens = self.tokenizer.tokenize_with_offsets(context)
            rows = self.rows(
                tokenize(self.tokenizer, question), token_ids(tokens[0])
            )
            packing = self.tokenizer.packing
            packed = pack_rows(rows.first, rows.second, packing)
            # [CLS] is read also where there is no row.
            width = tf.maximum(largest(packed.lengths), 1)
        logits = self.compute(
            rows.first,
            rows.second,
            lambda inputs, chosen: self.forward(inputs),
            {"start_logits": (None,), "end_logits": (None,)},
            width,
        )
        with tf.device(HOST):
            found = span_answers(
                self._characters(context, *tokens),
                rows,
                tf.range(tf.size(context)),
                (logits["start_logits"], logits["end_logits"]),
                packing,
                self.usage.n_best_size,
                self.usage.max_answer_length,
                self.threshold is not None,
            )
            answered = found["n_best_starts"][:, 0] >= 0
            if self.threshold is not None:
                answered &= found["null_odds"] <= self.threshold
            null_share = found["no_answer_probability"]
            shares = found["n_best_scores"]
            return {
                "answer": tf.where(answered, found["n_best_answers"][:, 0], ""),
                "score": tf.cast(
                    tf.where(answered, shares[:, 0], null_share), tf.float32
                ),
                "start": tf.where(answered, found["n_best_starts"][:, 0], -1),
                "end": tf.where(answered, found["n_best_ends"][:, 0], -1),
                "no_answer_probability": tf.cast(null_share, tf.float32),
                "n_best_answers": found["n_best_answers"],
                "n_best_scores": tf.cast(shares, tf.float32),
                "n_best_starts": found["n_best_starts"],
                "n_best_ends": found["n_best_ends"],
            }

    def rows(self, question: TokenIds, context: TokenIds) -> "SpanRows":
        """The rows of questions on contexts; see `span_rows`."""
        return span_rows(
            question,
            context,
            self._room,
            self.usage.doc_stride,
            self.usage.max_query_length,
            self._max_windows,
        )

    def to_answers(
        self,
        outputs: Mapping[str, np.ndarray],
        rows: Sequence[Mapping[str, Any]],
    ) -> list[Answer]:
        """The best answer with its place and score, and that of none."""
        names = ("answer", "start", "end", "score", "no_answer_probability")
        columns = [outputs[name].tolist() for name in names]
        return [
            {**dict(zip(names, row, strict=True)), "answer": row[0].decode()}
            for row in zip(*columns, strict=True)
        ]

    def answer_tokens(self, inputs: Tensors) -> Tensors:
        """See the class."""
        return self.forward(inputs)


class SpanRows(NamedTuple):
    """W rows of questions with windows of their contexts.

    Attributes:
      windows: of the contexts, by question.
      first: the question of each row.
      second: the tokens of its window.
    """

    windows: Windows
    first: TokenIds
    second: TokenIds


def span_rows(
    question: TokenIds,
    context: TokenIds,
    room: int,
    doc_stride: int,
    max_query_length: int,
    max_windows: int = tf.int32.max,
) -> SpanRows:
    """Makes a row of each window that shows a part of a context.

    The rules are those of google-research/bert, run_squad.py,
    `convert_examples_to_features`: [CLS] question [SEP] window [SEP], a window
    every `doc_stride` tokens until one reaches the end of the context. A
    context without tokens has none.

    Args:
      question: B questions.
      context: their B contexts.
      room: tokens of question and window.
      doc_stride: tokens from the start of a window to that of the next; where
        it is longer than a window, windows follow one another.
      max_query_length: the longest question; others are truncated.
      max_windows: of a context; longer ones are refused.
    """
    count = tf.minimum(question.count, max_query_length)
    windows = checked_windows(
        context.count, room - count, doc_stride, max_windows, "context", empty=0
    )
    row = windows.text
    return SpanRows(
        windows,
        take(question, row, count=tf.gather(count, row)),
        take(context, row, windows.offset, windows.count),
    )


def span_answers(
    characters: Characters,
    rows: SpanRows,
    context: tf.Tensor,
    logits: tuple[tf.Tensor, tf.Tensor],
    packing: Packing,
    n_best_size: int,
    max_answer_length: int,
    with_null: bool,
) -> Tensors:
    """The best answers of B questions; see `best_answers`.

    Args:
      characters: of C contexts.
      rows: of the questions.
      context: int32 [B], the context of each question.
      logits: start and end logits, float32 [W, S], S > 0.
      packing: what frames the rows.
      n_best_size: n, how many answers are kept, and how many starts and ends
        of a window are tried.
      max_answer_length: the most tokens of an answer.
      with_null: whether a question may have no answer.
    """
    return best_answers(
        _candidates(rows, logits, packing, n_best_size, max_answer_length),
        _null_logits(rows.windows, logits, tf.size(context)),
        characters,
        context,
        n_best_size,
        with_null,
    )


def _candidates(
    rows: SpanRows,
    logits: tuple[tf.Tensor, tf.Tensor],
    packing: Packing,
    n_best_size: int,
    max_answer_length: int,
) -> Candidates:
    """The spans that run_squad.py's `write_predictions` considers.

    Unlike there, the padding behind a window takes no place among the best
    positions.
    """
    windows, question, second = rows
    before = packing.before_second(question.count)
    lengths = before + second.count + len(packing.end)
    starts, ends = (
        _best_positions(each, lengths, n_best_size) for each in logits
    )
    # A window answers with what begins where it shows most context, and ends
    # in the context.
    own_begin, own_end, end = (
        bound[:, tf.newaxis]
        for bound in (
            *(before + bound for bound in most_context(windows)),
            before + second.count,
        )
    )
    is_start = (own_begin <= starts) & (starts < own_end)
    first = tf.where(is_start, starts, tf.int32.max)[:, :, tf.newaxis]
    more = tf.where(ends < end, ends, -1)[:, tf.newaxis] - first
    fits = tf.where((more >= 0) & (more < max_answer_length))
    window, i, j = tf.unstack(tf.cast(fits, tf.int32), num=3, axis=1)
    begin, last = _at(starts, window, i), _at(ends, window, j)
    shift = tf.gather(second.begin - before, window)
    found = Candidates(
        tf.gather(windows.text, window),
        begin + shift,
        last + shift,
        _at(logits[0], window, begin),
        _at(logits[1], window, last),
    )
    # The order of what is equal is the original's: window, start, end.
    order = tf.argsort(-found.score, stable=True)
    question = tf.gather(found.question, order)
    return found.take(tf.gather(order, tf.argsort(question, stable=True)))


def _at(values: tf.Tensor, row: tf.Tensor, column: tf.Tensor) -> tf.Tensor:
    return tf.gather_nd(values, tf.stack([row, column], 1))


def _best_positions(
    logits: tf.Tensor, lengths: tf.Tensor, count: int
) -> tf.Tensor:
    """The positions of the highest logits, the first of equal ones first.

    Returns:
      int32 [W, K], past a row's end where it is short.
    """
    width = tf.shape(logits)[1]
    in_row = tf.range(width) < lengths[:, tf.newaxis]
    masked = tf.where(in_row, logits, -float("inf"))
    return tf.math.top_k(masked, tf.minimum(count, width)).indices


def _null_logits(
    windows: Windows, logits: tuple[tf.Tensor, tf.Tensor], questions: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Start and end logit of [CLS] in the window where they are least together.

    Returns:
      Both float32 [B]; 0 where there is no window.
    """
    start, end = (each[:, 0] for each in logits)
    score = score_of(start, end)
    least = tf.math.unsorted_segment_min(score, windows.text, questions)
    number, none = tf.range(tf.size(score)), tf.size(score)
    number = tf.where(score == tf.gather(least, windows.text), number, none)
    number = tf.math.unsorted_segment_min(number, windows.text, questions)
    number = tf.minimum(number, none)
    start, end = (
        tf.gather(tf.concat([each, [0.0]], 0), number) for each in (start, end)
    )
    return start, end


def text_model(
    config: QuestionAnsweringConfig, model: keras.Model, tokenizer: Tokenizer
) -> SpanModel:
    """The model that `config.build` made, as one that takes text."""
    return SpanModel(model, tokenizer, config)
