"""What the data doctor counts of questions on contexts, and its findings."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.families import checks
from bert_tf.families.checks import Finding
from bert_tf.families.question_answering.squad_files import (
    Question,
    num_searched,
)
from bert_tf.families.question_answering.windows import make_windows
from bert_tf.families.recipe import SpanRecipe
from bert_tf.text.tokenizer_protocol import Tokenizer


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
    return found.with_lines()


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
    contexts = windows.contexts.tokens[0]
    ids = contexts.flat_values.numpy()
    unknown = int(np.sum(ids == tokenizer.vocabulary.unk_id))
    return {
        "questions": len(questions),
        "contexts": len({question.context for question in questions}),
        "articles": len({question.title for question in questions}),
        "without_answer": sum(not question.answers for question in questions),
        "first_places": num_searched(questions),
        "windows": len(windows),
        "several_windows": int(np.sum(of_question > 1)),
        "longest_context": int(contexts.bounding_shape()[1]),
        "cut_questions": int(
            np.sum(windows.asked.count > recipe.max_query_length)
        ),
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
        shown = f"{checks.percent(unknown, 2)} of the tokens of contexts"
        yield checks.unknown_finding(split, shown, ())
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
            yield Finding(checks.REMARK, checks.UNKNOWN_TEXTS, split)
