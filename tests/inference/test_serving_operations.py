"""Signatures use only operations that TensorFlow Serving's binary has."""

import functools
import pathlib

import pytest
import tensorflow as tf

import bert_tf
from tests import fine_tuned_models, subword_models
from tests.families.pretrained import sentence_folders, token_vector_folders
from tests.inference import serving_models

GOLDEN = pathlib.Path(__file__).parent.parent / "golden"
# TensorFlow's own; those that call Python have no kernel in a server.
CORE = frozenset(dir(tf.raw_ops)) - {
    *("PyFunc", "PyFuncStateless", "EagerPyFunc")
}
# tensorflow_serving/model_servers/BUILD, SUPPORTED_TENSORFLOW_OPS: it links
# tensorflow_text:ops_lib (tensorflow_text/BUILD), of which these libraries have
# the operations of tokenizers.
LINKED = {
    "normalize_ops_cc": (
        *("CaseFoldUTF8", "NormalizeUTF8", "NormalizeUTF8WithOffsetsMap"),
        "FindSourceOffsets",
    ),
    "regex_split_ops_cc": ("RegexSplitWithOffsets",),
    "sentencepiece_tokenizer_cc": (
        *("SentencepieceOp", "SentencepieceTokenizeOp"),
        *("SentencepieceTokenizeWithOffsetsOp", "SentencepieceDetokenizeOp"),
        *("SentencepieceIdToStringOp", "SentencepieceStringToIdOp"),
        "SentencepieceVocabSizeOp",
    ),
    "fast_bert_normalizer_cc": ("FastBertNormalize",),
    "wordpiece_tokenizer_cc": ("WordpieceTokenizeWithOffsets",),
    "fast_wordpiece_tokenizer_cc": ("FastWordpieceTokenizeWithOffsets",),
}
TEXT = frozenset(name for names in LINKED.values() for name in names)


def operations(model) -> set[str]:
    """The types of the operations of all signatures of a model."""
    found = set()
    for function in model.served.all_signatures().values():
        graph = function.get_concrete_function().graph.as_graph_def()
        nodes = [*graph.node]
        for inner in graph.library.function:
            nodes += inner.node_def
        # A call of a function may have its name as its type.
        names = {inner.signature.name for inner in graph.library.function}
        found |= {node.op for node in nodes} - names
    return found


def of_nli(folder) -> bert_tf.Checkpoint:
    labels = next(iter(fine_tuned_models.NLI_LABELS.values()))
    model = fine_tuned_models.NLI_MODEL
    fine_tuned_models.write_folder(folder, model, labels)
    return bert_tf.load(folder, task="text_pair_classification")


def of_subwords(name, folder):
    return bert_tf.load(subword_models.write_model(folder, name, "classes"))


MODELS = {
    **{
        kind: lambda folder, kind=kind: serving_models.loaded(kind)
        for kind in serving_models.KINDS
    },
    **{
        f"tokens of {name}": functools.partial(of_subwords, name)
        for name in subword_models.NAMES
    },
    "prompts": lambda folder: bert_tf.load(
        sentence_folders.write_folder("prompt_left_out_joined", folder)
    ),
    "ranking": lambda folder: bert_tf.load(
        sentence_folders.write_cross_encoder("old", folder)
    ),
    "zero-shot": of_nli,
    "static": lambda folder: bert_tf.load(GOLDEN / "static_embedding" / "bert"),
    **{
        name: lambda folder, name=name: bert_tf.load(
            token_vector_folders.write_folder(name, folder)
        )
        for name in (
            token_vector_folders.SPARSE[0],
            token_vector_folders.LATE[0],
        )
    },
}


@pytest.mark.parametrize("name", MODELS)
def test_operations_are_linked(name, tmp_path):
    found = operations(MODELS[name](tmp_path / "model"))
    assert found - CORE - TEXT == set()
    assert found & TEXT
