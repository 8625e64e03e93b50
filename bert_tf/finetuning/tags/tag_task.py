"""Tasks that tag the words of a text: CoNLL-2003 and files like it."""

import dataclasses
import json
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bert_tf.checkpoints import TOKEN_CLASSIFIER, Checkpoint
from bert_tf.errors import UserError
from bert_tf.files import write_text
from bert_tf.finetuning.tags.conll_file import (
    DOCUMENT_MARK,
    ConllLayout,
    TaggedWords,
)
from bert_tf.finetuning.tags.entity_metrics import score_entities
from bert_tf.finetuning.tags.tag_data import OwnTagFiles, TagData
from bert_tf.finetuning.tags.tag_predictions import (
    score_tag_file,
    write_tag_predictions,
)
from bert_tf.finetuning.tags.tag_recipe import OwnTagRecipe, TagRecipe
from bert_tf.finetuning.tags.tag_schemes import (
    OUTSIDE,
    entities,
    in_scheme,
    iob2_labels,
    tag_numbers,
)
from bert_tf.finetuning.task import Outputs, Split, Task, TaskFacts
from bert_tf.progress import notice

if TYPE_CHECKING:
    # TensorFlow takes seconds to import, and scoring a file needs none of it.
    from bert_tf.finetuning.tags.word_windows import TaggedRows, WordWindows
    from bert_tf.text.tokenizer import BertTokenizer


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
    ) -> dict[str, Any]:
        """See `Task.examine`."""
        from bert_tf.finetuning.tags import tag_doctor

        return tag_doctor.examine(self.name, recipe, tokenizer, splits)

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
        from bert_tf.finetuning.tags.word_windows import encode_words

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
        from bert_tf.finetuning.tags.word_windows import TaggedRows

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
        from bert_tf.finetuning.tags.tag_objective import TagObjective

        return TagObjective()

    def collect(
        self,
        rows: "WordWindows",
        batches: Iterable[tuple[np.ndarray, Outputs]],
    ) -> Outputs:
        """The logits of every word, [W, C]."""
        from bert_tf.finetuning.tags.word_windows import word_outputs

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
