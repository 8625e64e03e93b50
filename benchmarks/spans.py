"""SQuAD 1.1 beside Hugging Face transformers on PyTorch, on this machine.

    python -m benchmarks.spans --peer_python=.venv-peers/bin/python \
        --init_from=FOLDER --data_dir=squad --output_dir=results

Both fine-tune the same weights, a Hugging Face model folder, on the same
questions with the same recipe, each in a fresh process, and answer all of dev;
both files of answers are scored by the code of `bert-tf score`. Speeds are
questions a second: of training without its first steps, of prediction from
text to answers.

With --epochs=0.05 --dev_questions=1000 the speeds alone are measured, in
minutes; no score means anything then.

What is finished is kept in --output_dir: the same command goes on from there.
The peer needs the environment of requirements-peers.txt.
"""

import json
import pathlib
import sys
import time

from absl import flags

from benchmarks import comparison
from bert_tf.errors import UserError
from bert_tf.files import write_text
from tools import command_line

_PEER_PYTHON = flags.DEFINE_string(
    "peer_python", None, "Python with torch and transformers."
)
_INIT_FROM = flags.DEFINE_string(
    "init_from", None, "Hugging Face model folder to start from."
)
_DATA_DIR = flags.DEFINE_string("data_dir", None, "The folder of SQuAD 1.1.")
_OUTPUT_DIR = flags.DEFINE_string("output_dir", None, "Keeps the results.")
_QUESTIONS = flags.DEFINE_integer(
    "questions", 20_000, "Training questions, those of the first articles."
)
_DEV_QUESTIONS = flags.DEFINE_integer(
    "dev_questions", 0, "Questions of dev to answer, 0 for all."
)
_EPOCHS = flags.DEFINE_float("epochs", 1.0, "Passes over them.")
_SEED = flags.DEFINE_integer("seed", 1, "Of both sides.")
_LEARNING_RATE = flags.DEFINE_float("learning_rate", 5e-5, "Of both sides.")
_PRECISION = flags.DEFINE_enum(
    "precision", "float32", ["float32", "bfloat16"], "On both sides."
)
_PEER_BATCHES = flags.DEFINE_enum(
    "peer_batches",
    "padded",
    ["padded", "random", "grouped"],
    "The peer's batches: as in transformers' example, all rows padded to 384 "
    "tokens; to the longest of random rows; of rows of like lengths.",
)
_BATCH, _EVALUATION_BATCH = 32, 64
_PEER = "benchmarks/spans_transformers.py"
_OUR_PRECISION = {"float32": "float32", "bfloat16": "mixed_bfloat16"}


def first_questions(name: str, count: int, flag: str) -> pathlib.Path:
    """A file of the first paragraphs that have so many questions."""
    source = pathlib.Path(_DATA_DIR.value, name).resolve()
    path = pathlib.Path(_OUTPUT_DIR.value, f"{source.stem}-{count}.json")
    if path.exists():
        return path.resolve()
    whole = json.loads(source.read_text(encoding="utf-8"))
    left, articles = count, []
    for article in whole["data"]:
        kept = []
        for paragraph in article["paragraphs"]:
            if left <= 0:
                break
            kept.append({**paragraph, "qas": paragraph["qas"][:left]})
            left -= len(kept[-1]["qas"])
        if kept:
            articles.append({**article, "paragraphs": kept})
    if left > 0:
        raise UserError(f"--{flag}={count}: {source} has {left} fewer.")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps({**whole, "data": articles}))
    return path.resolve()


def train_file() -> pathlib.Path:
    return first_questions("train-v1.1.json", _QUESTIONS.value, "questions")


def dev_file() -> pathlib.Path:
    if not _DEV_QUESTIONS.value:
        return pathlib.Path(_DATA_DIR.value, "dev-v1.1.json").resolve()
    return first_questions(
        "dev-v1.1.json", _DEV_QUESTIONS.value, "dev_questions"
    )


def peer(train: pathlib.Path) -> dict:
    """Trains the peer and returns what it says of itself."""
    output = train.with_name("peer_raw.json")
    comparison.run(
        [
            _PEER_PYTHON.value,
            _PEER,
            f"--model={_INIT_FROM.value}",
            f"--train={train}",
            f"--dev={dev_file()}",
            f"--seed={_SEED.value}",
            f"--epochs={_EPOCHS.value}",
            f"--learning_rate={_LEARNING_RATE.value}",
            f"--batch_size={_BATCH}",
            f"--precision={_PRECISION.value}",
            f"--batches={_PEER_BATCHES.value}",
            f"--threads={comparison.threads()}",
            f"--output={output}",
        ]
    )
    found = json.loads(output.read_text())
    predictions = train.with_name("peer_predictions.json")
    write_text(predictions, json.dumps(found.pop("predictions")))
    output.unlink()
    return found | scores(predictions)


