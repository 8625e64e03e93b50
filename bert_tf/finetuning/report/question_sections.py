"""The parts of a report's page about questions."""

from collections.abc import Mapping, Sequence
from typing import Any

from bert_tf.finetuning.report import figures
from bert_tf.finetuning.report.html import (
    figure,
    hundredths,
    inline,
    number,
    section,
    table,
)
from bert_tf.finetuning.report.marks import Mark, marked
from bert_tf.finetuning.report.parts import metered, mistakes_section, verdict


def question_sections(numbers: Mapping[str, Any]) -> list[str]:
    """Groups of questions, null odds and mistakes.

    Args:
      numbers: from `report_numbers`.
    """
    answers = numbers["predictions"]
    mistakes = answers["mistakes"]
    return [
        _answers(answers),
        _null_odds(answers["null_odds"]),
        mistakes_section(
            answers["num_examples"],
            mistakes["total"],
            [_item(mistake) for mistake in mistakes["worst"]],
            "the lowest F1 first, and of these the surest answers",
            "In the text, right answers are underlined, and a dashed frame is "
            "around the answer given.",
            "questions",
        ),
    ]


def _answers(answers: Mapping[str, Any]) -> str:
    parts = [
        (
            inline(each["group"]),
            f"{each['count']:,}",
            f"{each['answered']:,}",
            hundredths(each["exact"]),
            metered(each["f1"]),
        )
        for each in answers["parts"]
    ]
    return section(
        "answers",
        "Which questions are answered",
        table(
            "Questions with an answer in their text and without one",
            ("Question", "Questions", "Answered", "Exact match", "F1"),
            parts,
        )
        if parts
        else "",
        '<div class="pictures">',
        _groups("By question word", "Word", answers["by_question_word"]),
        _groups(
            "By the words of the first right answer",
            "Words",
            answers["by_answer_length"],
        ),
        _groups(
            "By the words of the text", "Words", answers["by_context_length"]
        ),
        "</div>",
        '<p class="note">Exact match and F1 are means x 100 over the '
        "questions of a group: 100 where the answer given is, but for case, "
        "punctuation and articles, a right one; F1 is of its words "
        "(Rajpurkar et al. 2016). The question word is the first one in the "
        "question.</p>",
    )


def _groups(
    caption: str, name: str, groups: Sequence[Mapping[str, Any]]
) -> str:
    rows = [
        (
            inline(each["group"]),
            f"{each['count']:,}",
            hundredths(each["exact"]),
            metered(each["f1"]),
        )
        for each in groups
    ]
    return table(caption, (name, "Questions", "Exact match", "F1"), rows)


def _null_odds(odds: Mapping[str, Any] | None) -> str:
    if odds is None:
        return ""
    threshold = odds["threshold"]
    where = ""
    if threshold is not None:
        where = (
            f" The dashed line is the threshold of this model, "
            f"{number(threshold)}: right of it no answer is given."
        )
    shares = [
        f"{sum(odds[key]):,} questions {words}, their highest bar from "
        f"{number(_highest(odds, key))} on"
        for key, words in (
            ("has_answer", "with an answer"),
            ("no_answer", "without one"),
        )
        if sum(odds[key])
    ]
    svg = figures.null_odds(
        odds["edges"], odds["has_answer"], odds["no_answer"], threshold
    )
    return section(
        "null_odds",
        "Is there an answer at all?",
        figure(
            svg,
            f"Histogram of the null odds: {'; '.join(shares)}"
            + (f"; threshold {number(threshold)}" if where else ""),
            "Null odds: the score of no answer less that of the best answer. "
            f"The farther apart the two are, the better.{where} What lies "
            "farther out is counted in the first and the last bar.",
        ),
    )


def _highest(odds: Mapping[str, Any], key: str) -> float:
    """Where the highest bar begins."""
    counts = odds[key]
    return odds["edges"][counts.index(max(counts))]


def _item(mistake: Mapping[str, Any]) -> str:
    wanted = list(dict.fromkeys(x["text"] for x in mistake["answers"]))
    parts = [
        f"Predicted <b>{_answer(mistake['prediction'])}</b>",
        f"True <b>{_answer(wanted)}</b>",
        f"F1 {hundredths(mistake['f1'])}",
    ]
    if mistake["null_odds"] is not None:
        parts.append(f"Null odds {number(mistake['null_odds'])}")
    head = verdict(
        parts,
        f"{inline(mistake['title'])}, id {inline(mistake['identifier'])}",
    )
    others = ", ".join(
        f"<b>{_answer(text)}</b> at {hundredths(probability)} %"
        for text, probability in mistake["n_best"]
    )
    return (
        f'{head}<p class="question">{inline(mistake["question"])}</p>'
        f"{marked(mistake['context'], _marks(mistake))}"
        + (f'<p class="note">Best answers: {others}</p>' if others else "")
    )


def _answer(text: Any) -> str:
    """One answer or several; in words where there is none."""
    return inline(text) if text else "<i>no answer</i>"


def _marks(mistake: Mapping[str, Any]) -> list[Mark]:
    """The right answers, where the text has them, and the one given."""
    context = mistake["context"]
    spans = dict.fromkeys(
        (each["start"], each["start"] + len(each["text"]))
        for each in mistake["answers"]
        if context.startswith(each["text"], each["start"])
    )
    marks = [Mark(*span, "true", "gold") for span in spans]
    if mistake["start"] >= 0:
        marks.append(
            Mark(mistake["start"], mistake["end"], "predicted", "given")
        )
    return marks
