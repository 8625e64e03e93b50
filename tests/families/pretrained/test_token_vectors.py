"""SPLADE and ColBERT folders: what encode gives of them, here and exported."""

import json

import numpy as np
import pytest
import tensorflow as tf
from scipy.sparse import csr_matrix

import bert_tf
from bert_tf.checkpoints import load_checkpoint
from bert_tf.checkpoints.sentence_files import read_sentence_modules
from bert_tf.conversion import convert_checkpoint
from bert_tf.families.data.similarity import max_sim
from bert_tf.inference.embed_files import embed_files
from bert_tf.inference.export_file import export_file
from bert_tf.inference.saving import save
from bert_tf.runtimes.onnx_file import Runner
from tests.families.pretrained.token_vector_folders import (
    CASES,
    LATE,
    SPARSE,
    TEXTS,
    scores_of,
    vectors_of,
    weights_of,
    write_folder,
)
from tests.user_errors import error_of


def close(found, expected):
    np.testing.assert_allclose(found, expected, atol=1e-5, rtol=0)


def close_shares(found, expected):
    """Of values that may exceed 1."""
    np.testing.assert_allclose(found, expected, atol=1e-5, rtol=1e-6)


def close_lists(found, expected):
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        close(one, other)


@pytest.mark.parametrize("name", SPARSE)
def test_sparse_encoders(name, eagerly, tmp_path):
    model = bert_tf.load(write_folder(name, tmp_path / "model"))
    found = model.encode(TEXTS)
    assert isinstance(found, csr_matrix)
    assert found.dtype == np.float32
    # Zeros are not stored.
    assert found.nnz == np.count_nonzero(weights_of(name, "text"))
    close(found.toarray(), weights_of(name, "text"))
    queries, documents = (
        model.encode_query(TEXTS),
        model.encode_document(iter(TEXTS)),
    )
    close(queries.toarray(), weights_of(name, "query"))
    close(documents.toarray(), weights_of(name, "document"))
    expected = weights_of(name, "query") @ weights_of(name, "document").T
    close_shares(model.similarity(queries, documents), expected)
    one = model.encode(TEXTS[0])
    for tokens in (
        model.tokens(one),
        model.tokens(one.toarray()[0]),
        model.tokens(found)[0],
        model(TEXTS[0])["tokens"],
    ):
        assert list(tokens) == [token for token, _ in CASES[name]["tokens"]]
        close(
            [*tokens.values()], [weight for _, weight in CASES[name]["tokens"]]
        )


@pytest.mark.parametrize("name", LATE)
def test_late_interaction(name, eagerly, tmp_path):
    model = bert_tf.load(write_folder(name, tmp_path / "model"))
    queries = model.encode_query(TEXTS)
    documents = model.encode_document(iter(TEXTS))
    close_lists(queries, vectors_of(name, "query"))
    close_lists(documents, vectors_of(name, "document"))
    expected = scores_of(name)
    close_shares(model.similarity(queries, documents), expected)
    close_shares(model.similarity(queries[1], documents), expected[1:2])


def test_late_interaction_in_batches(eagerly, tmp_path):
    folder = write_folder("late_fixed", tmp_path / "model")
    model = bert_tf.load(folder, batch_size=4)
    found = model.encode_document(TEXTS)
    expected = vectors_of("late_fixed", "document")
    close_lists(found, expected)
    close(model.encode_document(TEXTS[3]), expected[3])
    close(model(TEXTS[1])["token_embeddings"], expected[1])
    assert model.encode_query([]) == []


def test_cosine_of_sparse_vectors(eagerly, tmp_path):
    folder = write_folder("old_sparse", tmp_path / "model")
    path = folder / "config_sentence_transformers.json"
    values = json.loads(path.read_text())
    path.write_text(json.dumps(values | {"similarity_fn_name": "cosine"}))
    model = bert_tf.load(folder)
    weights = weights_of("old_sparse", "text")
    lengths = np.linalg.norm(weights, axis=1)
    expected = weights @ weights.T / lengths / lengths[:, None]
    close(model.similarity(weights, csr_matrix(weights)), expected)


def test_max_sim_of_blocks(monkeypatch):
    random = np.random.default_rng(5)
    queries, documents = (
        [random.normal(size=(size, 4)).astype(np.float32) for size in sizes]
        for sizes in ((3, 1, 0), (2, 5, 1, 0, 4))
    )
    expected = [
        [(q @ d.T).max(axis=1, initial=-np.inf).sum() for d in documents]
        for q in queries
    ]
    close(max_sim(queries, documents), expected)
    monkeypatch.setattr("bert_tf.families.data.similarity._SCORES", 10)
    close(max_sim(queries, documents), expected)
    assert max_sim([], documents).shape == (0, 5)


