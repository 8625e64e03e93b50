"""Folders of vectors: written in files, continued, and searched."""

import json
import shutil

import numpy as np
import pyarrow.parquet
import pytest
from numpy.testing import assert_allclose

import bert_tf
from bert_tf.inference import embed_files as module
from bert_tf.inference.embed_files import embed_files
from bert_tf.inference.load import load
from bert_tf.inference.text_rows import EmbedSettings
from bert_tf.inference.vector_folder import VectorFolder
from tests import commands
from tests.families.pretrained.extraction_models import save_model
from tests.families.pretrained.sentence_folders import TEXTS, write_folder
from tests.user_errors import error_of

pytestmark = pytest.mark.usefixtures("eagerly")
WORDS = "the cat sat on mat a dog ran query passage for search".split()
CORPUS = [
    " ".join(np.random.default_rng(n).choice(WORDS, 2 + n % 9))
    for n in range(23)
]
IDS = [f"d{n}" for n in range(23)]
QUERIES = ["a dog ran", "the cat sat on the mat"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_folder(
        "default_prompt", tmp_path_factory.mktemp("model") / "m"
    )


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    path = tmp_path_factory.mktemp("texts") / "corpus.jsonl"
    rows = zip(IDS, CORPUS, strict=True)
    text = "".join(f"{json.dumps({'_id': i, 'text': t})}\n" for i, t in rows)
    path.write_text(text)
    return path


def write(model, source, folder, **settings):
    chosen = {"runtime": "keras", "rows_per_file": 10} | settings
    return embed_files(model, source, folder, EmbedSettings(**chosen))


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("file_format", ["npy", "parquet"])
@pytest.mark.parametrize(
    ("precision", "changes"),
    [
        ("float32", {}),
        ("float32", {"truncate_dim": 6, "normalize": True}),
        ("int8", {}),
        ("ubinary", {"truncate_dim": 13}),
    ],
)
def test_vectors_are_those_of_encode_document(
    precision, changes, file_format, model, lines, tmp_path
):
    folder = tmp_path / "vectors"
    settings = {"vector_precision": precision, "file_format": file_format}
    line = write(model, lines, folder, **settings, **changes)
    assert line.startswith(f"{folder}: 23 vectors of ")
    loaded = load(model)
    whole = loaded.encode_document(CORPUS, **changes)
    expected = loaded.encode_document(
        *(CORPUS,), precision=precision, calibration=whole[:10], **changes
    )
    endings = {"rows": "parquet", "vectors": file_format}
    names = {f"{n}-0000{i}.{e}" for n, e in endings.items() for i in range(3)}
    if file_format == "parquet":
        names = {name for name in names if name.startswith("vectors")}
        tables = [pyarrow.parquet.read_table(folder / n) for n in sorted(names)]
        table = pyarrow.concat_tables(tables)
        found = np.array(table["vector"].to_pylist(), expected.dtype)
        assert table["id"].to_pylist() == IDS
        assert table["text"].to_pylist() == CORPUS
    else:
        parts = [np.load(folder / f"vectors-0000{n}.npy") for n in range(3)]
        assert [len(part) for part in parts] == [10, 10, 3]
        found = np.concatenate(parts)
    assert set(files(folder)) == {
        *names,
        "vectors.json",
        *(["ranges.npy"] if precision == "int8" else []),
    }
    assert found.dtype == expected.dtype
    if precision == "float32":
        assert_allclose(found, expected, atol=1e-5)
    else:
        # A number at the border of two levels may fall into either.
        assert np.mean(found == expected) > 0.99
    results = VectorFolder(folder).search(loaded, QUERIES, 4)
    indices, scores = bert_tf.search(
        loaded.encode_query(QUERIES, **changes),
        found,
        4,
        precision=precision,
        calibration=whole[:10],
    )
    for row, index, score in zip(results, indices, scores, strict=True):
        assert [each["id"] for each in row] == [IDS[n] for n in index]
        assert [each["text"] for each in row] == [CORPUS[n] for n in index]
        assert_allclose([each["score"] for each in row], score, atol=1e-5)


@pytest.mark.parametrize("precision", ["float32", "int8"])
@pytest.mark.parametrize("stops_at", [0, 2])
def test_an_interrupted_run_is_continued_to_the_same_bytes(
    precision, stops_at, model, lines, tmp_path, monkeypatch
):
    settings = {"vector_precision": precision}
    write(model, lines, tmp_path / "whole", **settings)
    expected = files(tmp_path / "whole")
    save = module._save

    def stop(path, array):
        if path.name == f"vectors-0000{stops_at}.npy":
            raise KeyboardInterrupt
        save(path, array)

    folder = tmp_path / "resumed"
    monkeypatch.setattr(module, "_save", stop)
    with pytest.raises(KeyboardInterrupt, match=f"{stops_at * 10} texts are"):
        write(model, lines, folder, **settings)
    assert error_of(VectorFolder, folder).endswith(
        "is not finished; the command that began it continues."
    )
    monkeypatch.setattr(module, "_save", save)
    computed = []
    vectors = module.text_vectors

    def counted(model, texts, *others):
        for chunk in vectors(model, texts, *others):
            computed.append(len(chunk.vectors))
            yield chunk

    monkeypatch.setattr(module, "text_vectors", counted)
    write(model, lines, folder, **settings)
    assert sum(computed) == 23 - 10 * stops_at
    assert files(folder) == expected
    # It is finished now.
    write(model, lines, folder, **settings)
    assert sum(computed) == 23 - 10 * stops_at
    assert files(folder) == expected


def test_a_folder_of_something_else_is_refused(model, lines, tmp_path):
    folder = tmp_path / "vectors"
    write(model, lines, folder)
    start = f"`output_dir`={folder}: has vectors of another "
    for arguments, settings, end in (
        ((save_model(tmp_path / "other"), lines), {}, "model;"),
        ((model, lines), {"normalize": True}, "settings (normalize);"),
        ((model, shutil.copy(lines, tmp_path / "c.jsonl")), {}, "input;"),
    ):
        line = error_of(write, *arguments, folder, **settings)
        assert line.startswith(start + end)
    line = error_of(write, model, {"text": CORPUS}, folder)
    assert line.startswith(f"`output_dir`={folder}: has vectors, and whether")
    (tmp_path / "notes.txt").write_text("mine")
    line = error_of(write, model, lines, tmp_path)
    assert line.startswith(f"`output_dir`={tmp_path}: has other files than")
    line = error_of(write, model, lines, lines)
    assert line.startswith(f"`output_dir`={lines}: is a file; name a folder.")


def test_texts_that_are_refused(model, tmp_path):
    path = tmp_path / "texts.csv"
    path.write_text("name,text\na,the cat\nb,\nc,a dog\n")
    lines = tmp_path / "lines.txt"
    lines.write_text("the cat\n")
    for source, settings, start in (
        (path, {}, f"{path}, row 3: the text in 'text' is empty (''); correct"),
        (path, {"text_column": "txt"}, f"{path}: has no column 'txt'. Did you"),
        (path, {"id_column": "ids"}, f"{path}: has no column 'ids'."),
        (tmp_path / "no.csv", {}, f"`input`={tmp_path / 'no.csv'}: no such"),
        (lines, {"id_column": "id"}, f"`id_column`=id: {lines} has a text a"),
        (lines, {"truncate_dim": 17}, "`truncate_dim`=17: give a whole number"),
        (lines, {"vector_precision": "int8"}, "`vector_precision`=int8: one"),
        (lines, {"prompt_name": "no"}, "`prompt_name`=no: the model has the"),
    ):
        folder = tmp_path / "vectors"
        assert error_of(write, model, source, folder, **settings).startswith(
            start
        )
        assert not folder.exists()
    write(model, path, folder, bad_rows="skip", id_column="name")
    rows = VectorFolder(folder).rows(np.arange(2))
    assert [row["id"] for row in rows.values()] == ["a", "c"]
    path = tmp_path / "texts.jsonl"
    path.write_text('{"id": 7, "text": "the cat"}\n{"text": "a dog"}\n')
    write(model, path, tmp_path / "some ids")
    rows = VectorFolder(tmp_path / "some ids").rows(np.arange(2))
    assert [row["id"] for row in rows.values()] == ["7", "1"]


def test_what_cannot_be_searched_is_refused(model, lines, tmp_path):
    folder = tmp_path / "vectors"
    write(model, lines, folder)
    other = load(save_model(tmp_path / "other", with_pooler=False))
    line = error_of(VectorFolder(folder).search, other, QUERIES)
    assert "were computed by another model than" in line
    loaded = load(model)
    np.save(folder / "vectors-00001.npy", np.zeros((10, 9), np.float32))
    line = error_of(VectorFolder(folder).search, loaded, QUERIES)
    assert (
        "holds float32 [10, 9], and vectors.json says float32 [10, 16" in line
    )
    (folder / "vectors-00001.npy").write_bytes(b"no array")
    line = error_of(VectorFolder(folder).search, loaded, QUERIES)
    assert line.startswith(f"{folder / 'vectors-00001.npy'}: damaged file")
    (folder / "vectors-00001.npy").unlink()
    line = error_of(VectorFolder(folder).search, loaded, QUERIES)
    assert line.endswith("is missing; embed the texts again.")
    description = folder / "vectors.json"
    values = json.loads(description.read_text())
    for change, end in (
        ({"num_rows": 0}, "holds no vectors."),
        (
            {"precision": "int4"},
            "it takes one of float32, int8, uint8, binary,",
        ),
        (
            {"similarity": "angle"},
            "it takes one of cosine, dot, euclidean, man",
        ),
        ({"width": "16"}, "width is '16'; it takes a whole number."),
    ):
        description.write_text(json.dumps(values | change))
        assert end in error_of(VectorFolder, folder)
    line = error_of(VectorFolder, tmp_path)
    assert line.startswith(f"`vectors`={tmp_path}: has no vectors.json; give")


def test_a_model_is_known_again_in_any_form(tmp_path):
    """Without a pooler, in another precision, and after a conversion."""
    folder = tmp_path / "vectors"
    model = save_model(tmp_path / "m", with_pooler=False)
    write(model, {"text": CORPUS}, folder, precision="mixed_bfloat16")
    bert_tf.convert(model, "hugging_face", tmp_path / "converted")
    for each in (model, tmp_path / "converted"):
        (found,) = VectorFolder(folder).search(load(each), [CORPUS[4]], 1)
        assert found[0]["id"] == 4
        assert found[0]["score"] > 0.99


def test_the_commands(model, tmp_path):
    def run(name, *arguments, **options):
        done = commands.run(f"tools.{name}", *arguments, **options)
        assert done.returncode == 0, done.stderr
        return done.stdout

    folder = tmp_path / "vectors"
    named = (f"--model={model}", "--runtime=keras")
    text = "\n".join(filter(None, TEXTS))
    line = run(
        "embed",
        *named,
        "--input=-",
        f"--output_dir={folder}",
        standard_input=text,
    )
    assert line.startswith(f"{folder}: 6 vectors of 16 numbers in float32; ")
    where = (*named, f"--vectors={folder}", "--top_k=2")
    printed = run("search", *where, "a dog ran", "The Café!").splitlines()
    assert printed[0] == "a dog ran"
    assert printed[3] == "The Café!"
    queries = tmp_path / "queries.tsv"
    queries.write_text("id\ttext\nq1\ta dog ran\nq2\tThe Café!\n")
    written = run("search", *where, f"--queries={queries}", "--output=-")
    rows = [json.loads(line) for line in written.splitlines()]
    assert [row["query_id"] for row in rows] == ["q1", "q2"]
    assert [row["query"] for row in rows] == ["a dog ran", "The Café!"]
    shown = [
        f"  {each['score']:.4f}  {each['id']}  {' '.join(each['text'].split())}"
        for row in rows
        for each in row["results"]
    ]
    assert shown == [*printed[1:3], *printed[4:]]
    output = tmp_path / "results.jsonl"
    run("search", *where, "a dog ran", f"--output={output}")
    (row,) = map(json.loads, output.read_text().splitlines())
    assert row.keys() == {"query", "results"}
    assert [each["id"] for each in row["results"]] == [
        each["id"] for each in rows[0]["results"]
    ]
    for arguments, words in (
        (where, 'give queries after the flags, for example "a calm sea", or'),
        ((*where, "a", "--output=a.csv"), "--output=a.csv: the name tells the"),
        ((*where, "a", "--top_k=0"), "--top_k=0: give a whole number of at"),
    ):
        done = commands.run("tools.search", *arguments)
        assert done.returncode == 1
        assert words in done.stderr
