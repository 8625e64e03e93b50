"""Fine-tuning beside Hugging Face transformers on PyTorch, on this machine.

    python -m benchmarks.finetuning --peer_python=.venv-peers/bin/python \
        --init_from=FOLDER --data_dir=glue --output_dir=results

Both start from the same weights, a Hugging Face model folder, with the same
recipe, each in a fresh process, in turn, so that a slow minute of the machine
falls on both. First a batch goes through both encoders, which must agree. Then
come short trainings for speed, of which the median counts: the peer pads a
batch to its longest row (dynamic) or to 128. Then come whole trainings for dev
scores; of the scores after each epoch both sides keep the best by the task's
main metric. Speeds are training examples a second, without the first steps,
evaluation and saving.

Both sides get their memory in huge pages where glibc can ask for them, as
`bert-tf finetune` does by itself.

What is finished is kept in --output_dir: the same command goes on from there.
The peer needs the environment of requirements-peers.txt.
"""

import json
import pathlib
import statistics
import sys
import tempfile

from absl import flags

from benchmarks import comparison
from bert_tf.errors import UserError
from tools import command_line

_PEER_PYTHON = flags.DEFINE_string(
    "peer_python", None, "Python with torch and transformers."
)
_INIT_FROM = flags.DEFINE_string(
    "init_from", None, "Hugging Face model folder to start from."
)
_DATA_DIR = flags.DEFINE_string("data_dir", None, "The folder of GLUE.")
_OUTPUT_DIR = flags.DEFINE_string("output_dir", None, "Keeps the results.")
_TASKS = flags.DEFINE_string(
    "tasks", "mrpc:3,rte:3,stsb:3,cola:3,sst2:1", "Tasks, each with its seeds."
)
_SCORES_PRECISION = flags.DEFINE_enum(
    "scores_precision",
    "float32",
    ["float32", "bfloat16"],
    "Of the whole trainings, on both sides.",
)
_SPEED_PRECISIONS = flags.DEFINE_list(
    "speed_precisions", "float32,bfloat16", "Of the short trainings."
)
_PARTS = flags.DEFINE_list("parts", "equality,speed,scores", "What to do.")
_LEARNING_RATE = flags.DEFINE_float("learning_rate", 5e-5, "Of both sides.")
_EPOCHS = flags.DEFINE_float("epochs", 3.0, "Of the whole trainings.")
_ROUNDS = flags.DEFINE_integer("rounds", 3, "Short trainings of each kind.")
_STEPS = flags.DEFINE_integer("steps", 60, "Steps of a short training.")

_BATCH = 32
_PEER = "benchmarks/finetuning_transformers.py"
_OUR_PRECISION = {"float32": "float32", "bfloat16": "mixed_bfloat16"}


def train_peer(task: str, seed: int, *options: str) -> dict:
    """Runs the peer and returns what it says of itself."""
    with tempfile.TemporaryDirectory() as folder:
        output = pathlib.Path(folder, "peer.json")
        comparison.run(
            [
                _PEER_PYTHON.value,
                _PEER,
                f"--init_from={_INIT_FROM.value}",
                f"--data_dir={_DATA_DIR.value}",
                f"--task={task}",
                f"--seed={seed}",
                f"--learning_rate={_LEARNING_RATE.value}",
                f"--epochs={_EPOCHS.value}",
                f"--threads={comparison.threads()}",
                f"--output={output}",
                *options,
            ]
        )
        return json.loads(output.read_text())


def train_ours(task: str, seed: int, precision: str, epochs: float) -> dict:
    """Fine-tunes with `bert-tf finetune` and returns its results."""
    with tempfile.TemporaryDirectory() as folder:
        run_folder = pathlib.Path(folder, "run")
        comparison.run(
            [
                sys.executable,
                "-m",
                "tools.run_finetuning",
                f"--task={task}",
                f"--data_dir={_DATA_DIR.value}",
                f"--init_from={_INIT_FROM.value}",
                f"--output_dir={run_folder}",
                "--mode=train",
                f"--precision={_OUR_PRECISION[precision]}",
                f"--seed={seed}",
                f"--learning_rate={_LEARNING_RATE.value}",
                f"--num_train_epochs={epochs}",
                f"--train_batch_size={_BATCH}",
            ]
        )
        results = json.loads((run_folder / "results.json").read_text())
    recipe = results["recipe"]
    return {
        "dev": results["dev"]["dev"],
        "main_metric": results["main_metric"],
        "examples_per_second": results["examples_per_second"],
        "learning_rate": recipe["learning_rate"],
        "epochs": recipe["num_train_epochs"],
    }


