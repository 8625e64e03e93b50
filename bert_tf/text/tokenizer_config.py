"""The rules by which a model folder's text is split into words."""

import dataclasses
import json
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, Self

from bert_tf.files import write_text
from bert_tf.progress import log_once
from bert_tf.sources import read_transformer_settings
from bert_tf.text import unicode_tables
from bert_tf.text.token_table import SPECIAL_TOKENS, SpecialTokens
from bert_tf.text.tokenizer_files import (
    BERT_CLASSES,
    TOKENIZER_CONFIG_FILE,
    AddedToken,
    JsonPart,
    OtherRules,
    TokenizerFiles,
    added_tokens,
    lower_case_of_saved_model,
    pair_template,
    read_tokenizer_files,
)
from bert_tf.text.vocabulary import CONTINUATION, Vocabulary

# Classes of Hugging Face with rules in tokenizer_config.json, and classes with
# rules in tokenizer.json.
_BERT_CLASSES = tuple(
    name + kind for name in BERT_CLASSES for kind in ("", "Fast")
)
_GENERIC_CLASSES = (
    "PreTrainedTokenizer",
    "PreTrainedTokenizerFast",
    "TokenizersBackend",
)
_LOWER_CASE = "Lowercase"
# The longest words, in characters, of transformers and of Google's code.
_MAX_WORD_CHARACTERS = (100, 200)
# google-research/bert, tokenization.py, validate_case_matches_checkpoint:
# these two lower-case; the other names contain "cased" or "uncased".
_GOOGLE_LOWER = re.compile(r"(multilingual|chinese)_L-")


@dataclasses.dataclass(frozen=True)
class TokenizerConfig:
    """The rules of BERT's tokenization, with Hugging Face's argument names.

    Attributes:
      lower_case: whether text is lower-cased.
      strip_accents: whether accents are stripped.
      tokenize_chinese_chars: whether every ideograph is a separate word.
      added_tokens: tokens that are recognized before text is split.
    """

    lower_case: bool
    strip_accents: bool
    tokenize_chinese_chars: bool
    added_tokens: tuple[AddedToken, ...] = ()

    @classmethod
    def of(
        cls,
        lower_case: bool = True,
        strip_accents: bool | None = None,
        tokenize_chinese_chars: bool = True,
        added_tokens: Sequence[AddedToken] = (),
    ) -> Self:
        """Builds the rules; `strip_accents` None means `lower_case`."""
        if strip_accents is None:
            strip_accents = lower_case
        return cls(
            lower_case,
            strip_accents,
            tokenize_chinese_chars,
            tuple(added_tokens),
        )

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The inverse of `dataclasses.asdict`."""
        added = tuple(AddedToken(**token) for token in values["added_tokens"])
        return cls(**{**values, "added_tokens": added})

    def to_dict(self, vocabulary: Vocabulary) -> dict[str, Any]:
        """The values of tokenizer_config.json by Hugging Face's keys."""
        as_lower_case = self.strip_accents == self.lower_case
        values: dict[str, Any] = {
            "do_lower_case": self.lower_case,
            "strip_accents": None if as_lower_case else self.strip_accents,
            "tokenize_chinese_chars": self.tokenize_chinese_chars,
        }
        if self.added_tokens:
            values["added_tokens_decoder"] = {
                str(vocabulary.ids[token.content]): dataclasses.asdict(token)
                for token in self.added_tokens
            }
        return values


