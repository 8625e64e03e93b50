"""Data doctor of question answering."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.families import checks
from bert_tf.families.question_answering.recipe import SpanRecipe
from bert_tf.families.question_answering.squad_files import Question
from bert_tf.families.question_answering.windows import make_windows
from bert_tf.text.tokenizer_protocol import Tokenizer


def examine_questions(
    task: str,
    recipe: SpanRecipe,
    tokenizer: Tokenizer,
    splits: Mapping[str, Sequence[Question]],
) -> checks.Examination:
    """Counts questions, windows, unknown tokens and repeats; see `Task`."""
    found = checks.examine(
        task,
        {
            split: _split_rows(questions, recipe, tokenizer)
            for split, questions in splits.items()
        },
        tokenizer,
        recipe.max_seq_length,
        unit="question",
    )
    for split, shared in found.numbers["in_train"].items():
        found.numbers["splits"][split]["in_train"] = shared["questions"]
    for split, part in found.numbers["splits"].items():
        if part["unknown_share"] > checks.MUCH_UNKNOWN:
            found.add(checks.REMARK, split, checks.UNKNOWN_TEXTS)
    return found


def _split_rows(
    questions: Sequence[Question], recipe: SpanRecipe, tokenizer: Tokenizer
) -> checks.SplitRows:
    """Returns the questions of a split with counts of their windows."""
    numbers = _counts(questions, recipe, tokenizer)
    details = []
    if numbers["first_places"]:
        text = (
            "answers that occur several times in their contexts, taken at the "
            f"first place: of {numbers['first_places']:,} questions"
        )
        details.append(("first_places", text))
    text = (
        f"windows of {recipe.max_seq_length} tokens: "
        f"{numbers['windows']:,}; {numbers['several_windows']:,} questions "
        f"have several, the longest context has "
        f"{numbers['longest_context']:,} tokens"
    )
    details.append(("windows", text))
    share = checks.percent(numbers["unknown_share"], 2)
    text = checks.unknown_text(f"{share} of the tokens of contexts", ())
    details.append(("unknown", text))
    if numbers["cut_questions"]:
        text = (
            f"cut at {recipe.max_query_length} tokens: "
            f"{numbers['cut_questions']:,} questions"
        )
        details.append(("cut", text))
    return checks.SplitRows(
        file="",
        # Questions have identifiers instead of rows.
        rows=[checks.Row(0, (q.question, q.context)) for q in questions],
        title=(
            f"{len(questions):,} questions on "
            f"{numbers['contexts']:,} contexts of {numbers['articles']:,} "
            f"articles, {numbers['without_answer']:,} without an answer"
        ),
        numbers=numbers,
        details=details,
    )


def _counts(
    questions: Sequence[Question],
    recipe: SpanRecipe,
    tokenizer: Tokenizer,
) -> dict[str, Any]:
    windows = make_windows(
        questions,
        tokenizer,
        recipe.max_seq_length,
        recipe.doc_stride,
        recipe.max_query_length,
    )
    per_question = np.bincount(windows.rows.example, minlength=len(questions))
    contexts = windows.contexts.tokens[0]
    ids = contexts.flat_values.numpy()
    unknown = int(np.sum(ids == tokenizer.vocabulary.unk_id))
    return {
        "contexts": len({question.context for question in questions}),
        "articles": len({question.title for question in questions}),
        "without_answer": sum(not question.answers for question in questions),
        "first_places": sum(
            any(answer.num_places > 1 for answer in question.answers)
            for question in questions
        ),
        "windows": len(windows),
        "several_windows": int(np.sum(per_question > 1)),
        "longest_context": int(contexts.bounding_shape()[1]),
        "cut_questions": int(
            np.sum(windows.questions.count > recipe.max_query_length)
        ),
        "unknown_share": unknown / max(len(ids), 1),
    }