def encoder_outputs(task: str) -> pathlib.Path:
    """A batch of dev rows and the peer's outputs for it."""
    path = pathlib.Path(_OUTPUT_DIR.value, task, "outputs.npz")
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        train_peer(task, 1, "--max_steps=6", f"--save_outputs={path}")
    return path


def show_equality(task: str) -> None:
    """Prints how far the encoders are apart before training."""
    import numpy as np

    from bert_tf.encoders import BertEncoder
    from bert_tf.families.text_classification.config import (
        TextClassificationConfig,
    )
    from bert_tf.families.text_classification.task import encode
    from bert_tf.text.tokenizer import BertTokenizer

    theirs = np.load(encoder_outputs(task))
    ids, mask = theirs["input_ids"], theirs["input_mask"]
    examples, max_seq_length = load_split(task, "dev")
    tokenizer = BertTokenizer.from_checkpoint(_INIT_FROM.value)
    config = TextClassificationConfig(
        *(task, (), max_seq_length, "classes", 2, len(examples[0].texts)),
        *("", ",", "cut", 1),
    )
    rows = encode(examples[: len(ids)], tokenizer, config)
    batch = rows.batch(np.arange(len(ids)))
    names = ("input_ids", "input_mask", "segment_ids")
    same = all(np.array_equal(batch[name], theirs[name]) for name in names)
    encoder = BertEncoder.from_checkpoint(_INIT_FROM.value)
    ours = encoder({name: theirs[name] for name in names}, training=False)
    tokens = np.abs(ours["sequence_output"] - theirs["sequence_output"])
    pooled = np.abs(ours["pooled_output"] - theirs["pooled_output"]).max()
    print(
        f"{task} {ids.shape[0]}x{ids.shape[1]} dev rows: token ids "
        f"{'equal' if same else 'DIFFERENT'}, max |difference| of the token "
        f"outputs {tokens[mask == 1].max():.1e}, pooled {pooled:.1e}",
        flush=True,
    )


def median_speeds(task: str, precision: str) -> dict[str, float]:
    """Examples a second of ours and of the peer's two paddings."""
    speeds: dict[str, list[float]] = {"ours": [], "dynamic": [], "128": []}
    rows = comparison.kept(
        _OUTPUT_DIR.value,
        f"{task}/rows",
        lambda: {"rows": len(load_split(task, "train")[0])},
    )["rows"]
    # Half a step more, so that rounding down leaves the steps asked for.
    epochs = (_STEPS.value + 0.5) * _BATCH / rows
    for number in range(_ROUNDS.value):
        for name in speeds:

            def make(name: str = name, seed: int = number + 1) -> dict:
                if name == "ours":
                    return train_ours(task, seed, precision, epochs)
                return train_peer(
                    task,
                    seed,
                    f"--max_steps={_STEPS.value}",
                    f"--padding={name}",
                    f"--precision={precision}",
                )

            file = f"{task}/{precision}-{name}-{_STEPS.value}-{number + 1}"
            found = comparison.kept(_OUTPUT_DIR.value, file, make)
            speeds[name].append(found["examples_per_second"])
    return {name: statistics.median(rates) for name, rates in speeds.items()}


def load_split(task: str, split: str) -> tuple[list, int]:
    """The examples of a split, and how many tokens the recipe lets in."""
    from tools.shared_flags import load_task, recipe_of

    found = load_task(task)
    recipe = recipe_of(found, task, [f"data_dir={_DATA_DIR.value}"])
    return found.load(split, recipe), recipe.max_seq_length


def show_speeds(task: str) -> None:
    for precision in _SPEED_PRECISIONS.value:
        speeds = median_speeds(task, precision)
        ours, dynamic, fixed = (speeds[k] for k in ("ours", "dynamic", "128"))
        print(
            f"| {task} | {precision} | {ours:.1f} | {dynamic:.1f} | "
            f"{ours / dynamic:.2f} | {fixed:.1f} | {ours / fixed:.2f} |",
            flush=True,
        )


