"""Questions about a text: question and context in, an answer out."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.families.question_answering.answer_texts import (
    Candidates,
    ContextCharacters,
    best_answers,
)
from bert_tf.families.question_answering.decoding import may_answer
from bert_tf.families.requests import (
    QUESTIONS,
    Request,
    checked_windows,
    equal_rows,
    requests_of,
    sample_lengths,
    sample_text,
    signature,
    text_spec,
    valid_text,
)
from bert_tf.families.row_computer import Tensors, largest
from bert_tf.families.text_model import (
    SERVING_DEFAULT,
    TOKENS,
    Answer,
    TextModel,
    encoder_of,
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
from bert_tf.text.tokenizer_protocol import Tokenizer

if TYPE_CHECKING:
    from bert_tf.families.explained import Forward, Subject, Target


class SpanModel(TextModel):
    """A model that marks answers in a context, which takes text.

    It gives what `finetuning.question_answering` gives: the same windows, best
    spans and texts.

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
      max_seq_length: the longest row.
      doc_stride: tokens from the start of a window to that of the next.
      max_query_length: the longest question; longer ones are truncated.
      max_answer_length: the most tokens of an answer.
      n_best_size: n, and how many starts and ends of a window are tried.
      null_threshold: a question has no answer where having none scores more
        than this above the best answer; None where every one has an answer.
      max_windows: of a context; longer ones are refused.

    Raises:
      UserError: see `TextModel`; or lengths that leave no room or are not
        positive.
    """

    def __init__(
        self,
        model: keras.Model,
        tokenizer: Tokenizer,
        max_seq_length: int = 384,
        doc_stride: int = 128,
        max_query_length: int = 64,
        max_answer_length: int = 30,
        n_best_size: int = 20,
        null_threshold: float | None = None,
        max_windows: int = 128,
    ):
        super().__init__(model, encoder_of(model), tokenizer, max_seq_length)
        for name, value in (
            ("doc_stride", doc_stride),
            ("max_query_length", max_query_length),
            ("max_answer_length", max_answer_length),
            ("n_best_size", n_best_size),
            ("max_windows", max_windows),
        ):
            if value < 1:
                raise UserError(f"{name}={value}: it takes 1 or more.")
        self._room = max_seq_length - tokenizer.packing.num_special(2)
        if self._room <= max_query_length:
            raise UserError(
                f"max_seq_length={max_seq_length}: leaves no room for a "
                f"context beside a question of {max_query_length} tokens "
                "(max_query_length) and special ones."
            )
        self._characters = ContextCharacters(tokenizer)
        self._doc_stride, self._max_windows = doc_stride, max_windows
        self._max_query_length = max_query_length
        self._max_answer_length = max_answer_length
        self._n_best_size = n_best_size
        self.threshold = null_threshold

    task = "question answering"

    @property
    def columns(self) -> tuple[str, ...]:
        """question and context."""
        return ("question", "context")

    def signatures(self) -> dict[str, Callable[..., Tensors]]:
        """See the class."""
        return {
            SERVING_DEFAULT: signature(
                self._from_text, text_spec("question"), text_spec("context")
            ),
            TOKENS: self.tokens_signature(),
        }

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

    def _from_text(self, question: tf.Tensor, context: tf.Tensor) -> Tensors:
        with tf.device(HOST):
            question, context = equal_rows(question=question, context=context)
            context = valid_text(context)
            ids, begins, ends = self.tokenizer.tokenize_with_offsets(context)
            text = token_ids(ids)
            asked = tokenize(self.tokenizer, question)
            windows, first, second = self.rows(asked, text)
            rows = pack_rows(first, second, self.tokenizer.packing)
            lengths = rows.lengths
            # [CLS] is read also where there is no row.
            width = tf.maximum(largest(lengths), 1)
        logits = self.compute(
            first,
            second,
            lambda inputs, chosen: self.forward(inputs),
            {"start_logits": (None,), "end_logits": (None,)},
            width,
        )
        span_logits = logits["start_logits"], logits["end_logits"]
        with tf.device(HOST):
            candidates = find_candidates(
                lengths,
                rows.bounds[1],
                windows,
                text.begin,
                *span_logits,
                self._n_best_size,
                self._max_answer_length,
            )
            return best_answers(
                candidates,
                null_scores(windows, text.count, *span_logits),
                self._characters(context, ids, begins, ends),
                self._n_best_size,
                self.threshold,
            )

    def rows(
        self, question: TokenIds, context: TokenIds
    ) -> tuple[Windows, TokenIds, TokenIds]:
        """The windows on contexts, and the two texts of each row."""
        count = tf.minimum(question.count, self._max_query_length)
        windows = checked_windows(
            context.count,
            self._room - count,
            self._doc_stride,
            self._max_windows,
            "context",
            empty=0,
        )
        row = windows.text
        return (
            windows,
            take(question, row, count=tf.gather(count, row)),
            take(context, row, windows.offset, windows.count),
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

    def subject(
        self,
        forward: "Forward",
        row: Mapping[str, Any],
        answer: Answer,
        target: "Target",
    ) -> "Subject":
        """See `explained.py`."""
        # Whoever asks for answers alone does not load it.
        from bert_tf.families.question_answering.explained import subject_of

        return subject_of(self, forward, row, answer, target)

    def answer_tokens(self, inputs: Tensors) -> Tensors:
        """See the class."""
        return self.forward(inputs)


def find_candidates(
    lengths: tf.Tensor,
    bounds: tuple[tf.Tensor, tf.Tensor],
    windows: Windows,
    context_begin: tf.Tensor,
    start_logits: tf.Tensor,
    end_logits: tf.Tensor,
    n_best_size: int,
    max_answer_length: int,
) -> Candidates:
    """Finds the candidates of B questions.

    Args:
      lengths: int32 [W], tokens of each row.
      bounds: int32 [W], begin and exclusive end of the window in its row.
      windows: the windows on the contexts.
      context_begin: int32 [B], where the tokens of each context begin.
      start_logits: float32 [W, S].
      end_logits: float32 [W, S].
      n_best_size: how many starts and ends of a window are tried.
      max_answer_length: the most tokens of an answer.
    """
    before, after = bounds
    starts = _best_positions(start_logits, lengths, n_best_size)
    ends = _best_positions(end_logits, lengths, n_best_size)
    own_begin, own_end = (
        (before + bound)[:, tf.newaxis, tf.newaxis]
        for bound in most_context(windows)
    )
    fits = tf.where(
        may_answer(
            starts[:, :, tf.newaxis],
            ends[:, tf.newaxis],
            (own_begin, own_end),
            after[:, tf.newaxis, tf.newaxis],
            max_answer_length,
        )
    )
    window, i, j = tf.unstack(tf.cast(fits, tf.int32), num=3, axis=1)
    first = _at(starts, window, i)
    last = _at(ends, window, j)
    score = tf.cast(_at(start_logits, window, first), tf.float64)
    score += tf.cast(_at(end_logits, window, last), tf.float64)
    question = tf.gather(windows.text, window)
    # The order of what is equal is the original's: window, start, end.
    order = tf.argsort(-score, stable=True)
    by_question = tf.argsort(tf.gather(question, order), stable=True)
    order = tf.gather(order, by_question)
    shift = tf.gather(context_begin, question) + tf.gather(
        windows.offset - before, window
    )
    return Candidates(
        tf.gather(question, order),
        tf.gather(first + shift, order),
        tf.gather(last + shift, order),
        tf.gather(score, order),
    )


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


def null_scores(
    windows: Windows,
    num_tokens: tf.Tensor,
    start_logits: tf.Tensor,
    end_logits: tf.Tensor,
) -> tf.Tensor:
    """The score of no answer, in the window where it is the least.

    Args:
      windows: the windows on the contexts.
      num_tokens: int32 [B], those of each context.
      start_logits: float32 [W, S].
      end_logits: float32 [W, S].

    Returns:
      float64 [B]; 0 where there is no window.
    """
    score = tf.cast(start_logits[:, 0], tf.float64)
    score += tf.cast(end_logits[:, 0], tf.float64)
    least = tf.math.unsorted_segment_min(
        score, windows.text, tf.size(num_tokens)
    )
    return tf.where(num_tokens > 0, least, tf.zeros_like(least))
