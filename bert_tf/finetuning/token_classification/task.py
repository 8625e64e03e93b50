"""Tasks that tag the words of a text: CoNLL-2003 and files like it."""

import dataclasses
import json
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from bert_tf.checkpoints import TOKEN_CLASSIFIER, Checkpoint
from bert_tf.errors import UserError
from bert_tf.files import write_text
from bert_tf.finetuning.data.user_files import UserFiles
from bert_tf.finetuning.legacy_task import Outputs, Split, Task, TaskFacts
from bert_tf.finetuning.recipe import (
    TAGGER_FILE,
    WEIGHTED_SUM_ALL,
    WEIGHTED_SUM_LAST_FOUR,
    FeatureRecipe,
    OwnTagRecipe,
    TagRecipe,
)
from bert_tf.finetuning.task import Examination
from bert_tf.finetuning.token_classification.conll_files import (
    DOCUMENT_MARK,
    ConllLayout,
    TaggedWords,
    read_conll,
    score_tag_file,
    write_tag_predictions,
)
from bert_tf.finetuning.token_classification.entities import (
    OUTSIDE,
    entities,
    in_scheme,
    iob2_labels,
    score_entities,
    tag_numbers,
)
from bert_tf.progress import notice

if TYPE_CHECKING:
    # TensorFlow takes seconds to import, and scoring a file needs none of it.
    from bert_tf.finetuning.task_model import TaskModel
    from bert_tf.finetuning.token_classification.windows import (
        TaggedRows,
        WordWindows,
    )
    from bert_tf.text.tokenizer import BertTokenizer


class TagData(Protocol):
    """Where a task's words come from."""

    def present(self, splits: Sequence[str], recipe: Any) -> tuple[str, ...]:
        """The splits that are there; says in a line which are not."""

    def read(self, split: str, recipe: Any) -> TaggedWords:
        """The words of a split."""


@dataclasses.dataclass(frozen=True)
class ConllFolder:
    """The files of a data set, by any of the names that they go by.

    Attributes:
      folder: what the data set's folder is called.
      files: split to the names of its file.
    """

    folder: str
    files: Mapping[str, tuple[str, ...]]

    def present(
        self, splits: Sequence[str], recipe: TagRecipe
    ) -> tuple[str, ...]:
        """See `TagData`."""
        found = {split: self._path(split, recipe) for split in splits}
        there = tuple(split for split in splits if found[split])
        if splits[0] not in there:
            raise self._missing(splits[0], recipe)
        for split in splits:
            if split not in there:
                notice(
                    f"{recipe.data_dir}: has no "
                    f"{' nor '.join(self.files[split])}; going on with "
                    f"{', '.join(there)} alone."
                )
        return there

    def read(self, split: str, recipe: TagRecipe) -> TaggedWords:
        """See `TagData`."""
        path = self._path(split, recipe)
        if path is None:
            raise self._missing(split, recipe)
        tagged = split != "test" or recipe.score_test
        return read_conll(str(path), recipe.layout(tagged))

    def _path(self, split: str, recipe: TagRecipe) -> pathlib.Path | None:
        """The file, in data_dir or in the data set's folder there."""
        for folder in (recipe.data_dir, f"{recipe.data_dir}/{self.folder}"):
            for name in self.files[split] if recipe.data_dir else ():
                for suffix in ("", ".gz"):
                    path = pathlib.Path(folder) / f"{name}{suffix}"
                    if path.is_file():
                        return path
        return None

    def _missing(self, split: str, recipe: TagRecipe) -> UserError:
        names = ", ".join(names[0] for names in self.files.values())
        if not recipe.data_dir:
            return UserError(
                f"`data_dir`: name the folder of {names}; these are read from "
                "files, not from TensorFlow Datasets."
            )
        folder = pathlib.Path(recipe.data_dir)
        if not folder.is_dir():
            return UserError(f"`data_dir`={folder}: no such folder.")
        return UserError(
            f"`data_dir`={folder}: has no {' nor '.join(self.files[split])}; "
            f"give the folder of {names}, or the one above it."
        )


