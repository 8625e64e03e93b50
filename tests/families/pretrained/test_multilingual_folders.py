"""Folders in the layouts of multilingual-e5 and bge-m3, by their formulas."""

import json

import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.checkpoints import Checkpoint, load_checkpoint, save_checkpoint
from bert_tf.conversion import convert_checkpoint
from bert_tf.encoders import encoder_class
from bert_tf.text.layout import SentencePacker
from tests.contracts.architecture_cases import CASES
from tests.model_helpers import fill
from tests.relatives import ALBERT_UNIGRAM, LETTERS, UNIGRAM

QUERY, TEXTS = "query: ", ["that coin is round", "at  sea", "", "x y the end"]


def written(folder, architecture, pooling):
    """A folder with the files of the hub, and its encoder."""
    config = CASES[architecture].config(max_position_embeddings=40)
    encoder = fill(encoder_class(config)(config))
    checkpoint = Checkpoint(config, encoder.to_arrays())
    save_checkpoint(folder, checkpoint.with_tokenizer(UNIGRAM), "hugging_face")
    (folder / "spiece.model").rename(folder / "sentencepiece.bpe.model")
    (folder / "sentencepiece.bpe.model").write_bytes(_of_fairseq())
    kinds = ("Transformer", "Pooling", "Normalize")
    modules = [
        {
            "idx": number,
            "name": str(number),
            "path": f"{number}_{kind}" if number else "",
            "type": f"sentence_transformers.models.{kind}",
        }
        for number, kind in enumerate(kinds)
    ]
    modes = {
        f"pooling_mode_{name}": name.startswith(pooling)
        for name in (
            *("cls_token", "mean_tokens", "max_tokens"),
            "mean_sqrt_len_tokens",
        )
    } | {"pooling_mode_mean_sqrt_len_tokens": False}
    for path, values in (
        ("modules.json", modules),
        ("1_Pooling/config.json", {"word_embedding_dimension": 8, **modes}),
        ("sentence_bert_config.json", {"max_seq_length": 9}),
        (
            "config_sentence_transformers.json",
            {"prompts": {"query": QUERY, "passage": "passage: "}},
        ),
    ):
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(json.dumps(values))
    return encoder


def _of_fairseq() -> bytes:
    """The pieces of `UNIGRAM` in the order of the file of XLM-R."""
    model = type(UNIGRAM.proto).FromString(UNIGRAM.model)
    begin, _, end, unknown, *others = model.pieces
    pieces = [unknown, begin, end, *others[:-1]]
    del model.pieces[:]
    model.pieces.extend(pieces)
    model.trainer_spec.unk_id = 0
    serialized: bytes = model.SerializeToString()
    return serialized


@pytest.mark.parametrize(
    ("architecture", "pooling"),
    # multilingual-e5-small is a BERT with XLM-R's tokenizer.
    [("xlm-roberta", "mean"), ("bert", "mean"), ("xlm-roberta", "cls")],
)
@pytest.mark.usefixtures("eagerly")
def test_vectors_are_those_of_the_formula(architecture, pooling, tmp_path):
    encoder = written(tmp_path, architecture, pooling)
    model = bert_tf.load(tmp_path)
    tokenizer = model.tokenizer
    assert tokenizer.vocabulary.tokens == UNIGRAM.tokens
    pack = SentencePacker(tokenizer, 9)
    for name, prompt in ((None, ""), ("query", QUERY)):
        rows = pack([prompt + text for text in TEXTS])
        hidden = encoder(rows)["sequence_output"].numpy()
        mask = rows["input_mask"].numpy()[:, :, np.newaxis]
        expected = hidden[:, 0]
        if pooling == "mean":
            expected = (hidden * mask).sum(1) / mask.sum(1)
        expected /= np.linalg.norm(expected, axis=1, keepdims=True)
        found = bert_tf.embed(model, TEXTS, prompt_name=name)
        np.testing.assert_allclose(found, expected, atol=1e-5)
    answers = model.served.answers(tf.constant(TEXTS))["embedding"]
    plain = bert_tf.embed(model, TEXTS)
    np.testing.assert_allclose(answers, plain, atol=1e-5)
    assert not np.allclose(plain, expected, atol=1e-3)


@pytest.mark.parametrize(
    ("architecture", "data"),
    [
        ("bert", UNIGRAM),
        ("bert", LETTERS),
        ("xlm-roberta", UNIGRAM),
        ("xlm-roberta", ALBERT_UNIGRAM),
    ],
)
def test_a_file_of_keras_holds_the_tokenizer(architecture, data):
    config = CASES[architecture].config()
    encoder = encoder_class(config)(config)
    model = bert_tf.TextClassifier(encoder, data.tokenizer(), ["no", "yes"], 9)
    again = bert_tf.TextClassifier.from_config(model.get_config())
    assert type(again.tokenizer.data) is type(data)
    assert again.tokenizer.data == data


def test_a_vocabulary_file_is_read_as_the_model_s_own_kind(tmp_path):
    written(tmp_path / "e5", "bert", "mean")
    path = tmp_path / "e5" / "sentencepiece.bpe.model"
    out = tmp_path / "out"
    convert_checkpoint(tmp_path / "e5", "bert_tf", out, vocab_file=path)
    found = load_checkpoint(out)
    assert found.tokenizer == load_checkpoint(tmp_path / "e5").tokenizer
    assert found.config.vocab_size == len(UNIGRAM)
