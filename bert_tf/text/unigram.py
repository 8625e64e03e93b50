"""SentencePiece's unigram model as data: the tokenizer of XLM-R and ALBERT.

Text is normalised by the model's own table and split into its most probable
sequence of pieces (Kudo 2018, "Subword regularization", section 3.1). A piece
at the start of a word begins with U+2581, which stands for the blank before it.
"""

import base64
import dataclasses
import functools
import hashlib
import pathlib
import re
import unicodedata
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import numpy as np
from google.protobuf.message import DecodeError
from sentencepiece import SentencePieceProcessor
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from bert_tf.errors import UserError, excerpt, one_line
from bert_tf.files import written_beside
from bert_tf.foreign_files import read_bytes
from bert_tf.text import unicode_tables
from bert_tf.text.subwords import (
    LibraryWorker,
    Subwords,
    find_special_tokens,
    packing_of_json,
)
from bert_tf.text.token_table import Packing, SpecialTokens
from bert_tf.text.tokenizer_files import (
    KERAS_HUB_ASSETS,
    AddedToken,
    JsonPart,
    OtherRules,
    added_entries,
    model_type,
    read_tokenizer_files,
    refuse_other_case,
)

if TYPE_CHECKING:
    import tokenizers
    from tokenizers import normalizers


MODEL_FILE, FAIRSEQ_FILE = "spiece.model", "sentencepiece.bpe.model"
# In google-research/albert's folders.
GOOGLE_FILE = "30k-clean.model"
# Of KerasHub: in the order of the ids for ALBERT, and as fairseq's for XLM-R.
_HUB_FILE = f"{KERAS_HUB_ASSETS}/vocabulary.spm"
WORD_START = "\u2581"
# The class of transformers that preprocesses text.
_ALBERT = "AlbertTokenizer"
# That of other models, whose architecture may be a BERT.
_XLM_ROBERTA = "XLMRobertaTokenizer"
# Types of pieces and of models (sentencepiece_model.proto).
_NORMAL, _UNKNOWN, _CONTROL, _BYTE, _UNIGRAM = 1, 2, 3, 6, 1
_CAPITAL_SIGMA = chr(unicode_tables.CAPITAL_SIGMA)
# Lower than the score of any other way to spell a text.
_UNUSED_SCORE = -100.0
# The models' normalisers split at blanks anyway.
_SPLIT = "WhitespaceSplit"