@pytest.mark.parametrize("name", ["splade_twice", "late_fixed"])
def test_an_exported_model_gives_them(name, tmp_path):
    folder = write_folder(name, tmp_path / "model")
    save(bert_tf.load(folder).served, tmp_path / "1")
    exported = tf.saved_model.load(str(tmp_path / "1")).signatures
    texts = tf.constant(TEXTS)
    if name in SPARSE:
        found = exported["serving_default"](text=texts)
        dense = np.zeros_like(weights_of(name, "text"))
        for row, number, weight in zip(
            dense, found["ids"].numpy(), found["weights"].numpy(), strict=True
        ):
            row[number[weight > 0]] = weight[weight > 0]
        close(dense, weights_of(name, "text"))
        named = {"text": texts, "prompt_name": tf.fill(texts.shape, "document")}
        found = exported["embed_with_prompt"](**named)
        # The sum does not depend on the order.
        expected = weights_of(name, "document").sum(axis=1)
        close(found["weights"].numpy().sum(axis=1), expected)
        tokens = found["tokens"].numpy()
        assert ((tokens != b"") == (found["weights"].numpy() > 0)).all()
        return
    for task in ("query", "document"):
        found = exported[f"embed_{task}"](text=texts)
        pairs = zip(
            found["token_embeddings"].numpy(),
            found["mask"].numpy(),
            strict=True,
        )
        vectors = [rows[mask != 0] for rows, mask in pairs]
        close_lists(vectors, vectors_of(name, task))


@pytest.mark.parametrize("name", ["splade_sum", "late_attending"])
def test_a_file_and_its_runtime_give_them(name, tmp_path):
    folder = write_folder(name, tmp_path / "model")
    path = export_file(folder, tmp_path / "onnx", "onnx")
    # [CLS] a dog ran [SEP]
    ids = [[2, 12, 13, 14, 3]]
    inputs = {
        "input_ids": ids,
        "input_mask": [[1] * 5],
        "segment_ids": [[0] * 5],
    }
    found = Runner(path)({k: np.array(v, np.int32) for k, v in inputs.items()})
    model = bert_tf.load(folder, runtime="onnx")
    assert "ONNX" in model.served.computed_by
    if name in SPARSE:
        close(found["embedding"], weights_of(name, "text")[1:2])
        close(model.encode(TEXTS).toarray(), weights_of(name, "text"))
        return
    close(found["token_embeddings"][0], vectors_of(name, "document")[1])
    close_lists(model.encode_query(TEXTS), vectors_of(name, "query"))


@pytest.mark.parametrize(
    ("name", "to"),
    [
        ("splade_twice", "hugging_face"),
        ("old_sparse", "bert_tf"),
        ("late_least", "hugging_face"),
        ("stanford", "hugging_face"),
        ("stanford_attending", "bert_tf"),
    ],
)
def test_a_converted_folder_gives_them(name, to, eagerly, tmp_path):
    folder = write_folder(name, tmp_path / "model")
    convert_checkpoint(folder, to, tmp_path / "written")
    model = bert_tf.load(tmp_path / "written")
    if name in SPARSE:
        found = model.encode_document(TEXTS)
        close(found.toarray(), weights_of(name, "document"))
        return
    close_lists(model.encode_query(TEXTS), vectors_of(name, "query"))
    close_lists(model.encode_document(TEXTS), vectors_of(name, "document"))
    scores = scores_of(name)
    vectors = [vectors_of(name, task) for task in ("query", "document")]
    close(model.similarity(*vectors), scores)


MASK, TRANSFORMER = "2_MultiVectorMask/config.json", "sentence_bert_config.json"
SPLADE = "1_SpladePooling/config.json"


