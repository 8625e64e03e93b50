"""Looks questions over before a model is trained on them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.finetuning.doctor.lines import MUCH_UNKNOWN
from bert_tf.finetuning.question_answering.squad_files import Question
from bert_tf.finetuning.question_answering.windows import make_windows
from bert_tf.finetuning.spans.span_recipe import SpanRecipe
from bert_tf.text.tokenizer import BertTokenizer


def examine(
    task: str,
    recipe: SpanRecipe,
    tokenizer: BertTokenizer,
    splits: Mapping[str, Sequence[Question]],
) -> dict[str, Any]:
    """Looks the training and dev questions over.

    Args:
      task: the name of the task.
      recipe: says how windows are made.
      tokenizer: of the model that will be trained.
      splits: split to its questions; the first one is the one to train on.

    Returns:
      Numbers of types that JSON knows, and what to tell of them as lines.
    """
    parts = {
        split: _numbers(questions, recipe, tokenizer)
        for split, questions in splits.items()
    }
    train, *others = splits
    known = {(q.question.strip(), q.context) for q in splits[train]}
    for split in others:
        parts[split]["in_train"] = sum(
            (q.question.strip(), q.context) in known for q in splits[split]
        )
    lines = [f"data of {task}:"]
    for split, numbers in parts.items():
        lines += _lines(split, numbers, recipe)
    return {"task": task, "splits": parts, "lines": lines}


def _numbers(
    questions: Sequence[Question], recipe: SpanRecipe, tokenizer: BertTokenizer
) -> dict[str, Any]:
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
        "windows": len(windows),
        "several_windows": int(np.sum(of_question > 1)),
        "longest_context": int(windows.contexts.tokens.count.max(initial=0)),
        "cut_questions": windows.cut_questions,
        "unknown_share": unknown / max(len(ids), 1),
    }


def _lines(
    split: str, numbers: Mapping[str, Any], recipe: SpanRecipe
) -> list[str]:
    questions = numbers["questions"]
    lines = [
        f"  {split}: {questions:,} questions on {numbers['contexts']:,} "
        f"contexts of {numbers['articles']:,} articles, "
        f"{numbers['without_answer']:,} without an answer",
        f"    windows of {recipe.max_seq_length} tokens: "
        f"{numbers['windows']:,}; {numbers['several_windows']:,} questions "
        f"have several, the longest context has "
        f"{numbers['longest_context']:,} tokens",
        f"    [UNK]: {100 * numbers['unknown_share']:.2f} % of the tokens of "
        "contexts",
    ]
    if numbers["cut_questions"]:
        lines.append(
            f"    cut at {recipe.max_query_length} tokens: "
            f"{numbers['cut_questions']:,} questions"
        )
    if numbers.get("in_train"):
        lines.append(
            f"    in the training file too: {numbers['in_train']:,} questions "
            "with their contexts"
        )
    if numbers["unknown_share"] > MUCH_UNKNOWN:
        lines.append(
            "    remark: much is [UNK]; is the vocabulary of this language?"
        )
    return lines
