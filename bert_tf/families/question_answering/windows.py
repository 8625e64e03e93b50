"""Questions with windows of their contexts, as rows of token ids.

The rules are those of google-research/bert, run_squad.py,
`convert_examples_to_features`: [CLS] question [SEP] window [SEP], a window
every `doc_stride` tokens until one reaches the end of the context. The loss is
of the first and the last token of the answer. The data doctor counts windows.
"""

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from keras import ops

from bert_tf.distiller import soft_target_loss
from bert_tf.families import checks
from bert_tf.families.checks import Finding
from bert_tf.families.question_answering.squad_files import (
    BLANKS,
    Question,
    num_searched,
)
from bert_tf.families.recipe import SpanRecipe
from bert_tf.families.rows import (
    EXAMPLE_WEIGHTS,
    LabelledRows,
    Outputs,
    RowsAround,
)
from bert_tf.families.task_model import LOSS, MeanOverRows, Sums, weighted
from bert_tf.features import INPUT_MASK
from bert_tf.text import packing
from bert_tf.text.packing import (
    EncodedRows,
    TokenIds,
    take_ranges,
    tokenize_texts,
)
from bert_tf.text.tokenizer_protocol import Tokenizer
from bert_tf.text.truncation import num_windows

START_POSITIONS, END_POSITIONS = "start_positions", "end_positions"
START_LOGITS, END_LOGITS = "start_logits", "end_logits"
# Contexts tokenised at a time.
_CONTEXTS = 512
# Far below any logit, and exp of it is 0.
_HIDDEN = -1e9


@dataclasses.dataclass(frozen=True)
class TokenizedContexts:
    """C different contexts as tokens, with the word that each token is of.

    Words and characters are numbered through all contexts, one character
    between two of them.

    Attributes:
      texts: the contexts.
      tokens: their token ids, concatenated in this order.
      character_begin: int64 [C], the number of each one's first character.
      word_starts: int64 [words], the character at which each word begins.
      word_of_token: int64 [T], the word of each token, ascending.
    """

    texts: tuple[str, ...]
    tokens: TokenIds
    character_begin: np.ndarray
    word_starts: np.ndarray
    word_of_token: np.ndarray

    def word_at(self, context: np.ndarray, character: np.ndarray) -> np.ndarray:
        """The word at, or before, each of N characters of N contexts."""
        place = self.character_begin[context] + character
        return np.searchsorted(self.word_starts, place, side="right") - 1

    def first_word(self, context: int) -> int:
        """The number of a context's first word."""
        begin = self.character_begin[context]
        return int(np.searchsorted(self.word_starts, begin))


def tokenize_contexts(
    contexts: Sequence[str], tokenizer: Tokenizer
) -> tuple[TokenizedContexts, np.ndarray]:
    """Tokenises N contexts, equal ones once.

    google-research/bert tokenises every word of its own; since its tokenizer
    never looks across the blanks that divide them, the tokens of the whole
    are the same.

    Returns:
      The different contexts and, for each of the N, its number, int64 [N].
    """
    different = dict.fromkeys(contexts)
    # Batches of ASCII alone are tokenised faster, so they come first.
    plain = [text for text in different if text.isascii()]
    other = [text for text in different if not text.isascii()]
    texts = (*plain, *other)
    numbers = {text: number for number, text in enumerate(texts)}
    lengths = np.array([len(text) + 1 for text in texts], np.int64)
    character_begin = np.cumsum(lengths) - lengths
    ids, counts = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)]
    starts = [np.zeros(0, np.int64)]
    for group in (plain, other):
        for first in range(0, len(group), _CONTEXTS):
            batch = group[first : first + _CONTEXTS]
            begins = character_begin[numbers[batch[0]] :][: len(batch)]
            found, begin, _ = tokenizer.tokenize_with_offsets(batch)
            ids.append(found.values.numpy())
            counts.append(found.row_lengths().numpy())
            before = np.repeat(begins, counts[-1])
            starts.append(begin.values.numpy() + before)
    count, word_starts = np.concatenate(counts), _word_starts(texts)
    token_starts = np.concatenate(starts)
    tokenized = TokenizedContexts(
        texts=texts,
        tokens=TokenIds(np.concatenate(ids), np.cumsum(count) - count, count),
        character_begin=character_begin,
        word_starts=word_starts,
        word_of_token=np.searchsorted(word_starts, token_starts, "right") - 1,
    )
    return tokenized, np.array([numbers[t] for t in contexts], np.int64)


