"""Tasks that tag words: CoNLL-2003 and user files."""

import collections
import dataclasses
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from bert_tf.config import BertConfig
from bert_tf.errors import UserError
from bert_tf.families.data.folders import FolderFiles
from bert_tf.families.data.user_files import ReadRows, UserFiles
from bert_tf.families.recipe import FinetuningRecipe
from bert_tf.families.rows import Outputs
from bert_tf.families.task import PREDICTION, Answered, RunSplit, Split, Task
from bert_tf.families.token_classification.config import (
    FeatureTaggingConfig,
    TokenClassificationConfig,
)
from bert_tf.families.token_classification.conll_files import (
    DOCUMENT_MARK,
    TaggedWords,
    read_conll,
    read_tag_predictions,
    split_off_documents,
    write_tag_predictions,
)
from bert_tf.families.token_classification.entities import (
    IO,
    OUTSIDE,
    Entity,
    entities,
    in_scheme,
    labels_of,
    learned_scheme,
    score_entities,
    sentence_of_words,
    tag_numbers,
    tag_table,
    tags_of,
)
from bert_tf.families.token_classification.recipe import (
    TAGGER_FILE,
    FeatureRecipe,
    TagRecipe,
    UserTagRecipe,
)
from bert_tf.families.token_estimates import estimated_tokens
from bert_tf.progress import log
from bert_tf.text.tokenizer_protocol import Tokenizer

if TYPE_CHECKING:
    # TensorFlow takes seconds to import, and scoring a file does not need it.
    from bert_tf.families.in_memory import DataFile
    from bert_tf.families.task_model import TaskModel
    from bert_tf.families.token_classification.windows import WordRows


@dataclasses.dataclass(frozen=True)
class ConllFolder(FolderFiles):
    """The files of a data set, each under one of several names.

    Attributes:
      folder: name of the data set's folder.
      files: names of the file of each split.
    """

    files: Mapping[str, tuple[str, ...]]

    def candidates(self, split: str) -> list[str]:
        """Returns the possible paths of a split's file in the folder."""
        names = self.files[split]
        return [*names, *(f"{self.folder}/{name}" for name in names)]

    def present(
        self, splits: Sequence[str], recipe: FinetuningRecipe
    ) -> tuple[str, ...]:
        """Returns the splits that exist; the first one is required."""
        # The best model is never chosen by the test file only.
        self.path(splits[0], recipe)
        return super().present(splits, recipe)

    def read(
        self, split: str, recipe: TagRecipe, read_rows: ReadRows
    ) -> TaggedWords:
        """Reads the words of a split; tags are optional in test."""
        return read_rows(self.path(split, recipe), recipe, split != "test")


