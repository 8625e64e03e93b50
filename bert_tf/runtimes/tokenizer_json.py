"""A tokenizer as tokenizer.json, for programs without TensorFlow."""

import pathlib

import tokenizers
from tokenizers import models, normalizers, pre_tokenizers, processors

from bert_tf.text.packing import Tokenizer
from bert_tf.text.tokenizer_files import TOKENIZER_FILE
from bert_tf.text.vocabulary import CONTINUATION

# As in Google's code.
_MAX_WORD_CHARACTERS = 200


def write_tokenizer(
    folder: pathlib.Path,
    tokenizer: Tokenizer,
    max_seq_length: int,
    padded: bool,
) -> None:
    """Writes tokenizer.json, which the library tokenizers reads.

    It gives the rows of `SentencePacker`, truncated to the longest row. Of a
    pair that is too long and whose texts are equally long it drops a token of
    the first, not of the second.

    Args:
      folder: takes the file.
      tokenizer: of the model.
      max_seq_length: the longest row.
      padded: whether every row is padded to that.
    """
    vocabulary, rules = tokenizer.vocabulary, tokenizer.config
    written = tokenizers.Tokenizer(
        models.WordPiece(
            vocab=dict(vocabulary.ids),
            unk_token=vocabulary.special.unk,
            continuing_subword_prefix=CONTINUATION,
            max_input_chars_per_word=_MAX_WORD_CHARACTERS,
        )
    )
    written.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=rules.tokenize_chinese_chars,
        strip_accents=rules.strip_accents,
        lowercase=rules.lower_case,
    )
    written.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    written.post_processor = _framing(tokenizer)
    for token in rules.added_tokens:
        added = tokenizers.AddedToken(
            token.content,
            single_word=token.single_word,
            lstrip=token.lstrip,
            rstrip=token.rstrip,
            normalized=token.normalized,
        )
        written.add_tokens([added])
    written.enable_truncation(max_seq_length)
    if padded:
        written.enable_padding(
            length=max_seq_length,
            pad_id=tokenizer.packing.pad_id,
            pad_token=vocabulary.special.pad,
        )
    written.save(str(folder / TOKENIZER_FILE))


def _framing(tokenizer: Tokenizer) -> processors.TemplateProcessing:
    """The tokenizer's `packing` as a template."""
    packing, tokens = tokenizer.packing, tokenizer.vocabulary.tokens
    names = {}
    for number in sorted({*packing.begin, *packing.middle, *packing.end}):
        token = tokens[number]
        # What means something else in a template needs another name there.
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
