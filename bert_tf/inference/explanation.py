"""An explanation of an answer: numbers, a table, a page."""

import base64
import dataclasses
import html
import json
import os
import pathlib
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_tf.errors import UserError
from bert_tf.files import check_output, write_text

_PAGE = pathlib.Path(__file__).parent / "explanation.html"
INTEGRATED_GRADIENTS = "integrated_gradients"
# What files of explanations end in.
OUTPUTS = (".html", ".json")
_LISTED, _BAR = 30, 20
# Of a notebook's frame, in pixels; a longer text is scrolled.
_FRAME_HEIGHT = 420


@dataclasses.dataclass(frozen=True)
class Word:
    """What a word has to do with an answer.

    Attributes:
      text: the word.
      column: the argument that it is in, such as text or choices[1].
      start: its first character there.
      end: its exclusive end.
      attribution: what it adds to the answer's measure; below 0 it speaks
        against the answer.
      share: that divided by the sum of all words' sizes, so that the sizes of
        the shares add up to 1.
    """

    text: str
    column: str
    start: int
    end: int
    attribution: float
    share: float


@dataclasses.dataclass(frozen=True, eq=False)
class ReadRow:
    """A row as the model reads it.

    Attributes:
      tokens: the S tokens, with [CLS] and [SEP].
      attention: float32 [L, N, S, S], how much a token (third axis) attends to
        another (fourth axis), by layer and head.
    """

    tokens: tuple[str, ...]
    attention: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class Explanation:
    """Why a model answers as it does; see `LoadedModel.explain`.

    Printed it is a table, and in a notebook the text in colours; `to_dict` has
    all for JSON, `html` is a page.

    Attributes:
      texts: what was asked, by argument.
      target: the answer that is explained, in words.
      unit: what is measured: "log odds", ln(p / (1 - p)) of the target, of an
        answer in a context that of its start plus that of its end, of an
        entity the mean over its words; or "score", of a regression.
      score: that of the text.
      baseline_score: that of the text with [MASK] for each of its tokens.
      method: "integrated_gradients" or "occlusion".
      steps: of integrated gradients.
      completeness_error: of integrated gradients, what the words' attributions
        add up to, beside score - baseline_score and relative to that.
      words: what the model read, in order.
      num_unread: words that it did not read: what was truncated, and what
        other windows show.
      rows: the rows that it read: one; several of a long text that is
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
        """A table of the words with the largest shares, in their order."""
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
        """How it was found, and how exactly."""
        if self.completeness_error is None:
            return "occlusion: each word replaced by [MASK]"
        return (
            f"integrated gradients, {self.steps} steps, completeness error "
            f"{100 * self.completeness_error:.2g}%"
        )

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values for JSON; attention to 4 decimals."""
        return self._values(
            lambda a: a.round(4).astype(np.float64).tolist(), self.rows
        )

    def html(self) -> str:
        """A page that needs nothing else."""
        return self._page(self.rows)

    def _repr_html_(self) -> str:
        """What a notebook shows: the page without attention, in a frame."""
        page = html.escape(self._page(()), quote=True)
        return (
            f'<iframe srcdoc="{page}" sandbox="allow-scripts" width="100%" '
            f'height="{_FRAME_HEIGHT}" style="border: 0"></iframe>'
        )

    def __repr__(self) -> str:
        return str(self)

    def _page(self, rows: Sequence[ReadRow]) -> str:
        """The page, with the attention of some rows."""

        def packed(attention: np.ndarray) -> str:
            levels = np.rint(255 * attention).astype(np.uint8)
            return base64.b64encode(zlib.compress(levels, 9)).decode()

        values = {**self._values(packed, rows), "how": self.method_line()}
        for row, own in zip(values["rows"], rows, strict=True):
            row["layers"], row["heads"] = own.attention.shape[:2]
        # Nothing in it can end the script that it stands in.
        data = json.dumps(values).replace("<", "\\u003c")
        page = _PAGE.read_text(encoding="utf-8")
        return page.replace("DATA", data, 1)

    def write(self, output: str | os.PathLike) -> None:
        """Writes the page, or all numbers.

        Args:
          output: a file that ends in .html or .json.

        Raises:
          UserError: it ends otherwise, or cannot be written.
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

    def _values(
        self, attention: Any, rows: Sequence[ReadRow]
    ) -> dict[str, Any]:
        """All of it, with what a function makes of the attention of rows."""
        values = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
        }
        values["words"] = [dataclasses.asdict(word) for word in self.words]
        values["rows"] = [
            {"tokens": list(r.tokens), "attention": attention(r.attention)}
            for r in rows
        ]
        return values
