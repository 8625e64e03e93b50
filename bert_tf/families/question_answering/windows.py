"""Encodes the questions of a split, labels them and decodes the answers.

A split may be large, so answers and labels are computed for blocks of windows,
by the operations of `answers.py`.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.families.question_answering.answer_texts import (
    ContextCharacters,
    find_words,
    in_all_contexts,
)
from bert_tf.families.question_answering.answers import (
    SpanRows,
    span_answers,
    span_rows,
)
from bert_tf.families.question_answering.config import QuestionAnsweringConfig
from bert_tf.families.question_answering.prediction_files import (
    Answers,
    ScoredText,
)
from bert_tf.families.question_answering.squad_files import Question
from bert_tf.families.rows import Outputs, RowsAround
from bert_tf.families.task_model import END_LOGITS, START_LOGITS
from bert_tf.text.layout import (
    EncodedRows,
    TokenIds,
    pack_rows,
    ragged_range,
    take,
    take_ranges,
    token_ids,
    tokenize,
)
from bert_tf.text.tokenizer_protocol import Tokenizer

if TYPE_CHECKING:
    from bert_tf.families.question_answering.recipe import SpanRecipe

# Contexts per call of the tokenizer; windows, and pairs of a start and an end,
# per block.
_CONTEXTS, _WINDOWS, _PAIRS = 512, 4096, 1 << 21
# run_squad.py's answer if no span is valid.
_NONCE = ScoredText("empty", 1.0, 0.0, 0.0)


class Contexts(NamedTuple):
    """C distinct contexts with their tokens.

    Attributes:
      texts: string [C].
      tokens: ids, first characters and exclusive ends, int32 [C, tokens].
    """

    texts: tf.Tensor
    tokens: tuple[tf.RaggedTensor, ...]


def tokenize_contexts(
    contexts: Sequence[str], tokenizer: Tokenizer
) -> tuple[Contexts, np.ndarray]:
    """Tokenizes N contexts, equal ones once.

    google-research/bert tokenizes single words. The tokens of the whole context
    are the same, because no token spans a blank.

    Returns:
      The distinct contexts, and the number of each of the N, int64 [N].
    """
    # Batches of ASCII only are tokenized faster, so ASCII texts come first.
    texts = sorted(dict.fromkeys(contexts), key=lambda text: not text.isascii())
    numbers = {text: number for number, text in enumerate(texts)}
    parts = [
        tokenizer.tokenize_with_offsets(texts[first : first + _CONTEXTS])
        for first in range(0, max(len(texts), 1), _CONTEXTS)
    ]
    tokens = tuple(tf.concat(part, 0) for part in zip(*parts, strict=True))
    return (
        Contexts(tf.constant(texts, tf.string), tokens),
        np.array([numbers[text] for text in contexts], np.int64),
    )


class Block(NamedTuple):
    """Consecutive questions of a split.

    Attributes:
      questions: range of the questions.
      windows: range of their windows.
      contexts: their distinct contexts.
      context: int32 [B], the context of each question.
      rows: their rows.
    """

    questions: slice
    windows: slice
    contexts: Contexts
    context: tf.Tensor
    rows: SpanRows


@dataclasses.dataclass(frozen=True)
class SpanWindows(RowsAround):
    """W windows of N questions.

    Attributes:
      rows: the windows; their examples are the questions.
      questions: the N questions, not truncated.
      contexts: their distinct contexts.
      context: int64 [N], the context of each question.
      tokenizer: the tokenizer of the model.
      room: tokens of a question and a window.
      config: see `span_rows`.
    """

    rows: EncodedRows
    questions: TokenIds
    contexts: Contexts
    context: np.ndarray
    tokenizer: Tokenizer
    room: int
    config: "QuestionAnsweringConfig | SpanRecipe"

    def gather(self, batches: Iterable[tuple[np.ndarray, Outputs]]) -> Outputs:
        """Concatenates the logits of all tokens of all windows, [T]."""
        starts, lengths = self.rows.starts.numpy(), self.rows.lengths.numpy()
        names = (START_LOGITS, END_LOGITS)
        logits = {name: np.zeros(starts[-1], np.float32) for name in names}
        for chosen, outputs in batches:
            positions = np.arange(outputs[START_LOGITS].shape[1])
            row, column = np.nonzero(positions < lengths[chosen][:, np.newaxis])
            tokens = starts[chosen][row] + column
            for name in names:
                logits[name][tokens] = outputs[name][row, column]
        return logits

    def blocks(self, num_windows: int = _WINDOWS) -> Iterator[Block]:
        """Yields all questions in blocks of at most this many windows.

        A block has at least one question.
        """
        count = self.rows.num_examples
        bounds = np.searchsorted(self.rows.example, np.arange(count + 1))
        first = 0
        while first < count:
            limit = bounds[first] + num_windows
            end = int(np.searchsorted(bounds, limit, side="right")) - 1
            end = max(end, first + 1)
            numbers, context = np.unique(
                self.context[first:end], return_inverse=True
            )
            contexts = Contexts(
                tf.gather(self.contexts.texts, numbers),
                tuple(tf.gather(x, numbers) for x in self.contexts.tokens),
            )
            context = tf.constant(context, tf.int32)
            yield Block(
                slice(first, end),
                slice(bounds[first], bounds[end]),
                contexts,
                context,
                span_rows(
                    take(self.questions, tf.range(first, end)),
                    take(token_ids(contexts.tokens[0]), context),
                    self.room,
                    self.config,
                ),
            )
            first = end


def make_windows(
    questions: Sequence[Question],
    tokenizer: Tokenizer,
    config: "QuestionAnsweringConfig | SpanRecipe",
) -> SpanWindows:
    """Tokenizes questions and contexts and makes windows; see `span_rows`.

    Rows must have room for a token of the context after the longest question.
    """
    contexts, context = tokenize_contexts(
        [question.context for question in questions], tokenizer
    )
    first = tokenize(tokenizer, [q.question for q in questions])
    room = config.max_seq_length - tokenizer.packing.num_special(2)
    second = take(token_ids(contexts.tokens[0]), tf.constant(context))
    windows, *texts = span_rows(first, second, room, config)
    rows = pack_rows(
        texts[0], texts[1], tokenizer.packing, windows.text, len(questions)
    )
    return SpanWindows(rows, first, contexts, context, tokenizer, room, config)


def decode_answers(
    windows: SpanWindows, logits: Outputs, config: QuestionAnsweringConfig
) -> Answers:
    """Decodes the best answers; see `span_answers`.

    Args:
      windows: W windows of N questions, T tokens in all.
      logits: start_logits and end_logits, float32 [T], of the tokens of all
        rows.
      config: see `span_answers`.

    Raises:
      UserError: the logits are not finite.
    """
    for name, values in logits.items():
        if not np.isfinite(values).all():
            raise UserError(f"{name}: are not all finite.")
    rows = windows.rows
    starts, lengths = rows.starts.numpy(), rows.lengths.numpy()
    pair = logits[START_LOGITS], logits[END_LOGITS]
    align = ContextCharacters(windows.tokenizer)
    parts = []
    for block in windows.blocks(_PAIRS // config.n_best_size**2):
        length = lengths[block.windows]
        mask = np.arange(length.max(initial=1)) < length[:, np.newaxis]
        padded = np.zeros((2, *mask.shape), np.float32)
        begin = starts[block.windows.start]
        for own, values in zip(padded, pair, strict=True):
            own[mask] = values[begin : begin + length.sum()]
        found = span_answers(
            align(block.contexts.texts, *block.contexts.tokens),
            block.rows,
            block.context,
            tuple(map(tf.constant, padded)),
            windows.tokenizer.packing,
            config,
        )
        parts.append({name: values.numpy() for name, values in found.items()})
    whole = {
        name: np.concatenate([part[name] for part in parts])
        for name in parts[0]
    }
    ends = whole["n_best_starts"][:, 0], whole["n_best_ends"][:, 0]
    n_best = tuple(_n_best(whole, config.with_null))
    return Answers(
        n_best=n_best,
        best=tuple(next((e.text for e in own if e.text), "") for own in n_best),
        spans=np.stack(ends, axis=1),
        null_odds=whole["null_odds"] if config.with_null else None,
    )


def _n_best(
    found: dict[str, np.ndarray], with_null: bool
) -> Iterator[tuple[ScoredText, ...]]:
    """Yields the best answers to each question, with no answer among them."""
    columns = [
        found[name].tolist()
        for name in (
            *("n_best_answers", "n_best_scores"),
            *("n_best_start_logits", "n_best_end_logits"),
            *("no_answer_probability", "null_start_logit", "null_end_logit"),
        )
    ]
    for *of_texts, probability, start, end in zip(*columns, strict=True):
        entries = [
            ScoredText(text.decode(), *numbers)
            for text, *numbers in zip(*of_texts, strict=True)
            if text
        ]
        if with_null:
            entries.append(ScoredText("", probability, start, end))
            # No answer comes after answers of the same score.
            entries.sort(key=lambda e: -(e.start_logit + e.end_logit))
        yield tuple(entries) or (_NONCE,)


def answer_positions(
    windows: SpanWindows, questions: Sequence[Question]
) -> np.ndarray:
    """Returns the positions of the answers in the windows.

    An answer is the tokens that contain its characters, without blanks at its
    ends. For WordPiece, as in run_squad.py, it is the words that it overlaps,
    or those of their tokens that equal its tokens (`_improve_answer_span`). The
    answer is [CLS] if a window does not contain all of it, or if there is none.
    The questions are those that `trainable` returned.

    Returns:
      int32 [W, 2], the positions of the first and the last token.
    """
    positions = [np.zeros((0, 2), np.int32)]
    tokenizer = windows.tokenizer
    for block in windows.blocks():
        gold = [question.answers for question in questions[block.questions]]
        answered = np.flatnonzero([bool(answers) for answers in gold])
        answers = [gold[number][0] for number in answered.tolist()]
        words = find_words(block.contexts.texts)
        ids, begins, ends = block.contexts.tokens
        begin = tf.constant([answer.start for answer in answers], tf.int32)
        begin += tf.gather(words.row_begin, tf.gather(block.context, answered))
        size = tf.constant([len(answer.text) for answer in answers], tf.int32)
        begins, ends = (in_all_contexts(words, x) for x in (begins, ends))
        if tokenizer.vocabulary.aligns_texts:
            word = tf.gather(words.number, begins)
            first, last = (
                tf.gather(words.number, c) for c in (begin, begin + size - 1)
            )
            tokens = _matching_tokens(
                ids.flat_values,
                tf.searchsorted(word, first),
                tf.searchsorted(word, last, side="right") - 1,
                tokenize(tokenizer, [answer.text for answer in answers]),
            )
        else:
            solid = tf.cast(tf.where(~words.is_blank)[:, 0], tf.int32)
            first, last = (
                tf.gather(solid, tf.searchsorted(solid, c) - shift)
                for c, shift in ((begin, 0), (begin + size, 1))
            )
            first = tf.searchsorted(ends, first, side="right")
            last = tf.searchsorted(begins, last, side="right") - 1
            tokens = tf.stack([first, last], 1)
        # -1 if there is no answer, or if it has no tokens.
        tokens = tf.tensor_scatter_nd_update(
            tf.fill([len(gold), 2], -1), answered[:, np.newaxis], tokens
        )
        spans, question, context = block.rows
        tokens = tf.gather(tokens, spans.text)
        tokens -= context.begin[:, tf.newaxis]
        inside = (tokens[:, 0] >= 0) & (tokens[:, 0] <= tokens[:, 1])
        inside &= tokens[:, 1] < context.count
        tokens += tokenizer.packing.before_second(question.count)[:, tf.newaxis]
        positions.append(tf.where(inside[:, tf.newaxis], tokens, 0).numpy())
    return np.concatenate(positions)


def _matching_tokens(
    ids: tf.Tensor, first: tf.Tensor, last: tf.Tensor, own: TokenIds
) -> tf.Tensor:
    """Finds the tokens of each answer among tokens `first` to `last` of `ids`.

    Returns:
      int32 [A, 2], first and last token of the first match, or of the search.
    """
    num_trials = tf.maximum(last - first + 2 - own.count, 0)
    answer, shift = ragged_range(tf.where(own.count > 0, num_trials, 0))
    begin, size = tf.gather(first, answer) + shift, tf.gather(own.count, answer)
    same = take_ranges(ids, begin, size) == take_ranges(
        own.ids, tf.gather(own.begin, answer), size
    )
    equal = tf.math.unsorted_segment_min(
        tf.cast(same, tf.int32), ragged_range(size)[0], tf.size(begin)
    )
    none = tf.int32.max
    found = tf.math.unsorted_segment_min(
        tf.where(equal > 0, begin, none), answer, tf.size(first)
    )
    return tf.where(
        (found < none)[:, tf.newaxis],
        tf.stack([found, found + own.count - 1], 1),
        tf.stack([first, last], 1),
    )
