"""Question answering that takes text: question and context in, answer out."""

import itertools
from typing import TYPE_CHECKING, NamedTuple

import keras
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
    Arrays,
    InputRows,
    TextModel,
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

if TYPE_CHECKING:
    from bert_tf.families.question_answering.recipe import SpanRecipe


class SpanModel(TextModel):
    """A span model that takes text.

    Signatures:
      serving_default: question and context, string [B] -> answer, string [B];
        start and end, int32 [B], in characters of the context; score, float32
        [B], its probability among the n best; no_answer_probability, float32
        [B]; n_best_answers, string [B, n], n_best_scores, float32 [B, n], and
        n_best_starts and n_best_ends, int32 [B, n], best first. If there is no
        answer, answer is "" and start and end are -1; the n best are padded
        with "", 0 and -1. As in run_squad.py, an answer begins and ends with a
        token, which may be part of a word.
      tokens: input_ids, input_mask, segment_ids, int32 [B, S] ->
        start_logits and end_logits, float32 [B, S].

    Args:
      model: from the encoder's inputs to start_logits and end_logits.
      tokenizer: the tokenizer it was trained with.
      config: how the model is used.
      max_windows: windows of a context beyond which it is refused.

    Raises:
      UserError: see `TextModel`; or a length that is not positive or leaves no
        room for a context.
    """

    def __init__(
        self,
        model: keras.Model,
        tokenizer: Tokenizer,
        config: QuestionAnsweringConfig,
        max_windows: int = 128,
    ):
        length = config.max_seq_length
        super().__init__(model, tokenizer, length)
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
    columns = ("question", "context")

    def requests(self) -> list[Request]:
        """Returns contexts of several lengths, one with several windows."""
        lengths = sample_lengths(self.max_seq_length)
        contexts = [sample_text(n) for n in (*lengths, 2 * lengths[-1])]
        endless = itertools.cycle(QUESTIONS)
        questions = list(itertools.islice(endless, len(contexts)))
        return requests_of(
            SERVING_DEFAULT, question=questions, context=contexts
        )

    def answers(self, question: tf.Tensor, context: tf.Tensor) -> Tensors:
        """Computes the outputs of serving_default; see the class."""
        with tf.device(HOST):
            question, context = equal_rows(question=question, context=context)
            context = valid_text(context)
            tokens = self.tokenizer.tokenize_with_offsets(context)
            rows = self.rows(
                tokenize(self.tokenizer, question), token_ids(tokens[0])
            )
            packing = self.tokenizer.packing
            packed = pack_rows(rows.first, rows.second, packing)
            # The logits of [CLS] are read even if there is no row.
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
                self.usage,
            )
            answered = found["n_best_starts"][:, 0] >= 0
            if self.threshold is not None:
                answered &= found["null_odds"] <= self.threshold
            n_best = {
                name: found[f"n_best_{name}"]
                for name in ("answers", "scores", "starts", "ends")
            }
            n_best["scores"] = tf.cast(n_best["scores"], tf.float32)
            no_answer = tf.cast(found["no_answer_probability"], tf.float32)

            def best(name: str, otherwise: tf.Tensor | str | int) -> tf.Tensor:
                return tf.where(answered, n_best[name][:, 0], otherwise)

            return {
                "answer": best("answers", ""),
                "score": best("scores", no_answer),
                "start": best("starts", -1),
                "end": best("ends", -1),
                "no_answer_probability": no_answer,
                **{f"n_best_{name}": each for name, each in n_best.items()},
            }

    def rows(self, question: TokenIds, context: TokenIds) -> "SpanRows":
        """Splits contexts into windows; see `span_rows`."""
        room, most = self._room, self._max_windows
        return span_rows(question, context, room, self.usage, most)

    def to_answers(self, outputs: Arrays, rows: InputRows) -> list[Answer]:
        """Returns the best answer and the probability of no answer."""
        names = ("answer", "start", "end", "score", "no_answer_probability")
        columns = [outputs[name].tolist() for name in names]
        return [
            {**dict(zip(names, row, strict=True)), "answer": row[0].decode()}
            for row in zip(*columns, strict=True)
        ]


class SpanRows(NamedTuple):
    """W rows of questions with windows of their contexts.

    Attributes:
      windows: windows of the contexts, grouped by question.
      first: the question of each row.
      second: the tokens of each window.
    """

    windows: Windows
    first: TokenIds
    second: TokenIds