def show_scores(task: str, seeds: int) -> None:
    """Trains both sides to the end and prints a row for each dev score."""
    precision = _SCORES_PRECISION.value

    def ours_of(seed: int) -> dict:
        return train_ours(task, seed, precision, _EPOCHS.value)

    def peer_of(seed: int) -> dict:
        return train_peer(task, seed, f"--precision={precision}")

    ours, theirs = [], []
    for seed in range(1, seeds + 1):
        name = f"{task}/{precision}-seed-{seed}"
        theirs.append(
            comparison.kept(
                _OUTPUT_DIR.value, f"{name}-peer", lambda s=seed: peer_of(s)
            )
        )
        ours.append(
            comparison.kept(
                _OUTPUT_DIR.value, f"{name}-ours", lambda s=seed: ours_of(s)
            )
        )
    check_recipe(task, [*ours, *theirs])
    main_metric = ours[0]["main_metric"]
    best = [
        max(found["dev_by_epoch"], key=lambda scores: scores[main_metric])
        for found in theirs
    ]
    for metric in ours[0]["dev"]:
        us = [100 * found["dev"][metric] for found in ours]
        them = [100 * scores[metric] for scores in best]
        difference = statistics.mean(us) - statistics.mean(them)
        cells = [comparison.spread(us), comparison.spread(them)]
        print(
            f"| {task} | {metric} | {' | '.join(cells)} | {difference:+.1f} |",
            flush=True,
        )


def check_recipe(task: str, found: list[dict]) -> None:
    given = {"learning_rate": _LEARNING_RATE.value, "epochs": _EPOCHS.value}
    for name, value in given.items():
        if any(one[name] != value for one in found):
            raise UserError(
                f"--output_dir={_OUTPUT_DIR.value}: holds trainings of {task} "
                f"with another {name} than {value}; choose another folder."
            )


def seeds_of_tasks() -> dict[str, int]:
    found = {}
    for item in _TASKS.value.split(","):
        task, _, seeds = item.partition(":")
        if not seeds.isdecimal() or int(seeds) < 1:
            raise UserError(
                f"--tasks: {item!r} is not like mrpc:3, a task and its seeds."
            )
        found[task] = int(seeds)
    return found


def main() -> None:
    """Prints the machine, the versions and a table for each part."""
    tasks = seeds_of_tasks()
    unknown = set(_PARTS.value) - {"equality", "speed", "scores"}
    if unknown:
        raise UserError(
            f"--parts: {', '.join(sorted(unknown))}; the parts are equality, "
            "speed and scores."
        )
    unknown = set(_SPEED_PRECISIONS.value) - set(_OUR_PRECISION)
    if unknown:
        raise UserError(
            f"--speed_precisions: {', '.join(sorted(unknown))}; the precisions "
            "are float32 and bfloat16."
        )
    comparison.show_heading("benchmarks.finetuning", _PEER_PYTHON.value)
    print(
        f"batch {_BATCH}, learning rate {_LEARNING_RATE.value}, "
        f"{_EPOCHS.value:g} epochs, at most 128 tokens; speeds: median of "
        f"{_ROUNDS.value} trainings of {_STEPS.value} steps",
        flush=True,
    )
    if "equality" in _PARTS.value:
        for task in tasks:
            show_equality(task)
    if "speed" in _PARTS.value:
        print(
            "\nTraining examples/s\n| task | precision | bert_tf | "
            "transformers, dynamic | ratio | transformers, 128 | ratio |"
            "\n|---|---|---|---|---|---|---|"
        )
        for task in tasks:
            show_speeds(task)
    if "scores" in _PARTS.value:
        print(
            f"\nDev scores x 100, {_SCORES_PRECISION.value}: mean and standard "
            "deviation of the seeds\n"
            "| task | score | bert_tf | transformers | difference |"
            "\n|---|---|---|---|---|"
        )
        for task, seeds in tasks.items():
            show_scores(task, seeds)


if __name__ == "__main__":
    flags.mark_flags_as_required(
        ["peer_python", "init_from", "data_dir", "output_dir"]
    )
    command_line.run(main)
