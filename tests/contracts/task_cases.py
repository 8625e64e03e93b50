"""A tiny training of every family on files in the formats of users."""

import contextlib
import csv
import dataclasses
import fcntl
import json
import pathlib
import pickle
import warnings
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import numpy as np
import tensorflow as tf

from bert_tf.checkpoints import Checkpoint, save_checkpoint
from bert_tf.config import BertConfig
from bert_tf.encoders import encoder_class
from bert_tf.finetuning.run import run_finetuning
from bert_tf.text.vocabulary import Vocabulary
from tests.finetuning.sentence_runs import BAD, FILLER, GOOD, TOKENS
from tests.model_helpers import fill
from tools.shared_flags import load_task, recipe_of

NUM_TRAIN, NUM_DEV, NUM_TEST = 72, 14, 9
SETTINGS: dict[str, Any] = {
    "max_seq_length": 32,
    "train_batch_size": 8,
    "eval_batch_size": 4,
    "learning_rate": 3e-2,
    "num_train_epochs": 1.0,
    "log_steps": 3,
    "save_checkpoints_steps": 20,
}


def without_drawings() -> contextlib.AbstractContextManager[Any]:
    """Leaves the files of figures empty, whose layout takes long."""
    return mock.patch("matplotlib.figure.Figure.savefig")


def model_folder(folder: pathlib.Path, **changes: Any) -> pathlib.Path:
    """An encoder of one layer whose initial outputs differ between words."""
    values = {
        "vocab_size": len(TOKENS),
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "max_position_embeddings": 40,
        **changes,
    }
    config = BertConfig.from_dict(values, "the folder")
    encoder = encoder_class(config)(config)
    arrays = fill(encoder, seed=3, scale=0.3).to_arrays()
    words, *_ = arrays
    for name in arrays:
        if not name.endswith(("gamma", "beta")):
            arrays[name] *= 3.0 if name == words else 0.3
    checkpoint = Checkpoint(config, arrays, Vocabulary(TOKENS), True)
    save_checkpoint(folder, checkpoint)
    return folder


def write_files(
    write: Callable[[pathlib.Path, int, int, bool], None],
    folder: pathlib.Path,
    names: Sequence[str],
) -> None:
    """Writes train, dev and test, each with another seed."""
    counts = (NUM_TRAIN, NUM_DEV, NUM_TEST)
    for seed, (name, count) in enumerate(zip(names, counts, strict=False)):
        write(folder / name, count, seed, seed == 2)


def sentence(random: np.random.Generator) -> tuple[str, bool]:
    """3 to 14 words, half of them good, or half of them bad."""
    good = bool(random.random() < 0.4)
    words = list(random.choice(FILLER, random.integers(3, 15)))
    words[::2] = random.choice(GOOD if good else BAD, len(words[::2]))
    return " ".join(words), good


def write_reviews(label: Callable[[str, bool, int], str]) -> Callable:
    """A writer of CSV files with a text and a label."""

    def write(path: pathlib.Path, count: int, seed: int, test: bool) -> None:
        random = np.random.default_rng(seed)
        with path.open("w", newline="", encoding="utf-8") as file:
            table = csv.writer(file)
            table.writerow(["text"] if test else ["text", "label"])
            for number in range(count):
                text, good = sentence(random)
                cells = [text] if test else [text, label(text, good, number)]
                table.writerow(cells)

    return write


def write_pairs(path: pathlib.Path, count: int, seed: int, test: bool) -> None:
    """MRPC's columns: are both sentences good?"""
    random = np.random.default_rng(seed)
    head = ["Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"]
    rows = [["index", *head[1:]] if test else head]
    for number in range(count):
        text, good = sentence(random)
        words = text.split()
        first = number if test else int(good)
        halves = " ".join(words[:2]), " ".join(words[2:])
        rows.append([str(first), "1", "2", *halves])
    path.write_text("".join("\t".join(row) + "\n" for row in rows))


