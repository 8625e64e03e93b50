"""Whether a model folder's text is lower-cased."""

import json
import pathlib
import re

from bert_tf.files import write_text
from bert_tf.text.tokenizer_files import (
    TOKENIZER_CONFIG_FILE,
    JsonPart,
    TokenizerFiles,
    read_tokenizer_files,
)
from bert_tf.text.vocabulary import CONTINUATION, UNK, Vocabulary

# Classes of Hugging Face whose rules are BERT's, or are in tokenizer.json.
_CLASSES = tuple(
    name + kind
    for name in ("BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer")
    for kind in ("", "Fast")
) + ("PreTrainedTokenizer", "PreTrainedTokenizerFast", "TokenizersBackend")
# google-research/bert, tokenization.py, validate_case_matches_checkpoint:
# these two lower-case, and the rest has the word in its name.
_GOOGLE_LOWER = re.compile(r"(multilingual|chinese)_L-")


def read_lower_case(
    folder: str | pathlib.Path,
    vocabulary: Vocabulary,
    lower_case: bool | None = None,
) -> bool:
    """Whether a model folder's text is lower-cased.

    The first of these that says so: `lower_case`; do_lower_case in
    tokenizer_config.json; the normalizer in Hugging Face's tokenizer.json;
    lowercase in KerasHub's; the name of the folder, as Google's are named; a
    vocabulary with upper-case letters means no.

    Args:
      folder: the model folder.
      vocabulary: its vocabulary.
      lower_case: overrides what the folder says.

    Raises:
      UserError: a file is no JSON object or a value of the wrong type; or the
        files ask for rules that BertTokenizer does not follow.
    """
    files = read_tokenizer_files(folder)
    _check_rules(files)
    if lower_case is not None:
        return lower_case
    normalizer = files.hugging_face.part("normalizer")
    evidence = (
        files.config.flag("do_lower_case"),
        normalizer.flag("lowercase"),
        files.keras_hub.flag("lowercase"),
        _lower_case_of_name(pathlib.Path(folder)),
        not vocabulary.looks_cased(),
    )
    lower_case = next(found for found in evidence if found is not None)
    _check_accents(files.config, normalizer, lower_case)
    return lower_case


def _check_rules(files: TokenizerFiles) -> None:
    """Raises `UserError` for rules other than Google's."""
    config, hub = files.config, files.keras_hub
    config.expect("tokenizer_class", *_CLASSES)
    config.expect("do_basic_tokenize", True)
    config.expect("tokenize_chinese_chars", True)
    config.expect("never_split", [])
    files.hugging_face.part("model").expect("type", "WordPiece")
    normalizer = files.hugging_face.part("normalizer")
    normalizer.expect("type", "BertNormalizer")
    normalizer.expect("clean_text", True)
    normalizer.expect("handle_chinese_chars", True)
    files.hugging_face.part("pre_tokenizer").expect("type", "BertPreTokenizer")
    hub.expect("split", True)
    hub.expect("suffix_indicator", CONTINUATION)
    hub.expect("oov_token", UNK)
    hub.expect("special_tokens_in_strings", False)
    # KerasHub's strip_accents is left alone. It is false by default, and so
    # in presets that were made from Google's models, whose vocabularies know
    # no accents: followed, it would turn every word with one into [UNK].


def _check_accents(
    config: JsonPart, normalizer: JsonPart, lower_case: bool
) -> None:
    """Refuses accents stripped without lower-casing, or the reverse."""
    asked = config if "strip_accents" in config.values else normalizer
    strip = asked.flag("strip_accents")
    if strip is not None and strip != lower_case:
        raise asked.refuse(
            "strip_accents", f"null, or the value of lower-casing, {lower_case}"
        )


def _lower_case_of_name(folder: pathlib.Path) -> bool | None:
    """What a folder's name says, or None.

    In the cache of Hugging Face's hub the folder is named by a hash, and the
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


def write_lower_case(folder: str | pathlib.Path, lower_case: bool) -> None:
    """Writes the tokenizer_config.json of a model folder."""
    write_text(
        pathlib.Path(folder) / TOKENIZER_CONFIG_FILE,
        json.dumps({"do_lower_case": lower_case}) + "\n",
    )
