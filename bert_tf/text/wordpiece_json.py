"""Writes a WordPiece tokenizer.json, for programs without TensorFlow."""

import pathlib
import types
from collections.abc import Iterable, Mapping, Set

import numpy as np
import tokenizers
from tokenizers import models, normalizers, pre_tokenizers, processors

from bert_tf.text import unicode_tables
from bert_tf.text.token_table import TokenTable
from bert_tf.text.tokenizer_config import TokenizerConfig
from bert_tf.text.tokenizer_files import TOKENIZER_FILE
from bert_tf.text.vocabulary import (
    CONTINUATION,
    MAX_WORD_CHARACTERS,
    Vocabulary,
)


def write_tokenizer(
    folder: pathlib.Path,
    vocabulary: Vocabulary,
    rules: TokenizerConfig,
    max_seq_length: int | None,
    padded: bool,
    finds_special: bool,
) -> None:
    """Writes tokenizer.json for the library tokenizers.

    It computes the ids of `BertTokenizer` for every string, in the rows of
    `SentencePacker`, truncated to the longest row; but of two equally long
    texts it truncates the first, not the second.

    Args:
      folder: the folder of the file.
      vocabulary: the tokens.
      rules: how text is split.
      max_seq_length: the longest row; None leaves it to the program, as
        transformers does.
      padded: whether every row is padded to this length.
      finds_special: whether special tokens are recognized in text.
    """
    # Blank entries are not stripped, as in transformers.
    pairs = zip(vocabulary.tokens, vocabulary.entries, strict=True)
    ids = {token or entry: n for n, (token, entry) in enumerate(pairs)}
    library = tokenizers.Tokenizer(
        models.WordPiece(
            vocab=ids,
            unk_token=vocabulary.special.unk,
            continuing_subword_prefix=CONTINUATION,
            max_input_chars_per_word=MAX_WORD_CHARACTERS,
        )
    )
    library.normalizer = _normalizer(vocabulary, rules)
    isolated = unicode_tables.stand_alone(rules.tokenize_chinese_chars)
    library.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(_any_of(unicode_tables.spaces()), "removed"),
            pre_tokenizers.Split(_any_of(isolated), "isolated"),
        ]
    )
    library.post_processor = framing(vocabulary)
    for token in rules.added_tokens:
        added = tokenizers.AddedToken(
            token.content,
            single_word=token.single_word,
            lstrip=token.lstrip,
            rstrip=token.rstrip,
            normalized=token.normalized,
        )
        library.add_tokens([added])
    if finds_special:
        library.add_special_tokens(
            [
                tokenizers.AddedToken(token, normalized=False, special=True)
                for token in vocabulary.special.present
            ]
        )
    if max_seq_length is not None:
        library.enable_truncation(max_seq_length)
    if padded:
        library.enable_padding(
            length=max_seq_length,
            pad_id=vocabulary.packing.pad_id,
            pad_token=vocabulary.tokens[vocabulary.packing.pad_id],
        )
    library.save(str(folder / TOKENIZER_FILE))


def _normalizer(
    vocabulary: Vocabulary, rules: TokenizerConfig
) -> normalizers.Normalizer:
    """The rules of `BertNormalizer` as steps of the library.

    The Unicode tables of the library's BertNormalizer drop private-use and
    newer characters. Here only lower-casing and decomposition are the
    library's; assigned characters for which these differ from Python's are
    replaced before. Unassigned characters outside of the vocabulary are
    replaced by one that no token has.
    """
    known = frozenset(map(ord, set("".join(vocabulary.tokens))))
    unassigned = np.flatnonzero(unicode_tables.unassigned()).tolist()
    unknown = next(c for c in unicode_tables.NONCHARACTERS if c not in known)
    steps: list[normalizers.Normalizer] = [
        _replace(unicode_tables.dropped(), ""),
        _replace(unicode_tables.spaces(), " "),
        _replace({*unassigned} - known, chr(unknown)),
    ]
    library: list[normalizers.Normalizer] = []
    if rules.lower_case:
        steps.append(final_sigma())
        library.append(normalizers.Lowercase())
    if rules.strip_accents:
        library += [normalizers.NFD(), _replace(unicode_tables.accents(), "")]
    mapping = unicode_tables.replacements(
        rules.lower_case, rules.strip_accents
    ).mapping
    # Dropped characters are gone.
    steps += corrections(library, mapping, unicode_tables.dropped())
    return normalizers.Sequence([*steps, *library])


def final_sigma(
    forms: Mapping[int, str] = types.MappingProxyType({}),
) -> normalizers.Replace:
    """Replaces a capital sigma at the end of a word, as `str.lower` does.

    `forms` replaces code points before lower-casing.
    """
    sigma, ends, begins, between = map(
        _class_of, unicode_tables.sigma_classes(forms)
    )
    final = f"(?<={ends}{between}*){sigma}(?!{between}*{begins})"
    return normalizers.Replace(
        tokenizers.Regex(final), chr(unicode_tables.FINAL_SIGMA)
    )


def corrections(
    library: list[normalizers.Normalizer],
    mapping: Mapping[int, str],
    left_out: Set[int] = frozenset(),
) -> list[normalizers.Normalizer]:
    """Replaces assigned characters before steps that treat them otherwise.

    Args:
      library: steps of the tokenizers library.
      mapping: what becomes of each code point that changes.
      left_out: code points that do not reach the steps.
    """
    # NUL separates them.
    codes = unicode_tables.assigned() - left_out - {0}
    chars = list(map(chr, sorted(codes)))
    changed = normalizers.Sequence(library).normalize_str("\0".join(chars))
    steps: list[normalizers.Normalizer] = []
    for char, theirs in zip(chars, changed.split("\0"), strict=True):
        ours = mapping.get(ord(char), char)
        if theirs != ours:
            steps.append(normalizers.Replace(char, ours))
    return steps


def _replace(codes: Iterable[int], by: str) -> normalizers.Replace:
    return normalizers.Replace(_any_of(codes), by)


def _any_of(codes: Iterable[int]) -> tokenizers.Regex:
    return tokenizers.Regex(_class_of(codes))


def _class_of(codes: Iterable[int]) -> str:
    return unicode_tables.character_class(unicode_tables.ranges(codes))


def framing(vocabulary: TokenTable) -> processors.TemplateProcessing:
    """The post-processor of a vocabulary's `packing`."""
    packing, tokens = vocabulary.packing, vocabulary.tokens
    names = {}
    for number in sorted({*packing.begin, *packing.middle, *packing.end}):
        token = tokens[number]
        # Characters of the template syntax require another name.
        plain = ":" not in token and not token.startswith("$")
        names[number] = token if plain else f"special{number}"

    def pieces(ids: tuple[int, ...], segment: int) -> list[str]:
        return [f"{names[number]}:{segment}" for number in ids]

    segment = packing.second_segment
    first = [*pieces(packing.begin, 0), "$A:0"]
    return processors.TemplateProcessing(
        single=[*first, *pieces(packing.end, 0)],
        pair=[
            *first,
            *pieces(packing.middle, 0),
            f"$B:{segment}",
            *pieces(packing.end, segment),
        ],
        special_tokens=[
            {"id": name, "ids": [number], "tokens": [tokens[number]]}
            for number, name in names.items()
        ],
    )