def write_similar(
    path: pathlib.Path, count: int, seed: int, test: bool
) -> None:
    """Texts of the same three words each, among others."""
    del test
    random = np.random.default_rng(seed)
    lines = []
    for _ in range(count):
        same = list(random.choice(GOOD + BAD + FILLER, 3, replace=False))
        row = {
            name: " ".join([*random.choice(FILLER, 2), *same])
            for name in ("anchor", "positive")
        }
        lines.append(json.dumps(row))
    path.write_text("\n".join(lines) + "\n")


def write_choices(
    path: pathlib.Path, count: int, seed: int, test: bool
) -> None:
    """Rows of 2 to 5 choices, of which the correct one has good words."""
    random = np.random.default_rng(seed)
    lines = []
    for _ in range(count):
        label = int(random.integers(number := int(random.integers(2, 6))))
        options = []
        for place in range(number):
            words = list(random.choice(FILLER, random.integers(2, 9)))
            kind = GOOD if place == label else BAD
            words[::2] = random.choice(kind, len(words[::2]))
            options.append(" ".join(words))
        context = " ".join(random.choice(FILLER, random.integers(2, 8)))
        row = {"text": context, "options": options, "answer": label}
        if test:
            del row["answer"]
        lines.append(json.dumps(row))
    path.write_text("\n".join(lines) + "\n")


def write_rankings(
    path: pathlib.Path, count: int, seed: int, test: bool
) -> None:
    """Queries with 2 to 5 documents, of which the relevant have good words."""
    random = np.random.default_rng(seed)
    lines = []
    for _ in range(count):
        documents, labels = [], []
        for _ in range(int(random.integers(2, 6))):
            text, good = sentence(random)
            documents.append(text)
            labels.append(int(good))
        query = " ".join(random.choice(FILLER, random.integers(2, 8)))
        row = {"query": query, "document": documents}
        lines.append(json.dumps(row if test else row | {"label": labels}))
    path.write_text("\n".join(lines) + "\n")


def write_tags(path: pathlib.Path, count: int, seed: int, test: bool) -> None:
    """Sentences whose good words are PER and bad words LOC, in IOB1."""
    del test
    random = np.random.default_rng(seed)
    lines = []
    for number in range(count):
        if number % 4 == 0:
            lines += ["-DOCSTART- -X- O O", ""]
        for _ in range(int(random.integers(1, 6))):
            words, kind = [(GOOD, "PER"), (BAD, "LOC")][
                int(random.random() < 0.5)
            ]
            name = str(random.choice(words))
            if random.random() < 0.3:
                name = f"{name}-{random.choice(words)}"
            filler = random.choice(FILLER, int(random.integers(1, 4)))
            lines += [f"{word} N I-NP O" for word in filler]
            lines.append(f"{name} N I-NP I-{kind}")
        lines.append("")
    path.write_text("\n".join(lines) + "\n")


def write_questions(with_null: bool) -> Callable:
    """A writer of SQuAD's files: which word of the context is good?"""

    def write(path: pathlib.Path, count: int, seed: int, test: bool) -> None:
        del test
        random = np.random.default_rng(seed)
        paragraphs = []
        for number in range(count):
            words = list(random.choice(FILLER + BAD, random.integers(4, 18)))
            asked: dict[str, Any] = {"id": f"{seed}-{number}", "answers": []}
            asked["question"] = "the good"
            asked["is_impossible"] = with_null and random.random() < 0.4
            if not asked["is_impossible"]:
                place = int(random.integers(len(words)))
                words[place] = str(random.choice(GOOD))
                start = len(" ".join(words[:place])) + (place > 0)
                answer = {"text": words[place], "answer_start": start}
                asked["answers"].append(answer)
            paragraphs.append({"context": " ".join(words), "qas": [asked]})
        data = {"data": [{"title": "t", "paragraphs": paragraphs}]}
        path.write_text(json.dumps(data))

    return write


