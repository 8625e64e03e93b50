"""The contract of every family on a user's files."""

import dataclasses
import functools
import gzip
import json
import pathlib
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from bert_tf.families.multiple_choice.recipe import UserChoiceRecipe
from bert_tf.families.question_answering.recipe import UserQuestionRecipe
from bert_tf.families.text_classification.recipe import UserTableRecipe
from bert_tf.families.token_classification.recipe import UserTagRecipe
from tests.user_errors import error_of
from tools.shared_flags import load_task

Row = tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Kind:
    """Files of a family.

    Attributes:
      task: the name of the task on own files.
      recipe: makes its recipe.
      columns: what the files have, the label last.
      good: a row by number; two neighbours have one text.
      bad: a row that cannot be used.
      empty: a row with an empty text; None where no text is empty.
    """

    task: str
    recipe: Callable[..., Any]
    columns: Row
    good: Callable[[int], Row]
    bad: Row
    empty: Row | None

    def load(self, path: str | pathlib.Path, split: str = "dev", **settings):
        """Loads a file that is every split."""
        files = dict.fromkeys(("train_file", "dev_file", "test_file"), path)
        settings = {k: str(v) for k, v in files.items()} | settings
        recipe = self.recipe(**settings)
        return load_task(self.task).resolve(recipe).load(split, recipe)


