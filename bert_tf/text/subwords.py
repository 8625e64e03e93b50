"""What byte-level BPE and unigram models share, without TensorFlow."""

import abc
import json
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from bert_tf.errors import UserError, excerpt
from bert_tf.files import write_text
from bert_tf.text.token_table import Packing, SpecialTokens, TokenTable
from bert_tf.text.tokenizer_files import (
    TOKENIZER_CONFIG_FILE,
    TOKENIZER_FILE,
    AddedToken,
    JsonPart,
    named_special_tokens,
    pair_template,
)
from bert_tf.text.tokenizer_protocol import (
    Tokenizer,
    TokenizerData,
    graph_tokenizer,
    no_vocabulary,
)

if TYPE_CHECKING:
    import tokenizers


class Subwords(TokenTable, TokenizerData):
    """The base of tokenizers without words: their data and their table.

    Attributes:
      added_tokens: tokens that are recognized in text before it is split,
        including special tokens.
    """

    other_rules = ""

    def __init__(
        self,
        special: SpecialTokens,
        added_tokens: Sequence[AddedToken],
        packing: Packing | None,
    ) -> None:
        """Completes the added tokens; `packing` None means RoBERTa's rows."""
        self.special = special
        named = {token.content for token in added_tokens}
        # <mask> includes the blanks before it, as in transformers.
        unnamed = [
            AddedToken(
                token,
                lstrip=token == special.mask,
                normalized=False,
                special=True,
            )
            for token in dict.fromkeys(special.present)
            if token not in named
        ]
        self.added_tokens = tuple(
            sorted([*added_tokens, *unnamed], key=lambda t: self.ids[t.content])
        )
        end = () if special.sep is None else (self.sep_id,)
        begin = () if special.cls is None else (self.cls_id,)
        self._packing = packing or Packing(
            begin, end * 2, end, 0, max(self.pad_id, 0)
        )

    @property
    @abc.abstractmethod
    def spelled(self) -> list[bytes]:
        """The bytes of each token in text, with the blank before it."""

    @property
    def lower_case(self) -> bool:
        """Whether text is lower-cased."""
        return False

    @property
    def mask_takes_blanks(self) -> bool:
        """Whether the mask token includes the blanks before it in a text."""
        mask = self.special.mask
        return any(t.lstrip for t in self.added_tokens if t.content == mask)

    @property
    def packing(self) -> Packing:
        """How special tokens frame a row."""
        return self._packing

    @property
    def vocabulary(self) -> Self:
        """The tokens."""
        return self

    @classmethod
    def of_file(
        cls, path: str | os.PathLike, lower_case: bool | None = None
    ) -> Self:
        """See `TokenizerData`."""
        found = cls.read(pathlib.Path(path).parent, lower_case)
        if found is None:
            raise no_vocabulary(pathlib.Path(path).parent, cls)
        return found

    @classmethod
    def of_tokens(cls, path: str | os.PathLike, rows: int) -> Self:
        """See `TokenizerData`."""
        del rows
        return cls.of_file(path)

    def with_rules_of(
        self, folder: pathlib.Path, lower_case: bool | None = None
    ) -> Self:
        """See `TokenizerData`."""
        return type(self).read(folder, lower_case) or self

    @abc.abstractmethod
    def rules(self) -> dict[str, Any]:
        """The rules besides the tokens, by argument of the constructor."""

    def rules_json(self) -> dict[str, Any]:
        """`rules`, added tokens and packing as JSON values."""
        rules = {
            "added_tokens": [vars(token) for token in self.added_tokens],
            **self.rules(),
            "packing": [*vars(self._packing).values()],
        }
        values: dict[str, Any] = json.loads(json.dumps(rules))
        return values

    @staticmethod
    def rules_of_json(values: dict[str, Any]) -> dict[str, Any]:
        """The inverse of `rules_json`, by argument of the constructor."""
        begin, middle, end, segment, pad_id = values.pop("packing")
        packing = Packing(
            tuple(begin), tuple(middle), tuple(end), segment, pad_id
        )
        added = [AddedToken(**token) for token in values.pop("added_tokens")]
        return {"added_tokens": added, "packing": packing, **values}

    def tokenizer(self, split_special_tokens: bool = True) -> Tokenizer:
        """See `TokenizerData`."""
        return graph_tokenizer(self, split_special_tokens)

    def recognized_tokens(self, split_special_tokens: bool) -> list[AddedToken]:
        """The added tokens that are recognized in text."""
        return [
            token
            for token in self.added_tokens
            if not split_special_tokens or token.content not in self.special
        ]

    @abc.abstractmethod
    def library_tokenizer(
        self, split_special_tokens: bool = True
    ) -> "tokenizers.Tokenizer":
        """Builds the tokenizer of the library tokenizers, without framing."""

    def add_tokens(
        self, library: "tokenizers.Tokenizer", split_special_tokens: bool
    ) -> None:
        """Adds the `recognized_tokens` to a tokenizer of the library."""
        import tokenizers

        for token in self.recognized_tokens(split_special_tokens):
            values = dict(vars(token))
            add = library.add_tokens
            if values.pop("special"):
                add = library.add_special_tokens
            add([tokenizers.AddedToken(**values)])

    def config_values(self) -> dict[str, Any]:
        """The values of tokenizer_config.json."""
        return {
            key: token for key, token in self.special.to_dict().items() if token
        }

    def save(
        self, folder: str | pathlib.Path, max_length: int | None = None
    ) -> None:
        """Writes tokenizer_config.json; subclasses also write the tokens."""
        values = self.config_values()
        if max_length is not None:
            values["model_max_length"] = max_length
        text = json.dumps(values, ensure_ascii=False, indent=2)
        path = pathlib.Path(folder) / TOKENIZER_CONFIG_FILE
        write_text(path, text + "\n")

    def save_json(
        self,
        folder: pathlib.Path,
        max_length: int | None,
        padded: bool,
        finds_special: bool = False,
    ) -> None:
        """See `TokenizerData`."""
        library = self.library_tokenizer(not finds_special)
        if max_length is not None:
            library.enable_truncation(max_length)
        if padded:
            library.enable_padding(
                length=max_length,
                pad_id=self._packing.pad_id,
                pad_token=self.tokens[self._packing.pad_id],
            )
        self.write_library(library, folder)

    def write_library(
        self, library: "tokenizers.Tokenizer", folder: pathlib.Path
    ) -> None:
        """Writes a tokenizer of the library with the framing of rows."""
        from bert_tf.text.wordpiece_json import framing

        library.post_processor = framing(self)
        write_text(folder / TOKENIZER_FILE, library.to_str() + "\n")

    def unframed(self) -> Self:
        """See `TokenizerData`."""
        values = self.to_dict()
        values["tokenizer"]["packing"] = (), (), (), 0, self._packing.pad_id
        return type(self).from_dict(values)

    def notices(self, to: str) -> list[str]:
        """See `TokenizerData`."""
        del to
        return []

    def __reduce__(self) -> tuple[Any, ...]:
        # Some cached values cannot be pickled.
        return type(self).from_dict, (self.to_dict(),)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Subwords) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return super().__hash__()