def _word_starts(texts: Sequence[str]) -> np.ndarray:
    """Where the words begin in texts that one blank stands between."""
    joined = BLANKS[0] + BLANKS[0].join(texts)
    codes = np.frombuffer(joined.encode("utf-32-le"), "<u4")
    blank = np.zeros(len(codes), bool)
    for character in BLANKS:
        blank |= codes == ord(character)
    return np.flatnonzero(blank[:-1] & ~blank[1:]).astype(np.int64)


@dataclasses.dataclass(frozen=True)
class SpanWindows(RowsAround):
    """W windows of N questions. A context without tokens has none.

    Attributes:
      rows: the windows; its examples are the questions.
      contexts: the contexts of the questions.
      context: int64 [N], the context of each question by number.
      offset: int64 [W], the token of its context that a window begins with.
      owned: int64 [W, 2], begin and exclusive end of the positions of a row
        whose tokens no other window shows in more context.
      num_truncated: how many questions were longer than they may be.
    """

    rows: EncodedRows
    contexts: TokenizedContexts
    context: np.ndarray
    offset: np.ndarray
    owned: np.ndarray
    num_truncated: int

    @functools.cached_property
    def shift(self) -> np.ndarray:
        """A context token's number less its position in the row, int64 [W]."""
        return self.offset - self.rows.first

    def gather(self, batches: Iterable[tuple[np.ndarray, Outputs]]) -> Outputs:
        """The logits of all tokens of all windows, concatenated: [T]."""
        starts, lengths = self.rows.starts, self.rows.lengths
        names = (START_LOGITS, END_LOGITS)
        found = {name: np.zeros(starts[-1], np.float32) for name in names}
        for chosen, outputs in batches:
            length = lengths[chosen]
            place = np.arange(outputs[START_LOGITS].shape[1])
            row, column = np.nonzero(place < length[:, None])
            tokens = starts[chosen][row] + column
            for name in names:
                found[name][tokens] = outputs[name][row, column]
        return found


def make_windows(
    questions: Sequence[Question],
    tokenizer: Tokenizer,
    max_seq_length: int = 384,
    doc_stride: int = 128,
    max_query_length: int = 64,
) -> SpanWindows:
    """Makes the windows of all questions.

    Args:
      questions: N questions.
      tokenizer: what turns texts into ids.
      max_seq_length: S, the longest row; a token of a context fits beside the
        longest question.
      doc_stride: tokens from the start of a window to that of the next; where
        it is longer than a window, windows follow one another.
      max_query_length: the longest question; others are truncated.
    """
    contexts, context = tokenize_contexts(
        [question.context for question in questions], tokenizer
    )
    asked = tokenize_texts([q.question for q in questions], tokenizer)
    question_length = np.minimum(asked.count, max_query_length)
    special = tokenizer.packing.num_special(2)
    room = max_seq_length - special - question_length
    length = contexts.tokens.count[context]
    count = num_windows(length, room, doc_stride, empty=0)
    windows = packing.make_windows(count, length, room, doc_stride)
    example = windows.text
    begin = contexts.tokens.begin[context[example]] + windows.offset
    rows = packing.pack_rows(
        example,
        TokenIds(asked.ids, asked.begin[example], question_length[example]),
        TokenIds(contexts.tokens.ids, begin, windows.count),
        len(questions),
        tokenizer,
    )
    owned = np.stack(packing.most_context(windows), axis=1)
    return SpanWindows(
        rows=rows,
        contexts=contexts,
        context=context,
        offset=windows.offset,
        owned=owned + rows.first[:, None],
        num_truncated=int(np.sum(asked.count > max_query_length)),
    )


def label_windows(
    windows: SpanWindows,
    questions: Sequence[Question],
    tokenizer: Tokenizer,
) -> LabelledRows:
    """The windows with their answers; a window counts as much as any other."""
    positions = answer_positions(windows, questions, tokenizer)
    labels = zip((START_POSITIONS, END_POSITIONS), positions.T, strict=True)
    weights = np.ones(len(windows), np.float32)
    return LabelledRows(windows, weights, dict(labels))