KINDS = {
    "texts": Kind(
        "sentence",
        functools.partial(UserTableRecipe, text_columns="t", label_column="l"),
        ("t", "l"),
        lambda n: (f"t\u00e9xt {n // 2}", "ab"[n // 2 % 2]),
        ("text", ""),
        (" ", "a"),
    ),
    "choices": Kind(
        "choice",
        functools.partial(
            UserChoiceRecipe,
            context_column="q",
            choice_columns="a,b",
            label_column="l",
        ),
        ("q", "a", "b", "l"),
        lambda n: (f"t\u00e9xt {n // 2}", f"x{n}", "y", str(n // 2 % 2)),
        ("text", "x", "", "0"),
        (" ", "x", "y", "0"),
    ),
    "questions": Kind(
        "questions",
        functools.partial(UserQuestionRecipe, answer_column="answers"),
        ("question", "context", "answers"),
        lambda n: (f"wh\u00e9n {n}?", f"Bo {n // 2}", "Bo"),
        ("who?", "Bo", "Ann"),
        (" ", "Bo", "Bo"),
    ),
    "tags": Kind(
        "tagging",
        UserTagRecipe,
        ("word", "tag"),
        lambda n: (f"w\u00f6rd{n // 2}", f"B-{'XY'[n // 2 % 2]}"),
        ("word",),
        None,
    ),
}
FORMATS = [
    (kind, name)
    for kind, names in {
        "texts": ("t.tsv", "t.csv", "t.jsonl"),
        "choices": ("t.csv", "t.jsonl"),
        "questions": ("t.csv", "t.jsonl", "t.json"),
        "tags": ("t.txt",),
    }.items()
    for name in names
]


def content(name: str, columns: Row, rows: Iterable[Row]) -> str:
    """The text of a file, a row or a sentence for each of `rows`."""
    if name.endswith(".txt"):
        return "".join(f"{' '.join(row)}\n\n" for row in rows)
    if name.endswith((".tsv", ".csv")):
        between = "\t" if name.endswith(".tsv") else ","
        return "".join(f"{between.join(row)}\n" for row in (columns, *rows))
    objects: list[dict[str, Any]] = [
        dict(zip(columns, row, strict=False)) for row in rows
    ]
    if name.endswith(".jsonl"):
        lines = (json.dumps(each, ensure_ascii=False) for each in objects)
        return "".join(f"{line}\n" for line in lines)
    for each in objects:
        if "answers" in each:
            each["answers"] = [{"text": each["answers"]}]
    return json.dumps(objects, ensure_ascii=False)


def write(folder: pathlib.Path, name: str, kind: Kind, rows: Iterable[Row]):
    path = folder / name
    path.write_text(content(name, kind.columns, rows), encoding="utf-8")
    return path


def shown(examples: Any) -> list[Any]:
    """The content of examples without their file."""
    if not isinstance(examples, list):
        parts = map(list, (examples.words, examples.tags))
        return [*zip(*parts, strict=True)]
    return [
        {k: v for k, v in each._asdict().items() if k != "path"}
        for each in examples
    ]


@pytest.fixture(params=FORMATS, ids=lambda each: f"{each[0]}-{each[1]}")
def file(request):
    """A kind, and a file name for one of its formats."""
    kind, name = request.param
    return KINDS[kind], name


@pytest.fixture(params=[f for f in FORMATS if f[0] != "tags"], ids="-".join)
def table(request):
    """The same without tags, which have neither bad rows nor empty texts."""
    kind, name = request.param
    return KINDS[kind], name


def test_line_ends_byte_order_marks_and_gzip_change_nothing(file, tmp_path):
    kind, name = file
    rows = [kind.good(n) for n in range(4)]
    path = write(tmp_path, name, kind, rows)
    expected, text = shown(kind.load(path)), path.read_bytes()
    assert len(expected) == 4
    for changed in (
        text.replace(b"\n", b"\r\n"),
        b"\xef\xbb\xbf" + text,
        text.rstrip(b"\n"),
        text + b"\n\n",
    ):
        path.write_bytes(changed)
        assert shown(kind.load(path)) == expected
    packed = tmp_path / f"{name}.gz"
    packed.write_bytes(gzip.compress(text))
    assert shown(kind.load(packed)) == expected
    packed.write_bytes(gzip.compress(text * 100)[:-20])
    assert "damaged gzip" in error_of(kind.load, packed)
    packed.write_bytes(text)
    assert "damaged gzip" in error_of(kind.load, packed)


def test_files_that_cannot_be_read(file, tmp_path):
    kind, name = file
    path = write(tmp_path, name, kind, [kind.good(0), kind.good(2)])
    text = path.read_bytes()
    text = text.replace("\u00e9".encode(), b"\xe9", 1)
    path.write_bytes(text.replace("\u00f6".encode(), b"\xf6", 1))
    line = error_of(kind.load, path)
    assert line.startswith(str(path))
    assert "is not UTF-8" in line
    found = kind.load(path, encoding_errors="replace")
    assert "\ufffd" in str(shown(found))
    path.write_bytes(b"")
    assert error_of(kind.load, path).startswith(f"{path}: ")
    path.unlink()
    assert error_of(kind.load, path).startswith(f"{path}: no such file; name")
    path.mkdir()
    assert f"{path}: is a folder" in error_of(kind.load, path)
    line = error_of(kind.load, "", "test", data_dir="", test_file="")
    assert line.startswith("`test_file`=...: name the file")


def test_bad_rows_are_reported_together_or_skipped(file, tmp_path, capsys):
    kind, name = file
    good = [kind.good(n) for n in (0, 2, 4)]
    rows = [good[0], kind.bad, good[1], kind.bad, good[2]]
    path = write(tmp_path, name, kind, rows)
    line = error_of(kind.load, path)
    assert line.startswith(str(path))
    assert "2 of 5" in line
    if kind.task == "tagging":
        return
    assert line.endswith("Or pass `bad_rows`=skip.")
    capsys.readouterr()
    found = kind.load(path, bad_rows="skip")
    assert f"{path}: 2 of 5" in capsys.readouterr().err
    # The others keep their identifiers, for prediction files.
    assert [each.identifier for each in found] == ["0", "2", "4"]
    path = write(tmp_path, name, kind, [kind.bad])
    line = error_of(kind.load, path, bad_rows="skip")
    assert line.startswith(f"{path}: none of its 1 ")


def test_empty_texts_are_errors_or_kept_or_dropped(table, tmp_path, capsys):
    kind, name = table
    path = write(tmp_path, name, kind, [kind.empty, kind.good(0)])
    line = error_of(kind.load, path)
    assert line.startswith(str(path))
    assert "is empty (' '); correct" in line
    assert len(kind.load(path, empty_text="keep")) == 2
    capsys.readouterr()
    (found,) = kind.load(path, empty_text="drop")
    assert "1 of 2" in capsys.readouterr().err
    assert found.identifier == "1"
    path = write(tmp_path, name, kind, [kind.empty])
    line = error_of(kind.load, path, empty_text="drop")
    assert line.startswith(f"{path}: all ")


def test_duplicates_are_dropped_from_training(table, tmp_path, capsys):
    kind, name = table
    rows = [kind.good(n) for n in (0, 2, 0, 4, 2)]
    path = write(tmp_path, name, kind, rows)
    found = kind.load(path, "train", drop_duplicates=True)
    assert [each.identifier for each in found] == ["0", "1", "3"]
    assert f"{path}: 2 of 5" in capsys.readouterr().err
    # Dev keeps its duplicates.
    assert len(kind.load(path, drop_duplicates=True)) == 5


def test_a_file_to_predict_needs_no_labels(file, tmp_path):
    kind, name = file
    bare = dataclasses.replace(kind, columns=kind.columns[:-1])
    rows = [kind.good(n)[:-1] for n in range(3)]
    path = write(tmp_path, name, bare, rows)
    found = kind.load(path, "test")
    if kind.task == "tagging":
        assert (len(found.words), found.tags) == (3, [])
    else:
        assert {getattr(e, "label", None) for e in found} == {None}
        assert len(found) == 3
    assert error_of(kind.load, path).startswith(str(path))


def test_dev_is_split_off_the_training_file(file, tmp_path, capsys):
    kind, name = file
    path = write(tmp_path, name, kind, map(kind.good, range(80)))
    recipe = kind.recipe(train_file=str(path), dev_share=0.2)
    task = load_task(kind.task).resolve(recipe)
    assert task.splits(("dev",), recipe) == ("dev",)
    train, dev = (shown(task.load(s, recipe)) for s in ("train", "dev"))
    assert len(dev) == 16
    # The file is read once for both parts.
    notice = f"{path}: no dev_file, so 16 of 80 "
    assert capsys.readouterr().err.count(notice) == 1
    every = shown(kind.load(path, "train"))
    assert sorted(map(str, train + dev)) == sorted(map(str, every))

    def texts(rows: list[Any]) -> set[str]:
        """The texts of a part, which the other must not have."""
        keys = ("text_a", "context")
        if kind.task == "tagging":
            return {word for word, _ in rows}
        return {row[key] for row in rows for key in keys if key in row}

    assert not texts(train) & texts(dev)
    # Another training seed has the same dev rows, another dev_seed others.
    for setting, same in (("seed", True), ("dev_seed", False)):
        other = dataclasses.replace(recipe, **{setting: 5})
        again = load_task(kind.task).resolve(other).load("dev", other)
        assert (shown(again) == dev) == same


@pytest.mark.parametrize(
    ("name", "settings", "expected"),
    [
        ("texts", {"text_columns": ""}, "`text_columns`=...: name the"),
        ("texts", {"text_columns": "t,"}, "`text_columns`=t,: name the col"),
        ("texts", {"text_columns": "a,b,c"}, "`text_columns`=a,b,c: name one"),
        ("texts", {"text_columns": "t, t"}, "`text_columns`=t,t: the column"),
        ("texts", {"label_column": "t"}, "`label_column`=t: the column 't' "),
        ("texts", {"label_column": ""}, "`label_column`=...: name the col"),
        ("choices", {"context_column": ""}, "`context_column`=...: name the"),
        ("choices", {"choice_columns": ""}, "`choice_columns`=...: name the"),
        ("choices", {"choice_columns": "a,"}, "`choice_columns`=a,: name the"),
        ("choices", {"choice_columns": "a,a"}, "`choice_columns`=a,a: the col"),
        ("choices", {"start_column": "q"}, "`start_column`=q: the column 'q' "),
        ("choices", {"label_column": "b"}, "`label_column`=b: the column 'b' "),
        ("choices", {"label_column": ""}, "`label_column`=...: name the col"),
        ("questions", {"question_column": ""}, "`question_column`=...: name"),
        ("questions", {"answer_column": ""}, "`answer_column`=...: name the"),
        (
            "questions",
            {"answer_start_column": "context"},
            "`answer_start_column`=context: the column 'context' is named twic",
        ),
    ],
)
def test_each_setting_names_another_column(name, settings, expected, tmp_path):
    kind = KINDS[name]
    path = write(tmp_path, "t.csv", kind, [kind.good(0)])
    assert error_of(kind.load, path, **settings).startswith(expected)
    line = error_of(kind.load, path, header=False)
    assert line.startswith(f"{path}: has no column '{kind.columns[0]}'")