def ours(train: pathlib.Path, name: str) -> dict:
    """Trains with `bert-tf finetune`, predicts, and returns the results."""
    folder = train.with_name(f"{name}-ours")
    common = [
        sys.executable,
        "-m",
        "tools.run_finetuning",
        "--task=squad_v1",
        f"--output_dir={folder}",
        f"--precision={_OUR_PRECISION[_PRECISION.value]}",
        f"--train_file={train.resolve()}",
        f"--dev_file={dev_file()}",
        # One evaluation, at the end.
        "--eval_steps=1000000",
    ]
    settings = {
        "init_from": _INIT_FROM.value,
        "seed": _SEED.value,
        "num_train_epochs": _EPOCHS.value,
        "learning_rate": _LEARNING_RATE.value,
        "train_batch_size": _BATCH,
    }
    given = [f"--{name}={value}" for name, value in settings.items()]
    comparison.run([*common, "--mode=train", *given])
    results = json.loads((folder / "results.json").read_text())
    comparison.run([*common, "--mode=predict"])
    questions = results["examples"]["train"]
    share = questions / results["train_rows"]
    return {
        "train_questions": questions,
        "train_questions_per_second": share * results["examples_per_second"],
        "dev_questions_per_second": prediction_speed(folder),
        "steps": results["num_train_steps"],
        "learning_rate": _LEARNING_RATE.value,
        "epochs": _EPOCHS.value,
        **scores(folder / "predictions.json"),
    }


def prediction_speed(folder: pathlib.Path) -> float:
    """Questions of dev a second, from text to answers."""
    import tensorflow as tf

    from bert_tf.families.model_folder import load_model
    from bert_tf.families.question_answering.squad_files import read_questions
    from bert_tf.families.task import Split
    from bert_tf.finetuning.evaluation import Predictor
    from bert_tf.side_by_side import one_core_a_batch
    from tools.shared_flags import load_task

    # As `bert-tf finetune` does where it predicts alone.
    one_core_a_batch()
    task = load_task("squad_v1").resolve(None)
    precision = _OUR_PRECISION[_PRECISION.value]
    model, tokenizer, facts = load_model(folder, task, precision)
    strategy = tf.distribute.get_strategy()
    predictor = Predictor([model], strategy, _EVALUATION_BATCH)
    questions = read_questions(str(dev_file()))
    started = time.perf_counter()
    split = Split(questions, task.encode(questions, tokenizer, facts))
    outputs = predictor.outputs(split.rows)
    task.decode(outputs, split, facts)
    return len(questions) / (time.perf_counter() - started)


def scores(predictions: pathlib.Path) -> dict[str, float]:
    from tools.shared_flags import load_task, recipe_of

    task = load_task("squad_v1")
    recipe = recipe_of(task, "squad_v1", [])
    return task.score_file(recipe, str(dev_file()), str(predictions))


def main() -> None:
    """Prints the machine, the versions and a table."""
    comparison.show_heading("benchmarks.spans", _PEER_PYTHON.value)
    train = train_file()
    print(
        f"{_QUESTIONS.value:,} questions, {_EPOCHS.value:g} epochs, batch "
        f"{_BATCH}, learning rate {_LEARNING_RATE.value}, {_PRECISION.value}",
        flush=True,
    )
    name = "-".join(
        [
            f"{_QUESTIONS.value}x{_EPOCHS.value:g}",
            f"dev-{_DEV_QUESTIONS.value or 'whole'}",
            f"{_PRECISION.value}-seed-{_SEED.value}",
        ]
    )
    folder = _OUTPUT_DIR.value
    theirs = comparison.kept(
        folder, f"{name}-peer-{_PEER_BATCHES.value}", lambda: peer(train)
    )
    mine = comparison.kept(folder, f"{name}-ours", lambda: ours(train, name))
    print("| | bert_tf | transformers | ratio or difference |")
    print("|---|---|---|---|")
    for key in ("exact_match", "f1"):
        us, them = mine[key], theirs[key]
        print(f"| {key} | {us:.2f} | {them:.2f} | {us - them:+.2f} |")
    for key in ("train_questions_per_second", "dev_questions_per_second"):
        us, them = mine[key], theirs[key]
        print(f"| {key} | {us:.1f} | {them:.1f} | {us / them:.2f} |")


if __name__ == "__main__":
    command_line.use_huge_pages()
    flags.mark_flags_as_required(
        ["peer_python", "init_from", "data_dir", "output_dir"]
    )
    command_line.run(main)
