"""An experiment that takes seconds, from text that Python carries."""

import pathlib
import pydoc_data.topics
import sys

from bert_tf.experiments import Cell, Experiment, Finetuning, Pretraining
from bert_tf.experiments.plan import Sources
from bert_tf.experiments.run import run_experiment
from bert_tf.experiments.running import Commands
from bert_tf.experiments.scales import SCALES, Scale
from tools.command_line import words
from tools.task_files import load_task

SCALES["test"] = Scale(
    description="for tests",
    vocab_size=400,
    sizes={"12/768/12": "1/16/2"},
    records={
        "max_seq_length": 32,
        "max_predictions_per_seq": 5,
        "held_out": 0.1,
    },
    pretraining={
        "train_batch_size": 8,
        "num_train_steps": 20,
        "eval_steps": 10,
        "save_checkpoints_steps": 5,
    },
    finetuning={"max_seq_length": 32, "num_train_epochs": 1.0},
    tasks={},
    seeds=2,
)
TEXTS = Finetuning(
    task="sentence",
    settings={
        "train_file": "texts.csv",
        "text_columns": "text",
        "label_column": "label",
    },
)
MODELS = {
    "BERT": Pretraining(),
    "No NSP": Pretraining(
        objective="masked_lm", records={"random_next_prob": 0.0}
    ),
}


def finetuning(model: Pretraining) -> Finetuning:
    """A fine-tuning on texts.csv."""
    return Finetuning(task=TEXTS.task, model=model, settings=TEXTS.settings)


EXPERIMENT = Experiment(
    title="Two rows",
    cells=[
        cell
        for row, model in MODELS.items()
        for cell in (
            Cell(
                row=row,
                column="Texts",
                run=finetuning(model),
                score="accuracy",
                paper=84.4,
            ),
            Cell(
                row=row,
                column="Perplexity",
                run=model,
                score="masked_lm_perplexity",
                factor=1.0,
            ),
        )
    ],
    lower_is_better=["Perplexity"],
)


def write_data(folder: pathlib.Path) -> None:
    """A corpus, and texts with labels."""
    topics = pydoc_data.topics.topics
    text = "\n\n".join(
        "\n".join(" ".join(topics[name].split()).split(". "))
        for name in sorted(topics)[:30]
    )
    (folder / "corpus").mkdir(parents=True)
    (folder / "corpus" / "text.txt").write_text(text + "\n", encoding="utf-8")
    rows = "".join(
        f"{'good' if n % 2 else 'bad'} text number {n},{n % 2}\n"
        for n in range(60)
    )
    (folder / "texts.csv").write_text("text,label\n" + rows)


def run(data: pathlib.Path, output_dir: pathlib.Path, **changes) -> None:
    """Runs the experiment as the command does."""
    given = {"scale_name": "test", **changes}
    run_experiment(
        EXPERIMENT,
        "small",
        sources=Sources(
            corpus=f"{data}/corpus/*.txt",
            data_dir=str(data),
            init_from="",
            stand_ins={},
            precision="float32",
            strategy="one_device",
        ),
        output_dir=output_dir,
        runs_dir=output_dir / "runs",
        load_task=load_task,
        commands=Commands(
            program=lambda tool: [sys.executable, "-m", f"tools.{tool}"],
            shown_as=lambda tool: f"python -m tools.{tool}",
            words=words,
            this="python -m tools.run_experiment",
        ),
        **given,
    )
