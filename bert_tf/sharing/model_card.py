"""README.md of a finished model: a model card for people and for hubs.

The metadata are those of huggingface.co, as a YAML header:
https://github.com/huggingface/hub-docs/blob/main/modelcard.md
"""

import dataclasses
import json
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import yaml

from bert_tf.checkpoints.sentence_modules import (
    CROSS_ENCODER,
    MULTI_VECTOR,
    SENTENCE_TRANSFORMER,
    SPARSE_ENCODER,
)
from bert_tf.files import write_text
from bert_tf.foreign_files import read_bytes
from bert_tf.report.render import render
from bert_tf.sources import HUGGING_FACE

CARD_FILE = "README.md"
# A user who edits a card removes this line.
_GENERATED = (
    "<!-- Written by bert_tf at the end of the training, and again by the next "
    "one, unless this line is gone. -->"
)
# Metrics with another name on huggingface.co/metrics.
_HUB_METRICS = {
    "exact": "exact_match",
    "matthews": "matthews_correlation",
    "pearson": "pearsonr",
    "spearman": "spearmanr",
}


class SentenceKind(NamedTuple):
    """How hubs describe a kind of model of sentence-transformers.

    Attributes:
      pipeline_tag: the task's name on huggingface.co.
      tags: as in the model cards of sentence-transformers 6.2.
    """

    pipeline_tag: str
    tags: tuple[str, ...]


# By model_type in config_sentence_transformers.json.
SENTENCE_KINDS = {
    SENTENCE_TRANSFORMER: SentenceKind(
        "sentence-similarity",
        ("sentence-similarity", "feature-extraction", "dense"),
    ),
    CROSS_ENCODER: SentenceKind("text-ranking", ("cross-encoder", "reranker")),
    SPARSE_ENCODER: SentenceKind(
        "feature-extraction", ("sparse-encoder", "sparse", "splade")
    ),
    MULTI_VECTOR: SentenceKind(
        "feature-extraction", ("multi-vector", "colbert", "late-interaction")
    ),
}


class CardScore(NamedTuple):
    """A score of a model.

    Attributes:
      split: the split that was scored.
      metric: the name of the score.
      value: the score; None if it is not finite.
      baseline: the score of a constant answer; None if there is none.
      mean: over several trainings, if there were several.
      standard_deviation: likewise.
      published: published scores by model.
      scale: what they are shown times; see `score_scale`.
    """

    split: str
    metric: str
    value: float | None
    baseline: float | None
    mean: float | None = None
    standard_deviation: float | None = None
    published: Mapping[str, float] = {}
    scale: int = 1