@pytest.mark.parametrize(
    ("name", "file", "values", "words"),
    [
        ("splade", SPLADE, {"chunk": 1}, "the unknown setting chunk; it takes"),
        ("splade", SPLADE, {"pooling_strategy": "mean"}, "strategy='mean': ta"),
        ("splade", SPLADE, {"activation_function": "x"}, "function='x': takes"),
        (
            "splade",
            TRANSFORMER,
            {"transformer_task": "feature-extraction"},
            "it takes 'fill-mask'",
        ),
        (
            "splade",
            "config_sentence_transformers.json",
            {"max_active_dims": 0},
            "max_active_dims is 0; it takes 1 or more",
        ),
        (
            "late_fixed",
            MASK,
            {"skip": []},
            "the unknown setting skip; it takes",
        ),
        (
            "late_fixed",
            MASK,
            {"skiplist_words": "."},
            "is '.'; it takes a list",
        ),
        (
            "late_fixed",
            MASK,
            {"keep_only_token_ids": [99]},
            "keep_only_token_ids is 99; it takes 0 to 31",
        ),
        (
            "late_fixed",
            TRANSFORMER,
            {"document_length": 0},
            "document_length is 0; it takes 1 or more",
        ),
        (
            "late_fixed",
            TRANSFORMER,
            {"query_expansion": {"strategy": "all", "length": 4}},
            "strategy='all': takes one of fixed, min",
        ),
        (
            "late_fixed",
            TRANSFORMER,
            {"query_expansion": {"strategy": "min"}},
            "length is None; it takes a whole number",
        ),
        (
            "late_fixed",
            TRANSFORMER,
            {"query_expansion": {"strategy": "min", "length": 99}},
            "length is 99; it takes 3 to 24",
        ),
        (
            "late_fixed",
            TRANSFORMER,
            {
                "query_expansion": {
                    "strategy": "min",
                    "length": 9,
                    "token": "q9",
                }
            },
            "token is 'q9', which is no token of the vocabulary",
        ),
        (
            "late_fixed",
            "1_Dense/config.json",
            {"module_input_name": "sentence_embedding"},
            "it takes 'token_embeddings'",
        ),
        (
            "stanford",
            "artifact.metadata",
            {"query_maxlen": 2},
            "query_maxlen is 2; it takes 4 to 24",
        ),
        (
            "stanford",
            "artifact.metadata",
            {"doc_token_id": "[D]"},
            "doc_token_id is '[D]', which is no token of the vocabulary",
        ),
        ("stanford", "artifact.metadata", {"similarity": "l2"}, "takes cosine"),
    ],
)
def test_what_cannot_be_read_is_refused(name, file, values, words, tmp_path):
    folder = write_folder(name, tmp_path / "model")
    path = folder / file
    stated = json.loads(path.read_text())
    path.write_text(json.dumps(stated | values))
    line = error_of(lambda: read_sentence_modules(load_checkpoint(folder)))
    assert words in line, line
    assert file.rpartition("/")[2] in line


def test_modules_in_another_order(tmp_path):
    folder = write_folder("late_plain", tmp_path / "model")
    path = folder / "modules.json"
    entries = json.loads(path.read_text())
    for changed, words in (
        (entries[:1], "has no MultiVectorMask behind the Transformer"),
        (
            [*entries, entries[1] | {"idx": 2}],
            "module 1 is a MultiVectorMask; a Transformer is followed by one",
        ),
        (
            [
                entries[0],
                entries[1] | {"type": "sentence_transformers.a.Pooling"},
            ],
            "module 1 is a Pooling, which is not supported; it takes Multi",
        ),
    ):
        path.write_text(json.dumps(changed))
        line = error_of(lambda: read_sentence_modules(load_checkpoint(folder)))
        assert words in line, line


@pytest.fixture(scope="module")
def sparse(tmp_path_factory):
    return bert_tf.load(
        write_folder("splade", tmp_path_factory.mktemp("s") / "m")
    )


@pytest.fixture(scope="module")
def late(tmp_path_factory):
    root = tmp_path_factory.mktemp("l")
    return bert_tf.load(write_folder("late_fixed", root / "m"))


def test_arguments_that_do_not_apply(sparse, late, eagerly):
    for call, words in (
        (lambda: late.encode("a"), "encode_query and encode_document"),
        (lambda: late.encode_query([("a", "b")]), "texts[0] is a pair"),
        (lambda: late.encode_query([1]), "texts[0] is 1"),
        (lambda: late.tokens(np.zeros((1, 6))), "is no SparseEncoder"),
        (lambda: late.encode_query("a", truncate_dim=3), "`truncate_dim`=3"),
        (lambda: sparse.encode("a", normalize=True), "`normalize`=True"),
        (lambda: sparse.encode("a", precision="int8"), "`precision`='int8'"),
        (lambda: sparse.encode("a", prompt_name="x"), "`prompt_name`=x"),
        (lambda: sparse.tokens(np.zeros((1, 6))), "`vectors` is 6 wide"),
        (lambda: sparse.tokens("the"), "`vectors` is 'the'"),
        (lambda: sparse.similarity(np.zeros(32), [1]), "`second` is 1 wide"),
        (
            lambda: late.similarity([np.zeros((2, 6))], [np.zeros((2, 5))]),
            "`second`[0] has the shape [2, 5]",
        ),
        (lambda: late.similarity("a", "b"), "`first` is 'a'; it takes the"),
        (lambda: bert_tf.embed(late, TEXTS), "a vector of each token; take"),
        (lambda: late.explain("a"), "explain"),
        (lambda: sparse.explain("a"), "explain"),
    ):
        line = error_of(call)
        assert words in line, line


def test_files_of_dense_vectors_are_refused(sparse, late, tmp_path):
    lines = tmp_path / "lines.txt"
    lines.write_text("a\n")
    for model in (sparse, late):
        line = error_of(
            lambda folder=model.folder: embed_files(
                folder, lines, tmp_path / "out"
            )
        )
        assert "computes no dense vector per text" in line, line


def test_scipy_is_asked_for(sparse, monkeypatch, eagerly):
    monkeypatch.setattr(
        "bert_tf.libraries.missing_libraries", lambda extra: ["scipy"]
    )
    line = error_of(lambda: sparse.encode("a"))
    assert 'pip install "bert_tf[sparse]"' in line