def read_tokenizer_config(
    folder: str | pathlib.Path,
    vocabulary: Vocabulary | None,
    lower_case: bool | None = None,
) -> TokenizerConfig:
    """Reads the rules by which a model folder's text is split.

    Lower-casing is decided by the first of these: `lower_case`; do_lower_case
    in tokenizer_config.json; the normalizer in Hugging Face's tokenizer.json;
    lowercase in KerasHub's; a SavedModel of TensorFlow Hub; the name of the
    folder, as in Google's releases; whether the vocabulary has upper-case
    letters. strip_accents and tokenize_chinese_chars are read from the two
    files of Hugging Face. Its generic classes ignore tokenizer_config.json for
    these, so for them the normalizer comes first. do_lower_case of
    sentence-transformers (sentence_bert_config.json) and a Lowercase before
    the normalizer lower-case without stripping accents.

    Args:
      folder: the model folder.
      vocabulary: its vocabulary; may be None if `lower_case` is given.
      lower_case: overrides the files.

    Raises:
      UserError: a file is no JSON object, a value has the wrong type, or the
        files state rules that BertTokenizer does not support.
    """
    files = read_tokenizer_files(folder)
    generic = files.config.values.get("tokenizer_class") in _GENERIC_CLASSES
    _refuse_other_rules(files, generic)
    config, normalizer = files.config, _normalizer(files.hugging_face)
    path, values = read_transformer_settings(pathlib.Path(folder))
    lowers_first = JsonPart(str(path), values).flag("do_lower_case")
    if generic and _LOWER_CASE in _kinds(files.hugging_face):
        lowers_first = True
    evidence = [
        (config, "do_lower_case"),
        (normalizer, "lowercase"),
        (files.keras_hub, "lowercase"),
    ]
    accents = [(config, "strip_accents"), (normalizer, "strip_accents")]
    ideographs = [
        (config, "tokenize_chinese_chars"),
        (normalizer, "handle_chinese_chars"),
    ]
    if generic and normalizer.values:
        for places in (evidence, accents, ideographs):
            places[:2] = places[1::-1]
    answers = [
        lower_case,
        *(part.flag(key) for part, key in evidence),
        lower_case_of_saved_model(pathlib.Path(folder)),
        _lower_case_of_name(pathlib.Path(folder)),
        vocabulary is None or not vocabulary.looks_cased(),
    ]
    # null means the same as lower-casing.
    strip_accents = next(
        (part.flag(key) for part, key in accents if key in part.values), None
    )
    splits = [part.flag(key) for part, key in ideographs]
    lowers = next(answer for answer in answers if answer is not None)
    if strip_accents is None:
        strip_accents = lowers
    named = str(config.values.get("tokenizer_class")).removesuffix("Fast")
    if answers[:2] == [None, None] and not lowers and named in BERT_CLASSES:
        log_once(
            f"{config.source}: does not state do_lower_case, so case is kept, "
            f"but {named} of transformers lower-cases by default. Write "
            "do_lower_case into that file."
        )
    return TokenizerConfig.of(
        # Lower-casing before the tokenizer strips no accents.
        lowers or (lower_case is None and bool(lowers_first)),
        strip_accents,
        next((answer for answer in splits if answer is not None), True),
        [
            token
            for token in added_tokens(files)
            if vocabulary is None or token.content in vocabulary.ids
        ],
    )


def _refuse_other_rules(files: TokenizerFiles, generic: bool) -> None:
    """Raises `UserError` for rules that BertTokenizer does not support.

    Args:
      files: the files of the tokenizer.
      generic: whether the class only has the rules of tokenizer.json.
    """
    config, hub, fast = files.config, files.keras_hub, files.hugging_face
    config.expect("tokenizer_class", *_BERT_CLASSES, *_GENERIC_CLASSES)
    config.expect("do_basic_tokenize", True)
    config.expect("never_split", [])
    model = fast.part("model")
    model.expect("type", "WordPiece")
    model.expect("unk_token", files.special.unk)
    model.expect("continuing_subword_prefix", CONTINUATION)
    model.expect("max_input_chars_per_word", *_MAX_WORD_CHARACTERS)
    for key, kind in (
        ("normalizer", "BertNormalizer"),
        ("pre_tokenizer", "BertPreTokenizer"),
    ):
        if generic and key in fast.values and fast.values[key] is None:
            raise fast.refuse(key, kind)
    if not _is_of_an_export(files):
        normalizer = _normalizer(fast)
        normalizer.expect("type", "BertNormalizer")
        normalizer.expect("clean_text", True)
        fast.part("pre_tokenizer").expect("type", "BertPreTokenizer")
    _refuse_other_rows(fast.part("post_processor"), files.special)
    hub.expect("split", True)
    hub.expect("suffix_indicator", CONTINUATION)
    hub.expect("oov_token", files.special.unk)
    hub.expect("special_tokens_in_strings", False)
    # KerasHub's strip_accents is ignored. It is false by default, also in
    # presets of Google's models, whose vocabularies have no accents: applied,
    # it would turn every word with an accent into [UNK].