def span_rows(
    question: TokenIds,
    context: TokenIds,
    room: int,
    config: "QuestionAnsweringConfig | SpanRecipe",
    max_windows: int = tf.int32.max,
) -> SpanRows:
    """Splits contexts into windows and pairs them with their questions.

    The rules are those of google-research/bert, run_squad.py,
    `convert_examples_to_features`: [CLS] question [SEP] window [SEP], a window
    every `doc_stride` tokens until one reaches the end of the context. A
    context without tokens has no window.

    Args:
      question: B questions.
      context: their B contexts.
      room: tokens of question and window.
      config: has the stride of the windows and the length of questions.
      max_windows: windows of a context beyond which it is refused.
    """
    count = tf.minimum(question.count, config.max_query_length)
    left, stride = room - count, config.doc_stride
    windows = checked_windows(
        context.count, left, stride, max_windows, "context", empty=0
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
    config: QuestionAnsweringConfig,
) -> Tensors:
    """Decodes the best answers to B questions; see `best_answers`.

    Args:
      characters: characters of C contexts.
      rows: rows of the questions.
      context: int32 [B], the context of each question.
      logits: start and end logits, float32 [W, S], S > 0.
      packing: special tokens of the rows.
      config: has the number of answers, and of starts and ends of a window
        that are combined.
    """
    return best_answers(
        _candidates(rows, logits, packing, config),
        _null_logits(rows.windows, logits, tf.size(context)),
        characters,
        context,
        config.n_best_size,
        config.with_null,
    )


def _candidates(
    rows: SpanRows,
    logits: tuple[tf.Tensor, tf.Tensor],
    packing: Packing,
    config: QuestionAnsweringConfig,
) -> Candidates:
    """Returns the spans that run_squad.py's `write_predictions` considers.

    Unlike there, padding is never among the best positions.
    """
    windows, question, second = rows
    before = packing.before_second(question.count)
    lengths = before + second.count + len(packing.end)
    starts, ends = (
        _best_positions(each, lengths, config.n_best_size) for each in logits
    )
    # An answer begins where its window has more context than others, and ends
    # within the context.
    own_begin, own_end, end = (
        bound[:, tf.newaxis]
        for bound in (
            *(before + bound for bound in most_context(windows)),
            before + second.count,
        )
    )
    is_start = (own_begin <= starts) & (starts < own_end)
    first = tf.where(is_start, starts, tf.int32.max)[:, :, tf.newaxis]
    distance = tf.where(ends < end, ends, -1)[:, tf.newaxis] - first
    is_span = (distance >= 0) & (distance < config.max_answer_length)
    indices = tf.cast(tf.where(is_span), tf.int32)
    window, i, j = tf.unstack(indices, num=3, axis=1)
    begin, last = _at(starts, window, i), _at(ends, window, j)
    shift = tf.gather(second.begin - before, window)
    found = Candidates(
        tf.gather(windows.text, window),
        begin + shift,
        last + shift,
        _at(logits[0], window, begin),
        _at(logits[1], window, last),
    )
    # Ties are ordered as in run_squad.py: by window, start and end.
    order = tf.argsort(-found.score, stable=True)
    question = tf.gather(found.question, order)
    return found.take(tf.gather(order, tf.argsort(question, stable=True)))


def _at(values: tf.Tensor, row: tf.Tensor, column: tf.Tensor) -> tf.Tensor:
    return tf.gather_nd(values, tf.stack([row, column], 1))


def _best_positions(
    logits: tf.Tensor, lengths: tf.Tensor, count: int
) -> tf.Tensor:
    """Returns the positions of the highest logits, the first of ties first.

    Returns:
      int32 [W, K], beyond the end of rows with fewer than K tokens.
    """
    width = tf.shape(logits)[1]
    in_row = tf.range(width) < lengths[:, tf.newaxis]
    masked = tf.where(in_row, logits, -float("inf"))
    return tf.math.top_k(masked, tf.minimum(count, width)).indices


def _null_logits(
    windows: Windows, logits: tuple[tf.Tensor, tf.Tensor], questions: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the logits of [CLS] in the window where their sum is lowest.

    Returns:
      Start and end logit, float32 [B]; 0 for a question without a window.
    """
    start, end = (each[:, 0] for each in logits)
    score = score_of(start, end)
    lowest = tf.math.unsorted_segment_min(score, windows.text, questions)
    number, none = tf.range(tf.size(score)), tf.size(score)
    number = tf.where(score == tf.gather(lowest, windows.text), number, none)
    number = tf.math.unsorted_segment_min(number, windows.text, questions)
    number = tf.minimum(number, none)
    start, end = (
        tf.gather(tf.concat([each, [0.0]], 0), number) for each in (start, end)
    )
    return start, end


# The model of the family, by which a folder is used.
MODEL = SpanModel
