"""Byte-level BPE as data: the tokenizer of GPT-2, RoBERTa and ModernBERT.

Text is split into words by GPT-2's regular expression, and the UTF-8 bytes of
each word are merged, pair by pair (Radford et al. 2019, section 2.2). Tokens
represent bytes by the 256 letters of GPT-2's encoder.py.
"""

import functools
import hashlib
import json
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from bert_tf.errors import UserError
from bert_tf.files import write_text
from bert_tf.foreign_files import read_text
from bert_tf.recipe import read_json_object
from bert_tf.text.token_table import Packing, SpecialTokens, TokenTable
from bert_tf.text.tokenizer_files import (
    SPECIAL_TOKENS_FILE,
    TOKENIZER_CONFIG_FILE,
    TOKENIZER_FILE,
    AddedToken,
    JsonPart,
    OtherRules,
    added_entries,
    read_tokenizer_files,
)
from bert_tf.text.tokenizer_protocol import Tokenizer, graph_tokenizer

if TYPE_CHECKING:
    import tokenizers

_VOCABULARY, _MERGES = "vocab.json", "merges.txt"
_SPACE = "\u0120"
# The special tokens if no file names them.
_NAMES = (
    ("<pad>", "[PAD]"),
    ("<unk>", "[UNK]"),
    ("<s>", "[CLS]"),
    ("</s>", "[SEP]"),
    ("<mask>", "[MASK]"),
)