class LibraryWorker(abc.ABC):
    """Tokenizes large texts sentence by sentence; a `WorkerTokenizer`."""

    def __init__(self, data: Subwords) -> None:
        self.dtype: type[np.integer] = (
            np.uint16 if len(data) <= 1 << 16 else np.int32
        )

    @abc.abstractmethod
    def encode(self, sentences: list[str]) -> list[list[int]]:
        """Splits sentences into ids."""

    def tokenize(
        self, text: bytes, sentence_bytes: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """See `WorkerTokenizer`."""
        ends = np.cumsum(sentence_bytes + 1) - 1
        sentences = [
            text[end - size : end].decode(errors="replace")
            for end, size in zip(
                ends.tolist(), sentence_bytes.tolist(), strict=True
            )
        ]
        ids = self.encode(sentences)
        counts = np.array([len(each) for each in ids], np.int64)
        flat = [number for each in ids for number in each]
        return np.array(flat, self.dtype), counts


def find_special_tokens(
    folder: pathlib.Path,
    tokens: Mapping[str, int],
    usual: Sequence[Sequence[str]],
) -> SpecialTokens:
    """The special tokens that files name, or else tokens of usual names.

    Args:
      folder: the model folder.
      tokens: the tokens of the model.
      usual: the names to look for, in the order of `SpecialTokens`.

    Raises:
      UserError: a token that a file names does not exist.
    """
    stated = named_special_tokens(folder).to_dict().items()
    found: list[str | None] = []
    for (key, named), names in zip(stated, usual, strict=True):
        choices = names if named is None else (named,)
        found.append(next((t for t in choices if t in tokens), None))
        if named is not None and found[-1] is None:
            raise UserError(
                f"{folder}: {key} is {excerpt(named)}, which the vocabulary "
                "lacks."
            )
    return SpecialTokens(*found)


def packing_of_json(
    processor: JsonPart, ids: Mapping[str, int], pad_id: int
) -> Packing | None:
    """The rows of a tokenizer.json; None means RoBERTa's."""
    kind = processor.values.get("type")

    def token_id(token: object) -> int:
        if not isinstance(token, str) or token not in ids:
            raise UserError(
                f"{processor.source}: names the token {excerpt(token)}, which "
                "the vocabulary lacks."
            )
        return ids[token]

    if kind == "BertProcessing":
        cls, sep = (
            (token_id(processor.require(key, tuple[object, ...])[0]),)
            for key in ("cls", "sep")
        )
        return Packing(cls, sep, sep, 1, pad_id)
    if kind != "TemplateProcessing":
        return None
    parts: list[list[int]] = [[]]
    texts, segment = "", 0
    for piece in pair_template(processor):
        parts[-1] += map(token_id, piece.tokens)
        if piece.text:
            parts.append([])
            texts, segment = texts + piece.text, piece.segment
    if texts != "AB" or segment not in (0, 1):
        raise UserError(
            f"{processor.source}: pair has the texts {excerpt(texts)} and the "
            f"segment {excerpt(segment)} of the last one; it takes AB and 0 or "
            "1."
        )
    begin, middle, end = map(tuple, parts)
    return Packing(begin, middle, end, segment, pad_id)
