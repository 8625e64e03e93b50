"""What is written for ONNX Runtime computes what the model does."""

import json
import unicodedata

import numpy as np
import onnx
import onnxruntime
import pytest
import tokenizers

from bert_tf.inference import export_file as export
from bert_tf.inference.export_file import export_file
from bert_tf.inference.served_folder import served_model
from bert_tf.runtimes.tracing import trace
from bert_tf.text.layout import SentencePacker
from bert_tf.text.token_table import SPECIAL_TOKENS
from bert_tf.text.tokenizer import BertTokenizer
from bert_tf.text.tokenizer_files import AddedToken
from bert_tf.text.unicode_tables import SURROGATES, categories
from tests.inference.model_folders import KINDS, LABELS, make, rows
from tests.inference.serving_models import TOKENS, texts, tokenizer
from tests.user_errors import error_of


def written(tmp_path, kind, **changes):
    """The folder of a model, and its file as a session."""
    folder = make(tmp_path, kind, **changes)
    path = export_file(folder, tmp_path / "onnx", "onnx")
    graph = onnx.load(path).graph
    # ONNX Runtime warns about others.
    used = {name for node in graph.node for name in node.input}
    assert {each.name for each in graph.initializer} <= used
    return folder, onnxruntime.InferenceSession(path)


def outputs_of(session, inputs):
    names = [each.name for each in session.get_outputs()]
    return dict(zip(names, session.run(None, inputs), strict=True))


def assert_near(found, expected, inputs):
    """Outputs of rows, or of their tokens, are near; nobody reads padding."""
    assert set(found) == set(expected)
    for name, values in found.items():
        right = expected[name]
        if values.ndim == 3 or name in ("start_logits", "end_logits"):
            tokens = inputs["input_mask"] == 1
            values, right = values[tokens], right[tokens]
        np.testing.assert_allclose(values, right, rtol=1e-4, atol=1e-4)


def expected_of(kind, served, inputs):
    """The Keras model's numbers, asked by its own inputs."""
    if kind == "choice":
        # As four choices of one row.
        inputs = {name: value[None] for name, value in inputs.items()}
        return {"logits": np.asarray(served.forward(inputs)).T}
    if kind in ("pretrained", "encoder"):
        found = served.answer_tokens(inputs)
    else:
        found = served.forward(inputs)
    found = found if isinstance(found, dict) else {"logits": found}
    return {name: np.asarray(value) for name, value in found.items()}


@pytest.mark.parametrize(("kind", "changes"), [*KINDS, ("choice", {})])
def test_every_kind_of_model(kind, changes, eagerly, tmp_path):
    folder, session = written(tmp_path, kind, **changes)
    served = served_model(folder)
    for count, length in ((4, 9), (1, 16), (3, 2)):
        inputs = rows(count, length, seed=length)
        if length == 9:
            # A hole in a row: the last token is what counts.
            inputs["input_mask"][0, 4] = 0
        found = outputs_of(session, inputs)
        assert_near(found, expected_of(kind, served, inputs), inputs)
    about = json.loads((tmp_path / "onnx" / "model.json").read_text())
    assert about["format"] == "onnx"
    assert about["outputs"] == list(found)
    assert about.get("labels", []) == list(served.labels)
    if kind != "classes":
        return
    assert about["labels"] == list(LABELS)
    assert about["fine_tuned_for"] == "mood"
    for name in ("vocab.txt", "tokenizer_config.json", "tokenizer.json"):
        assert (tmp_path / "onnx" / name).is_file()
    # The tokenizer here reads them too.
    found, own = map(BertTokenizer.from_checkpoint, (tmp_path / "onnx", folder))
    assert (found.vocabulary, found.config) == (own.vocabulary, own.config)


def test_the_comparison_sees_a_difference(eagerly, tmp_path, monkeypatch):
    def off(function, *args):
        return trace(
            lambda inputs: {
                name: value + 0.01 for name, value in function(inputs).items()
            },
            *args,
        )

    folder = make(tmp_path, "classes")
    monkeypatch.setattr(export, "trace", off)
    line = error_of(export_file, folder, tmp_path / "onnx", "onnx")
    assert "logits of the file is up to" in line
    assert not (tmp_path / "onnx").exists()