@dataclasses.dataclass(frozen=True)
class Case:
    """A family's training.

    Attributes:
      task: what `--task` is given.
      write: writes one file: path, rows, seed, whether of test rows.
      files: the names of train, dev and, where there is one, test.
      settings: besides `SETTINGS`.
      score: the score that must reach `reached`, at most 1.
      scale: the ratio of a scored file's values to those of results.json.
      rounding: the relative tolerance of a scored file's values.
      graphs: whether to compute in graphs, which makes many steps cheaper.
    """

    task: str
    write: Callable[[pathlib.Path, int, int, bool], None]
    files: tuple[str, ...]
    settings: dict[str, Any]
    score: str
    reached: float
    scale: float = 1.0
    rounding: float = 1e-6
    graphs: bool = False

    def make(self, folder: pathlib.Path, start: pathlib.Path) -> Any:
        """Writes the files, and returns task and recipe.

        Args:
          folder: takes the files.
          start: the model to start from.
        """
        data = self.train_path(folder).parent
        data.mkdir(parents=True, exist_ok=True)
        write_files(self.write, data, self.files)
        return self.on_files(folder, start)

    def on_files(self, folder: pathlib.Path, start: pathlib.Path) -> Any:
        """Returns task and recipe, given that the files are written."""
        settings = SETTINGS | self.settings | {"init_from": str(start)}
        if "train_file" in settings:
            for name in ("train_file", "dev_file", "test_file"):
                if name in settings:
                    settings[name] = str(folder / settings[name])
        else:
            settings["data_dir"] = str(folder)
        task = load_task(self.task)
        pairs = [f"{name}={value}" for name, value in settings.items()]
        return task, recipe_of(task, self.task, [f"task={self.task}", *pairs])

    def train_path(self, folder: pathlib.Path) -> pathlib.Path:
        """The file to train on."""
        data = folder / "MRPC" if self.task == "mrpc" else folder
        return data / self.files[0]


def _mood(text: str, good: bool, number: int) -> str:
    return "up" if good else "down"


