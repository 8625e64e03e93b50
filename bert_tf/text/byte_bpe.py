"""Byte-level BPE as data: the tokenizer of GPT-2, RoBERTa and ModernBERT.

Text is split into words by GPT-2's regular expression, and the UTF-8 bytes of
each word are merged, pair by pair (Radford et al. 2019, section 2.2). Tokens
represent bytes by the 256 letters of GPT-2's encoder.py.
"""

import functools
import hashlib
import itertools
import json
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from bert_tf.errors import UserError, excerpt
from bert_tf.files import write_text
from bert_tf.foreign_files import read_text
from bert_tf.text.subwords import (
    LibraryWorker,
    Subwords,
    find_special_tokens,
    packing_of_json,
)
from bert_tf.text.token_table import Packing, SpecialTokens
from bert_tf.text.tokenizer_files import (
    KERAS_HUB_ASSETS,
    TOKENIZER_FILE,
    AddedToken,
    JsonPart,
    OtherRules,
    added_entries,
    model_type,
    read_json_part,
    read_tokenizer_files,
    refuse_other_case,
    tokens_by_id,
)

if TYPE_CHECKING:
    import tokenizers

VOCABULARY_FILE, MERGES_FILE = "vocab.json", "merges.txt"
# Of transformers and of KerasHub.
_FILES = (
    (VOCABULARY_FILE, MERGES_FILE),
    (
        f"{KERAS_HUB_ASSETS}/vocabulary.json",
        f"{KERAS_HUB_ASSETS}/{MERGES_FILE}",
    ),
)
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


