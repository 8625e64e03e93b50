"""Ranking: cross-encoders that score a document for a query.

The model is a classifier of pairs with one output, which sentence-transformers
calls a CrossEncoder. `bert_tf.load` reads its folder as a regression of pairs.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bert_tf.checkpoints import CLASSIFIER, Checkpoint
from bert_tf.checkpoints.sentence_modules import CROSS_ENCODER
from bert_tf.errors import Fault, UserError, excerpt
from bert_tf.families.checks import Examination, examine_rows
from bert_tf.families.data.examples import Example
from bert_tf.families.data.retrieval_scores import (
    MAP_AT,
    MRR_AT,
    NDCG_AT,
    best_first,
    mean_scores,
    ranking_scores,
)
from bert_tf.families.data.scores import average_precision
from bert_tf.families.row_task import RowAnswers, RowTask
from bert_tf.families.rows import EncodedChoices
from bert_tf.families.task import PREDICTION, TaskTemplate
from bert_tf.families.text_classification.config import (
    REGRESSION,
    TextClassificationConfig,
)
from bert_tf.families.text_classification.ranking_files import (
    RankingExample,
    RankingFiles,
    check_labels,
    loss_of,
)
from bert_tf.families.text_classification.recipe import (
    BCE,
    RANKING_LOSSES,
    RankingRecipe,
)
from bert_tf.families.token_estimates import tokens_of_rows
from bert_tf.text.tokenizer_protocol import Tokenizer

if TYPE_CHECKING:
    # TensorFlow takes seconds to import, and scoring a file needs none of it.
    from bert_tf.encoders import BertEncoder
    from bert_tf.families.task_model import TaskModel
    from bert_tf.families.text_classification.ranking_objectives import (
        RankingObjective,
    )

# The scores of a dev split, besides average_precision.
_SCORES = (f"ndcg@{NDCG_AT}", f"mrr@{MRR_AT}", f"map@{MAP_AT}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RankingTask(RowTask[RankingExample, TextClassificationConfig]):
    """A task that ranks the documents of each query.

    Attributes:
      data: the source of its rows.
      recipe: the settings of the run.
    """

    data: RankingFiles
    recipe: RankingRecipe
    main_metric: str = _SCORES[0]

    recipe_type: ClassVar[type[RankingRecipe]] = RankingRecipe
    config_type: ClassVar[type[TextClassificationConfig]] = (
        TextClassificationConfig
    )
    sentence_kind: ClassVar[str] = CROSS_ENCODER
    loss_classes: ClassVar[Mapping[str, str]] = RANKING_LOSSES

    @property
    def fixed_config(self) -> dict[str, Any]:
        """The head: one number for a pair."""
        return {"label_kind": REGRESSION, "num_outputs": 1, "num_texts": 2}

    def configure(
        self, recipe: RankingRecipe, examples: Sequence[RankingExample]
    ) -> TextClassificationConfig:
        """Returns the config of a model that scores pairs; see `Task`."""
        columns = (recipe.query_column, *self.data.documents)
        return dataclasses.replace(
            super().configure(recipe, examples),
            text_columns=",".join(columns) if len(columns) == 2 else "",
            activation=recipe.score_activation,
        )

    def read_file(
        self, path: str, recipe: RankingRecipe, labelled: bool = True
    ) -> list[RankingExample]:
        """Reads the rows of a file; rows to predict may have no labels."""
        return self.data.read_file(path, recipe, labelled)

    def examine(
        self,
        recipe: RankingRecipe,
        tokenizer: Tokenizer,
        splits: Mapping[str, Sequence[RankingExample]],
    ) -> Examination:
        """Examines the pairs of queries and documents; see `Task`."""
        pairs = {
            name: [
                Example(e.query, text, label, e.identifier, e.row, e.path)
                for e in examples
                for text, label in zip(
                    e.documents, e.label or e.documents, strict=True
                )
            ]
            for name, examples in splits.items()
        }
        return examine_rows(self, recipe, tokenizer, pairs)

    def check(
        self,
        examples: Sequence[RankingExample],
        config: TextClassificationConfig,
    ) -> None:
        """Raises `UserError` if labels do not fit the loss."""
        check_labels(examples, self._loss(examples))

    def _loss(self, examples: Sequence[RankingExample]) -> str:
        return self.recipe.loss or loss_of(examples)

    def complete(
        self,
        recipe: RankingRecipe,
        examples: Sequence[RankingExample],
        initial: Checkpoint,
        new_head: bool,
    ) -> RankingRecipe:
        """Returns the recipe with the loss that fits the rows."""
        return dataclasses.replace(recipe, loss=self._loss(examples))

    def estimated_tokens(
        self, examples: Sequence[RankingExample], recipe: RankingRecipe
    ) -> float:
        """Estimates the tokens of a row for every document."""
        texts = (
            example.query + document
            for example in examples
            for document in example.documents
        )
        return tokens_of_rows(texts, recipe.max_seq_length)

    def rows(
        self,
        examples: Sequence[RankingExample],
        tokenizer: Tokenizer,
        config: TextClassificationConfig,
    ) -> EncodedChoices:
        """Encodes a row for every document, with its query first."""
        import tensorflow as tf

        from bert_tf.text.layout import pack_rows, take, tokenize, truncate

        counts = [len(example.documents) for example in examples]
        example = np.repeat(np.arange(len(examples), dtype=np.int32), counts)
        texts = [text for each in examples for text in each.documents]
        queries = tokenize(tokenizer, [each.query for each in examples])
        first, second = truncate(
            take(queries, tf.constant(example)),
            tokenize(tokenizer, texts),
            config.max_seq_length - tokenizer.packing.num_special(2),
        )
        rows = pack_rows(
            *(first, second, tokenizer.packing),
            *(tf.constant(example), len(examples)),
        )
        return EncodedChoices(rows, np.append(0, np.cumsum(counts)))

    def targets(
        self, examples: Sequence[RankingExample], labels: Sequence[str]
    ) -> np.ndarray:
        """Returns the labels of all documents, float32 [N, D]; NaN pads."""
        del labels
        lists = self.references(examples)
        found = np.full((len(lists), max(map(len, lists))), np.nan, np.float32)
        for row, values in zip(found, lists, strict=True):
            row[: len(values)] = values
        return found

    def build(
        self,
        encoder: "BertEncoder",
        config: TextClassificationConfig,
        unpadded: bool = True,
    ) -> "TaskModel":
        """Builds a classifier of one output for lists of pairs."""
        from bert_tf.families.task_model import TaskModel
        from bert_tf.models import bert_multiple_choice

        return TaskModel(
            bert_multiple_choice(encoder, unpadded=unpadded, head=CLASSIFIER)
        )

    def objective(self, loss: str = BCE) -> "RankingObjective":
        """Returns the objective of a loss."""
        from bert_tf.families.text_classification.ranking_objectives import (
            OBJECTIVES,
        )

        return OBJECTIVES[loss]()

    def loss(
        self,
        recipe: RankingRecipe,
        examples: Sequence[RankingExample],
        config: TextClassificationConfig,
    ) -> "RankingObjective":
        """Returns the objective of the recipe, or the one that fits rows."""
        return self.objective(self._loss(examples))

    def mean_loss(
        self, answered: RowAnswers[RankingExample, TextClassificationConfig]
    ) -> float:
        """Computes the mean loss of a row."""
        examples, predictions, config = answered
        objective = self.loss(self.recipe, examples, config)
        targets = self.targets(examples, config.labels)
        return objective.mean_loss(predictions["logits"], targets)

    def answers(
        self, logits: np.ndarray, config: TextClassificationConfig
    ) -> Mapping[str, Any]:
        """Returns the score of each document, as of a served model."""
        from bert_tf.families.sentence_vectors import ACTIVATIONS

        activate = ACTIVATIONS[config.activation]
        scores = np.asarray(activate(np.where(logits > -np.inf, logits, 0.0)))
        return {
            "score": scores,
            PREDICTION: [
                tuple(row[is_document].tolist())
                for row, is_document in zip(
                    scores, ~np.isneginf(logits), strict=True
                )
            ],
        }

    def metrics(
        self,
        examples: Sequence[RankingExample],
        predictions: Sequence[Sequence[float]],
        labels: Sequence[str] = (),
    ) -> dict[str, float]:
        """Computes the scores of the rankings of all queries.

        Rows with the same query are one ranking. Queries without a relevant
        document are left out, as by sentence-transformers'
        InformationRetrievalEvaluator. The average precision is that of all
        documents of all queries in one ranking.

        Raises:
          UserError: no query has a relevant document and another one.
        """
        del labels
        # Relevance and score of the documents of each query.
        by_query: dict[str, tuple[list[float], list[float]]] = {}
        for example, prediction in zip(examples, predictions, strict=True):
            gains, scores = by_query.setdefault(example.query, ([], []))
            gains += example.relevance or self.references([example])
            scores += prediction
        lists = [
            np.array(gains)[best_first(scores)]
            for gains, scores in by_query.values()
        ]
        if not any(0 < np.sum(gains > 0) < len(gains) for gains in lists):
            raise UserError(
                f"{examples[0].path}: no query has a document with a label "
                "above 0 and another one, so there is nothing to rank; give "
                "several rows or a list of documents for each query, or take "
                "`task`=sentence with `label_kind`=regression."
            )
        rankings = (
            ranking_scores(gains, gains[gains > 0])
            for gains in lists
            if np.any(gains > 0)
        )
        means = mean_scores(rankings)
        every, found = (
            np.concatenate([each[i] for each in by_query.values()])
            for i in (0, 1)
        )
        return {name: means[name] for name in _SCORES} | {
            "average_precision": average_precision(every > 0, found)
        }

    def guess(
        self,
        train: Sequence[RankingExample],
        examples: Sequence[RankingExample],
    ) -> list[list[float]]:
        """Ranks in random order, which is the same at every call."""
        random = np.random.default_rng(0)
        return [random.random(len(e.documents)).tolist() for e in examples]

    def parse(
        self, cell: str, example: RankingExample, place: str
    ) -> tuple[float, ...]:
        """Parses the scores of a row, separated by commas."""
        try:
            scores = tuple(map(float, cell.split(",")))
        except ValueError:
            scores = ()
        if len(scores) != len(example.documents):
            raise Fault(
                "other scores than documents",
                f"{place}: the prediction is {excerpt(cell)}; it takes "
                f"{len(example.documents)} numbers, separated by commas, one "
                "for each document.",
            )
        return scores

    def cell_of(
        self, prediction: Iterable[float], example: RankingExample
    ) -> str:
        """Formats the scores of a row; see `parse`."""
        del example
        return ",".join(f"{score:.7g}" for score in prediction)


@dataclasses.dataclass(frozen=True, kw_only=True)
class UserRankingTask(TaskTemplate):
    """The task called ranking, which reads user files as a recipe describes."""

    recipe_type: ClassVar[type[RankingRecipe]] = RankingRecipe

    def resolve(self, recipe: RankingRecipe) -> RankingTask:
        """Returns the task that a recipe describes."""
        documents = tuple(map(str.strip, recipe.document_columns.split(",")))
        # New data, so that a run reads each file once.
        return RankingTask(
            name=self.name, data=RankingFiles(documents), recipe=recipe
        )
