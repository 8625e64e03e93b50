"""Questions about a text: question and context in, an answer out."""

from collections.abc import Callable

import keras
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.serving.requests import (
    QUESTIONS,
    Request,
    as_many,
    sample_lengths,
    sample_text,
    signature,
    string_array,
    text_spec,
    valid_text,
)
from bert_tf.serving.rows import HOST, Rows, Tensors, flat_texts, tokenize
from bert_tf.serving.span_answers import best_answers
from bert_tf.serving.span_candidates import find_candidates
from bert_tf.serving.span_texts import SpanCutter
from bert_tf.serving.text_model import (
    SERVING_DEFAULT,
    TOKENS,
    TextModel,
    encoder_of,
)
from bert_tf.serving.windows import overlapping
from bert_tf.text.tokenizer import BertTokenizer

_INPUTS = ("question", "context")
# [CLS] and two [SEP].
_SPECIALS = 3


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
      max_query_length: the longest question; others are cut at their end.
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
        tokenizer: BertTokenizer,
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
                raise UserError(f"{name}={value}: at least 1 is wanted.")
        if max_seq_length < max_query_length + _SPECIALS + 1:
            raise UserError(
                f"max_seq_length={max_seq_length}: leaves no room for a "
                f"context beside a question of {max_query_length} tokens "
                "(max_query_length) and 3 special ones."
            )
        self._cutter = SpanCutter(tokenizer)
        self._doc_stride, self._max_windows = doc_stride, max_windows
        self._max_query_length = max_query_length
        self._max_answer_length = max_answer_length
        self._n_best_size = n_best_size
        self.threshold = null_threshold

    task = "question answering"

    def signatures(self) -> dict[str, Callable[..., Tensors]]:
        """See the class."""
        return {
            SERVING_DEFAULT: signature(
                self._from_text, *(text_spec(name) for name in _INPUTS)
            ),
            TOKENS: self.tokens_signature(),
        }

    def requests(self) -> list[Request]:
        """Contexts of several lengths, one of them of several windows."""
        lengths = sample_lengths(self.max_seq_length)
        contexts = [sample_text(n) for n in (*lengths, 2 * lengths[-1])]
        count = len(contexts)
        questions = [QUESTIONS[n % len(QUESTIONS)] for n in range(count)]
        rows = [slice(n, n + 1) for n in range(count)] + [slice(count)]
        return [
            Request(
                SERVING_DEFAULT,
                {
                    "question": string_array(questions[row]),
                    "context": string_array(contexts[row]),
                },
            )
            for row in rows
        ]

    def _from_text(self, question: tf.Tensor, context: tf.Tensor) -> Tensors:
        with tf.device(HOST):
            question, context = as_many(question=question, context=context)
            context = valid_text(context)
            ids, begins, ends = self.tokenizer.tokenize_with_offsets(context)
            text = flat_texts(ids)
            asked = tokenize(self.tokenizer, question)
            count = tf.minimum(asked.count, self._max_query_length)
            windows = overlapping(
                text.count,
                self.max_seq_length - _SPECIALS - count,
                self._doc_stride,
                self._max_windows,
                "context",
                empty=0,
            )
            rows = Rows(
                asked.part(windows.text, 0, tf.gather(count, windows.text)),
                text.part(windows.text, windows.offset, windows.shown),
            )
            width = self.compute.padded_length(rows.lengths)
        logits = self.compute(
            rows,
            lambda inputs, chosen: self.forward(inputs),
            {"start_logits": (None,), "end_logits": (None,)},
            width,
        )
        with tf.device(HOST):
            candidates = find_candidates(
                rows,
                windows,
                text,
                logits["start_logits"],
                logits["end_logits"],
                self._n_best_size,
                self._max_answer_length,
            )
            return best_answers(
                candidates,
                self._cutter.characters(context, ids, begins, ends),
                self._n_best_size,
                self.threshold,
            )

    def answer_tokens(self, inputs: Tensors) -> Tensors:
        """See the class."""
        return self.forward(inputs)
