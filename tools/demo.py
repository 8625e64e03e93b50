"""Pre-trains a BERT in a few minutes, on Python's language reference.

Trains a vocabulary, builds records, pre-trains a small BERT and fills masks.
The text is `pydoc_data.topics` of every Python installation.

bert-tf demo --output_dir=demo_output
"""

import pathlib
import time

from absl import flags

from . import command_line
from .language_reference import reference_documents

_OUTPUT_DIR = flags.DEFINE_string(
    "output_dir", "demo_output", "Folder of all outputs."
)
_VOCAB_SIZE = 2048
_SEQ_LENGTH = 64
_STEPS = 2000
_SENTENCES = (
    "If the list is [MASK], an IndexError is raised.",
    "A class definition is an executable [MASK].",
    "The return value of the [MASK] is ignored.",
    "The following is an [MASK] of a function call.",
)
_NEXT = """
These were all steps: text -> vocabulary -> records -> a pre-trained BERT.
See {output}/model/learning_curve.png, or watch the curves during training with
  tensorboard --logdir={output}/model/tensorboard

On your own text (one sentence per line, a blank line between documents):
{activate}\
  bert-tf train-vocab --input='corpus/*.txt' --vocab_size=16384 \\
      --output=out/vocab.txt
  bert-tf create-pretraining-data --input='corpus/*.txt' \\
      --vocab_file=out/vocab.txt --output_dir=out/records
  bert-tf pretrain --data_dir=out/records --output_dir=out/model --size=mini \\
      --train_batch_size=64 --num_train_steps=4000 --learning_rate=1e-3
  bert-tf fill-mask --model=out/model "The [MASK] is open."
Repeat a command to resume an interrupted run."""


def main() -> None:
    """Runs the four steps."""
    from bert_tf.corpora.vocabulary import train_vocab
    from bert_tf.files import write_text
    from bert_tf.inference.fill_mask import MaskFiller

    started = time.monotonic()
    output = pathlib.Path(_OUTPUT_DIR.value)
    documents = reference_documents()
    corpus = output / "corpus.txt"
    text = "\n\n".join("\n".join(document) for document in documents)
    if not corpus.exists() or corpus.read_text("utf-8") != text + "\n":
        # Records depend on the modification time of their text.
        write_text(corpus, text + "\n")
    print(
        f"1. Text: {len(documents)} topics of Python's language reference, "
        f"{len(text) / 1e3:,.0f} kB in {corpus}",
        flush=True,
    )
    vocab_file = output / "vocab.txt"
    print(f"\n2. Vocabulary: {_VOCAB_SIZE} WordPiece tokens", flush=True)
    train_vocab([corpus], _VOCAB_SIZE).save(vocab_file)
    _make_records(corpus, vocab_file, output / "records")
    _pretrain(output / "records", output / "model")
    print("\n5. What the model puts in place of [MASK]:", flush=True)
    filler = MaskFiller.from_checkpoint(output / "model")
    for sentence in _SENTENCES:
        best = "  ".join(
            f"{c.token} {c.probability:.0%}" for c in filler(sentence)[0]
        )
        print(f"   {sentence}\n      {best}")
    print(f"\nThe demo took {time.monotonic() - started:,.0f} seconds.")
    activate = "  . .venv/bin/activate\n" if __package__ == "tools" else ""
    print(_NEXT.format(output=output, activate=activate))


def _make_records(
    corpus: pathlib.Path, vocab_file: pathlib.Path, folder: pathlib.Path
) -> None:
    from bert_tf.records.build import create_records
    from bert_tf.records.recipe import RecordsRecipe

    print(f"\n3. Records: sequences of {_SEQ_LENGTH} tokens", flush=True)
    recipe = RecordsRecipe(
        max_seq_length=_SEQ_LENGTH,
        max_predictions_per_seq=10,
        # Five different sets of sentence pairs of the small text.
        dupe_factor=5,
        held_out=0.1,
    )
    report = create_records([corpus], vocab_file, folder, recipe)
    print(report)


def _pretrain(records: pathlib.Path, model: pathlib.Path) -> None:
    from bert_tf.pretraining.recipe import PretrainingRecipe
    from bert_tf.pretraining.run import run_pretraining

    print("\n4. Pre-training: masked LM and next sentence", flush=True)
    recipe = PretrainingRecipe(
        data_dir=str(records),
        size="tiny",
        train_batch_size=64,
        num_train_steps=_STEPS,
        learning_rate=2e-3,
        eval_steps=_STEPS // 8,
        save_checkpoints_steps=_STEPS // 4,
    )
    run_pretraining(recipe, model)


if __name__ == "__main__":
    command_line.run(main)