class Unigram(Subwords):
    """The pieces, scores and rules of a unigram model; a `TokenizerData`.

    Attributes:
      model: a serialized ModelProto whose pieces are in the order of the ids.
    """

    title: ClassVar[str] = "SentencePiece unigram"
    FILES: ClassVar[tuple[str, ...]] = (MODEL_FILE,)
    GRAPH: ClassVar[str] = "bert_tf.text.unigram_graph.UnigramTokenizer"
    # The steps of a normaliser in a tokenizer.json, and what they may replace:
    # regular expressions. Blanks are joined.
    STEPS: ClassVar[str] = "Precompiled|NFC|Replace|Strip"
    REPLACED: ClassVar[str] = (
        r"[\[\]{}()+^$|,\d \u2581]*|"
        f"(?s:.*[{unicode_tables.WALL}{unicode_tables.GAP}].*)"
    )
    # The special tokens if no file names them.
    NAMES: ClassVar[tuple[tuple[str, ...], ...]] = (
        ("<pad>",),
        ("<unk>",),
        ("<s>", "[CLS]"),
        ("</s>", "[SEP]"),
        ("<mask>", "[MASK]"),
    )

    def __init__(
        self,
        model: bytes,
        special: SpecialTokens,
        added_tokens: Sequence[AddedToken] = (),
        packing: Packing | None = None,
    ) -> None:
        """Keeps the parts; `packing` None means RoBERTa's rows."""
        self.model = model
        super().__init__(special, added_tokens, packing)

    @functools.cached_property
    def proto(self) -> ModelProto:
        """The parsed model."""
        return ModelProto.FromString(self.model)

    @functools.cached_property
    def tokens(self) -> tuple[str, ...]:
        """The pieces."""
        return tuple(piece.piece for piece in self.proto.pieces)

    @functools.cached_property
    def starts_word(self) -> np.ndarray:
        """Pieces that begin with a blank, and pieces that spell no text."""
        return np.array(
            [
                piece.type in (_UNKNOWN, _CONTROL)
                or piece.piece.startswith(WORD_START)
                for piece in self.proto.pieces
            ]
        )

    @property
    def spelled(self) -> list[bytes]:
        """See `Subwords`."""
        return [
            token.replace(WORD_START, " ").encode() for token in self.tokens
        ]

    @functools.cached_property
    def texts(self) -> tuple[str, ...]:
        """What the pieces spell, without the blank before them."""
        return tuple(
            token.removeprefix(WORD_START).replace(WORD_START, " ")
            for token in self.tokens
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
        del notify
        folder = pathlib.Path(folder)
        files = read_tokenizer_files(folder)
        fast = files.hugging_face
        is_albert = files.class_name.startswith(_ALBERT)
        fairseq = {FAIRSEQ_FILE} if is_albert else {FAIRSEQ_FILE, _HUB_FILE}
        name = _model_file(folder)
        if name is not None:
            path = folder / name
            model = read_model(path)
            if name in fairseq:
                model = in_order_of_fairseq(model)
            _check_pieces(model, fast.part("model"), path)
        elif fast.part("model").values.get("type") == "Unigram":
            path = pathlib.Path(fast.source)
            model = _model_of_library(fast)
            (AlbertUnigram if is_albert else cls).refuse_other_steps(fast)
        else:
            return None
        known = {piece.piece: n for n, piece in enumerate(model.pieces)}
        added: list[AddedToken] = []
        for token, number, place in added_entries(files):
            if number == len(known):
                known[token.content] = number
                _add_piece(model, token.content)
            if known.get(token.content) != number:
                raise UserError(
                    f"{place}: the id of {excerpt(token.content)} is {number}, "
                    f"but {known.get(token.content)} in {path}."
                )
            if all(token.content != other.content for other in added):
                added.append(token)
        _check_model(model, known.keys(), path)
        if rows is not None and len(known) > rows:
            raise UserError(
                f"{path}: has {len(known)} pieces, but vocab_size is {rows}; "
                "take the file that the model was trained with."
            )
        special = find_special_tokens(folder, known, cls.NAMES)
        kind: type[Unigram] = cls
        if is_albert and not issubclass(cls, AlbertUnigram):
            kind = AlbertUnigram
        processor = fast.part("post_processor")
        packing = packing_of_json(processor, known, known.get(special.pad, 0))
        serialized = model.SerializeToString()
        steps = {
            str(step.values.get("type"))
            for step in _steps(fast.part("normalizer"))
        }
        rules = kind.file_rules(files.config, steps, lower_case)
        found = kind(serialized, special, added, packing, **rules)
        return cast(Self, found)

    @staticmethod
    def found_in(folder: pathlib.Path) -> bool:
        """Whether a folder has the files of a unigram model."""
        is_unigram = model_type(folder) == "Unigram"
        return is_unigram or _model_file(folder) is not None

    @classmethod
    def refuse_other_steps(cls, fast: JsonPart) -> None:
        """Raises `UserError` for steps of a tokenizer.json that we have not."""
        normalizer, splitter = (
            fast.part("normalizer"),
            fast.part("pre_tokenizer"),
        )
        normal = [step.values for step in _steps(normalizer)]
        splits = [step.values for step in _steps(splitter)]
        splits = [step for step in splits if step.get("type") != _SPLIT]
        replaced = [
            next(iter(step.part("pattern").values.values()), None)
            for step in _steps(normalizer)
            if step.values.get("type") == "Replace"
        ]
        for part, key, values, allowed in (
            (normalizer, "type", [s.get("type") for s in normal], cls.STEPS),
            (normalizer, "pattern", replaced, cls.REPLACED),
            (splitter, "type", [s.get("type") for s in splits], "Metaspace"),
            (
                splitter,
                "prepend_scheme",
                [s.get("prepend_scheme", "always") for s in splits],
                "always|first",
            ),
        ):
            for value in values:
                if not re.fullmatch(allowed, str(value)):
                    raise OtherRules(
                        f"{part.source}: {key} is {excerpt(value)}, which the "
                        "unigram tokenizer does not support; it takes "
                        f"{'blanks' if key == 'pattern' else allowed}."
                    )

    @classmethod
    def file_rules(
        cls, config: JsonPart, steps: AbstractSet[Any], lower_case: bool | None
    ) -> dict[str, Any]:
        """The `rules` that the files state.

        `steps` are the types of the normaliser's steps in a tokenizer.json.
        """
        del steps
        fact = "this unigram model keeps case"
        refuse_other_case(lower_case, False, config.source, fact)
        return {}

    def rules(self) -> dict[str, Any]:
        """See `Subwords`."""
        return {}

    def settings(self) -> dict[str, Any]:
        """See `TokenizerData`."""
        digest = hashlib.sha256(self.model).hexdigest()
        return {"unigram_model": digest, **self.rules_json()}

    def to_dict(self) -> dict[str, Any]:
        """See `TokenizerData`."""
        return {
            "special_tokens": list(self.special),
            "tokenizer": {
                "model": base64.b64encode(self.model).decode(),
                **self.rules_json(),
            },
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """See `TokenizerData`."""
        rules = dict(values.pop("tokenizer"))
        model = base64.b64decode(rules.pop("model"))
        special = SpecialTokens(*values.pop("special_tokens"))
        return cls(model, special, **cls.rules_of_json(rules))

    def worker(self) -> "UnigramWorker":
        """See `TokenizerData`."""
        return UnigramWorker(self)

    def replacements(self) -> Mapping[int, str]:
        """What replaces code points before the model's own normaliser."""
        return {}

    def case_forms(self) -> Mapping[int, str] | None:
        """`replacements` without lower-casing; None if there is none."""
        return None

    def scored_model(self) -> bytes:
        """The model with the scores that decide the ids."""
        return self.model

    def library_tokenizer(
        self, split_special_tokens: bool = True
    ) -> "tokenizers.Tokenizer":
        """See `Subwords`; special tokens and ties may differ."""
        import tokenizers
        from tokenizers import decoders, models, normalizers, pre_tokenizers

        from bert_tf.text.unigram_json import table_steps

        proto = ModelProto.FromString(self.scored_model())
        # The library has no pieces that text cannot spell.
        lowest = min(piece.score for piece in proto.pieces) - 1000
        unspelled = {
            number
            for number, piece in enumerate(proto.pieces)
            if piece.type in (_UNKNOWN, _CONTROL)
        }
        pairs = [
            (piece.piece, lowest if number in unspelled else piece.score)
            for number, piece in enumerate(proto.pieces)
        ]
        (unk_id,) = (
            number
            for number, piece in enumerate(proto.pieces)
            if piece.type == _UNKNOWN
        )
        made = tokenizers.Tokenizer(
            models.Unigram(pairs, unk_id=unk_id, byte_fallback=False)
        )
        steps = self._library_steps()
        if proto.normalizer_spec.precompiled_charsmap:
            steps += table_steps(proto, _table_alone(proto))
        blanks = tokenizers.Regex("^[ \u2581]+|[ \u2581]+$")
        steps.append(normalizers.Replace(blanks, ""))
        steps.append(normalizers.Replace(tokenizers.Regex("[ \u2581]+"), " "))
        made.normalizer = normalizers.Sequence(steps)
        made.pre_tokenizer = pre_tokenizers.Metaspace(WORD_START)
        made.decoder = decoders.Metaspace(WORD_START)
        self.add_tokens(made, split_special_tokens)
        return made

    def _library_steps(self) -> "list[normalizers.Normalizer]":
        """`replacements` as steps of the tokenizers library."""
        return []

    def save(
        self, folder: str | pathlib.Path, max_length: int | None = None
    ) -> None:
        """See `TokenizerData`."""
        folder = pathlib.Path(folder)
        with written_beside(folder / MODEL_FILE) as path:
            path.write_bytes(self.model)
        super().save(folder, max_length)

    def config_values(self) -> dict[str, Any]:
        """See `Subwords`."""
        decoder = {
            str(self.ids[token.content]): dict(vars(token))
            for token in self.added_tokens
            if token.content not in self.special
        }
        values: dict[str, Any] = {"tokenizer_class": _XLM_ROBERTA}
        if decoder:
            values["added_tokens_decoder"] = decoder
        return super().config_values() | values | self.rules()

    def save_hugging_face(self, folder: pathlib.Path, max_length: int) -> None:
        """See `TokenizerData`."""
        self.save(folder, max_length)
        self.write_library(self.library_tokenizer(False), folder)

    def pieces_of(self, tokens: Sequence[str]) -> list[Sequence[int]]:
        """See `TokenizerData`."""
        library = SentencePieceProcessor(model_proto=self.scored_model())
        found: list[Sequence[int]] = []
        for token in tokens:
            if token in self.ids:
                found.append([self.ids[token]])
                continue
            ids = library.encode(token.replace(WORD_START, " "))
            if not token.startswith(WORD_START):
                # The blank that is added before every text.
                first = self.tokens[ids[0]] if ids else ""
                bare = first.removeprefix(WORD_START)
                rest = [self.ids[bare]] if bare in self.ids else []
                ids = rest + ids[1:]
            found.append(ids)
        return found


class AlbertUnigram(Unigram):
    """ALBERT's tokenizer: its own preprocessing and BERT's rows.

    Text is decomposed (NFKD), loses its combining marks unless they are kept,
    and is lower-cased (google-research/albert, tokenization.py,
    `preprocess_text`). A comma behind a digit is a token of its own
    (`encode_pieces`): pieces that end in both are not used.

    Attributes:
      do_lower_case: whether text is lower-cased.
      keep_accents: whether combining marks stay.
    """

    STEPS = f"{Unigram.STEPS}|NFKD|StripAccents|Lowercase"
    # Quotes by transformers, and by us what is said in `_library_steps`.
    REPLACED = r"(?s:.*)"

    def __init__(
        self,
        model: bytes,
        special: SpecialTokens,
        added_tokens: Sequence[AddedToken] = (),
        packing: Packing | None = None,
        do_lower_case: bool = True,
        keep_accents: bool = False,
    ) -> None:
        """Keeps the parts; `packing` None means BERT's rows."""
        super().__init__(model, special, added_tokens, packing)
        self.do_lower_case, self.keep_accents = do_lower_case, keep_accents
        if packing is None:
            usual = self._packing
            self._packing = dataclasses.replace(
                usual, middle=usual.end, second_segment=1
            )

    @functools.cached_property
    def starts_word(self) -> np.ndarray:
        """Pieces that begin a word (google-research/albert, `_is_start_piece`).

        Those that begin with a blank or "<", single punctuation marks, and
        those with a character that is neither a Latin letter nor such a mark.
        """
        marks = set('!"#$%&"()*+,-./:;?@[\\]^_`{|}~\u20ac\u00a3')
        letters = set("abcdefghijklmnopqrstuvwxyz") | marks

        def begins(piece: str) -> bool:
            return (
                piece.startswith((WORD_START, "<"))
                or piece in marks
                or not set(piece.lower()) <= letters
            )

        return np.array([begins(token) for token in self.tokens])

    @classmethod
    def file_rules(
        cls, config: JsonPart, steps: AbstractSet[Any], lower_case: bool | None
    ) -> dict[str, Any]:
        """See `Unigram`."""
        stored, keeps = (
            config.flag("do_lower_case"),
            config.flag("keep_accents"),
        )
        if stored is None and steps:
            stored = "Lowercase" in steps
        if keeps is None and steps:
            keeps = "StripAccents" not in steps
        fact = f"do_lower_case is {stored}"
        refuse_other_case(lower_case, stored, config.source, fact)
        if lower_case is None:
            lower_case = stored is not False
        return {
            "do_lower_case": lower_case,
            "keep_accents": bool(keeps),
        }

    def rules(self) -> dict[str, Any]:
        """See `Subwords`."""
        return {
            "do_lower_case": self.do_lower_case,
            "keep_accents": self.keep_accents,
        }

    @property
    def lower_case(self) -> bool:
        """Whether text is lower-cased."""
        return self.do_lower_case

    def config_values(self) -> dict[str, Any]:
        """See `Subwords`."""
        return {**super().config_values(), "tokenizer_class": _ALBERT}

    def replacements(self) -> Mapping[int, str]:
        """See `Unigram.replacements`; from Python's Unicode tables."""
        return decomposed(self.do_lower_case, self.keep_accents)

    def case_forms(self) -> Mapping[int, str] | None:
        """See `Unigram.case_forms`."""
        if not self.do_lower_case:
            return None
        return decomposed(False, self.keep_accents)

    def _library_steps(self) -> "list[normalizers.Normalizer]":
        from tokenizers import Regex, normalizers

        from bert_tf.text.wordpiece_json import corrections, final_sigma

        mapping = self.replacements()
        library: list[normalizers.Normalizer] = [normalizers.NFKD()]
        if not self.keep_accents:
            marks = [
                code
                for code in unicode_tables.assigned()
                if unicodedata.combining(chr(code))
            ]
            found = unicode_tables.character_class(unicode_tables.ranges(marks))
            library.append(normalizers.Replace(Regex(found), ""))
        steps: list[normalizers.Normalizer] = []
        forms = self.case_forms()
        if forms is not None:
            steps.append(final_sigma(forms))
            library.append(normalizers.Lowercase())
        return [*steps, *corrections(library, mapping), *library]

    def scored_model(self) -> bytes:
        """The model without its pieces of a digit and a comma."""
        proto = ModelProto.FromString(self.model)
        for piece in proto.pieces:
            text = piece.piece
            if len(text) > 1 and text[-1] == "," and text[-2].isdigit():
                piece.score = _UNUSED_SCORE
        return proto.SerializeToString()


@functools.cache
def decomposed(lower_case: bool, keep_accents: bool) -> Mapping[int, str]:
    """What each code point becomes that ALBERT's preprocessing changes."""
    found = dict.fromkeys(unicode_tables.spaces(), " ")
    for code in sorted(unicode_tables.assigned() - found.keys()):
        char = chr(code)
        text = unicodedata.normalize("NFKD", char)
        if not keep_accents:
            text = "".join(c for c in text if not unicodedata.combining(c))
        text = text.lower() if lower_case else text
        if text != char:
            found[code] = text
    return found


def _model_file(folder: pathlib.Path) -> str | None:
    """The name of the SentencePiece file of a folder."""
    names = (MODEL_FILE, FAIRSEQ_FILE, GOOGLE_FILE, _HUB_FILE)
    return next((n for n in names if (folder / n).is_file()), None)


class UnigramWorker(LibraryWorker):
    """Tokenizes large texts by the sentencepiece library.

    If two ways to split a text have equal scores up to rounding, the library
    may choose another one than TensorFlow Text's operation.
    """

    def __init__(self, data: Unigram) -> None:
        super().__init__(data)
        self._library = SentencePieceProcessor(model_proto=data.scored_model())
        self._replacements = dict(data.replacements())
        forms, sigmas = data.case_forms(), set[int]()
        if forms is not None:
            sigmas = unicode_tables.sigma_classes(forms).sigmas
        self._forms, self._sigmas = dict(forms or {}), set(map(chr, sigmas))

    def encode(self, sentences: list[str]) -> list[list[int]]:
        """See `LibraryWorker`."""
        sentences = [
            text
            if self._sigmas.isdisjoint(text)
            else _with_final_sigmas(text.translate(self._forms))
            for text in sentences
        ]
        if self._replacements:
            sentences = [s.translate(self._replacements) for s in sentences]
        ids: list[list[int]] = self._library.encode(sentences)
        return ids


def _with_final_sigmas(text: str) -> str:
    """Replaces the capital sigmas that `str.lower` makes final."""
    # Decomposed letters stay one when they are lower-cased.
    return "".join(
        low if char == _CAPITAL_SIGMA else char
        for char, low in zip(text, text.lower(), strict=True)
    )


def read_model(path: pathlib.Path) -> ModelProto:
    """Parses a SentencePiece file.

    Raises:
      UserError: the file is damaged, or not a unigram model that the graph can
        compute.
    """
    try:
        model = ModelProto.FromString(read_bytes(path))
    except DecodeError:
        model = ModelProto()
    if not model.pieces:
        raise UserError(
            f"{path}: no SentencePiece model; put the file that the model was "
            "trained with into the folder."
        )
    trainer = model.trainer_spec
    for field, value, allowed in (
        ("model_type", trainer.model_type, _UNIGRAM),
        ("byte_fallback", trainer.byte_fallback, False),
        (
            "treat_whitespace_as_suffix",
            trainer.treat_whitespace_as_suffix,
            False,
        ),
    ):
        if value != allowed:
            raise OtherRules(
                f"{path}: {field} is {value}, which the unigram tokenizer "
                f"does not support; it takes {allowed}."
            )
    return model


def _add_piece(
    model: ModelProto, text: str, kind: int = _CONTROL, score: float = 0.0
) -> None:
    piece = model.pieces.add()
    piece.piece, piece.type, piece.score = text, kind, score


def in_order_of_fairseq(model: ModelProto) -> ModelProto:
    """A model whose pieces have the ids of fairseq's XLM-R.

    <s> 0, <pad> 1, </s> 2, <unk> 3, the other pieces behind them in their
    order, and <mask> last.
    """
    ordered = ModelProto()
    ordered.CopyFrom(model)
    del ordered.pieces[:]
    for text in ("<s>", "<pad>", "</s>"):
        _add_piece(ordered, text)
    _add_piece(ordered, "<unk>", _UNKNOWN)
    ordered.pieces.extend(
        piece
        for piece in model.pieces
        if piece.type not in (_UNKNOWN, _CONTROL)
    )
    _add_piece(ordered, "<mask>")
    spec = ordered.trainer_spec
    spec.bos_id, spec.pad_id, spec.eos_id, spec.unk_id = 0, 1, 2, 3
    return ordered


def _check_pieces(
    model: ModelProto, library: JsonPart, path: pathlib.Path
) -> None:
    """Raises `UserError` if a tokenizer.json has other pieces."""
    if library.values.get("type") != "Unigram":
        return
    both = zip(model.pieces, library.require("vocab", list), strict=False)
    for number, (piece, entry) in enumerate(both):
        theirs = entry[0] if isinstance(entry, list) and entry else entry
        if piece.piece != theirs:
            raise UserError(
                f"{path}: token {number} is {excerpt(piece.piece)}, but "
                f"{excerpt(theirs)} in {library.source}; the two belong to "
                "different models."
            )


def _model_of_library(fast: JsonPart) -> ModelProto:
    """The model of a tokenizer.json, with its normaliser's table."""
    library, model, number = fast.part("model"), ModelProto(), -1
    unk = library.get("unk_id", int)
    special = {
        entry.require("content", str)
        for entry in fast.parts("added_tokens")
        if entry.flag("special")
    }
    try:
        for number, (text, score) in enumerate(library.require("vocab", list)):
            kind = _CONTROL if text in special else _NORMAL
            _add_piece(model, text, _UNKNOWN if number == unk else kind, score)
        model.trainer_spec.unk_id = -1 if unk is None else unk
    # Of texts, numbers and lists where the format has another type.
    except (TypeError, ValueError, OverflowError) as error:
        raise UserError(
            f"{library.source}: entry {number} of vocab is no pair of a piece "
            f"and a score, or unk_id is no id of one ({one_line(error)})."
        ) from None
    if library.flag("byte_fallback"):
        raise OtherRules(
            f"{fast.source}: byte_fallback is true, which the unigram "
            "tokenizer does not support; it takes false."
        )
    spec = model.normalizer_spec
    spec.add_dummy_prefix = spec.remove_extra_whitespaces = True
    spec.escape_whitespaces = True
    spec.precompiled_charsmap = _charsmap(fast.part("normalizer"))
    trainer = model.trainer_spec
    trainer.model_type = _UNIGRAM
    trainer.bos_id = trainer.eos_id = trainer.pad_id = -1
    return model


def _check_model(
    model: ModelProto, texts: AbstractSet[str], source: object
) -> None:
    """Raises `UserError` for a model that the operation cannot load.

    `texts` are its different pieces.
    """
    if bytes in map(type, texts):
        raise UserError(f"{source}: holds a piece that is not UTF-8.")
    kinds = [piece.type for piece in model.pieces]
    scores = [piece.score for piece in model.pieces]
    unknown = kinds.count(_UNKNOWN)
    for is_there, fault in (
        ("" in texts or "\0" in "".join(texts), "an empty piece or U+0000"),
        (len(texts) < len(kinds), "a piece twice"),
        (_BYTE in kinds, "pieces of bytes"),
        (_NORMAL not in kinds, "no pieces of text"),
        (unknown != 1, f"{unknown} pieces for unknown text instead of one"),
        (not np.isfinite(scores).all(), "scores that are not finite"),
    ):
        if is_there:
            raise UserError(f"{source}: holds {fault}; restore the file.")
    table = model.normalizer_spec.precompiled_charsmap
    size = int.from_bytes(table[:4], "little")
    try:
        table[4 + size :].decode()
        _table_alone(model)
    except (RuntimeError, UnicodeDecodeError) as error:
        raise UserError(
            f"{source}: damaged normalizer ({one_line(error)}); restore the "
            "file."
        ) from None


def _table_alone(model: ModelProto) -> SentencePieceProcessor:
    """A model with only the normaliser's table; with its pieces it is slow."""
    probe = ModelProto(normalizer_spec=model.normalizer_spec)
    _add_piece(probe, "<unk>", _UNKNOWN)
    _add_piece(probe, WORD_START, _NORMAL)
    spec = probe.normalizer_spec
    spec.add_dummy_prefix = spec.remove_extra_whitespaces = False
    spec.escape_whitespaces = False
    return SentencePieceProcessor(model_proto=probe.SerializeToString())


def _steps(part: JsonPart) -> list[JsonPart]:
    """The steps of a normaliser or pre-tokenizer; empty without one."""
    for key in ("normalizers", "pretokenizers"):
        if key in part.values:
            return part.parts(key)
    return [part] if part.values else []


def _charsmap(normalizer: JsonPart) -> bytes:
    """The table of the Precompiled normaliser; empty where there is none."""
    for step in _steps(normalizer):
        if step.values.get("type") == "Precompiled":
            table = step.require("precompiled_charsmap", str)
            try:
                return base64.b64decode(table)
            except ValueError as error:
                raise UserError(
                    f"{step.source}: precompiled_charsmap is no base64 "
                    f"({one_line(error)})."
                ) from None
    return b""