@dataclasses.dataclass(frozen=True)
class ModelCard:
    """The content of a card.

    Attributes:
      summary: describes the model, without a full stop.
      pipeline_tag: the task's name on huggingface.co, unless `sentence_kind`
        has another.
      question: an example, by the arguments of the model that `bert_tf.load`
        returns, which are the inputs of the server; empty if these cannot use
        the model.
      signature: the signature to call, if it is not the default.
      init_from: the model that the training started from; empty for random
        weights.
      data_set: organisation/name of the data on huggingface.co, followed by
        /configuration if there are several; empty for other data.
      num_rows: number of rows by split.
      labels: names of the labels.
      scores: of each split and metric.
      seeds: number of trainings.
      architecture: its model_type.
      tokenizer: describes the tokenizer.
      settings: the settings that differ from their defaults.
      sentence_kind: the kind of model in `SENTENCE_KINDS`; empty for others.
      losses: the classes of sentence-transformers that compute its losses.
    """

    summary: str
    pipeline_tag: str
    question: Mapping[str, Any]
    init_from: str
    num_rows: Mapping[str, int]
    scores: Sequence[CardScore]
    settings: Mapping[str, Any]
    signature: str = ""
    data_set: str = ""
    labels: Sequence[str] = ()
    seeds: int = 1
    architecture: str = "bert"
    tokenizer: str = ""
    sentence_kind: str = ""
    losses: Sequence[str] = ()

    def write(self, folder: pathlib.Path, name: str = "") -> pathlib.Path:
        """Writes README.md into a folder, unless a user has written one there.

        Args:
          folder: the folder.
          name: the name of the model; empty for that of the folder.

        Returns:
          The path of README.md.

        Raises:
          UserError: a library is not installed.
        """
        path = folder / CARD_FILE
        if path.exists() and _GENERATED.encode() not in read_bytes(path):
            return path
        name = _valid(name or folder.resolve().name)
        metadata = yaml.safe_dump(
            self.metadata(name), allow_unicode=True, sort_keys=False
        )
        text = render(
            "model_card.md.jinja",
            card=self,
            name=name,
            metadata=metadata,
            generated=_GENERATED,
            python_question=_python(self.question),
            source=self.base_model or pathlib.PurePath(self.init_from).name,
            scaled=any(score.scale == 100 for score in self.scores),
            published=list(
                dict.fromkeys(n for s in self.scores for n in s.published)
            ),
            settings={
                name: value
                for name, value in self.settings.items()
                # Paths on the machine of the training are private.
                if not (isinstance(value, str) and re.search(r"[/\\]", value))
            },
        )
        write_text(path, _valid(text))
        return path

    @property
    def base_model(self) -> str:
        """The name on huggingface.co of the initial model."""
        if not self.init_from.startswith(HUGGING_FACE):
            return ""
        return self.init_from.removeprefix(HUGGING_FACE).partition("@")[0]

    def metadata(self, name: str) -> dict[str, Any]:
        """The metadata that hubs read.

        Args:
          name: the name of the model.
        """
        pipeline_tag, tags = self.pipeline_tag, []
        if self.sentence_kind:
            pipeline_tag, kinds = SENTENCE_KINDS[self.sentence_kind]
            tags = ["sentence-transformers", *kinds]
            if rows := self.num_rows.get("train"):
                tags.append(f"dataset_size:{rows}")
            tags += [f"loss:{loss}" for loss in self.losses]
        found: dict[str, Any] = {
            "library_name": "bert_tf",
            "pipeline_tag": pipeline_tag,
            "tags": [self.architecture, "keras", "tensorflow", *tags],
        }
        if self.base_model:
            found["base_model"] = self.base_model
        data = {"name": "own data", "type": "own-data"}
        if self.data_set:
            parts = self.data_set.split("/")
            data_set, configuration = "/".join(parts[:2]), parts[2:]
            data = {"name": data_set, "type": data_set}
            data |= zip(["config"], configuration, strict=False)
            found["datasets"] = [data_set]
        by_split: dict[str, list[dict[str, Any]]] = {}
        for score in self.scores:
            if score.value is not None:
                metric = _valid(_HUB_METRICS.get(score.metric, score.metric))
                name_shown = _valid(score.metric.replace("_", " "))
                by_split.setdefault(_valid(score.split), []).append(
                    {"type": metric, "value": score.value, "name": name_shown}
                )
        if by_split:
            metrics = [each["type"] for m in by_split.values() for each in m]
            found["metrics"] = list(dict.fromkeys(metrics))
            results = [
                {
                    "task": {"type": pipeline_tag},
                    "dataset": data | {"split": split},
                    "metrics": metrics,
                }
                for split, metrics in by_split.items()
            ]
            found["model-index"] = [{"name": name, "results": results}]
        return found


def _valid(text: str) -> str:
    """A text without lone surrogates, which UTF-8 cannot hold."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _python(question: Mapping[str, Any]) -> str:
    """The arguments of a call as Python; a single text is positional."""
    if list(question) == ["text"]:
        return json.dumps(question["text"])
    return ", ".join(f"{k}={json.dumps(v)}" for k, v in question.items())
