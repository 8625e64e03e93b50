"""Distils a model into a table of static vectors, without training.

The recipe of model2vec (github.com/MinishLab/model2vec, distillation.py): the
encoder computes each token of the vocabulary alone, with the special tokens of
a row; the mean of the row is reduced by PCA and weighted by the token's
frequency (smooth inverse frequency, Arora et al. 2017).
"""

import dataclasses
import itertools
import math
import os
import pathlib
import re
import time
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from bert_tf.architectures.static import StaticConfig
from bert_tf.checkpoints import Checkpoint
from bert_tf.checkpoints.static_embedding import TABLE, write
from bert_tf.config import MEAN
from bert_tf.distillation.report import Distillation
from bert_tf.errors import Fault, UserError, excerpt
from bert_tf.families.data.scores import spearman
from bert_tf.families.pretrained.answers import PretrainedModel
from bert_tf.families.pretrained.settings import Settings as VectorSettings
from bert_tf.features import ENCODER_INPUTS
from bert_tf.files import expand_inputs, new_folder
from bert_tf.finetuning.measured import Measured
from bert_tf.inference.embed import embed
from bert_tf.inference.features import read_texts
from bert_tf.inference.load import load
from bert_tf.inference.vectors import open_model
from bert_tf.progress import Progress
from bert_tf.recipe import Settings, setting
from bert_tf.sharing.model_card import CardScore, ModelCard
from bert_tf.tables.faults import Faults
from bert_tf.tables.table import (
    Row,
    Table,
    convert_rows,
    named_columns,
    text_of,
)
from bert_tf.text.layout import tokenize
from bert_tf.text.tokenizer_protocol import Tokenizer
from bert_tf.training.history import write_numbers

_ROWS_AT_ONCE = 1024
_TEXTS_AT_ONCE = 4096
# model2vec, token_remove_pattern: such tokens are in no text.
_UNUSED = re.compile(r"\[unused\d+\]")
# Texts without pairs: every pair of this many is compared.
_MOST_TEXTS = 500
_TIMED_ROUNDS = 3


@dataclasses.dataclass(frozen=True)
class StaticSettings(Settings):
    """Settings of a distillation to static vectors."""

    teacher: str = setting("", "the model to distil")
    dimension: int = setting(
        256,
        "numbers of a vector, by PCA; at most those of the teacher",
        at_least=1,
    )
    sif_coefficient: float = setting(
        1e-4,
        "a token of the probability p has the weight a / (a + p), where a is "
        "this number; 0 weights all tokens alike",
        at_least=0,
        below=1,
    )
    count_files: str = setting(
        "",
        "text files or tables, comma-separated, whose tokens are counted for "
        "the probabilities; empty: by Zipf's law from the order of the "
        "vocabulary",
        requires="sif_coefficient",
    )
    dev_file: str = setting(
        "",
        "table of pairs of texts on which teacher and vectors are compared; "
        "empty: texts of Python's language reference",
    )
    text_columns: str = setting(
        "text_a,text_b",
        "the two columns of a pair in dev_file, comma-separated",
        requires="dev_file",
    )
    label_column: str = setting(
        "",
        "column of dev_file with the similarity of a pair, from people; empty "
        "if it has none",
        requires="dev_file",
    )


def distill_static(
    settings: StaticSettings,
    output_dir: str | os.PathLike,
    texts: Sequence[str] = (),
) -> Distillation:
    """Distils a model into static vectors and compares both.

    Args:
      settings: see `StaticSettings`.
      output_dir: the new folder, a StaticEmbedding of sentence-transformers,
        with the comparison in distillation.json.
      texts: texts to compare both on, if there is no `dev_file`.

    Returns:
      Of teacher and static vectors the agreement, Spearman's correlation of
      their similarities with the teacher's; with `label_column` spearman, that
      with the labels; and the texts per second, tokenization included.

    Raises:
      UserError: a file, the teacher or a setting is invalid, or `output_dir`
        is not empty.
    """
    if not settings.teacher:
        raise UserError("`teacher`: name the model to distil.")
    first, second, labels = _pairs(settings, texts)
    numbers = {text: n for n, text in enumerate(dict.fromkeys(first + second))}
    sides = [[numbers[text] for text in side] for side in (first, second)]
    with new_folder(output_dir) as beside:
        teacher = open_model(settings.teacher, VectorSettings(pooling=MEAN))
        write(beside, _distilled(teacher, settings))
        models: dict[str, Measured] = {}
        expected = None
        for name, folder in (("teacher", settings.teacher), ("static", beside)):
            model = load(folder)
            seconds = []
            for _ in range(_TIMED_ROUNDS):
                started = time.perf_counter()
                vectors = embed(model, list(numbers), normalize=True)
                seconds.append(time.perf_counter() - started)
            left, right = (vectors[side] for side in sides)
            similarities = np.sum(left * right, axis=1)
            if expected is None:
                expected = similarities
            scores = {"agreement": spearman(expected, similarities)}
            if labels is not None:
                scores["spearman"] = spearman(labels, similarities)
            parameters = int(model.facts["num_parameters"])
            speed = len(numbers) / min(seconds)
            models[name] = Measured(scores, speed, parameters, 4 * parameters)
        done = Distillation("similarity of texts", "agreement", models)
        write_numbers(beside / "distillation.json", dataclasses.asdict(done))
    defaults = StaticSettings().to_dict()
    ModelCard(
        summary="Static vectors of tokens, distilled by model2vec's recipe",
        pipeline_tag="sentence-similarity",
        question={"text": "A ship sails."},
        init_from=settings.teacher,
        num_rows={"dev": len(first)},
        scores=[
            CardScore("dev", metric, value, None, scale=100)
            for metric, value in models["static"].scores.items()
        ],
        settings={
            name: value
            for name, value in settings.to_dict().items()
            if value != defaults[name]
        },
        architecture=StaticConfig.model_type,
        tokenizer=model.tokenizer.vocabulary.description,
    ).write(pathlib.Path(output_dir))
    return done


