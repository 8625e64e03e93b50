import subprocess
import sys

import pytest

from bert_tf.corpora import data_sets
from bert_tf.corpora.reading import DocumentSplitter, reader_of
from bert_tf.corpora.recipe import CorpusRecipe
from bert_tf.corpora.sources import parse_inputs
from bert_tf.corpora.streams import Position
from bert_tf.errors import UserError
from tests.user_errors import error_of

ROWS = 60
# In a process of its own: TensorFlow Datasets warns of its own code.
MAKE = f"""
import sys
import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds

rows = range({ROWS})
texts = [f"Row {{n + 40}} is here. It is short.\\nNew {{n}}" for n in rows]
columns = {{"title": [f"t{{n}}" for n in rows], "text": texts, "n": list(rows)}}
tfds.dataset_builders.store_as_tfds_dataset(
    "tiny_text",
    version="1.0.0",
    features=tfds.features.FeaturesDict(
        {{
            "title": tfds.features.Text(),
            "text": tfds.features.Text(),
            "n": tfds.features.Scalar(dtype=np.int32),
        }}
    ),
    split_datasets={{"train": tf.data.Dataset.from_tensor_slices(columns)}},
    data_dir=sys.argv[1],
)
"""


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> str:
    pytest.importorskip("tensorflow_datasets")
    pytest.importorskip("importlib_resources")
    folder = tmp_path_factory.mktemp("data_sets")
    subprocess.run(
        [sys.executable, "-c", MAKE, str(folder)],
        check=True,
        capture_output=True,
    )
    return f"tfds:{folder}/tiny_text/1.0.0"


def read(
    path: str, start: Position, workers: int = 1, **settings: object
) -> list[list[str]]:
    recipe = CorpusRecipe(**settings)
    (file,) = parse_inputs(path, recipe)
    with DocumentSplitter(workers) as splitter:
        reader = reader_of(file, recipe)
        return [d.sentences for d in splitter.documents(reader, start)]


@pytest.mark.filterwarnings("ignore")
def test_rows_are_read_in_one_order_and_from_any_on(prepared: str) -> None:
    found = read(prepared, Position())
    assert sorted(found) == sorted(
        [f"Row {n + 40} is here.", "It is short.", f"New {n}"]
        for n in range(ROWS)
    )
    assert read(prepared, Position(), workers=2) == found
    for row in (1, 17, ROWS - 1):
        place = Position(0, row, row)
        assert read(prepared, place) == found[row:]
    titles = read(prepared, Position(), text_field="title")
    assert sorted(titles) == sorted([f"t{n}"] for n in range(ROWS))
    described = data_sets.describe(prepared)
    assert described.name == "tiny_text/1.0.0@train"
    assert described.rows == ROWS
    assert described.size > 0


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("suffix", "field", "message"),
    [
        ("@test", "text", "has no split 'test'; its splits: train"),
        ("", "n", "has no text feature 'n' .its texts: "),
        ("", "body", "has no text feature 'body' .its texts: "),
    ],
)
def test_what_is_not_there(prepared, suffix, field, message) -> None:
    with pytest.raises(UserError, match=message):
        read(prepared + suffix, Position(), text_field=field)


def test_no_connection_is_told_in_one_line(monkeypatch) -> None:
    requests = pytest.importorskip("requests")
    tfds = pytest.importorskip("tensorflow_datasets")

    class Unprepared:
        def is_prepared(self) -> bool:
            return False

    def fail(*arguments: object, **settings: object) -> None:
        raise requests.ConnectionError("no route to host")

    monkeypatch.setattr(tfds, "builder", lambda *a, **k: Unprepared())
    monkeypatch.setattr(requests, "head", fail)
    line = error_of(data_sets.describe, "tfds:far_away")
    assert line.startswith("`inputs`=tfds:far_away: ")
    assert "TFDS_DATA" in line
    assert "names no data set" in error_of(data_sets.describe, "tfds:")
