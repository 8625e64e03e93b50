"""Pre-trains a BERT, fine-tunes it and asks both, in three to seven minutes.

Trains a vocabulary, builds records, pre-trains a small BERT, fills masks, and
fine-tunes the model on 200 reviews. The text is `pydoc_data.topics` of every
Python installation. The time is that of two idle cores; each part begins with
the time left on this machine, whose speed is measured first.

bert-tf demo --output_dir=demo_output
"""

import math
import pathlib
import statistics
import time

from absl import flags

from . import command_line
from .language_reference import reference_documents

_OUTPUT_DIR = flags.DEFINE_string(
    "output_dir", "demo_output", "Folder of all outputs."
)
_REVIEWS = pathlib.Path(__file__).parents[1] / "examples" / "reviews.csv"
_VOCAB_SIZE = 2048
_SEQ_LENGTH = 64
_STEPS = 1600
_SENTENCES = (
    "If the list is [MASK], an IndexError is raised.",
    "A class definition is an executable [MASK].",
    "The return value of the [MASK] is ignored.",
    "The following is an [MASK] of a function call.",
)
_TEXTS = (
    "My new boots are light, warm and comfortable.",
    "The train was late, dirty and cold.",
)
# The parts, and the seconds that each takes on two idle cores of a Xeon, where
# the products of `_pace` take so many seconds.
_SECONDS_OF_PRODUCTS = 0.0085
_PARTS = {
    "Text": 2,
    "Vocabulary": 1,
    "Records": 2,
    "Pre-training": 183,
    "Masks": 2,
    "Fine-tuning": 11,
}
_NEXT = """
Ask it about other texts, on a page at http://127.0.0.1:8501/ until Ctrl-C:
{activate}\
  bert-tf serve --model={output}/reviews
How the trainings went: {output}/model/report.html, {output}/reviews/report.html

On your own text (one sentence per line, a blank line between documents):
  bert-tf train-vocab --input='corpus/*.txt' --vocab_size=16384 \\
      --output=out/vocab.txt
  bert-tf create-pretraining-data --input='corpus/*.txt' \\
      --vocab_file=out/vocab.txt --output_dir=out/records
  bert-tf pretrain --data_dir=out/records --output_dir=out/model --size=mini \\
      --train_batch_size=64 --num_train_steps=4000 --learning_rate=1e-3
  bert-tf fill-mask --model=out/model "The [MASK] is open."
Repeat a command to resume an interrupted run."""


class _Clock:
    """Announces the parts, with the time left of all of them.

    Until the pre-training it is the planned time at the pace of this machine,
    then at that of the parts until now.
    """

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._begun: list[str] = []
        self._pace = _pace()

    def begin(self, part: str, text: str) -> None:
        """Announces a part."""
        left = self.following(part) + _PARTS[part]
        if "Pre-training" in self._begun:
            planned = sum(_PARTS[name] for name in self._begun)
            left *= self.seconds() / planned
        else:
            left *= self._pace
        self._begun.append(part)
        number, all_parts = len(self._begun), len(_PARTS)
        print(
            f"\n{number} of {all_parts}. {part}: {text} (about "
            f"{round(left):,} seconds left in all)",
            flush=True,
        )

    def following(self, part: str) -> float:
        """The planned seconds of the parts after one."""
        names = list(_PARTS)
        return sum(_PARTS[name] for name in names[names.index(part) + 1 :])

    def seconds(self) -> float:
        """Since the start."""
        return time.monotonic() - self._started


def _pace() -> float:
    """Returns how much slower this machine is than that of `_PARTS`.

    It measures for half a second the products of a feed-forward layer on the
    tokens of a step. Machines differ less in the other half of a step, and so
    in a step by about the square root.
    """
    import tensorflow as tf

    shapes = (64 * _SEQ_LENGTH, 128), (128, 512), (512, 128)
    rows, widen, narrow = map(tf.random.normal, shapes)
    seconds: list[float] = []
    while sum(seconds) < 0.5:
        begun = time.monotonic()
        tf.matmul(tf.nn.gelu(tf.matmul(rows, widen)), narrow).numpy()
        seconds.append(time.monotonic() - begun)
    return math.sqrt(statistics.median(seconds) / _SECONDS_OF_PRODUCTS)


