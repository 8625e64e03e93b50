"""Reads what folders state of late interaction, as ColBERT computes it.

N_MultiVectorMask/config.json  the tokens that are scored
sentence_bert_config.json      the lengths and the expansion of queries
artifact.metadata              the same in folders of Stanford's colbert-ai
"""

import dataclasses
import pathlib
import string
from collections.abc import Mapping
from typing import Any

import numpy as np

from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.checkpoints.hugging_face_files import open_weights
from bert_tf.checkpoints.sentence_modules import (
    Dense,
    Expansion,
    MultiVectorModules,
    Normalize,
)
from bert_tf.checkpoints.sentence_settings import (
    MIN_LENGTH,
    read_size,
    refuse_unknown,
)
from bert_tf.errors import UserError, check_choice, excerpt
from bert_tf.recipe import Limits, check_kind, read_json_object, value_of_key
from bert_tf.text.tokenizer_files import AddedToken
from bert_tf.text.vocabulary import Vocabulary

QUERY, DOCUMENT = "query", "document"
STANFORD_FILE = "artifact.metadata"
_STRATEGIES = ("fixed", "min")
# The keys of the token that follows [CLS] in queries and in documents, and
# their defaults: colbert/infra/config/settings.py.
_MARKERS = {"query_token_id": "[unused0]", "doc_token_id": "[unused1]"}
# The shortest row of Stanford's: a token beside [CLS], the marker and [SEP].
_MIN_STANFORD_LENGTH = 4


def read_mask(path: pathlib.Path, checkpoint: Checkpoint) -> dict[str, Any]:
    """Reads the MultiVectorMask as fields of `MultiVectorModules`."""
    values = read_json_object(path)
    keys = ("skiplist_words", "skiplist_tasks", "keep_only_token_ids")
    refuse_unknown(values, keys, path)
    kinds = (tuple[str, ...], tuple[str, ...], tuple[int, ...])
    words, tasks, ids = (
        value_of_key(values, key, kind, str(path))
        for key, kind in zip(keys, kinds, strict=True)
    )
    rows = checkpoint.config.vocab_size
    for number in ids or ():
        Limits(at_least=0, at_most=rows - 1).check(f"{path}: {keys[2]}", number)
    return {
        "skipped_words": words or (),
        "skipped_tasks": (DOCUMENT,) if tasks is None else tasks,
        "scored_ids": ids or (),
    }


def read_lengths(
    values: Mapping[str, Any], place: str, checkpoint: Checkpoint
) -> dict[str, Any]:
    """Reads what a Transformer states of queries and documents."""
    path, longest = pathlib.Path(place), checkpoint.config.longest_input
    query, document = (
        read_size(values, f"{task}_length", path) for task in (QUERY, DOCUMENT)
    )
    given = value_of_key(values, "query_expansion", dict, place)
    expansion = None
    if given is not None:
        inner = f"{place}: query_expansion"
        keys = ("strategy", "length", "attend", "token")
        refuse_unknown(given, keys, pathlib.Path(inner))
        check_choice(f"{inner}: strategy", given.get("strategy"), _STRATEGIES)
        length = check_kind("length", int, given.get("length"), inner)
        Limits(at_least=MIN_LENGTH, at_most=longest).check(
            f"{inner}: length", length
        )
        expansion = Expansion(
            length,
            given["strategy"] == "fixed",
            value_of_key(given, "attend", bool, inner) is True,
            value_of_key(given, "token", str, inner),
        )
        require_token(checkpoint, expansion.token, f"{inner}: token")
    return {
        "query_length": query,
        "document_length": document,
        "expansion": expansion,
    }


def require_token(
    checkpoint: Checkpoint, token: str | None, place: str
) -> None:
    """Refuses a token, None for [MASK], that the vocabulary does not have."""
    vocabulary = checkpoint.require_tokenizer(checkpoint.source).vocabulary
    if token is None:
        token = vocabulary.special.mask
    if token is None or token not in vocabulary.ids:
        raise UserError(
            f"{place} is {excerpt(token)}, which is no token of the vocabulary."
        )


def read_stanford(
    checkpoint: Checkpoint, folder: pathlib.Path
) -> MultiVectorModules:
    """Reads a folder of Stanford's colbert-ai.

    Defaults are those of its ColBERTConfig, colbert/infra/config/settings.py.
    """
    path = folder / STANFORD_FILE
    values = read_json_object(path, missing_ok=True)
    place, positions = str(path), checkpoint.config.longest_input
    limits = Limits(at_least=_MIN_STANFORD_LENGTH, at_most=positions)
    lengths = {"query_maxlen": 32, "doc_maxlen": 220}
    for key in lengths:
        lengths[key] = value_of_key(values, key, int, place) or lengths[key]
        limits.check(f"{path}: {key}", lengths[key])
    if value_of_key(values, "similarity", str, place) not in (None, "cosine"):
        raise UserError(
            f"{path}: similarity is {values['similarity']}, which is not "
            "supported; it takes cosine."
        )
    stored = open_weights(folder)
    if "linear.weight" not in stored.shapes:
        raise UserError(f"{folder}: its weights hold no linear.weight.")
    kernel = np.asarray(stored["linear.weight"], np.float32)
    attend = value_of_key(values, "attend_to_mask_tokens", bool, place)
    skips = value_of_key(values, "mask_punctuation", bool, place) is not False
    return MultiVectorModules(
        max_seq_length=positions,
        prompts={
            name: f"{marker} "
            for name, marker in zip(
                (QUERY, DOCUMENT), _markers(values, place), strict=True
            )
        },
        steps=(
            Dense(np.ascontiguousarray(kernel.T), None, "linear"),
            Normalize(),
        ),
        skipped_words=tuple(string.punctuation) if skips else (),
        document_length=lengths["doc_maxlen"],
        expansion=Expansion(lengths["query_maxlen"], True, attend is True),
    )


def _markers(values: Mapping[str, Any], place: str) -> list[str]:
    """Returns the markers of queries and of documents."""
    return [
        value_of_key(values, key, str, place) or marker
        for key, marker in _MARKERS.items()
    ]


def with_markers(checkpoint: Checkpoint, folder: pathlib.Path) -> Checkpoint:
    """Recognizes the markers of Stanford's colbert-ai in texts.

    It inserts them as ids; here they are the prompts of queries and documents.

    Raises:
      UserError: the vocabulary does not have them, or is no WordPiece one.
    """
    if not isinstance(checkpoint.vocabulary, Vocabulary):
        raise UserError(
            f"{folder}: is a ColBERT of Stanford's without a WordPiece "
            "vocabulary, which is not supported; save it by "
            "sentence_transformers.MultiVectorEncoder."
        )
    path = folder / STANFORD_FILE
    values = read_json_object(path, missing_ok=True)
    markers = _markers(values, str(path))
    for key, marker in zip(_MARKERS, markers, strict=True):
        require_token(checkpoint, marker, f"{path}: {key}")
    added = {token.content: token for token in checkpoint.added_tokens}
    for marker in markers:
        added[marker] = AddedToken(marker, normalized=False, special=True)
    return dataclasses.replace(checkpoint, added_tokens=tuple(added.values()))
