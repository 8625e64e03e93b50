"""Static vectors of a small teacher, beside NumPy's of the same recipe."""

import functools
import json

import numpy as np
import pytest

from bert_tf.checkpoints import load_checkpoint
from bert_tf.checkpoints.static_embedding import TABLE
from bert_tf.distillation import static
from bert_tf.distillation.static import StaticSettings, distill_static
from bert_tf.encoders import load_encoder
from bert_tf.families.data.scores import spearman
from bert_tf.inference.embed import embed
from tests.commands import run
from tests.families.pretrained.sentence_folders import TEXTS, write_folder
from tests.user_errors import error_of

pytestmark = pytest.mark.usefixtures("eagerly")
COUNTED = "the cat sat\nthe the dog\n"


@pytest.fixture(autouse=True)
def once(monkeypatch) -> None:
    monkeypatch.setattr(static, "_TIMED_ROUNDS", 1)


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    return write_folder("mean", tmp_path_factory.mktemp("teacher") / "model")


def table_of(folder) -> np.ndarray:
    return np.array(load_checkpoint(folder).arrays[TABLE])


def expected_table(teacher, counts=None) -> np.ndarray:
    """model2vec's recipe, by SVD; the signs of the columns are free."""
    checkpoint = load_checkpoint(teacher)
    tokens = checkpoint.vocabulary.tokens
    rows = np.array([[2, n, 3] for n in range(len(tokens))])
    assert [tokens[n] for n in (2, 3)] == ["[CLS]", "[SEP]"]
    inputs = {"input_ids": rows, "input_mask": 0 * rows + 1}
    encoder = load_encoder(teacher)
    hidden = encoder({**inputs, "segment_ids": 0 * rows})["sequence_output"]
    means = np.array(hidden, np.float64).mean(1)
    kept = np.array([not token.startswith("[") for token in tokens])
    means = means[kept] - means[kept].mean(0)
    _, _, axes = np.linalg.svd(means, full_matrices=False)
    found = (means @ axes.T)[:, :4]
    if counts is None:
        counts = 1 / np.arange(2, len(found) + 2)
    else:
        counts = counts[kept]
    found *= (1e-3 / (1e-3 + counts / counts.sum()))[:, np.newaxis]
    table = np.zeros((len(tokens), 4))
    table[kept] = found
    return table


def assert_same_up_to_signs(found, expected) -> None:
    signs = np.sign(np.sum(found * expected, axis=0))
    np.testing.assert_allclose(found * signs, expected, atol=1e-5, rtol=0)


settings = functools.partial(StaticSettings, dimension=4, sif_coefficient=1e-3)


def test_the_table_is_that_of_model2vecs_recipe(teacher, tmp_path):
    done = distill_static(settings(teacher=str(teacher)), tmp_path / "a", TEXTS)
    table = table_of(tmp_path / "a")
    assert_same_up_to_signs(table, expected_table(teacher))
    # Its folder gives the normalised mean, without tokens around a text.
    tokens = load_checkpoint(teacher).vocabulary
    mean = table[[tokens.ids["the"], tokens.ids["cat"]]].mean(0)
    found = embed(tmp_path / "a", "the cat")
    np.testing.assert_allclose(found, mean / np.linalg.norm(mean), atol=1e-6)
    # The agreement is that of both models' similarities.
    texts = list(dict.fromkeys(TEXTS))
    upper = np.triu_indices(len(texts), 1)
    both = [
        (vectors @ vectors.T)[upper]
        for vectors in (
            embed(folder, texts, normalize=True)
            for folder in (teacher, tmp_path / "a")
        )
    ]
    agreement = done.models["static"].scores["agreement"]
    assert agreement == pytest.approx(spearman(*both), abs=1e-6)
    assert done.models["teacher"].scores["agreement"] == pytest.approx(1)
    stored = json.loads((tmp_path / "a" / "distillation.json").read_text())
    assert stored["models"]["static"]["scores"]["agreement"] == agreement
    assert "static" in done.table()
    card = (tmp_path / "a" / "README.md").read_text(encoding="utf-8")
    assert "\n# a\n" in card
    assert "| dimension | 4 |" in card


def test_tokens_are_counted(teacher, tmp_path):
    (tmp_path / "lines.txt").write_text(COUNTED, encoding="utf-8")
    files = str(tmp_path / "lines.txt")
    given = settings(teacher=str(teacher), count_files=files)
    distill_static(given, tmp_path / "a", TEXTS)
    ids = load_checkpoint(teacher).vocabulary.ids
    counts = np.zeros(len(ids))
    for word in COUNTED.split():
        counts[ids.get(word, ids["[UNK]"])] += 1
    expected = expected_table(teacher, counts)
    assert_same_up_to_signs(table_of(tmp_path / "a"), expected)


def test_command_on_pairs_with_scores(teacher, tmp_path):
    pairs = tmp_path / "pairs.csv"
    lines = [
        f'"{a}","{b}",{n}'
        for n, (a, b) in enumerate(
            [
                ("the cat", "a cat"),
                ("the dog", "the cat"),
                ("sat", "on the mat"),
            ]
        )
    ]
    pairs.write_text("\n".join(["a,b,score", *lines]) + "\n", encoding="utf-8")
    arguments = [
        *("--to=static", f"--model={teacher}", f"--dev_file={pairs}"),
        *("--text_columns=a,b", f"--output_dir={tmp_path / 'out'}"),
    ]
    done = run("tools.distill", *arguments, "--label_column=score")
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == [
        *("similarity", "agreement", "spearman", "rows/s"),
        *("parameters", "MB"),
    ]
    pairs.write_text("a,b,score\nthe,a,high\n", encoding="utf-8")
    again = [*arguments[:-1], f"--output_dir={tmp_path / 'other'}"]
    for more, line in (
        (["--label_column=score"], f"{pairs}, row 2: the label 'high' is no n"),
        (["--label_column=gold"], f"{pairs}: has no column 'gold'"),
        (["--text_columns=a"], "--text_columns=a: name the two columns of a "),
        (["--layers=0,1"], "--to=static: a table has no layers; leave out --s"),
        (["--task=mrpc"], "--set: unknown key 'task'"),
        (
            ["--sif_coefficient=1"],
            "error: sif_coefficient is 1.0; it takes 0 o",
        ),
    ):
        done = run("tools.distill", *again, *more)
        assert done.returncode == 1
        assert line in done.stderr
        assert not (tmp_path / "other").exists()


def test_it_needs_a_teacher(tmp_path):
    line = error_of(lambda: distill_static(StaticSettings(), tmp_path / "a"))
    assert line == "`teacher`: name the model to distil."


def test_it_needs_texts(teacher, tmp_path):
    given = settings(teacher=str(teacher))
    line = error_of(lambda: distill_static(given, tmp_path / "a"))
    assert line.startswith("`dev_file`: name a table of pairs")
    (tmp_path / "lines.txt").write_text("東京\n", encoding="utf-8")
    given = settings(
        teacher=str(teacher), count_files=str(tmp_path / "lines.txt")
    )
    line = error_of(lambda: distill_static(given, tmp_path / "a", TEXTS))
    assert line.endswith(
        "hold no tokens of the teacher; give texts of its language."
    )
    assert not (tmp_path / "a").exists()