def test_an_unknown_format_is_refused(tmp_path):
    line = error_of(export_file, tmp_path, tmp_path / "x", "coreml")
    assert line.startswith("`file_format`=coreml: takes onnx, litert")


def test_a_full_folder_is_left_alone(tmp_path, eagerly):
    folder = make(tmp_path, "classes")
    (tmp_path / "onnx").mkdir()
    (tmp_path / "onnx" / "mine").write_text("x")
    line = error_of(export_file, folder, tmp_path / "onnx", "onnx")
    assert line.startswith("`path`=")
    assert [p.name for p in (tmp_path / "onnx").iterdir()] == ["mine"]


@pytest.mark.parametrize("padded", [False, True])
def test_tokenizer_json_gives_the_rows_of_the_packer(padded, tmp_path, eagerly):
    for lower_case in (True, False):
        own = tokenizer(lower_case)
        own.data.save_json(tmp_path, 16, padded)
        other = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
        asked = texts(200, 12)
        batch = SentencePacker(own, 16)(asked)
        ids, kept = (
            batch[name].numpy() for name in ("input_ids", "input_mask")
        )
        for text, row, mask in zip(asked, ids, kept, strict=True):
            found = other.encode(text)
            if not padded:
                row = row[mask == 1]
            assert found.ids == row.tolist(), text
        # Short pairs, whose segments differ.
        pairs = [(a, b) for a, b in zip(asked, asked[::-1], strict=True)]
        packed = SentencePacker(own, 16)(*map(list, zip(*pairs, strict=True)))
        packed = {name: rows.numpy() for name, rows in packed.items()}
        short = 0
        for number, pair in enumerate(pairs):
            found = other.encode(*pair)
            if packed["input_mask"][number, -1] == 0:
                short += 1
                size = len(found.ids)
                for name, values in (
                    ("input_ids", found.ids),
                    ("segment_ids", found.type_ids),
                    ("input_mask", found.attention_mask),
                ):
                    row = packed[name][number].tolist()[:size]
                    assert values == row, pair
        assert short > 5


@pytest.mark.parametrize("lower_case", [True, False])
def test_tokenizer_json_knows_all_of_unicode(lower_case, tmp_path, eagerly):
    """Where categories begin and end, private use and accents among them."""
    firsts = np.flatnonzero(np.diff(categories().view("u2"), prepend=0))
    codes = np.unique([firsts, firsts + 1, np.maximum(firsts - 1, 0)])
    chars = [chr(c) for c in codes if c not in SURROGATES]
    pieces = {
        part
        for char in chars
        for form in (char, char.lower())
        for part in unicodedata.normalize("NFD", form) + form
        if part.strip() == part
    }
    # What Python does not know is a token here and there.
    known = sorted(p for p in pieces if unicodedata.category(p) != "Cn")
    known += ["\u088f", "\U0001fae8"]
    tokens = [*SPECIAL_TOKENS, "", "a", "\u2028", *known]
    tokens += [f"##{piece}" for piece in known]
    own = BertTokenizer(tokens, lower_case, tokenize_chinese_chars=lower_case)
    own.data.save_json(tmp_path, 512, False)
    other = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert other.get_vocab_size() == len(own.vocabulary) - 1
    for form in ("a{0}b {0} \u1e9bA", "A{0}\u03a3{0} e{0}\u0301\u0327{0}"):
        asked = [form.format(char) for char in chars]
        found = other.encode_batch(asked, add_special_tokens=False)
        ids = own.tokenize(asked).to_list()
        for text, wanted, encoding in zip(asked, ids, found, strict=True):
            assert encoding.ids == wanted, text


def test_tokenizer_json_finds_added_tokens(tmp_path, eagerly):
    added = [AddedToken("[NAME]", special=True, normalized=False)]
    own = BertTokenizer([*TOKENS, "[NAME]"], added_tokens=added)
    own.data.save_json(tmp_path, 16, False)
    other = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    found = other.encode("the [NAME] is good").ids
    assert found[2] == len(TOKENS)
    assert found[1:-1] == own.tokenize("the [NAME] is good").numpy().tolist()