_CSV = ("train.csv", "dev.csv", "test.csv")
_OWN = {
    "train_file": "train.csv",
    "dev_file": "dev.csv",
    "test_file": "test.csv",
    "text_columns": "text",
    "label_column": "label",
}
_JSONL = ("train.jsonl", "dev.jsonl", "test.jsonl")
_SPANS = {
    # Some contexts take two windows.
    "max_seq_length": 16,
    "max_query_length": 3,
    "doc_stride": 5,
}
_TAGS = {
    **{name: _OWN[name] for name in ("train_file", "dev_file", "test_file")},
    "token_column": 0,
    "tag_column": -1,
}
CASES = {
    "classes": Case(
        "sentence",
        write_reviews(_mood),
        _CSV,
        _OWN,
        "accuracy",
        0.9,
    ),
    "numbers": Case(
        "sentence",
        write_reviews(
            lambda text, good, number: str(1 + 2 * good + 0.01 * number)
        ),
        _CSV,
        _OWN
        | {"label_kind": "regression", "num_train_epochs": 2.0}
        | {"learning_rate": 1e-2},
        "pearson",
        0.8,
        # The file has three decimals.
        rounding=1e-3,
    ),
    "several_labels": Case(
        "sentence",
        write_reviews(
            lambda text, good, number: ",".join(
                ["up"] * good + ["film"] * ("film" in text)
            )
        ),
        _CSV,
        _OWN
        | {"label_kind": "multi_label", "threshold": 0.45}
        | {"num_train_epochs": 2.0, "learning_rate": 1e-2},
        "micro_f1",
        0.6,
    ),
    "pairs": Case(
        "mrpc",
        write_pairs,
        ("train.tsv", "dev.tsv", "test.tsv"),
        {"num_train_epochs": 2.0},
        "accuracy",
        0.9,
    ),
    "choices": Case(
        "choice",
        write_choices,
        _JSONL,
        {
            "train_file": "train.jsonl",
            "dev_file": "dev.jsonl",
            "test_file": "test.jsonl",
            "context_column": "text",
            "choice_columns": "options",
            "label_column": "answer",
        },
        "accuracy",
        0.9,
    ),
    "rankings": Case(
        "ranking",
        write_rankings,
        _JSONL,
        {
            "train_file": "train.jsonl",
            "dev_file": "dev.jsonl",
            "test_file": "test.jsonl",
            # The least loss of ListNet is not 0.
            "loss": "bce",
            "num_train_epochs": 2.0,
        },
        "ndcg@10",
        0.9,
    ),
    "vectors": Case(
        "embedding",
        write_similar,
        _JSONL,
        {
            "train_file": "train.jsonl",
            "dev_file": "dev.jsonl",
            "test_file": "test.jsonl",
            "num_train_epochs": 4.0,
            "dense_size": 12,
            "normalize": True,
            "mini_batch_size": 4,
        },
        "mrr@10",
        0.6,
        graphs=True,
    ),
    "tags": Case("tagging", write_tags, _CSV, _TAGS, "f1", 0.9),
    "windows_on_a_bilstm": Case(
        "sentence",
        write_reviews(_mood),
        _CSV,
        _OWN
        | {"max_seq_length": 9, "long_inputs": "windows", "doc_stride": 4}
        | {"bilstm": True, "num_train_epochs": 5.0},
        "accuracy",
        0.8,
        graphs=True,
    ),
    "features": Case(
        "conll2003_features",
        write_tags,
        ("eng.train", "eng.testa", "eng.testb"),
        {
            "learning_rate": 5e-2,
            "num_train_epochs": 6.0,
            "lstm_units": 12,
            "features": "last",
        },
        "f1",
        0.6,
        graphs=True,
    ),
    "questions": Case(
        "squad_v1",
        write_questions(False),
        ("train-v1.1.json", "dev-v1.1.json"),
        _SPANS,
        "f1",
        0.75,
        scale=100.0,
    ),
    "questions_without_answer": Case(
        "squad_v2",
        write_questions(True),
        ("train-v2.0.json", "dev-v2.0.json"),
        _SPANS,
        "best_f1",
        0.6,
        scale=100.0,
    ),
}

MODES = ("train", "eval", "predict")


@dataclasses.dataclass(frozen=True)
class Finished:
    """The run of a case, which the tests of a session share unchanged."""

    case: Case
    task: Any
    recipe: Any
    files: pathlib.Path
    folder: pathlib.Path
    done: dict[str, Any]


def finish(name: str, root: pathlib.Path) -> Finished:
    """Runs a case, unless another test or process has.

    Figures are drawn for "classes" alone.

    Args:
      name: of the case.
      root: a folder of the session, the same for all of its processes.
    """
    case, place = CASES[name], root / name
    start, files, done = place / "start", place / "files", place / "done"
    place.mkdir(exist_ok=True)
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            task, recipe = case.make(files, model_folder(start))
            with contextlib.ExitStack() as stack:
                if name != "classes":
                    stack.enter_context(without_drawings())
                eager = tf.config.functions_run_eagerly()
                stack.callback(tf.config.run_functions_eagerly, eager)
                tf.config.run_functions_eagerly(not case.graphs)
                # Functions of tf.data stay graphs, of which TensorFlow warns.
                stack.enter_context(warnings.catch_warnings())
                warnings.filterwarnings("ignore", "Even though")
                found = run_finetuning(task, recipe, place / "run", MODES)
            done.write_bytes(pickle.dumps(found))
    task, recipe = case.on_files(files, start)
    found = pickle.loads(done.read_bytes())
    return Finished(case, task, recipe, files, place / "run", found)
