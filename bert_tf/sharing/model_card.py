"""README.md of a finished model: a model card, for people and for hubs.

The metadata are those of huggingface.co, in YAML between two lines of dashes:
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
from bert_tf.libraries import require_extra
from bert_tf.sources import HUGGING_FACE

CARD_FILE = "README.md"
# Who changes a card takes this line out of it.
_GENERATED = (
    "<!-- Written by bert_tf at the end of the training, and again by the next "
    "one, unless this line is gone. -->"
)
# Metrics that have another name on huggingface.co/metrics.
_HUB_METRICS = {
    "exact": "exact_match",
    "matthews": "matthews_correlation",
    "pearson": "pearsonr",
    "spearman": "spearmanr",
}
# What Markdown, or a table of it, would take for its own.
_MARKUP = re.compile(r"([\\`*_{}\[\]<>#|~&!$])")


class CardScore(NamedTuple):
    """A score of a model.

    Attributes:
      split: what was scored.
      metric: by what.
      value: the score; None where it is no finite number.
      baseline: what answers without a model score; None where that is nothing.
      mean: over several trainings, where there were several.
      standard_deviation: likewise.
      published: scores that others have published, by their model.
    """

    split: str
    metric: str
    value: float | None
    baseline: float | None
    mean: float | None = None
    standard_deviation: float | None = None
    published: Mapping[str, float] = {}


@dataclasses.dataclass(frozen=True)
class ModelCard:
    """What a card says.

    Attributes:
      summary: what the model is, without a full stop.
      pipeline_tag: what huggingface.co calls what it does.
      question: what it may be asked, by the arguments of what `bert_tf.load`
        returns, which are the inputs of the server; nothing where these do not
        take it.
      signature: of the server, if it is not the default.
      init_from: what the training started from; empty for random weights.
      data_set: organisation/name of the data on huggingface.co, /configuration
        behind it where there are several; empty for other data.
      num_rows: of each split.
      labels: names of the labels.
      scores: of each split and metric.
      seeds: how many trainings were made.
      settings: those that differ from their defaults.
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

    def write(self, folder: pathlib.Path) -> pathlib.Path:
        """Writes the card into a folder, unless a user has written one there.

        Returns:
          Its path.

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
        page = _environment().get_template("model_card.md.jinja")
        text = page.render(
            card=self,
            name=name,
            metadata=metadata,
            generated=_GENERATED,
            source=self.base_model or pathlib.PurePath(self.init_from).name,
            published=list(
                dict.fromkeys(n for s in self.scores for n in s.published)
            ),
            settings={
                name: value
                for name, value in self.settings.items()
                # Where files lie is nobody else's business.
                if not (isinstance(value, str) and re.search(r"[/\\]", value))
            },
        )
        write_text(path, _valid(text))
        return path

    @property
    def base_model(self) -> str:
        """What huggingface.co calls the model that training started from."""
        if not self.init_from.startswith(HUGGING_FACE):
            return ""
        return self.init_from.removeprefix(HUGGING_FACE).partition("@")[0]

    def metadata(self, name: str) -> dict[str, Any]:
        """What hubs read, of a model of this name."""
        found: dict[str, Any] = {
            "library_name": "bert_tf",
            "pipeline_tag": self.pipeline_tag,
            "tags": ["bert", "keras", "tensorflow"],
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


def _environment() -> Any:
    require_extra("report", "a model card")
    # Of no use before a training is done.
    import jinja2

    # No autoescape: what is written is Markdown.
    found = jinja2.Environment(
        loader=jinja2.PackageLoader("bert_tf.sharing"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    found.filters |= {"markdown": _markdown, "number": _number}
    found.filters |= {"python": _python, "json": json.dumps}
    return found


def _valid(text: str) -> str:
    """A text without lone surrogates, which UTF-8 cannot hold."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _markdown(value: Any) -> str:
    """A value as plain words in a line of Markdown."""
    return _MARKUP.sub(r"\\\1", " ".join(str(value).split()))


def _number(value: float | None) -> str:
    """Four significant digits, of a large number the whole ones."""
    if value is None:
        return "\u2013"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _python(question: Mapping[str, Any]) -> str:
    """Arguments of a call; a text alone needs no name."""
    if list(question) == ["text"]:
        return json.dumps(question["text"])
    return ", ".join(f"{k}={json.dumps(v)}" for k, v in question.items())