def main() -> None:
    """Runs the parts."""
    from bert_tf.corpora.vocabulary import train_vocab
    from bert_tf.files import write_text
    from bert_tf.progress import followed_by

    clock = _Clock()
    output = pathlib.Path(_OUTPUT_DIR.value)
    corpus, vocab_file = output / "corpus.txt", output / "vocab.txt"
    documents = reference_documents()
    text = "\n\n".join("\n".join(document) for document in documents) + "\n"
    clock.begin(
        "Text",
        f"{len(documents)} topics of Python's language reference, "
        f"{len(text) / 1e3:,.0f} kB in {corpus}",
    )
    if not corpus.exists() or corpus.read_text("utf-8") != text:
        # Records depend on the modification time of their text.
        write_text(corpus, text)
    clock.begin("Vocabulary", f"{_VOCAB_SIZE} WordPiece tokens")
    train_vocab([corpus], _VOCAB_SIZE).save(vocab_file)
    clock.begin("Records", f"sequences of {_SEQ_LENGTH} tokens")
    _make_records(corpus, vocab_file, output / "records")
    clock.begin("Pre-training", "masked LM and next sentence")
    part = _PARTS["Pre-training"]
    with followed_by(clock.following("Pre-training") / part):
        _pretrain(output / "records", output / "model")
    clock.begin("Masks", "what the model puts in place of [MASK]")
    _fill_masks(output / "model")
    clock.begin("Fine-tuning", f"good or bad, by {_REVIEWS.name}")
    _finetune(output / "model", output / "reviews")
    print(f"\nThe demo took {clock.seconds():,.0f} seconds.")
    activate = "  . .venv/bin/activate\n" if __package__ == "tools" else ""
    print(_NEXT.format(output=output, activate=activate))


def _make_records(
    corpus: pathlib.Path, vocab_file: pathlib.Path, folder: pathlib.Path
) -> None:
    from bert_tf.records.build import create_records

    report = create_records(
        corpus,
        vocab_file,
        folder,
        max_seq_length=_SEQ_LENGTH,
        max_predictions_per_seq=10,
        # Five different sets of sentence pairs of the small text.
        dupe_factor=5,
        held_out=0.1,
    )
    # Without the command that would be next.
    print(str(report).rpartition("\nnext: ")[0])


def _pretrain(records: pathlib.Path, model: pathlib.Path) -> None:
    from bert_tf.pretraining.run import pretrain

    between = _STEPS // 4
    pretrain(
        records,
        model,
        size="tiny",
        num_train_steps=_STEPS,
        train_batch_size=64,
        learning_rate=2e-3,
        eval_steps=between,
        save_checkpoints_steps=between,
    )


def _fill_masks(model: pathlib.Path) -> None:
    from bert_tf.inference.fill_mask import fill_mask, open_masked_lm

    opened = open_masked_lm(model)
    for sentence in _SENTENCES:
        best = "  ".join(
            f"{c.token} {c.probability:.0%}"
            for c in fill_mask(opened, sentence)[0]
        )
        print(f"   {sentence}\n      {best}")


def _finetune(model: pathlib.Path, output: pathlib.Path) -> None:
    from bert_tf.finetuned import finetune

    run = finetune(
        model,
        train=str(_REVIEWS),
        text_columns="text",
        label_column="label",
        output_dir=output,
    )
    print()
    for text, answer in zip(_TEXTS, run.model(list(_TEXTS)), strict=True):
        label = answer["label"]
        print(f"   {text}\n      {label} {answer['probabilities'][label]:.0%}")


if __name__ == "__main__":
    command_line.run(main)