class ByteLevelBpe(Subwords):
    """Tokens, merges and rules of byte-level BPE; a `TokenizerData`.

    Attributes:
      merges: the pairs in the order of merging.
      nfc: whether text is normalized to NFC.
      add_prefix_space: whether a blank is inserted before a text without one.
      trim_offsets: whether the offsets of a token exclude its blanks.
    """

    title: ClassVar[str] = "byte-level BPE"
    FILES: ClassVar[tuple[str, ...]] = (TOKENIZER_FILE,)
    GRAPH: ClassVar[str] = "bert_tf.text.byte_bpe_graph.ByteBpeTokenizer"

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
          UserError: a byte has no token, or the merges are ambiguous.
        """
        self._tokens = tuple(tokens)
        self.merges = tuple(merges)
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
        super().__init__(special, added_tokens, packing)
        self._check_merges()

    def _check_merges(self) -> None:
        """Refuses merges that cannot be followed by their results alone.

        Merging by results, as the graph does, and by pairs agree on every text
        if each result has one pair and the letters of each token are merged to
        it: at the first difference, the text of a token would be divided into
        two others for good.
        """
        from tokenizers import models

        # The library panics at some of these.
        unknown = [
            token
            for pair in self.merges
            for token in (*pair, "".join(pair))
            if token not in self.ids
        ]
        unknown += set("".join(self.ranks)) - byte_letters().keys()
        if unknown:
            raise UserError(
                f"merges: {excerpt(unknown[0])} is no token of bytes in the "
                "vocabulary; take the files of one model."
            )
        model = models.BPE(dict(self.ids), list(self.merges))
        refused = (
            (token, "is not what its own letters are merged to")
            for token, raw in zip(self._tokens, self.raw, strict=True)
            if raw is not None and len(model.tokenize(token)) > 1
        )
        twice = (
            (first + second, "is merged from several pairs")
            for number, (first, second) in enumerate(self.merges)
            if self.ranks[first + second] != number
        )
        for token, fault in itertools.chain(twice, refused):
            raise UserError(
                f"merges: the token {excerpt(token)} {fault}, so this "
                "byte-level BPE cannot be computed in a graph; take another "
                "model."
            )

    @property
    def tokens(self) -> tuple[str, ...]:
        """The tokens, with letters for bytes."""
        return self._tokens

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

    @property
    def spelled(self) -> list[bytes]:
        """See `Subwords`."""
        return [
            token.encode() if raw is None else raw
            for token, raw in zip(self._tokens, self.raw, strict=True)
        ]

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
        is_bpe = model_type(folder) == "BPE"
        if not is_bpe and not all(path.is_file() for path in _paths(folder)):
            return None
        refuse_other_case(
            lower_case, False, folder, "byte-level BPE keeps case"
        )
        return cls._of(folder, is_bpe)

    @classmethod
    def _of(cls, folder: pathlib.Path, is_bpe: bool) -> Self:
        files = read_tokenizer_files(folder)
        fast, model = files.hugging_face, files.hugging_face.part("model")
        vocab_file, merges_file = _paths(folder)
        vocab = read_json_part(vocab_file)
        pairs: list[Any] = []
        if merges_file.is_file():
            pairs = _read_merges(merges_file)
        if is_bpe:
            _refuse_other_rules(fast)
            known = model.part("vocab")
            merged = [
                pair.split(" ") if isinstance(pair, str) else pair
                for pair in model.require("merges", list)
            ]
            for text, number in vocab.values.items():
                other = known.values.get(text, number)
                if number != other:
                    what = f"{vocab_file}: the id of {excerpt(text)}"
                    raise _differ(what, number, other, fast)
            both = itertools.zip_longest(pairs, merged) if pairs else ()
            for number, pair in enumerate(both):
                if pair[0] != pair[1]:
                    what = f"{merges_file}: merge {number}"
                    raise _differ(what, *pair, fast)
            vocab, pairs = known, merged
        for number, pair in enumerate(pairs):
            if not isinstance(pair, list) or [*map(type, pair)] != [str, str]:
                raise UserError(
                    f"{folder}: merge {number} is {excerpt(pair)}; it takes a "
                    "pair of pieces."
                )
        merges = [(first, second) for first, second in pairs]
        tokens = tokens_by_id(vocab)
        added: list[AddedToken] = []
        for token, number, place in added_entries(files):
            if tokens.setdefault(number, token.content) != token.content:
                raise UserError(
                    f"{place}: token {number} is {excerpt(token.content)}, "
                    f"but {excerpt(tokens[number])} in the vocabulary."
                )
            if all(token.content != known.content for known in added):
                added.append(token)
        if sorted(tokens) != list(range(len(tokens))):
            missing = min(set(range(len(tokens))) - tokens.keys())
            raise UserError(f"{folder}: no token has the id {missing}.")
        in_order = [tokens[number] for number in range(len(tokens))]
        numbers = {token: number for number, token in enumerate(in_order)}
        for number, name in enumerate(in_order):
            if numbers[name] != number:
                raise UserError(
                    f"{folder}: {excerpt(name)} has the ids {number} and "
                    f"{numbers[name]}."
                )
        special = find_special_tokens(folder, numbers, _NAMES)
        processor = fast.part("post_processor")
        splitter = fast.part("pre_tokenizer")
        prefix = splitter.flag("add_prefix_space") if is_bpe else None
        for part in (files.config, files.keras_hub):
            prefix = part.flag("add_prefix_space") if prefix is None else prefix
        trims = not is_bpe or processor.values.get("type") in (
            "RobertaProcessing",
            "ByteLevel",
        )
        normalizer = fast.part("normalizer").values.get("type")
        packing = packing_of_json(
            processor, numbers, numbers.get(special.pad or "", 0)
        )
        try:
            return cls(
                in_order,
                merges,
                special,
                added,
                normalizer == "NFC",
                bool(prefix),
                trims and processor.flag("trim_offsets") is not False,
                packing,
            )
        except UserError as error:
            file = fast.source if is_bpe else vocab_file.parent
            raise UserError(f"{file}: {error}") from None

    def rules(self) -> dict[str, Any]:
        """See `Subwords`."""
        return {
            "nfc": self.nfc,
            "add_prefix_space": self.add_prefix_space,
            "trim_offsets": self.trim_offsets,
        }

    def settings(self) -> dict[str, Any]:
        """See `TokenizerData`."""
        pairs = "\n".join(map(" ".join, self.merges))
        merges = hashlib.sha256(pairs.encode()).hexdigest()
        return {"merges": merges, **self.rules_json()}

    def to_dict(self) -> dict[str, Any]:
        """See `TokenizerData`."""
        return {
            "vocabulary": list(self._tokens),
            "special_tokens": list(self.special),
            "tokenizer": {
                "merges": [*map(list, self.merges)],
                **self.rules_json(),
            },
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """See `TokenizerData`."""
        rules = dict(values.pop("tokenizer"))
        merges = [(a, b) for a, b in rules.pop("merges")]
        return cls(
            values.pop("vocabulary"),
            merges,
            SpecialTokens(*values.pop("special_tokens")),
            **cls.rules_of_json(rules),
        )

    def worker(self) -> "ByteBpeWorker":
        """See `TokenizerData`."""
        return ByteBpeWorker(self)

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
        self.add_tokens(library, split_special_tokens)
        return library

    def save(
        self, folder: str | pathlib.Path, max_length: int | None = None
    ) -> None:
        """See `TokenizerData`."""
        folder = pathlib.Path(folder)
        super().save(folder, max_length)
        self.write_library(self.library_tokenizer(False), folder)

    def save_hugging_face(self, folder: pathlib.Path, max_length: int) -> None:
        """See `TokenizerData`."""
        self.save(folder, max_length)
        # For older versions of transformers.
        text = json.dumps(dict(self.ids), ensure_ascii=False)
        write_text(folder / VOCABULARY_FILE, text + "\n")
        lines = ["#version: 0.2", *map(" ".join, self.merges), ""]
        write_text(folder / MERGES_FILE, "\n".join(lines))

    def write_library(
        self, library: "tokenizers.Tokenizer", folder: pathlib.Path
    ) -> None:
        """See `Subwords`; with the processor that transformers writes."""
        from tokenizers import processors

        super().write_library(library, folder)
        special, packing = self.special, self.packing
        if packing.middle == packing.end * 2 and special.cls and special.sep:
            library.post_processor = processors.RobertaProcessing(
                (special.sep, self.sep_id),
                (special.cls, self.cls_id),
                trim_offsets=self.trim_offsets,
                add_prefix_space=self.add_prefix_space,
            )
            write_text(folder / TOKENIZER_FILE, library.to_str() + "\n")

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


class ByteBpeWorker(LibraryWorker):
    """Tokenizes large texts by the library tokenizers."""

    def __init__(self, data: ByteLevelBpe) -> None:
        super().__init__(data)
        self._library = data.library_tokenizer()

    def encode(self, sentences: list[str]) -> list[list[int]]:
        """See `LibraryWorker`."""
        found = self._library.encode_batch_fast(
            sentences, add_special_tokens=False
        )
        return [each.ids for each in found]


def _paths(folder: pathlib.Path) -> tuple[pathlib.Path, ...]:
    """The files of a folder without tokenizer.json; they may not exist."""
    pairs = [tuple(folder / name for name in names) for names in _FILES]
    return next((p for p in pairs if all(f.is_file() for f in p)), pairs[0])


def _read_merges(path: pathlib.Path) -> list[list[str]]:
    try:
        lines = read_text(path).split("\n")
    except UnicodeDecodeError:
        raise UserError(f"{path}: is not UTF-8.") from None
    return [
        line.split(" ")
        for line in lines
        if line and not line.startswith("#version")
    ]


def _differ(what: str, one: Any, other: Any, fast: JsonPart) -> UserError:
    return UserError(
        f"{what} is {excerpt(one)}, but {excerpt(other)} in {fast.source}; "
        "the two belong to different models."
    )


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
                f"{part.source}: {key} is {excerpt(value)}, which byte-level "
                "BPE does not support; it takes "
                f"{' or '.join(map(repr, allowed))}."
            )
