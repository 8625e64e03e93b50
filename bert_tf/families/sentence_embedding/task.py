"""Sentence embeddings: files, rows, losses and scores."""

import dataclasses
import hashlib
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bert_tf.checkpoints import Checkpoint
from bert_tf.checkpoints.sentence_modules import SENTENCE_TRANSFORMER
from bert_tf.errors import UserError
from bert_tf.families.data.examples import (
    read_predictions,
    write_predictions,
)
from bert_tf.families.data.scores import (
    average_precision,
    best_accuracy,
    best_f1,
    pearson,
    spearman,
)
from bert_tf.families.data.similarity import normalized
from bert_tf.families.rows import LabelledRows, Outputs, Rows
from bert_tf.families.sentence_embedding.config import EmbeddingConfig
from bert_tf.families.sentence_embedding.files import (
    LABEL,
    NOTHING,
    SCORE,
    TEACHER,
    EmbeddingExample,
    EmbeddingFiles,
    find_columns,
)
from bert_tf.families.sentence_embedding.recipe import (
    COSENT,
    IN_BATCH_NEGATIVES,
    LOSSES,
    MARGIN_MSE,
    MULTIPLE_NEGATIVES,
    SIMCSE,
    SYMMETRIC,
    TEACHER_COSINE,
    TEACHER_MSE,
    EmbeddingRecipe,
)
from bert_tf.families.task import (
    PREDICTION,
    Answered,
    RunSplit,
    Split,
    Task,
    TaskTemplate,
)
from bert_tf.families.token_estimates import tokens_of_rows
from bert_tf.files import written_beside
from bert_tf.progress import log
from bert_tf.text.tokenizer_protocol import Tokenizer

if TYPE_CHECKING:
    # TensorFlow takes seconds to import, and scoring a file needs none of it.
    from bert_tf.encoders import BertEncoder
    from bert_tf.families.sentence_embedding.model import EmbeddingModel
    from bert_tf.families.sentence_embedding.objective import (
        EmbeddingObjective,
    )

Examples = Sequence[EmbeddingExample]
# What similarities are compared with, and the score that selects the model.
_MAIN_METRICS = {
    SCORE: "spearman",
    LABEL: "average_precision",
    NOTHING: "mrr@10",
    TEACHER: "teacher_similarity",
}
# Scores that are computed at a time.
_SCORES = 1 << 22