@functools.cache
def byte_letters() -> dict[str, int]:
    """The byte of each letter (GPT-2's encoder.py, `bytes_to_unicode`)."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    letters = {chr(byte): byte for byte in plain}
    return letters | {chr(256 + n): byte for n, byte in enumerate(others)}


class ByteLevelBpe(TokenTable):
    """Tokens, merges and rules of byte-level BPE; a `TokenizerData`.

    Attributes:
      merges: the pairs in the order of merging.
      added_tokens: tokens that are recognized in text before it is split into
        words, including special tokens.
      nfc: whether text is normalized to NFC.
      add_prefix_space: whether a blank is inserted before a text without one.
      trim_offsets: whether the offsets of a token exclude its blanks.
    """

    FILES: ClassVar[tuple[str, ...]] = (TOKENIZER_FILE,)
    GRAPH: ClassVar[str] = "bert_tf.text.byte_bpe_graph.ByteBpeTokenizer"
    other_rules = ""

    def __init__(
        self,
        tokens: Sequence[str],
        merges: Sequence[tuple[str, str]],
        special: SpecialTokens,
        added_tokens: Sequence[AddedToken] = (),
        nfc: bool = False,
        add_prefix_space: bool = False,
        trim_offsets: bool = True,
        packing: Packing | None = None,
    ) -> None:
        """Checks the tokens; `packing` None means RoBERTa's rows.

        Raises:
          UserError: a byte has no token.
        """
        self._tokens = tuple(tokens)
        self.merges = tuple(merges)
        self.special = special
        self.nfc, self.add_prefix_space = nfc, add_prefix_space
        self.trim_offsets = trim_offsets
        # UTF-8 does not use the bytes C0, C1 and those from F5.
        missing = [
            letter
            for letter, byte in byte_letters().items()
            if letter not in self.ids
            and byte not in (0xC0, 0xC1)
            and byte < 0xF5
        ]
        if missing:
            raise UserError(
                f"vocabulary: {len(missing)} of the bytes of UTF-8 have no "
                f"token, such as {missing[0]!r}; take the whole vocabulary "
                "that the model was trained with."
            )
        named = {token.content for token in added_tokens}
        # <mask> includes the blanks before it, as in transformers.
        unnamed = [
            AddedToken(
                token,
                lstrip=token == special.mask,
                normalized=False,
                special=True,
            )
            for token in special.present
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
    def tokens(self) -> tuple[str, ...]:
        """The tokens, with letters for bytes."""
        return self._tokens

    @property
    def packing(self) -> Packing:
        """How special tokens frame a row."""
        return self._packing

    @property
    def vocabulary(self) -> Self:
        """The tokens."""
        return self

    @functools.cached_property
    def ranks(self) -> dict[str, int]:
        """The number of the merge that results in each token."""
        return {a + b: number for number, (a, b) in enumerate(self.merges)}

    @functools.cached_property
    def raw(self) -> tuple[bytes | None, ...]:
        """The bytes of each token; None for tokens that are not merged."""
        letters = byte_letters()
        return tuple(
            bytes(map(letters.__getitem__, token))
            if token in letters or token in self.ranks
            else None
            for token in self._tokens
        )

    @functools.cached_property
    def starts_word(self) -> np.ndarray:
        """Tokens that begin with a blank, and tokens that are not merged."""
        return np.array(
            [raw is None or raw.startswith(b" ") for raw in self.raw]
        )

    @functools.cached_property
    def texts(self) -> tuple[str, ...]:
        """The text of each token without the blank before it."""
        return tuple(
            token
            if raw is None
            else raw.decode("utf-8", "replace").removeprefix(" ")
            for token, raw in zip(self._tokens, self.raw, strict=True)
        )

    @classmethod
    def read(
        cls,
        folder: str | pathlib.Path,
        lower_case: bool | None = None,
        rows: int | None = None,
        notify: bool = True,
    ) -> Self | None:
        """See `TokenizerData`."""
        del rows, notify
        folder = pathlib.Path(folder)
        paths = [folder / _VOCABULARY, folder / _MERGES]
        fast = read_json_object(folder / TOKENIZER_FILE, missing_ok=True)
        is_bpe = fast.get("model", {}).get("type") == "BPE"
        if not is_bpe and not all(path.is_file() for path in paths):
            return None
        if lower_case:
            raise UserError(
                f"{folder}: byte-level BPE keeps case; pass `lower_case`=False."
            )
        return cls._of(folder, is_bpe)

    @classmethod
    def _of(cls, folder: pathlib.Path, is_bpe: bool) -> Self:
        files = read_tokenizer_files(folder)
        fast, model = files.hugging_face, files.hugging_face.part("model")
        vocab_file, merges_file = folder / _VOCABULARY, folder / _MERGES
        ids: Mapping[str, int] = {}
        if vocab_file.is_file():
            ids = read_json_object(vocab_file)
        if is_bpe:
            _refuse_other_rules(fast)
            known = model.values["vocab"]
            other = [t for t in ids if known.get(t, ids[t]) != ids[t]]
            if other:
                raise UserError(
                    f"{vocab_file}: the id of {other[0]!r} is {ids[other[0]]}, "
                    f"but {known[other[0]]} in {fast.source}; the two belong "
                    "to different models."
                )
            ids = known
            pairs = [
                pair.split(" ") if isinstance(pair, str) else pair
                for pair in model.values["merges"]
            ]
        else:
            pairs = [
                line.split(" ")
                for line in read_text(merges_file).split("\n")
                if line and not line.startswith("#version")
            ]
        if any(len(pair) != 2 for pair in pairs):
            raise UserError(f"{folder}: a merge is not a pair of pieces.")
        merges = [(first, second) for first, second in pairs]
        tokens = {number: token for token, number in ids.items()}
        added: list[AddedToken] = []
        for token, number, place in added_entries(files):
            if tokens.setdefault(number, token.content) != token.content:
                raise UserError(
                    f"{place}: token {number} is {token.content!r}, but "
                    f"{tokens[number]!r} in the vocabulary."
                )
            if all(token.content != known.content for known in added):
                added.append(token)
        if sorted(tokens) != list(range(len(tokens))):
            missing = min(set(range(len(tokens))) - tokens.keys())
            raise UserError(f"{folder}: no token has the id {missing}.")
        in_order = [tokens[number] for number in range(len(tokens))]
        numbers = {token: number for number, token in enumerate(in_order)}
        special = _special_tokens(folder, set(in_order))
        config, processor = files.config, fast.part("post_processor")
        splitter = fast.part("pre_tokenizer")
        prefix = splitter.flag("add_prefix_space") if is_bpe else None
        if prefix is None:
            prefix = config.flag("add_prefix_space")
        trims = not is_bpe or processor.values.get("type") in (
            "RobertaProcessing",
            "ByteLevel",
        )
        normalizer = fast.part("normalizer").values.get("type")
        return cls(
            in_order,
            merges,
            special,
            added,
            normalizer == "NFC",
            bool(prefix),
            trims and processor.flag("trim_offsets") is not False,
            _packing(processor, numbers, numbers.get(special.pad or "", 0)),
        )

    @classmethod
    def of_file(
        cls, path: str | os.PathLike, lower_case: bool | None = None
    ) -> Self:
        """See `TokenizerData`."""
        folder = pathlib.Path(path).parent
        data = cls.read(folder, lower_case)
        if data is None:
            raise UserError(
                f"{path}: has no {_MERGES} next to it; put it there."
            )
        return data

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

    def _rules(self) -> dict[str, Any]:
        return {
            "added_tokens": [vars(token) for token in self.added_tokens],
            "nfc": self.nfc,
            "add_prefix_space": self.add_prefix_space,
            "trim_offsets": self.trim_offsets,
            "packing": [*vars(self._packing).values()],
        }

    def settings(self) -> dict[str, Any]:
        """See `TokenizerData`."""
        pairs = "\n".join(map(" ".join, self.merges))
        merges = hashlib.sha256(pairs.encode()).hexdigest()
        return {"merges": merges, **json.loads(json.dumps(self._rules()))}

    def to_dict(self) -> dict[str, Any]:
        """See `TokenizerData`."""
        return {
            "vocabulary": list(self._tokens),
            "special_tokens": list(self.special),
            "tokenizer": {"merges": [*map(list, self.merges)], **self._rules()},
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """See `TokenizerData`."""
        rules = dict(values.pop("tokenizer"))
        begin, middle, end, segment, pad_id = rules.pop("packing")
        packing = Packing(
            tuple(begin), tuple(middle), tuple(end), segment, pad_id
        )
        return cls(
            values.pop("vocabulary"),
            [(a, b) for a, b in rules.pop("merges")],
            SpecialTokens(*values.pop("special_tokens")),
            [AddedToken(**token) for token in rules.pop("added_tokens")],
            packing=packing,
            **rules,
        )

    def tokenizer(self, split_special_tokens: bool = True) -> Tokenizer:
        """See `TokenizerData`."""
        return graph_tokenizer(self, split_special_tokens)

    def worker(self) -> "ByteBpeWorker":
        """See `TokenizerData`."""
        return ByteBpeWorker(self)

    def recognized_tokens(self, split_special_tokens: bool) -> list[AddedToken]:
        """The added tokens that are recognized in text."""
        return [
            token
            for token in self.added_tokens
            if not split_special_tokens or token.content not in self.special
        ]

    def library_tokenizer(
        self, split_special_tokens: bool = True
    ) -> "tokenizers.Tokenizer":
        """Builds the tokenizer of the library tokenizers."""
        import tokenizers
        from tokenizers import decoders, models, normalizers, pre_tokenizers

        ids = {token: number for number, token in enumerate(self._tokens)}
        library = tokenizers.Tokenizer(models.BPE(ids, list(self.merges)))
        if self.nfc:
            library.normalizer = normalizers.NFC()
        library.pre_tokenizer = pre_tokenizers.ByteLevel(
            add_prefix_space=self.add_prefix_space
        )
        library.decoder = decoders.ByteLevel()
        for token in self.recognized_tokens(split_special_tokens):
            values = dict(vars(token))
            add = library.add_tokens
            if values.pop("special"):
                add = library.add_special_tokens
            add([tokenizers.AddedToken(**values)])
        return library

    def save(
        self, folder: str | pathlib.Path, max_length: int | None = None
    ) -> None:
        """See `TokenizerData`."""
        folder = pathlib.Path(folder)
        self._write(self.library_tokenizer(False), folder)
        values: dict[str, Any] = {
            key: token for key, token in self.special.to_dict().items() if token
        }
        if max_length is not None:
            values["model_max_length"] = max_length
        text = json.dumps(values, ensure_ascii=False, indent=2)
        write_text(folder / TOKENIZER_CONFIG_FILE, text + "\n")

    def save_hugging_face(self, folder: pathlib.Path, max_length: int) -> None:
        """See `TokenizerData`."""
        self.save(folder, max_length)
        # For older versions of transformers.
        text = json.dumps(dict(self.ids), ensure_ascii=False)
        write_text(folder / _VOCABULARY, text + "\n")
        lines = ["#version: 0.2", *map(" ".join, self.merges), ""]
        write_text(folder / _MERGES, "\n".join(lines))

    def save_json(
        self,
        folder: pathlib.Path,
        max_length: int,
        padded: bool,
        finds_special: bool = False,
    ) -> None:
        """See `TokenizerData`."""
        library = self.library_tokenizer(not finds_special)
        library.enable_truncation(max_length)
        if padded:
            library.enable_padding(
                length=max_length,
                pad_id=self._packing.pad_id,
                pad_token=self._tokens[self._packing.pad_id],
            )
        self._write(library, folder)

    def _write(
        self, library: "tokenizers.Tokenizer", folder: pathlib.Path
    ) -> None:
        from tokenizers import processors

        from bert_tf.text.wordpiece_json import framing

        special, packing = self.special, self._packing
        if packing.middle == packing.end * 2 and special.cls and special.sep:
            library.post_processor = processors.RobertaProcessing(
                (special.sep, self.sep_id),
                (special.cls, self.cls_id),
                trim_offsets=self.trim_offsets,
                add_prefix_space=self.add_prefix_space,
            )
        else:
            library.post_processor = framing(self)
        write_text(folder / TOKENIZER_FILE, library.to_str() + "\n")

    def notices(self, to: str) -> list[str]:
        """See `TokenizerData`."""
        del to
        return []

    def pieces_of(self, tokens: Sequence[str]) -> list[Sequence[int]]:
        """See `TokenizerData`."""
        import tokenizers

        model = tokenizers.models.BPE(dict(self.ids), list(self.merges))
        library = tokenizers.Tokenizer(model)
        encodings = library.encode_batch(list(tokens), add_special_tokens=False)
        return [
            [self.ids[token]] if token in self.ids else each.ids
            for token, each in zip(tokens, encodings, strict=True)
        ]

    def __reduce__(self) -> tuple[Any, ...]:
        # Some cached values cannot be pickled.
        return type(self).from_dict, (self.to_dict(),)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, ByteLevelBpe)
            and super().__eq__(other)
            and self.merges == other.merges
            and self._rules() == other._rules()
        )

    def __hash__(self) -> int:
        return super().__hash__()


class ByteBpeWorker:
    """Tokenizes large texts by the library tokenizers."""

    dtype: type[np.integer] = np.int32

    def __init__(self, data: ByteLevelBpe) -> None:
        self._library = data.library_tokenizer()
        if len(data) <= 1 << 16:
            self.dtype = np.uint16

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
        encodings = self._library.encode_batch_fast(
            sentences, add_special_tokens=False
        )
        ids = [encoding.ids for encoding in encodings]
        counts = np.array([len(each) for each in ids], np.int64)
        flat = [number for each in ids for number in each]
        return np.array(flat, self.dtype), counts


def _refuse_other_rules(fast: JsonPart) -> None:
    """Raises `UserError` for rules other than those of GPT-2."""
    model, splitter = fast.part("model"), fast.part("pre_tokenizer")
    normalizer = fast.part("normalizer")
    for part, key, allowed in (
        (model, "dropout", (None, 0.0)),
        (model, "continuing_subword_prefix", (None, "")),
        (model, "end_of_word_suffix", (None, "")),
        (model, "byte_fallback", (None, False)),
        (model, "ignore_merges", (None, False)),
        (normalizer, "type", (None, "NFC")),
        (splitter, "type", ("ByteLevel",)),
        (splitter, "use_regex", (None, True)),
    ):
        value = part.values.get(key)
        if value not in allowed:
            raise OtherRules(
                f"{part.source}: {key} is {value!r}, which byte-level BPE does "
                f"not support; it takes {' or '.join(map(repr, allowed))}."
            )


def _special_tokens(folder: pathlib.Path, tokens: set[str]) -> SpecialTokens:
    """The special tokens that files name, or tokens of the usual names."""
    config = read_json_object(folder / TOKENIZER_CONFIG_FILE, missing_ok=True)
    older = read_json_object(folder / SPECIAL_TOKENS_FILE, missing_ok=True)
    special: list[str | None] = []
    for role, usual in zip(SpecialTokens._fields, _NAMES, strict=True):
        named = config.get(f"{role}_token", older.get(f"{role}_token"))
        if isinstance(named, dict):
            named = named.get("content")
        choices = usual if named is None else (named,)
        special.append(next((t for t in choices if t in tokens), None))
        if named is not None and special[-1] is None:
            raise UserError(
                f"{folder}: {role}_token is {named!r}, which the vocabulary "
                "lacks."
            )
    return SpecialTokens(*special)


def _packing(
    processor: JsonPart, ids: Mapping[str, int], pad_id: int
) -> Packing | None:
    """The rows of a tokenizer.json; None means RoBERTa's."""
    kind = processor.values.get("type")
    if kind == "BertProcessing":
        cls, sep = processor.values["cls"][1], processor.values["sep"][1]
        return Packing((cls,), (sep,), (sep,), 1, pad_id)
    if kind != "TemplateProcessing":
        return None
    parts: list[list[int]] = [[]]
    segment = 0
    for piece in processor.values["pair"]:
        ((name, value),) = piece.items()
        if name == "Sequence":
            parts.append([])
            segment = value["type_id"]
        else:
            parts[-1].append(ids[value["id"]])
    begin, middle, end = map(tuple, parts)
    return Packing(begin, middle, end, segment, pad_id)
