"""Data doctor of question answering."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.families import checks
from bert_tf.families.checks import Fact
from bert_tf.families.question_answering.recipe import SpanRecipe
from bert_tf.families.question_answering.squad_files import Question
from bert_tf.families.question_answering.windows import make_windows
from bert_tf.text.tokenizer_protocol import Tokenizer


def examine(
    task: Any,
    recipe: SpanRecipe,
    tokenizer: Tokenizer,
    splits: Mapping[str, Sequence[Question]],
) -> checks.Examination:
    """Counts questions, windows, unknown tokens and repeats; see `Task`."""
    found = checks.examine(
        task.name,
        {
            split: _split_rows(questions, recipe, tokenizer)
            for split, questions in splits.items()
        },
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
    longest, most = recipe.max_seq_length, recipe.max_query_length
    windows = make_windows(questions, tokenizer, recipe)
    per_question = np.bincount(windows.rows.example, minlength=len(questions))
    several = int(np.sum(per_question > 1))
    contexts = windows.contexts.tokens[0]
    longest_context = int(contexts.bounding_shape()[1])
    ids = contexts.flat_values.numpy()
    unknown = int(np.sum(ids == tokenizer.vocabulary.unk_id))
    share = unknown / max(len(ids), 1)
    shown = f"{checks.percent(share, 2)} of the tokens of contexts"
    firsts = sum(
        any(answer.num_places > 1 for answer in question.answers)
        for question in questions
    )
    cut = int(np.sum(windows.questions.count > most))
    num_contexts = len({question.context for question in questions})
    articles = len({question.title for question in questions})
    without = sum(not question.answers for question in questions)
    return checks.SplitRows(
        file="",
        # Questions have identifiers instead of rows.
        rows=checks.ComparedRows(
            checks.Row(0, (q.question, q.context)) for q in questions
        ),
        title=(
            f"{len(questions):,} questions on {num_contexts:,} contexts of "
            f"{articles:,} articles, {without:,} without an answer"
        ),
        facts=[
            Fact("contexts", num_contexts),
            Fact("articles", articles),
            Fact("without_answer", without),
            Fact(
                "first_places",
                firsts,
                [
                    "answers that occur several times in their contexts, taken "
                    f"at the first place: of {firsts:,} questions"
                ]
                if firsts
                else (),
            ),
            Fact(
                "windows",
                len(windows),
                [
                    f"windows of {longest} tokens: {len(windows):,}; "
                    f"{several:,} questions have several, the longest context "
                    f"has {longest_context:,} tokens"
                ],
            ),
            Fact("several_windows", several),
            Fact("longest_context", longest_context),
            Fact("unknown_share", share, [checks.unknown_text(shown, ())]),
            Fact(
                "cut_questions",
                cut,
                [f"cut at {most} tokens: {cut:,} questions"] if cut else (),
            ),
        ],
    )