def _pairs(
    settings: StaticSettings, texts: Sequence[str]
) -> tuple[list[str], list[str], np.ndarray | None]:
    """Returns the texts of pairs, and their similarity if it is known."""
    if not settings.dev_file:
        few = list(dict.fromkeys(texts))[:_MOST_TEXTS]
        if len(few) < 2:
            raise UserError(
                "`dev_file`: name a table of pairs to compare the models on."
            )
        first, second = zip(*itertools.combinations(few, 2), strict=True)
        return [*first], [*second], None
    label = settings.label_column
    columns = settings.text_columns.split(",")
    names = {"text_columns": columns} | (
        {"label_column": [label]} if label else {}
    )
    asked = named_columns(names, settings.dev_file)
    if len(columns) != 2:
        raise UserError(
            f"`text_columns`={settings.text_columns}: name the two columns of "
            "a pair."
        )

    def pair(row: Row) -> tuple[str, str, float]:
        a, b, *labels = row.cells
        try:
            number = float(str(labels[0])) if labels else 0.0
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise Fault(
                "a label that is no number",
                f"{row.place}: the label {excerpt(labels[0])} is no number; "
                "correct it, or leave `label_column` out.",
            )
        return (
            text_of(a, columns[0], row.place),
            text_of(b, columns[1], row.place),
            number,
        )

    rows = Table(settings.dev_file, argument="dev_file").rows(asked)
    faults = Faults(settings.dev_file)
    a, b, numbers = zip(*convert_rows(rows, pair, faults), strict=True)
    return [*a], [*b], np.array(numbers) if label else None


def _distilled(
    teacher: PretrainedModel, settings: StaticSettings
) -> Checkpoint:
    """Computes the table of static vectors of a teacher's tokens."""
    tokenizer = teacher.tokenizer
    data = tokenizer.data.unframed()
    tokens, special = tokenizer.vocabulary.tokens, tokenizer.vocabulary.special
    known = np.array(
        [
            number
            for number, token in enumerate(tokens)
            # The vectors of others are zero, so that they do not count.
            if token and token not in special and not _UNUSED.match(token)
        ]
    )
    vectors = _token_vectors(teacher, known)
    vectors = _principal_components(vectors, settings.dimension)
    if settings.sif_coefficient:
        if settings.count_files:
            paths = expand_inputs(settings.count_files, "count_files")
            counts = _token_counts(data.tokenizer(), paths)[known]
            if not counts.any():
                raise UserError(
                    f"`count_files`={settings.count_files}: hold no tokens of "
                    "the teacher; give texts of its language."
                )
        else:
            # As in model2vec: the first has the rank 2.
            counts = 1 / np.arange(2, len(known) + 2)
        weight = settings.sif_coefficient
        weights = weight / (weight + counts / counts.sum())
        vectors *= weights[:, np.newaxis]
    table = np.zeros((len(tokens), vectors.shape[1]), np.float32)
    table[known] = vectors
    config = StaticConfig(vocab_size=len(tokens), hidden_size=table.shape[1])
    checkpoint = Checkpoint(config, {TABLE: table}, source=settings.teacher)
    return checkpoint.with_tokenizer(data)


def _token_vectors(teacher: PretrainedModel, ids: np.ndarray) -> np.ndarray:
    """Computes the mean of a row of each token alone, float64 [N, H]."""
    packing, found = teacher.tokenizer.packing, []
    with Progress("tokens", len(ids), 0, " tokens") as progress:
        for begin in range(0, len(ids), _ROWS_AT_ONCE):
            chosen = ids[begin : begin + _ROWS_AT_ONCE, np.newaxis]
            around = (
                np.tile(np.array(side, np.int64), (len(chosen), 1))
                for side in (packing.begin, packing.end)
            )
            row = np.concatenate([next(around), chosen, next(around)], axis=1)
            values = (row, np.ones_like(row), np.zeros_like(row))
            inputs = {
                feature.name: tf.constant(value, tf.int32)
                for feature, value in zip(ENCODER_INPUTS, values, strict=True)
            }
            found.append(teacher.compiled_vectors(inputs)[:, 0].numpy())
            progress.update(len(chosen))
    vectors = np.concatenate(found).astype(np.float64)
    if not np.isfinite(vectors).all():
        raise UserError(
            "`teacher`: the vector of a token is not finite; the weights are "
            "broken."
        )
    return vectors


def _principal_components(vectors: np.ndarray, dimension: int) -> np.ndarray:
    """Projects vectors [N, H] on their first principal components."""
    centred = vectors - vectors.mean(0)
    _, axes = np.linalg.eigh(centred.T @ centred)
    # Ascending.
    return centred @ axes[:, ::-1][:, :dimension]


def _token_counts(
    tokenizer: Tokenizer, paths: Sequence[str | pathlib.Path]
) -> np.ndarray:
    """Counts the tokens of texts in files, float64 [V]."""
    counts = np.zeros(len(tokenizer.vocabulary))
    texts = (text for (text, *_), _ in read_texts(paths, ["text"]))
    for batch in iter(
        lambda: list(itertools.islice(texts, _TEXTS_AT_ONCE)), []
    ):
        ids = tokenize(tokenizer, batch).ids.numpy()
        counts += np.bincount(ids, minlength=len(counts))
    return counts
