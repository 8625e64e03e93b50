"""Reports on tasks on a sentence or a pair."""

from collections.abc import Sequence

from bert_tf.finetuning.kinds.own_file import OwnFileRecipe
from bert_tf.finetuning.report.kind import Kind
from bert_tf.finetuning.report.sentence_numbers import sentence_numbers
from bert_tf.finetuning.report.sentence_rows import read_sentence
from bert_tf.finetuning.report.sentence_sections import sentence_sections


def _baseline(labels: Sequence[str]) -> str:
    what = "most frequent answer" if labels else "mean"
    return f"always the {what} of the training rows"


SENTENCES = Kind(
    key="text_a",
    read=read_sentence,
    numbers=sentence_numbers,
    sections=sentence_sections,
    # One that has the settings of all tasks on sentences.
    recipes=(OwnFileRecipe,),
    unit="rows",
    baseline=_baseline,
    published="published, test set",
    paper_note="BERT base and BERT large are the published numbers of Devlin "
    "et al. 2019, which were scored on the hidden test set.",
    threshold="Probability from which a label is given",
)
