"""Reports on tasks that answer questions by a span of a text."""

from bert_tf.finetuning.report.kind import PAPER_ON_DEV, Kind
from bert_tf.finetuning.report.question_numbers import question_numbers
from bert_tf.finetuning.report.question_rows import read_question
from bert_tf.finetuning.report.question_sections import question_sections
from bert_tf.finetuning.spans.span_recipe import SpanRecipe

QUESTIONS = Kind(
    key="question",
    read=read_question,
    numbers=question_numbers,
    sections=question_sections,
    recipes=(SpanRecipe,),
    unit="questions",
    baseline=lambda labels: "giving no answer",
    published="published, dev set",
    paper_note=PAPER_ON_DEV,
    threshold="Null odds above which no answer is given",
)