def answer_positions(
    windows: SpanWindows,
    questions: Sequence[Question],
    tokenizer: Tokenizer,
) -> np.ndarray:
    """Where the answers lie in the windows.

    As in run_squad.py: an answer is the words that it touches, or the tokens
    among theirs that are its own (`_improve_answer_span`). A window that does
    not show all of it, or a question without one, is answered by [CLS]. The
    questions are as `trainable` returns them.

    Returns:
      int32 [W, 2], the positions of the first and the last token.
    """
    answered = np.flatnonzero([bool(q.answers) for q in questions])
    answers = [questions[number].answers[0] for number in answered.tolist()]
    context = windows.context[answered]
    begin = np.array([answer.start for answer in answers], np.int64)
    size = np.array([len(answer.text) for answer in answers], np.int64)
    contexts = windows.contexts
    word = contexts.word_of_token
    first = np.searchsorted(word, contexts.word_at(context, begin))
    last_word = contexts.word_at(context, begin + size - 1)
    last = np.searchsorted(word, last_word, side="right") - 1
    own = tokenize_texts([answer.text for answer in answers], tokenizer)
    first, last = _improved(contexts.tokens.ids, first, last, own)
    # Tokens of all contexts, by question; none where the answer has none.
    tokens = np.full((len(questions), 2), -1, np.int64)
    tokens[answered[first <= last]] = np.stack([first, last], 1)[first <= last]
    begin = contexts.tokens.begin[windows.context[windows.rows.example]]
    positions = tokens[windows.rows.example] - (begin + windows.shift)[:, None]
    inside = (positions[:, 0] >= windows.rows.first) & (
        positions[:, 1] < windows.rows.bounds[1][1]
    )
    return np.where(inside[:, None], positions, 0).astype(np.int32)


def _improved(
    ids: np.ndarray, first: np.ndarray, last: np.ndarray, own: TokenIds
) -> tuple[np.ndarray, np.ndarray]:
    """The first range of tokens that equals an answer's own, if any.

    Args:
      ids: int32 [T], the tokens of all contexts.
      first: int64 [A], where to look for each answer.
      last: int64 [A], inclusive.
      own: tokens of the answers.
    """
    first, last = first.copy(), last.copy()
    open_ = np.flatnonzero(own.count > 0)
    shift = 0
    while open_.size:
        count, start = own.count[open_], first[open_] + shift
        fits = start + count - 1 <= last[open_]
        open_, count, start = open_[fits], count[fits], start[fits]
        if not open_.size:
            break
        same = take_ranges(ids, start, count) == take_ranges(
            own.ids, own.begin[open_], count
        )
        equal = np.logical_and.reduceat(same, np.cumsum(count) - count)
        first[open_[equal]] = start[equal]
        last[open_[equal]] = (start + count - 1)[equal]
        open_ = open_[~equal]
        shift += 1
    return first, last


class SpanObjective(MeanOverRows):
    """The mean of two cross-entropies over the tokens of a window.

    Devlin et al. 2019, section 4.2; google-research/bert, run_squad.py. Unlike
    there, padding is left out of the softmax.
    """

    def __call__(
        self, outputs: Mapping[str, Any], batch: Mapping[str, Any]
    ) -> Sums:
        """Sums the loss and the windows answered exactly (exact_span).

        Args:
          outputs: start_logits and end_logits [B, S].
          batch: start_positions and end_positions int32 [B], input_mask int32
            [B, S], example_weights float32 [B].
        """
        weights = batch[EXAMPLE_WEIGHTS]
        total, correct = 0.0, 1.0
        for logits, positions in (
            (outputs[START_LOGITS], batch[START_POSITIONS]),
            (outputs[END_LOGITS], batch[END_POSITIONS]),
        ):
            logits = _of_tokens(logits, batch)
            scores = ops.log_softmax(logits, axis=-1)
            gold = ops.one_hot(positions, ops.shape(logits)[1])
            # A product with 0 where the mask hides: no -1e9 comes through.
            total = total - 0.5 * ops.sum(scores * gold, axis=-1)
            guesses = ops.argmax(logits, axis=-1)
            same = ops.equal(guesses, ops.cast(positions, guesses.dtype))
            correct = correct * ops.cast(same, "float32")
        losses = {LOSS: ops.sum(total * weights)}
        return losses, {"exact_span": weighted(correct, weights)}

    def soft_target_loss(
        self,
        outputs: Mapping[str, Any],
        teacher: Mapping[str, Any],
        batch: Mapping[str, Any],
        temperature: float,
    ) -> Any:
        """Sums the mean divergence of starts and ends from a teacher's."""
        total = 0.0
        for name in (START_LOGITS, END_LOGITS):
            own, theirs = (
                _of_tokens(each[name], batch) for each in (outputs, teacher)
            )
            total = total + 0.5 * soft_target_loss(own, theirs, temperature)
        return ops.sum(total * batch[EXAMPLE_WEIGHTS])