WordsAnswered = Answered[TaggedWords, TokenClassificationConfig]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenClassificationTask(Task[TaggedWords, TokenClassificationConfig]):
    """A task that predicts a tag for every word.

    Attributes:
      data: source of its words.
    """

    data: ConllFolder | UserFiles
    main_metric: str = "f1"
    # The test file may have tags; see `TagRecipe.score_test`.
    dev_splits: tuple[str, ...] = ("dev", "test")
    # Files without document marks; a notice names the first one.
    _unmarked: list[str] = dataclasses.field(
        default_factory=list, init=False, repr=False, compare=False
    )

    recipe_type: ClassVar[type[TagRecipe]] = TagRecipe
    data_folder: ClassVar[str] = "conll2003"
    config_type: ClassVar[type[TokenClassificationConfig]] = (
        TokenClassificationConfig
    )

    def resolve(self, recipe: Any) -> Self:
        """Returns the task of one run, which evaluates test if it has tags."""
        splits = self.dev_splits if recipe.score_test else ("dev",)
        return dataclasses.replace(self, dev_splits=splits)

    def read_file(
        self, path: str, recipe: Any, labelled: bool = True
    ) -> TaggedWords:
        """Reads a CoNLL-style file; see `read_conll`."""
        return read_conll(path, recipe, labelled or recipe.score_test)

    def estimated_tokens(
        self, examples: TaggedWords, recipe: TagRecipe
    ) -> float:
        """Estimates the tokens of sentences, which a document fills up."""
        if recipe.context == "document":
            return super().estimated_tokens(examples, recipe)
        return float(estimated_tokens(examples.words).sum() + 2 * len(examples))

    def configure(
        self, recipe: TagRecipe, examples: TaggedWords
    ) -> TokenClassificationConfig:
        """Returns the config of a model that is trained on these tags."""
        labels = labels_of(examples.tags)
        if len(labels) < 2:
            raise UserError(
                f"{examples.path}: every word has the tag {labels[0]}, so "
                "there is nothing to learn; choose another column with "
                "`tag_column`."
            )
        if examples.scheme == IO:
            log(
                f"{examples.path}: its {len(labels)} tags have no prefixes "
                "such as B- and I-, so each is learned as a separate label; "
                "f1, precision and recall are of runs of words with one label "
                f"other than {OUTSIDE}."
            )
        values = {"task": self.name, "labels": labels}
        return self.config_type.of_recipe(recipe, **values)

    def check(
        self, examples: TaggedWords, config: TokenClassificationConfig
    ) -> None:
        """Logs a notice about entities of types that the model lacks."""
        known = tag_table(config.labels).kinds
        gold = entities(examples.tags, examples.sentence_starts)
        kinds = [entity.kind for entity in gold if entity.kind not in known]
        if kinds:
            log(
                f"{examples.path}: {len(kinds)} of {len(gold)} entities are "
                f"of types that the model does not learn "
                f"({', '.join(sorted(set(kinds)))}); they count as missed."
            )

    def encode(
        self,
        examples: TaggedWords,
        tokenizer: Tokenizer,
        config: TokenClassificationConfig,
        labelled: bool = False,
        run: RunSplit | None = None,
    ) -> "WordRows":
        """Encodes words; see `encode_words`.

        Unmarked documents are reported in a notice.

        Raises:
          UserError: `labelled`, and a tag is not one of the model's labels.
        """
        from bert_tf.families.token_classification.windows import encode_words

        is_single = len(examples.document_starts) == len(examples) + 1 > 2
        if config.context == "document" and is_single and not examples.marks:
            if not self._unmarked:
                log(
                    f"{examples.path}: has no {DOCUMENT_MARK} lines, so each "
                    "sentence is a document, also in other files; if a file is "
                    "one text, pass `unmarked`=file."
                )
            self._unmarked.append(examples.path)
        tags = None
        if labelled:
            gold = _gold_tags(examples, config)
            tags = tag_numbers(gold, config.labels)
            if unknown := sorted(set(gold).difference(config.labels)):
                raise UserError(
                    f"{examples.path}: has the tag {unknown[0]!r}, which is "
                    f"none of those to learn: {', '.join(config.labels)}."
                )
        return encode_words(examples, tokenizer, config, tags)

    def loss(
        self,
        recipe: Any,
        examples: TaggedWords,
        config: TokenClassificationConfig,
    ) -> Any:
        """Returns the cross-entropy of the tags."""
        del recipe, examples, config
        from bert_tf.families.token_classification.windows import TagObjective

        return TagObjective()

    def decode(
        self, outputs: Outputs, split: Split, config: TokenClassificationConfig
    ) -> dict[str, Any]:
        """Returns logits and most probable tags in the scheme of the file."""
        from bert_tf.families.token_classification.answers import (
            tagged_entities,
        )

        words, labels = split.examples, config.labels
        starts = words.sentence_starts
        sentence = sentence_of_words(starts)
        found = tagged_entities(outputs["logits"], sentence, labels)
        kinds = tag_table(labels).kinds
        columns = (x.numpy().tolist() for x in found[:3])
        predicted = (
            Entity(kinds[kind], first, last)
            for kind, first, last in zip(*columns, strict=True)
        )
        scheme = words.scheme if words.tags else learned_scheme(labels)
        return outputs | {PREDICTION: tags_of(predicted, starts, scheme)}

    def metrics(
        self,
        examples: TaggedWords,
        predictions: Sequence[str],
        labels: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Computes the scores of conlleval.

        Returns:
          f1, precision, recall and accuracy, from 0 to 1, and by_type: for each
          type its f1, precision and recall and its numbers of gold (wanted),
          predicted (found) and correct (right) entities.
        """
        starts = examples.sentence_starts
        scores = score_entities(examples.tags, predictions, starts)
        by_type = {
            kind: counts.scores()
            | {
                "wanted": counts.num_gold,
                "found": counts.num_predicted,
                "right": counts.num_correct,
            }
            for kind, counts in scores.by_type.items()
        }
        return scores.scores() | {"by_type": by_type}

    def mean_loss(self, answered: WordsAnswered) -> float | None:
        """Computes the mean loss of the words whose tags the model knows."""
        from bert_tf.families.token_classification.windows import (
            TAG_IDS,
            TAG_WEIGHTS,
            TagObjective,
        )

        examples, predictions, config = answered
        tags = tag_numbers(_gold_tags(examples, config), config.labels)
        if (tags < 0).all():
            return None
        objective = TagObjective()
        weights = (tags >= 0).astype(np.float32)
        batch = {TAG_IDS: np.maximum(tags, 0), TAG_WEIGHTS: weights}
        losses, _ = objective(predictions, batch)
        means = objective.normalise(losses, objective.loss_weights(batch))
        return float(means["loss"])

    def gold_logits(
        self, answered: WordsAnswered
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns logits and tags of the words whose tags the model knows."""
        examples, predictions, config = answered
        tags = tag_numbers(_gold_tags(examples, config), config.labels)
        return predictions["logits"][tags >= 0], tags[tags >= 0]

    def guess(self, train: TaggedWords, examples: TaggedWords) -> list[str]:
        """Returns the most frequent tag of the training words."""
        ((tag, _),) = collections.Counter(train.learned_tags).most_common(1)
        starts = examples.sentence_starts
        return in_scheme([tag] * len(examples.tags), starts, examples.scheme)

    def references(self, examples: TaggedWords) -> list[str]:
        """Returns the tags in the scheme of training."""
        return examples.learned_tags

    def write_predictions(
        self, folder: pathlib.Path, split: str, answered: WordsAnswered
    ) -> pathlib.Path:
        """Writes a file for conlleval; see `write_tag_predictions`."""
        path = folder / f"predictions_{split}.txt"
        tags = answered.predictions[PREDICTION]
        write_tag_predictions(str(path), answered.examples, tags)
        return path

    def prediction_lines(
        self, answered: WordsAnswered
    ) -> Iterator[dict[str, Any]]:
        """Yields words, tags and predictions of each sentence."""
        examples, predictions, config = answered
        is_calibrated = config.calibration_temperature != 1
        for part in examples.sentences():
            logits = predictions["logits"][part]
            yield {
                "row": int(examples.rows[part.start]),
                "words": examples.words[part],
                "tags": examples.tags[part],
                "predictions": predictions[PREDICTION][part],
                **({"logits": logits.tolist()} if is_calibrated else {}),
            }

    def read_predictions(
        self, path: str, examples: TaggedWords, recipe: Any, null_odds: str
    ) -> list[str]:
        """Reads the last column of a file; see `read_tag_predictions`."""
        del null_odds
        return read_tag_predictions(path, examples, recipe.encoding_errors)


def _gold_tags(
    words: TaggedWords, config: TokenClassificationConfig
) -> list[str]:
    """Returns the tags of words in the scheme of a model's labels."""
    scheme = learned_scheme(config.labels)
    return in_scheme(words.tags, words.sentence_starts, scheme)


@dataclasses.dataclass(frozen=True, kw_only=True)
class UserTokenClassificationTask(TokenClassificationTask):
    """The task called tagging, which reads user files as a recipe describes."""

    data: ConllFolder | UserFiles = dataclasses.field(
        default_factory=lambda: UserFiles(split_off_documents, "sentences")
    )

    recipe_type: ClassVar[type[UserTagRecipe]] = UserTagRecipe
    data_folder: ClassVar[str] = ""

    def stored(
        self, data: Any, name: str, settings: Mapping[str, Any]
    ) -> "DataFile":
        """Converts tagged words, or a table of them, to a file."""
        from bert_tf.families.token_classification.in_memory import tagged_words

        del settings
        return tagged_words(data, name)

    def read_file(
        self, path: str, recipe: Any, labelled: bool = True
    ) -> TaggedWords:
        """Reads a table, or lines of a word and its tag each."""
        from bert_tf.families.token_classification.tag_tables import (
            is_tag_table,
            read_tag_table,
        )

        if is_tag_table(path, recipe):
            tagged = labelled or recipe.score_test
            return read_tag_table(path, recipe, tagged)
        return super().read_file(path, recipe, labelled)

    def resolve(self, recipe: Any) -> Self:
        """Returns the task of one run, in which a file is read once."""
        data = UserFiles(split_off_documents, "sentences")
        return dataclasses.replace(super().resolve(recipe), data=data)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FeatureTaggingTask(TokenClassificationTask):
    """Token classification on features of a frozen encoder, computed once.

    Only the tagger is trained. The features are stored in the folder `features`
    of the run, which may be deleted afterwards.
    """

    recipe_type: ClassVar[type[FeatureRecipe]] = FeatureRecipe
    config_type: ClassVar[type[FeatureTaggingConfig]] = FeatureTaggingConfig
    # An LSTM computes padding too: without buckets, three times the words.
    bucket_by_length: ClassVar[bool] = True

    def encoder_config(self, recipe: Any, config: BertConfig) -> BertConfig:
        """Raises `UserError` if the encoder has too few layers."""
        from bert_tf.families.token_classification.features import layers_of

        layers_of(recipe.features, config.num_blocks)
        return config

    def encode(
        self,
        examples: TaggedWords,
        tokenizer: Tokenizer,
        config: TokenClassificationConfig,
        labelled: bool = False,
        run: RunSplit | None = None,
    ) -> "WordRows":
        """Encodes sentences as rows of features, which are computed later.

        Raises:
          UserError: the encoder has too few layers.
        """
        from bert_tf.families.token_classification.features import (
            FeatureRows,
            layers_of,
        )

        rows = super().encode(examples, tokenizer, config, labelled)
        assert run is not None
        assert isinstance(config, FeatureTaggingConfig)
        layers = layers_of(config.features, run.source.config.num_blocks)
        init_from = run.recipe.init_from
        if labelled and pathlib.Path(init_from, TAGGER_FILE).exists():
            log(
                f"{init_from}: its tagger is not read; a fresh one is "
                "trained on features of its encoder."
            )
        windows = dataclasses.replace(rows, tags=None)
        return FeatureRows(windows, run, layers).labelled(rows.tags)

    def build(
        self,
        encoder: Any,
        config: TokenClassificationConfig,
        unpadded: bool = True,
    ) -> "TaskModel":
        """Builds a `FeatureTagger` with a `bilstm_tagger`."""
        from bert_tf.families.token_classification.features import (
            FeatureTagger,
            bilstm_tagger,
            layers_of,
        )

        # Its shapes are static if those of its batches are.
        del unpadded
        assert isinstance(config, FeatureTaggingConfig)
        network = bilstm_tagger(
            len(layers_of(config.features, encoder.config.num_blocks)),
            encoder.config.hidden_size,
            config,
            encoder.dtype_policy,
        )
        return FeatureTagger(network, "feature_tagger", encoder)