class OwnTagFiles:
    """The files that a recipe names; see `TagData`."""

    def __init__(self):
        self._files = UserFiles(split_off_documents, "sentences")

    def present(
        self, splits: Sequence[str], recipe: OwnTagRecipe
    ) -> tuple[str, ...]:
        """See `TagData`."""
        return self._files.present(splits, recipe)

    def read(self, split: str, recipe: OwnTagRecipe) -> TaggedWords:
        """See `TagData`."""

        def rows(path: str, tags_needed: bool) -> TaggedWords:
            tagged = tags_needed or recipe.score_test
            return read_conll(path, recipe.layout(tagged))

        return self._files.read(split, recipe, rows)


def split_off_documents(
    data: TaggedWords, share: float, seed: int
) -> tuple[TaggedWords, TaggedWords]:
    """Splits words in two: whole documents, drawn at random.

    Documents of the same words stay on one side. Of a single document, the
    last sentences become dev.

    Args:
      data: the words.
      share: of the sentences that become dev.
      seed: of the draw.

    Returns:
      The training and the dev part, each in the order of the file.

    Raises:
      UserError: there is too little to give both sides some.
    """
    sizes = np.diff(data.document_starts)
    wanted = share * len(data)
    in_dev = np.zeros(len(data), bool)
    if len(sizes) == 1:
        in_dev[len(data) - max(round(wanted), 1) :] = True
    else:
        groups: dict[tuple[str, ...], list[int]] = {}
        bounds = data.sentence_starts[data.document_starts].tolist()
        for number, first in enumerate(bounds[:-1]):
            words = tuple(data.words[first : bounds[number + 1]])
            groups.setdefault(words, []).append(number)
        documents = list(groups.values())
        document = np.repeat(np.arange(len(sizes)), sizes)
        for number in _drawn(documents, sizes, wanted, seed):
            in_dev[document == number] = True
    if in_dev.all() or not in_dev.any():
        raise UserError(
            f"{data.path}: its {len(data)} sentence(s) in {len(sizes)} "
            "document(s) cannot be split into training and dev; pass "
            "`dev_file`=..."
        )
    return _sentences_of(data, ~in_dev), _sentences_of(data, in_dev)


def _drawn(
    documents: list[list[int]], sizes: np.ndarray, wanted: float, seed: int
) -> list[int]:
    """Documents of about as many sentences as wanted; at least one.

    Args:
      documents: the numbers of those that have the same words.
      sizes: int64 [D], the sentences of each.
      wanted: how many sentences.
      seed: of the draw.
    """
    # One stays for training.
    order = np.random.default_rng(seed).permutation(len(documents))[:-1]
    counts = {place: int(sizes[documents[place]].sum()) for place in order}
    taken, total = [], 0
    for place, count in counts.items():
        if total + count / 2 <= wanted:
            taken.append(place)
            total += count
    if not taken and counts:
        taken = [min(counts, key=lambda place: counts[place])]
    return [number for place in taken for number in documents[place]]


def _sentences_of(data: TaggedWords, kept: np.ndarray) -> TaggedWords:
    """Some sentences, bool [N], with their documents."""
    sizes = np.diff(data.sentence_starts)
    chosen = np.flatnonzero(np.repeat(kept, sizes)).tolist()
    document = np.repeat(
        np.arange(len(data.document_starts) - 1), np.diff(data.document_starts)
    )[kept]
    starts = np.flatnonzero(np.diff(document, prepend=-1))
    return dataclasses.replace(
        data,
        words=[data.words[place] for place in chosen],
        tags=[data.known_tags[place] for place in chosen],
        given_tags=[data.known_given_tags[place] for place in chosen],
        rows=data.rows[chosen],
        sentence_starts=np.concatenate([[0], np.cumsum(sizes[kept])]),
        document_starts=np.append(starts, len(document)),
    )


@dataclasses.dataclass(frozen=True)
class TagFacts(TaskFacts):
    """What task.json holds of a tagger; its labels are tags in IOB2.

    Attributes:
      context: what a row shows, "document" or "sentence".
      doc_stride: tokens from one window on a long sentence to the next; 0 is
        half of a window.
    """

    context: str
    doc_stride: int