@dataclasses.dataclass(frozen=True, kw_only=True)
class EmbeddingTask(Task[Examples, EmbeddingConfig]):
    """A task that trains the vectors of texts.

    Its predictions are one number for each row: the cosine similarity of two
    texts; of positives without scores the rank of the row's positive among
    those of all rows, by similarity to the anchor; of a text alone the
    similarity to the teacher's vector.

    Attributes:
      data: the files.
      losses: the losses that fit the training rows, the default one first.
      target: what dev rows state; see `Columns`.
    """

    data: EmbeddingFiles
    losses: tuple[str, ...]
    target: str

    recipe_type: ClassVar[type[EmbeddingRecipe]] = EmbeddingRecipe
    config_type: ClassVar[type[EmbeddingConfig]] = EmbeddingConfig
    scores_any_model: ClassVar[bool] = True
    sentence_kind: ClassVar[str] = SENTENCE_TRANSFORMER
    loss_classes: ClassVar[Mapping[str, str]] = LOSSES

    @property
    def score_names(self) -> tuple[str, ...]:
        """The names of its scores."""
        return tuple(_scores_of(self.target, np.zeros(2), np.ones(2)))

    def read_file(
        self, path: str, recipe: EmbeddingRecipe, labelled: bool = True
    ) -> Examples:
        """Reads a table; see `EmbeddingFiles`."""
        return self.data.read_file(path, recipe, labelled)

    def estimated_tokens(
        self, examples: Examples, recipe: EmbeddingRecipe
    ) -> float:
        """Estimates the tokens of the texts; see `Task`."""
        texts = (text for example in examples for text in example.texts)
        return tokens_of_rows(texts, recipe.max_seq_length)

    def configure(
        self, recipe: EmbeddingRecipe, examples: Examples
    ) -> EmbeddingConfig:
        """Returns the config of a model; see `Task`."""
        values = {"task": self.name, "labels": (), "loss": self._loss(recipe)}
        return self.config_type.of_recipe(recipe, **values)

    def _loss(self, recipe: EmbeddingRecipe) -> str:
        """Returns the loss that the recipe names, or else the default one."""
        return recipe.loss or self.losses[0]

    def complete(
        self,
        recipe: EmbeddingRecipe,
        examples: Examples,
        initial: Checkpoint,
        new_head: bool,
    ) -> EmbeddingRecipe:
        """Returns the recipe with the loss."""
        return dataclasses.replace(recipe, loss=self._loss(recipe))

    def loss(
        self,
        recipe: EmbeddingRecipe,
        examples: Examples,
        config: EmbeddingConfig,
    ) -> "EmbeddingObjective":
        """Returns the objective.

        Raises:
          UserError: the batch is too small for the loss.
        """
        from bert_tf.families.sentence_embedding.objective import (
            EmbeddingObjective,
        )

        compares_rows = config.loss in (*IN_BATCH_NEGATIVES, COSENT)
        if compares_rows and recipe.train_batch_size < 2:
            raise UserError(
                f"`train_batch_size`={recipe.train_batch_size}: {config.loss} "
                "compares each row with the others of its batch; give 2 or "
                "more, for example 64."
            )
        recipe = dataclasses.replace(recipe, loss=config.loss)
        first = examples[0]
        return EmbeddingObjective(recipe, _has_targets(first))

    def build(
        self,
        encoder: "BertEncoder",
        config: EmbeddingConfig,
        unpadded: bool = True,
    ) -> "EmbeddingModel":
        """Builds the model; see `Task`."""
        from bert_tf.families.sentence_embedding.model import EmbeddingModel

        return EmbeddingModel(config.build(encoder, unpadded), config)

    def encode(
        self,
        examples: Examples,
        tokenizer: Tokenizer,
        config: EmbeddingConfig,
        labelled: bool = False,
        run: RunSplit | None = None,
    ) -> Rows:
        """Encodes the texts of rows, and mines hard negatives for training.

        Rows that are scored need two texts, or one and a teacher's vector.
        """
        from bert_tf.families.sentence_embedding.objective import TARGETS
        from bert_tf.families.sentence_embedding.rows import encode_texts

        if run is None:
            raise UserError(
                f"{self.name}: trains vectors of texts, which have no output "
                "of a row; take a task with labels."
            )
        modules = config.modules(run.source)
        columns = [
            list(c) for c in zip(*(e.texts for e in examples), strict=True)
        ]
        if not labelled:
            return encode_texts(columns[:2], tokenizer, modules)
        width = modules.width(run.source.config.hidden_size)
        if max(run.recipe.dims, default=0) > width:
            raise UserError(
                f"`matryoshka_dims`={run.recipe.matryoshka_dims}: vectors have "
                f"{width} numbers; give that many or fewer."
            )
        kept = np.arange(len(examples))
        if config.loss == SIMCSE:
            columns *= 2
        if run.recipe.num_hard_negatives:
            negatives = self._mine(columns, tokenizer, config, run)
            kept = np.flatnonzero((negatives >= 0).all(axis=1))
            log(
                f"{len(kept):,} of {len(examples):,} rows have "
                f"{run.recipe.num_hard_negatives} hard negatives; the others "
                "are left out."
            )
            if not len(kept):
                raise UserError(
                    "`num_hard_negatives`="
                    f"{run.recipe.num_hard_negatives}: no row has as many "
                    "that fit; give fewer, or other limits."
                )
            positives = columns[1]
            columns = [[column[n] for n in kept] for column in columns]
            columns += [
                [positives[n] for n in column] for column in negatives[kept].T
            ]
        rows = encode_texts(columns, tokenizer, modules)
        labels = {}
        if _has_targets(examples[0]):
            chosen = [examples[number] for number in kept.tolist()]
            labels[TARGETS] = np.array([_target(each) for each in chosen])
            _check_teacher(chosen[0], config.loss, labels[TARGETS], width)
        return LabelledRows(rows, np.ones(len(rows), np.float32), labels)

    def _mine(
        self,
        columns: Sequence[Sequence[str]],
        tokenizer: Tokenizer,
        config: EmbeddingConfig,
        run: RunSplit,
    ) -> np.ndarray:
        """Returns the rows of hard negatives; they are stored in the run."""
        from bert_tf.families.model_folder import build_model
        from bert_tf.families.sentence_embedding.hard_negatives import mine
        from bert_tf.families.sentence_embedding.rows import (
            encode_texts,
            vectors_of,
        )

        if config.loss not in (MULTIPLE_NEGATIVES, SYMMETRIC) or columns[2:]:
            raise UserError(
                f"`num_hard_negatives`={run.recipe.num_hard_negatives}: is for "
                "rows of an anchor and a positive alone; leave it out."
            )
        # Vectors of a new dense layer say nothing before it is trained.
        config = dataclasses.replace(config, dense_size=0)
        rows = encode_texts(columns, tokenizer, config.modules(run.source))
        settings = {
            name: value
            for name, value in vars(run.recipe).items()
            if "hard_negatives" in name
        }
        digest = hashlib.sha256(repr((settings, config)).encode())
        weights = run.source.arrays
        for array in (*rows.arrays, *(weights[name] for name in weights)):
            digest.update(np.ascontiguousarray(array).data)
        name = f"hard_negatives-{digest.hexdigest()[:16]}.npy"
        path = run.output_dir / name
        if not path.is_file():
            model: Any = build_model(
                self, config, run.source, run.recipe.precision
            )
            vectors = vectors_of(model, rows, run.recipe.eval_batch_size)
            found = mine(vectors, rows.numbers, run.recipe)
            path.parent.mkdir(parents=True, exist_ok=True)
            with written_beside(path) as beside, beside.open("wb") as file:
                np.save(file, found)
        return np.load(path)

    def distinct_values(
        self, rows: Any, recipe: EmbeddingRecipe
    ) -> np.ndarray | None:
        """Returns the numbers of texts if other rows are negatives."""
        if recipe.loss not in IN_BATCH_NEGATIVES:
            return None
        return rows.rows.numbers

    def decode(
        self, outputs: Outputs, split: Split, config: EmbeddingConfig
    ) -> dict[str, Any]:
        """Returns similarities or ranks; see the class."""
        from bert_tf.families.sentence_embedding.objective import VECTORS

        vectors, rows = outputs[VECTORS], split.rows
        if vectors.shape[1] == 1:
            others = np.array([_target(e) for e in split.examples])
            found = _similarities(vectors[:, 0], others)
        elif self.target == NOTHING:
            found = ranks_of_positives(vectors, rows.numbers)
        else:
            found = _similarities(vectors[:, 0], vectors[:, 1])
        return {PREDICTION: found.tolist()}

    def metrics(
        self,
        examples: Examples,
        predictions: Sequence[float],
        labels: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Computes the scores of similarities or ranks; see `Task`."""
        del labels
        gold = np.zeros(len(examples))
        if self.target in (SCORE, LABEL):
            gold = np.array(self.references(examples))
        return _scores_of(self.target, gold, np.array(predictions))

    def references(self, examples: Examples) -> list[Any]:
        """Returns scores or labels; None of rows without."""
        if self.target in (SCORE, LABEL):
            return super().references(examples)
        return [None] * len(examples)

    def guess(self, train: Examples, examples: Examples) -> list[float]:
        """Predicts the same similarity of all rows, and the last rank."""
        constant = float(len(examples)) if self.target == NOTHING else 0.0
        return [constant] * len(examples)

    def prediction_lines(
        self, answered: Answered[Examples, EmbeddingConfig]
    ) -> Iterator[Mapping[str, Any]]:
        """Yields each row with its texts, label and prediction."""
        pairs = zip(
            answered.examples, answered.predictions[PREDICTION], strict=True
        )
        for example, prediction in pairs:
            yield {
                "identifier": example.identifier,
                "row": example.row,
                "texts": list(example.texts),
                "label": example.label,
                PREDICTION: prediction,
            }

    def write_predictions(
        self,
        folder: pathlib.Path,
        split: str,
        answered: Answered[Examples, EmbeddingConfig],
    ) -> pathlib.Path:
        """Writes index and prediction of each row; see `Task`."""
        path = folder / f"predictions_{split}.tsv"
        pairs = zip(
            answered.examples, answered.predictions[PREDICTION], strict=True
        )
        write_predictions(path, {e.identifier: f"{v:.8g}" for e, v in pairs})
        return path

    def read_predictions(
        self,
        path: str,
        examples: Examples,
        recipe: EmbeddingRecipe,
        null_odds: str,
    ) -> list[float]:
        """Parses what `write_predictions` wrote; see `Task`."""
        del recipe, null_odds
        found = []
        for _, cell, place in read_predictions(path, examples):
            try:
                found.append(float(cell))
            except ValueError:
                raise UserError(
                    f"{place}: the prediction {cell!r} is no number."
                ) from None
        return found


def _has_targets(example: EmbeddingExample) -> bool:
    return example.label is not None or bool(example.teacher)


def _target(example: EmbeddingExample) -> Any:
    """What the loss compares an example with, float32."""
    if example.teacher:
        return np.frombuffer(example.teacher, np.float32)
    return np.float32(example.label)


def _check_teacher(
    example: EmbeddingExample, loss: str, targets: np.ndarray, width: int
) -> None:
    """Raises `UserError` if a teacher's numbers do not fit model and texts."""
    if not example.teacher:
        return
    others, size = len(example.texts) - 1, targets.shape[1]
    if loss in (TEACHER_COSINE, TEACHER_MSE):
        sizes, why = [width], "the vectors of this model; see `dense_size`"
    else:
        sizes, why = [others], "the texts besides the anchor"
        if loss == MARGIN_MSE:
            sizes.append(others - 1)
    if size not in sizes:
        raise UserError(
            f"{example.path}, row {example.row}: the teacher has {size} "
            f"numbers; {loss} takes {' or '.join(map(str, sizes))}, by {why}."
        )


def _similarities(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The cosine similarity of each pair of vectors, [N]."""
    return np.einsum("nd,nd->n", normalized(first), normalized(second))


def ranks_of_positives(vectors: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Ranks the positive of each row among the positives of all rows.

    Args:
      vectors: float32 [N, 2, D], of the anchor and the positive of each row.
      numbers: int64 [N, 2], the number of each text; equal texts have one.

    Returns:
      int64 [N], from 1. Other positives of the same anchor do not count, and
      those as similar as the row's own come before it.
    """
    (_, query), (first, own) = (
        np.unique(column, return_index=True, return_inverse=True)[1:]
        for column in numbers.T
    )
    queries = normalized(vectors[:, 0])
    texts = normalized(vectors[first, 1])
    by_query = np.argsort(query, kind="stable")
    starts = np.searchsorted(query[by_query], np.arange(query.max() + 2))
    ranks = np.empty(len(queries), np.int64)
    step = max(_SCORES // len(texts), 1)
    for begin in range(0, len(queries), step):
        rows = np.arange(begin, min(begin + step, len(queries)))
        scores = queries[rows] @ texts.T
        least = scores[rows - begin, own[rows]]
        for row in rows:
            same = by_query[starts[query[row]] : starts[query[row] + 1]]
            scores[row - begin, own[same]] = -np.inf
        ranks[rows] = 1 + np.sum(scores >= least[:, np.newaxis], axis=1)
    return ranks


def _scores_of(
    target: str, gold: np.ndarray, predictions: np.ndarray
) -> dict[str, float]:
    """Computes the scores of predictions, [N]."""
    if target == SCORE:
        return {
            "spearman": spearman(gold, predictions),
            "pearson": pearson(gold, predictions),
        }
    if target == LABEL:
        return {
            "average_precision": average_precision(gold, predictions),
            "accuracy": best_accuracy(gold, predictions).value,
            "f1": best_f1(gold, predictions).value,
        }
    if target == TEACHER:
        return {"teacher_similarity": float(np.mean(predictions))}
    in_ten = predictions <= 10
    return {
        "mrr@10": float(np.mean(in_ten / predictions)),
        "accuracy@1": float(np.mean(predictions == 1)),
        "ndcg@10": float(np.mean(in_ten / np.log2(1 + predictions))),
    }


@dataclasses.dataclass(frozen=True, kw_only=True)
class UserEmbeddingTask(TaskTemplate):
    """The task on a user's files, whose columns decide loss and scores."""

    paper: Mapping[str, Mapping[str, float]] = dataclasses.field(
        default_factory=dict
    )
    recipe_type: ClassVar[type[EmbeddingRecipe]] = EmbeddingRecipe

    def resolve(self, recipe: EmbeddingRecipe) -> EmbeddingTask:
        """Returns the task that a recipe describes.

        Raises:
          UserError: a file is missing, its columns fit no loss or another, or
            rows of dev have no similarity.
        """
        data = EmbeddingFiles()
        found = {
            split: find_columns(data.path(split, recipe), recipe)
            for split in ("train", "dev", "test")
            if getattr(recipe, f"{split}_file")
        }
        train = found.get("train")
        if train and not train.losses:
            raise UserError(
                f"{recipe.train_file}: the columns {train} fit no loss; a "
                "teacher's vectors are of texts alone, and its scores of a "
                "positive and negatives."
            )
        if train and recipe.loss and recipe.loss not in train.losses:
            raise UserError(
                f"`loss`={recipe.loss}: does not fit the columns {train} of "
                f"{recipe.train_file}; it takes {', '.join(train.losses)}."
            )
        scored = found.get("dev", train) or found.get("test")
        target = scored.target if scored else SCORE
        if scored and len(scored.texts) > 2:
            target = NOTHING
        for split, columns in found.items():
            is_scored = split != "train" or "dev" not in found
            if is_scored and columns.losses == (SIMCSE,):
                raise UserError(
                    f"`{split}_file`={getattr(recipe, f'{split}_file')}: texts "
                    "alone have no similarity to score; give a file of pairs "
                    "as `dev_file`, or compute vectors by bert-tf embed."
                )
        return EmbeddingTask(
            name=self.name,
            data=data,
            losses=train.losses if train else (),
            target=target,
            main_metric=_MAIN_METRICS[target],
            paper=self.paper,
        )