def _normalizer(fast: JsonPart) -> JsonPart:
    """The BertNormalizer of tokenizer.json, also after a Lowercase.

    sentence-transformers adds the Lowercase if do_lower_case is true.
    """
    if _kinds(fast) != [_LOWER_CASE, "BertNormalizer"]:
        return fast.part("normalizer")
    part = fast.part("normalizer")
    return JsonPart(part.source, part.values["normalizers"][-1])


def _kinds(fast: JsonPart) -> list[Any]:
    """The types of a sequence of normalizers; empty if there is none."""
    steps = fast.part("normalizer").values.get("normalizers")
    if not isinstance(steps, list):
        return []
    return [
        step.get("type") if isinstance(step, dict) else "" for step in steps
    ]


def _is_of_an_export(files: TokenizerFiles) -> bool:
    """Whether `runtimes` wrote tokenizer.json.

    Its steps implement the rules in the tokenizer_config.json next to it.
    """
    steps = files.hugging_face.part("normalizer").values.get("normalizers")
    stated = files.config.flag("do_lower_case") is not None
    if not stated or not isinstance(steps, list):
        return False
    dropped = unicode_tables.ranges(unicode_tables.dropped())
    first = {
        "type": "Replace",
        "pattern": {"Regex": unicode_tables.character_class(dropped)},
        "content": "",
    }
    return steps[:1] == [first]


def _refuse_other_rows(processor: JsonPart, special: SpecialTokens) -> None:
    """Raises `UserError` unless rows are those of a BERT."""
    processor.expect("type", "BertProcessing", "TemplateProcessing")
    is_template = processor.values.get("type") == "TemplateProcessing"
    if not is_template or special.cls is None:
        return
    expected = [special.cls, "A", special.sep, "B", special.sep]
    pieces = pair_template(processor)
    row = [token for piece in pieces for token in piece.tokens or piece.text]
    shown = " ".join(" ".join(row).split())
    if row and row != expected:
        raise OtherRules(
            f"{processor.source}: pair is {shown[:200]}, which "
            "BertTokenizer does not support; it takes "
            f"{' '.join(map(str, expected))}."
        )


def _lower_case_of_name(folder: pathlib.Path) -> bool | None:
    """Whether the name of a folder indicates lower-casing; None if unclear.

    In the cache of Hugging Face's hub the name of the folder is a hash, and the
    model's name is two folders up: models--google-bert--bert-base-cased.
    """
    folder = folder.resolve()
    name = folder.name
    if folder.parent.name == "snapshots":
        name = folder.parent.parent.name
    if _GOOGLE_LOWER.match(name):
        return True
    words = set(re.split(r"[^a-z]+", name.lower())) & {"cased", "uncased"}
    return words == {"uncased"} if len(words) == 1 else None


def write_tokenizer_config(
    folder: str | pathlib.Path,
    config: TokenizerConfig | None,
    vocabulary: Vocabulary,
    max_length: int | None = None,
) -> None:
    """Writes the tokenizer_config.json of a model folder.

    It holds do_lower_case and rules that differ from Google's; without values,
    as for unknown rules, the file is not written.

    Args:
      folder: the folder.
      config: the rules; None if unknown.
      vocabulary: the tokens.
      max_length: the longest row; None means all positions of the model.
    """
    values: dict[str, Any] = {}
    if config is not None:
        usual = TokenizerConfig.of(config.lower_case).to_dict(vocabulary)
        values = {
            key: value
            for key, value in config.to_dict(vocabulary).items()
            if key == "do_lower_case" or value != usual.get(key)
        }
    if vocabulary.special != SPECIAL_TOKENS:
        values |= vocabulary.special.to_dict()
    if max_length is not None:
        values["model_max_length"] = max_length
    if not values:
        return
    write_text(
        pathlib.Path(folder) / TOKENIZER_CONFIG_FILE, json.dumps(values) + "\n"
    )
