"""An explanation of an answer as numbers, a table and a page."""

import base64
import dataclasses
import html
import importlib.util
import json
import os
import pathlib
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_tf.errors import UserError
from bert_tf.files import check_output, write_text
from bert_tf.report.render import render
from bert_tf.report.sections import Entry, Lines, Page, ReportTable, Section
from bert_tf.report.texts import Mark, MarkedText

INTEGRATED_GRADIENTS = "integrated_gradients"
OUTPUTS = (".html", ".json")
_LISTED, _BAR = 30, 20
# Height of a notebook's frame in pixels.
_FRAME_HEIGHT = 420


@dataclasses.dataclass(frozen=True)
class Word:
    """A word and its attribution.

    Attributes:
      text: the word.
      column: its argument, such as text or choices[1].
      start: first character in the argument.
      end: exclusive end.
      attribution: contribution to the score; negative if it is evidence
        against the answer.
      share: attribution divided by the sum of the absolute attributions.
    """

    text: str
    column: str
    start: int
    end: int
    attribution: float
    share: float


@dataclasses.dataclass(frozen=True, eq=False)
class ReadRow:
    """A row of tokens and its attention.

    Attributes:
      tokens: the S tokens, with [CLS] and [SEP].
      texts: the text of each token, without marks such as ## or Ġ.
      attention: float32 [L, N, S, S], attention probabilities by layer, head,
        query and key.
    """

    tokens: tuple[str, ...]
    texts: tuple[str, ...]
    attention: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class Explanation:
    """An explanation of an answer; see `LoadedModel.explain`.

    It prints as a table, and a notebook shows the text in colours; `to_dict`
    returns all values for JSON, `html` a page.

    Attributes:
      texts: the input texts, by argument.
      target: the answer that is explained.
      unit: unit of the scores: "log odds", ln(p / (1 - p)) of the target, for
        an answer in a context the sum over its start and end, for an entity
        the mean over its words; or "score" of a regression.
      score: score of the text.
      baseline_score: score of the text with all tokens replaced by the mask
        token.
      method: "integrated_gradients" or "occlusion".
      steps: quadrature nodes of integrated gradients.
      completeness_error: of integrated gradients: the difference between the
        sum of the attributions and score - baseline_score, relative to that.
      words: the words that the model read, in order.
      num_unread: number of words that were truncated or are in other windows.
      rows: the rows of the model's input: several for a text that is
        classified by windows, and one for each choice.
    """

    texts: dict[str, str]
    target: str
    unit: str
    score: float
    baseline_score: float
    method: str
    steps: int | None
    completeness_error: float | None
    words: tuple[Word, ...]
    num_unread: int
    rows: tuple[ReadRow, ...]

    def __str__(self) -> str:
        """Formats a table of the words with the largest shares, in order."""
        by_size = sorted(self.words, key=lambda w: -abs(w.share))
        listed = set(by_size[:_LISTED])
        width = max(4, *(len(word.text) for word in listed))
        largest = abs(by_size[0].share) or 1.0
        lines = [
            f"{self.target}: {self.unit} {self.score:.4g}; "
            f"{self.baseline_score:.4g} with every word masked",
            self.method_line(),
            f"{'word':{width}}   share {self.unit:>9}",
        ]
        for word in self.words:
            if word in listed:
                bar = "+-"[word.share < 0] * round(
                    _BAR * abs(word.share) / largest
                )
                line = f"{word.text:{width}} {100 * word.share:+6.1f}%"
                line += f" {word.attribution:+9.4f}  {bar}"
                lines.append(line.rstrip())
        if more := len(self.words) - len(listed):
            rest = sum(abs(word.share) for word in by_size[_LISTED:])
            lines.append(f"... and {more} more, {100 * rest:.1f}% together")
        if self.num_unread:
            lines.append(f"{self.num_unread} more words are not read with it")
        return "\n".join(lines)

    def method_line(self) -> str:
        """Describes the method and its error."""
        if self.completeness_error is None:
            return "occlusion: each word replaced by the mask token"
        return (
            f"integrated gradients, {self.steps} steps, completeness error "
            f"{100 * self.completeness_error:.2g}%"
        )

    def to_dict(self) -> dict[str, Any]:
        """Returns all values for JSON, with attention to 4 decimals."""
        values = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
        }
        values["words"] = [dataclasses.asdict(word) for word in self.words]
        values["rows"] = [
            {
                "tokens": list(row.tokens),
                "texts": list(row.texts),
                "attention": row.attention.round(4).astype(float).tolist(),
            }
            for row in self.rows
        ]
        return values

    def html(self) -> str:
        """Returns a self-contained HTML page."""
        return self._page(self.rows)

    def _repr_html_(self) -> str | None:
        """Returns the page without attention in a frame, for notebooks.

        Without the extra `report` notebooks show the text: None.
        """
        if importlib.util.find_spec("jinja2") is None:
            return None
        page = html.escape(self._page(()), quote=True)
        return (
            f'<iframe srcdoc="{page}" sandbox="allow-scripts" width="100%" '
            f'height="{_FRAME_HEIGHT}" style="border: 0"></iframe>'
        )

    def __repr__(self) -> str:
        return str(self)

    def _page(self, rows: Sequence[ReadRow]) -> str:
        """The page, with the attention of some rows for its script."""
        by_size = sorted(self.words, key=lambda word: -abs(word.share))
        largest = abs(by_size[0].share) or 1.0
        entries = [
            MarkedText(
                text,
                name if len(self.texts) > 1 else "",
                [
                    Mark(
                        *(word.start, word.end, ""),
                        "against" if word.share < 0 else "for",
                        abs(word.share) / largest,
                    )
                    for word in self.words
                    if word.column == name
                ],
            )
            for name, text in self.texts.items()
        ]
        table = ReportTable(
            "Words by their shares of the score",
            [
                {
                    "word": word.text,
                    "share, %": f"{100 * word.share:+.1f}",
                    self.unit: word.attribution,
                }
                for word in by_size
            ],
            {"share, %": str},
            is_folded=True,
        )
        about = Lines(["Blue words raise the score, orange ones lower it."])
        is_score = self.unit == "score"
        aim = "raise the score" if is_score else f"support “{self.target}”"
        page = Page(
            f"Which words {aim}",
            {
                self.unit: self.score,
                "with every word masked": self.baseline_score,
                "words that are not read": self.num_unread,
                "found by": self.method_line(),
            },
            [Section("words", "Words", [about, Entry({}, entries), table])],
        )

        def packed(attention: np.ndarray) -> str:
            levels = np.rint(255 * attention).astype(np.uint8)
            return base64.b64encode(zlib.compress(levels, 9)).decode()

        data = [
            {
                "texts": row.texts,
                "layers": len(row.attention),
                "heads": len(row.attention[0]),
                "attention": packed(row.attention),
            }
            for row in rows
        ]
        return render("explanation.html.jinja", page=page, rows=data)

    def write(self, output: str | os.PathLike) -> None:
        """Writes the page or the values.

        Args:
          output: a file that ends in .html or .json.

        Raises:
          UserError: the file ends otherwise, or cannot be written.
        """
        path = pathlib.Path(output)
        check_output(path, OUTPUTS)
        if path.suffix == ".html":
            text = self.html()
        else:
            text = json.dumps(self.to_dict(), ensure_ascii=False) + "\n"
        try:
            write_text(path, text)
        except OSError as error:
            raise UserError(
                f"`output`={path}: cannot be written ({error.strerror}); name "
                "a file in a folder of yours."
            ) from None
