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
      pipeline_tag: the task's name on huggingface.co.
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

    def write(self, folder: pathlib.Path) -> pathlib.Path:
        """Writes README.md into a folder, unless a user has written one there.

        Returns:
          The path of README.md.

        Raises:
          UserError: a library is not installed.
        """
        path = folder / CARD_FILE
        if path.exists() and _GENERATED.encode() not in read_bytes(path):
            return path
        name = _valid(folder.resolve().name)
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
        found: dict[str, Any] = {
            "library_name": "bert_tf",
            "pipeline_tag": self.pipeline_tag,
            "tags": [self.architecture, "keras", "tensorflow"],
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
                by_split.setdefault(_valid(score.split), []).append(
                    {"type": metric, "value": score.value}
                )
        if by_split:
            metrics = [each["type"] for m in by_split.values() for each in m]
            found["metrics"] = list(dict.fromkeys(metrics))
            results = [
                {
                    "task": {"type": self.pipeline_tag},
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