def _of_tokens(logits: Any, batch: Mapping[str, Any]) -> Any:
    """Logits float32 [B, S], hidden where there is no token."""
    logits = ops.cast(logits, "float32")
    return ops.where(batch[INPUT_MASK.name] > 0, logits, _HIDDEN)


def examine_questions(
    task: str,
    recipe: SpanRecipe,
    tokenizer: Tokenizer,
    splits: Mapping[str, Sequence[Question]],
) -> checks.Examination:
    """Examines questions on contexts; see `Task.examine`."""
    parts = {
        split: _window_counts(questions, recipe, tokenizer)
        for split, questions in splits.items()
    }
    # Questions have names, and no rows of a file.
    rows = {
        name: [
            checks.RowKey((q.question.strip(), q.context), 0) for q in questions
        ]
        for name, questions in splits.items()
    }
    for split, shared in checks.overlaps(rows).items():
        parts[split]["in_train"] = shared["rows"]
    numbers: dict[str, Any] = {"task": task, "splits": parts}
    found = checks.Examination.of(numbers, _findings(parts, recipe))
    numbers["lines"] = found.lines
    return found


def _window_counts(
    questions: Sequence[Question],
    recipe: SpanRecipe,
    tokenizer: Tokenizer,
) -> dict[str, Any]:
    """Questions, contexts and windows of one split."""
    windows = make_windows(
        questions,
        tokenizer,
        recipe.max_seq_length,
        recipe.doc_stride,
        recipe.max_query_length,
    )
    of_question = np.bincount(windows.rows.example, minlength=len(questions))
    ids = windows.contexts.tokens.ids
    unknown = int(np.sum(ids == tokenizer.vocabulary.unk_id))
    return {
        "questions": len(questions),
        "contexts": len({question.context for question in questions}),
        "articles": len({question.title for question in questions}),
        "without_answer": sum(not question.answers for question in questions),
        "first_places": num_searched(questions),
        "windows": len(windows),
        "several_windows": int(np.sum(of_question > 1)),
        "longest_context": int(windows.contexts.tokens.count.max(initial=0)),
        "cut_questions": windows.num_truncated,
        "unknown_share": unknown / max(len(ids), 1),
    }


def _findings(
    parts: Mapping[str, Mapping[str, Any]], recipe: SpanRecipe
) -> Iterator[Finding]:
    for split, numbers in parts.items():
        text = (
            f"{split}: {numbers['questions']:,} questions on "
            f"{numbers['contexts']:,} contexts of {numbers['articles']:,} "
            f"articles, {numbers['without_answer']:,} without an answer"
        )
        yield Finding(checks.SPLIT, text, split)
        if numbers["first_places"]:
            text = (
                f"answers that their contexts have several times, taken at "
                f"the first: of {numbers['first_places']:,} questions"
            )
            yield Finding("first_places", text, split)
        text = (
            f"windows of {recipe.max_seq_length} tokens: "
            f"{numbers['windows']:,}; {numbers['several_windows']:,} questions "
            f"have several, the longest context has "
            f"{numbers['longest_context']:,} tokens"
        )
        yield Finding("windows", text, split)
        unknown = numbers["unknown_share"]
        text = f"[UNK]: {checks.percent(unknown, 2)} of the tokens of contexts"
        yield Finding("unknown", text, split)
        if numbers["cut_questions"]:
            text = (
                f"cut at {recipe.max_query_length} tokens: "
                f"{numbers['cut_questions']:,} questions"
            )
            yield Finding("cut", text, split)
        if numbers.get("in_train"):
            text = (
                f"in the training file too: {numbers['in_train']:,} questions "
                "with their contexts"
            )
            yield Finding("questions_in_train", text, split)
        if unknown > checks.MUCH_UNKNOWN:
            text = "remark: much is [UNK]; is the vocabulary of this language?"
            yield Finding("much_unknown", text, split)