@dataclasses.dataclass(frozen=True)
class TagAnswers:
    """What a tagger answers.

    Attributes:
      logits: float32 [W, C], of every word.
      tags: the W tags, in the scheme of the file that they answer.
    """

    logits: np.ndarray
    tags: list[str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TagTask(Task):
    """A task whose answer is a tag of every word.

    Attributes:
      data: where its words come from.
    """

    data: TagData
    main_metric: str = "f1"
    # The test file may have tags; see `TagRecipe.score_test`.
    dev_splits: tuple[str, ...] = ("dev", "test")
    # Files without document marks; the first one is told of.
    _unmarked: list[str] = dataclasses.field(
        default_factory=list, init=False, repr=False, compare=False
    )

    recipe_type: ClassVar[type[TagRecipe]] = TagRecipe
    facts_type: ClassVar[type[TagFacts]] = TagFacts
    head: ClassVar[str] = TOKEN_CLASSIFIER

    def prepared(self, recipe: Any) -> "TagTask":
        """The task of one run, which tells of unmarked documents once."""
        del recipe
        return dataclasses.replace(self)

    def present_splits(
        self, splits: Sequence[str], recipe: TagRecipe
    ) -> tuple[str, ...]:
        """See `Task.present_splits`; test is for eval where it has tags."""
        if splits == self.dev_splits and not recipe.score_test:
            splits = [split for split in splits if split != "test"]
        return self.data.present(splits, recipe)

    def read(self, split: str, recipe: TagRecipe) -> TaggedWords:
        """See `Task.read`."""
        return self.data.read(split, recipe)

    def examine(
        self,
        recipe: TagRecipe,
        tokenizer: "BertTokenizer",
        splits: Mapping[str, TaggedWords],
    ) -> Examination:
        """See `examine_words`."""
        from bert_tf.finetuning.checks import examine_words

        return examine_words(self.name, recipe, tokenizer, splits)

    def facts_of(self, recipe: TagRecipe, examples: TaggedWords) -> TagFacts:
        """See `Task.facts_of`."""
        labels = iob2_labels(examples.known_tags)
        if len(labels) < 2:
            raise UserError(
                f"{examples.path}: every word has the tag {OUTSIDE}, so there "
                "is nothing to learn; choose another column with "
                "`tag_column`."
            )
        return TagFacts(
            task=self.name,
            labels=labels,
            max_seq_length=recipe.max_seq_length,
            context=recipe.context,
            doc_stride=recipe.doc_stride,
        )

    def check(self, examples: TaggedWords, facts: TagFacts) -> None:
        """Tells of types that the model does not know."""
        if examples.tags is None:
            return
        known = {label.partition("-")[2] for label in facts.labels}
        found = entities(examples.tags, examples.sentence_starts)
        kinds = [entity.kind for entity in found if entity.kind not in known]
        if kinds:
            notice(
                f"{examples.path}: {len(kinds)} of {len(found)} entities are "
                f"of types that the model does not learn "
                f"({', '.join(sorted(set(kinds)))}); they count as missed."
            )

    def keeps_head(
        self, initial: Checkpoint, trained_for: str | None, facts: TagFacts
    ) -> bool:
        """A head serves where its tags are the same."""
        return initial.labels == facts.labels

    def encode(
        self,
        examples: TaggedWords,
        tokenizer: "BertTokenizer",
        facts: TagFacts,
    ) -> "WordWindows":
        """See `encode_words`; a line tells if documents are not marked."""
        from bert_tf.finetuning.token_classification.windows import encode_words

        alone = len(examples.document_starts) == len(examples) + 1 > 2
        if facts.context == "document" and alone and not examples.marks:
            if not self._unmarked:
                notice(
                    f"{examples.path}: has no {DOCUMENT_MARK} lines, so its "
                    "sentences stand alone, and likewise in other files; if a "
                    "file is one text, pass `unmarked`=file."
                )
            self._unmarked.append(examples.path)
        return encode_words(
            examples,
            tokenizer,
            facts.max_seq_length,
            facts.context,
            facts.doc_stride or None,
        )

    def labelled(
        self, split: Split, tokenizer: "BertTokenizer", facts: TagFacts
    ) -> "TaggedRows":
        """See `Task.labelled`."""
        from bert_tf.finetuning.token_classification.windows import TaggedRows

        words = split.examples
        numbers = tag_numbers(words.tags, facts.labels, words.path)
        return TaggedRows(split.rows, numbers)

    def make_network(self, encoder: Any, facts: TagFacts) -> Any:
        """See `bert_token_classifier`."""
        from bert_tf.models import bert_token_classifier

        return bert_token_classifier(encoder, len(facts.labels), unpadded=True)

    def make_objective(
        self, recipe: TagRecipe, examples: TaggedWords, facts: TagFacts
    ) -> Any:
        """See `Task.make_objective`."""
        from bert_tf.finetuning.token_classification.objective import (
            TagObjective,
        )

        return TagObjective()

    def collect(
        self,
        rows: "WordWindows",
        batches: Iterable[tuple[np.ndarray, Outputs]],
    ) -> Outputs:
        """The logits of every word, [W, C]."""
        from bert_tf.finetuning.token_classification.windows import word_outputs

        found = ((chosen, outputs["logits"]) for chosen, outputs in batches)
        return {"logits": word_outputs(rows, found)}

    def answer(
        self,
        outputs: Outputs,
        split: Split,
        tokenizer: "BertTokenizer",
        facts: TagFacts,
    ) -> TagAnswers:
        """The best tag of every word."""
        logits = outputs["logits"]
        tags = [facts.labels[best] for best in logits.argmax(axis=-1).tolist()]
        words = split.examples
        tags = in_scheme(tags, words.sentence_starts, words.scheme)
        return TagAnswers(logits, tags)

    def evaluate(
        self, examples: TaggedWords, answers: TagAnswers, facts: TagFacts
    ) -> dict[str, float]:
        """The scores of conlleval, from 0 to 1; see `score_entities`."""
        return _scored(examples, answers.tags)

    def loss(
        self, examples: TaggedWords, answers: TagAnswers, facts: TagFacts
    ) -> float | None:
        """The mean loss of a word whose tag is known to the model."""
        place = {label: number for number, label in enumerate(facts.labels)}
        wanted = np.array([place.get(tag, -1) for tag in examples.known_tags])
        known = np.flatnonzero(wanted >= 0)
        if not len(known):
            return None
        logits = answers.logits[known].astype(np.float64)
        logits -= logits.max(axis=-1, keepdims=True)
        total = np.log(np.exp(logits).sum(axis=-1))
        return float(np.mean(total - logits[range(len(known)), wanted[known]]))

    def baseline(
        self, train: TaggedWords, examples: TaggedWords
    ) -> dict[str, float]:
        """What finding no entity scores."""
        del train
        return _scored(examples, [OUTSIDE] * len(examples.known_tags))

    def references(self, examples: TaggedWords) -> list[str]:
        """The tags."""
        return examples.known_tags

    def write_predictions(
        self,
        folder: pathlib.Path,
        split: str,
        examples: TaggedWords,
        answers: TagAnswers,
        facts: TagFacts,
    ) -> pathlib.Path:
        """Writes a file that conlleval takes; see `write_tag_predictions`."""
        path = folder / f"predictions_{split}.txt"
        write_tag_predictions(str(path), examples, answers.tags)
        return path

    def write_answers(
        self,
        path: pathlib.Path,
        examples: TaggedWords,
        answers: TagAnswers,
        facts: TagFacts,
    ) -> None:
        """See `Task.write_answers`; a line for each sentence."""
        lines = [
            json.dumps(
                {
                    "row": int(examples.rows[part.start]),
                    "words": examples.words[part],
                    "tags": examples.known_given_tags[part],
                    "predictions": answers.tags[part],
                }
            )
            for part in examples.sentences()
        ]
        write_text(path, "\n".join(lines) + "\n")

    def score_file(
        self,
        recipe: TagRecipe,
        references: str,
        predictions: str,
        null_odds: str = "",
    ) -> dict[str, Any]:
        """Scores a file of words and tags, the last column the predicted one.

        Returns:
          f1, precision, recall and accuracy, from 0 to 1, and by_type of each
          type its f1, precision and recall and how many entities there are
          (wanted), were found, and of these are right.
        """
        self.refuse_null_odds(null_odds)
        found = score_tag_file(
            references,
            predictions,
            recipe.layout(),
            ConllLayout(encoding_errors=recipe.encoding_errors),
        )
        by_type = {
            kind: {
                "f1": counts.f1,
                "precision": counts.precision,
                "recall": counts.recall,
                **dataclasses.asdict(counts),
            }
            for kind, counts in found.by_type.items()
        }
        return found.scores() | {"by_type": by_type}


@dataclasses.dataclass(frozen=True, kw_only=True)
class OwnTagTask(TagTask):
    """What the name tagging stands for: own files, described by settings."""

    data: TagData = dataclasses.field(default_factory=OwnTagFiles)

    recipe_type: ClassVar[type[OwnTagRecipe]] = OwnTagRecipe

    def prepared(self, recipe: TagRecipe) -> "OwnTagTask":
        """The task of one run, in which a file is read once."""
        return dataclasses.replace(self, data=OwnTagFiles())


def _scored(words: TaggedWords, tags: Sequence[str]) -> dict[str, float]:
    starts = words.sentence_starts
    return score_entities(words.known_given_tags, tags, starts).scores()


_FOLDER = "features"


@dataclasses.dataclass(frozen=True)
class FeatureFacts(TagFacts):
    """What task.json holds of a tagger on features; see `FeatureRecipe`.

    Attributes:
      features: what the tagger is given of each word.
      lstm_units: width of each direction of both layers.
      tagger_dropout: dropout of what goes into each layer.
    """

    features: str
    lstm_units: int
    tagger_dropout: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class FeatureTask(TagTask):
    """A `TagTask` whose encoder stays as it is, and is run once.

    Only the tagger is trained. The vectors of the words are kept in the
    folder `features` of the run, which may be deleted afterwards.
    """

    recipe_type: ClassVar[type[FeatureRecipe]] = FeatureRecipe
    facts_type: ClassVar[type[FeatureFacts]] = FeatureFacts
    # An LSTM computes padding too: three times as many words as there are.
    like_lengths: ClassVar[bool] = True
    # None that a checkpoint has.
    head: ClassVar[str] = ""
    own_files: ClassVar[tuple[str, ...]] = (TAGGER_FILE,)

    def facts_of(
        self, recipe: TagRecipe, examples: TaggedWords
    ) -> FeatureFacts:
        """See `Task.facts_of`."""
        assert isinstance(recipe, FeatureRecipe)
        return FeatureFacts(
            **dataclasses.asdict(super().facts_of(recipe, examples)),
            features=recipe.features,
            lstm_units=recipe.lstm_units,
            tagger_dropout=recipe.tagger_dropout,
        )

    def check_model(
        self, initial: Checkpoint, recipe: FeatureRecipe, facts: FeatureFacts
    ) -> None:
        """Refuses encoders of too few layers; tells of a tagger not read."""
        from bert_tf.finetuning.token_classification.features import layers_of

        layers_of(facts.features, initial.config.num_hidden_layers)
        if pathlib.Path(recipe.init_from, TAGGER_FILE).exists():
            notice(
                f"{recipe.init_from}: its tagger is not read; a fresh one is "
                "trained on features of its encoder."
            )

    def shown(
        self,
        name: str,
        split: Split,
        source: Checkpoint,
        facts: FeatureFacts,
        recipe: FeatureRecipe,
        output_dir: pathlib.Path,
    ) -> Split:
        """The sentences as rows of vectors, which are computed later."""
        from bert_tf.finetuning.token_classification.features import (
            FeatureRows,
            FeatureSource,
            layers_of,
        )

        layers = layers_of(facts.features, source.config.num_hidden_layers)
        features = FeatureSource(
            checkpoint=source,
            layers=layers,
            precision=recipe.precision,
            batch_size=recipe.eval_batch_size,
            folder=output_dir / _FOLDER,
        )
        starts = split.examples.sentence_starts
        rows = FeatureRows(features, split.rows, starts, name)
        return dataclasses.replace(split, rows=rows)

    def make_network(self, encoder: Any, facts: TagFacts) -> Any:
        """See `bilstm_tagger`."""
        from bert_tf.finetuning.token_classification.features import (
            bilstm_tagger,
            layers_of,
        )

        assert isinstance(facts, FeatureFacts)
        config = encoder.config
        return bilstm_tagger(
            num_layers=len(layers_of(facts.features, config.num_hidden_layers)),
            hidden_size=config.hidden_size,
            num_classes=len(facts.labels),
            weighted=facts.features
            in (WEIGHTED_SUM_LAST_FOUR, WEIGHTED_SUM_ALL),
            units=facts.lstm_units,
            dropout=facts.tagger_dropout,
            dtype=encoder.dtype_policy,
        )

    def make_model(self, encoder: Any, facts: FeatureFacts) -> "TaskModel":
        """See `FeatureTagger`."""
        from bert_tf.finetuning.token_classification.features import (
            FeatureTagger,
        )

        network = self.make_network(encoder, facts)
        return FeatureTagger(network, "feature_tagger", encoder)
