"""BERT's tokenizer as data: a WordPiece vocabulary and its rules."""

import dataclasses
import json
import os
import pathlib
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np

from bert_tf.errors import UserError
from bert_tf.files import write_text
from bert_tf.recipe import read_json_object
from bert_tf.text.token_table import SPECIAL_TOKENS, UNFRAMED, SpecialTokens
from bert_tf.text.tokenizer_config import (
    TokenizerConfig,
    read_tokenizer_config,
    write_tokenizer_config,
)
from bert_tf.text.tokenizer_files import (
    TOKENIZER_CONFIG_FILE,
    AddedToken,
    OtherRules,
    read_special_tokens,
    read_vocabulary,
    refuse_other_case,
)
from bert_tf.text.tokenizer_protocol import (
    Tokenizer,
    WorkerTokenizer,
    graph_tokenizer,
)
from bert_tf.text.vocabulary import CONTINUATION, VOCABULARY_FILE, Vocabulary


@dataclasses.dataclass(frozen=True)
class WordPiece:
    """The data of a `BertTokenizer`; a `TokenizerData`.

    Attributes:
      vocabulary: the tokens.
      config: how text is split into words; None if no file states it.
      other_rules: why `BertTokenizer` cannot split text for this model; empty
        if it can.
    """

    FILES: ClassVar[tuple[str, ...]] = (VOCABULARY_FILE,)
    GRAPH: ClassVar[str] = "bert_tf.text.tokenizer.BertTokenizer"
    title: ClassVar[str] = Vocabulary.title

    vocabulary: Vocabulary
    config: TokenizerConfig | None = None
    other_rules: str = ""

    @classmethod
    def read(
        cls,
        folder: str | pathlib.Path,
        lower_case: bool | None = None,
        rows: int | None = None,
        notify: bool = True,
    ) -> Self | None:
        """See `TokenizerData`."""
        vocabulary = read_vocabulary(folder, notify)
        if vocabulary is None:
            return None
        if rows is not None:
            vocabulary = vocabulary.without_blank_end(rows)
        try:
            config = read_tokenizer_config(folder, vocabulary, lower_case)
        except OtherRules as error:
            return cls(vocabulary, None, str(error))
        return cls(vocabulary, config)

    @classmethod
    def of_file(
        cls, path: str | os.PathLike, lower_case: bool | None = None
    ) -> Self:
        """See `TokenizerData`.

        A tokenizer_config.json next to a vocab.txt decides about accents and
        ideographs, and must agree on lower-casing. It does not apply to
        vocabularies of other names in the folder.
        """
        path = pathlib.Path(path)
        has_config = path.name == VOCABULARY_FILE and path.is_file()
        stored_vocabulary = read_vocabulary(path.parent) if has_config else None
        vocabulary = stored_vocabulary or Vocabulary.from_file(path)
        config, stored = path.parent / TOKENIZER_CONFIG_FILE, None
        if has_config:
            values = read_json_object(config, missing_ok=True)
            stored = values.get("do_lower_case")
        fact = f"do_lower_case is {stored} for this vocabulary"
        refuse_other_case(lower_case, stored, config, fact)
        if stored is None and lower_case and vocabulary.looks_cased():
            raise UserError(
                f"lower_case is True, but {path} holds tokens with capital "
                "letters; pass `lower_case`=False for a cased vocabulary."
            )
        if has_config:
            return cls(vocabulary).with_rules_of(path.parent, lower_case)
        if lower_case is None:
            lower_case = not vocabulary.looks_cased()
        return cls(vocabulary, TokenizerConfig.of(lower_case))

    @classmethod
    def of_tokens(cls, path: str | os.PathLike, rows: int) -> Self:
        """See `TokenizerData`."""
        path = pathlib.Path(path)
        special = SPECIAL_TOKENS
        if path.name == VOCABULARY_FILE:
            special = read_special_tokens(path.parent)
        vocabulary = Vocabulary.from_file(path, special)
        return cls(vocabulary.without_blank_end(rows))

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """See `TokenizerData`."""
        return cls(
            Vocabulary(
                values.pop("vocabulary"),
                # Files of older versions lack the key.
                special=SpecialTokens(*values.pop("special_tokens", ())),
                notify=False,
            ),
            TokenizerConfig.from_dict(values.pop("tokenizer")),
        )

    def to_dict(self) -> dict[str, Any]:
        """See `TokenizerData`."""
        return {
            "vocabulary": list(self.vocabulary.entries),
            "special_tokens": list(self.vocabulary.special),
            "tokenizer": self.settings(),
        }

    def settings(self) -> dict[str, Any]:
        """See `TokenizerData`."""
        rules = dataclasses.asdict(self.rules)
        return rules | {"added_tokens": [*rules["added_tokens"]]}

    def with_rules_of(
        self, folder: pathlib.Path, lower_case: bool | None = None
    ) -> Self:
        """See `TokenizerData`."""
        config = read_tokenizer_config(folder, self.vocabulary, lower_case)
        return dataclasses.replace(self, config=config, other_rules="")

    @property
    def lower_case(self) -> bool:
        """Whether text is lower-cased."""
        return self.rules.lower_case

    @property
    def rules(self) -> TokenizerConfig:
        """How text is split; if no file states it, from the tokens' case.

        Raises:
          UserError: the rules are not supported.
        """
        if self.other_rules:
            raise OtherRules(self.other_rules)
        return self.config or TokenizerConfig.of(
            not self.vocabulary.looks_cased()
        )

    def tokenizer(self, split_special_tokens: bool = True) -> Tokenizer:
        """See `TokenizerData`."""
        return graph_tokenizer(self, split_special_tokens)

    def worker(self) -> WorkerTokenizer:
        """See `TokenizerData`."""
        from bert_tf.text.corpus_tokenizer import CorpusTokenizer

        return CorpusTokenizer(self.vocabulary, self.rules, self.tokenizer)

    def save(
        self, folder: str | pathlib.Path, max_length: int | None = None
    ) -> None:
        """See `TokenizerData`; tokenizer_config.json only if it has values."""
        self.vocabulary.save(pathlib.Path(folder) / VOCABULARY_FILE)
        write_tokenizer_config(folder, self.config, self.vocabulary, max_length)

    def save_hugging_face(self, folder: pathlib.Path, max_length: int) -> None:
        """See `TokenizerData`."""
        from bert_tf.text.wordpiece_json import write_tokenizer

        vocabulary, rules = self.vocabulary, self.rules
        values = {
            "tokenizer_class": "BertTokenizer",
            **rules.to_dict(vocabulary),
            "model_max_length": max_length,
            **vocabulary.special.to_dict(),
        }
        text = json.dumps(values, ensure_ascii=False, indent=2)
        write_text(folder / TOKENIZER_CONFIG_FILE, text + "\n")
        # transformers appends the added tokens of tokenizer_config.json.
        added = {token.content for token in rules.added_tokens}
        end = len(vocabulary)
        while vocabulary.tokens[end - 1] in added:
            end -= 1
        Vocabulary(
            vocabulary.entries[:end], special=vocabulary.special, notify=False
        ).save(folder / VOCABULARY_FILE)
        # For servers that read no other file.
        write_tokenizer(
            folder, vocabulary, rules, None, padded=False, finds_special=True
        )

    def save_json(
        self,
        folder: pathlib.Path,
        max_length: int | None,
        padded: bool,
        finds_special: bool = False,
    ) -> None:
        """See `TokenizerData`."""
        from bert_tf.text.wordpiece_json import write_tokenizer

        write_tokenizer(
            folder,
            self.vocabulary,
            self.rules,
            max_length,
            padded,
            finds_special,
        )

    def unframed(self) -> Self:
        """See `TokenizerData`; the special tokens become added tokens."""
        vocabulary, rules = self.vocabulary, self.rules
        special = UNFRAMED._replace(unk=vocabulary.special.unk)
        added = [
            AddedToken(token, normalized=False, special=True)
            for token in vocabulary.special.present
            if token not in special
        ]
        return dataclasses.replace(
            self,
            vocabulary=Vocabulary(
                vocabulary.entries, special=special, notify=False
            ),
            config=dataclasses.replace(
                rules, added_tokens=(*added, *rules.added_tokens)
            ),
        )

    def notices(self, to: str) -> list[str]:
        """See `TokenizerData`."""
        rules, special = self.rules, self.vocabulary.special
        lines = []
        if rules.lower_case and self.vocabulary.looks_cased():
            lines.append(
                "text is lower-cased, so that the vocabulary's upper-case "
                "tokens are never used; `lower_case`=False changes that"
            )
        if to != "google_tf1":
            return lines
        if special != SPECIAL_TOKENS:
            lines.append(
                f"special tokens: {' '.join(special.present)}; Google's code "
                f"expects {' '.join(SPECIAL_TOKENS.present)}"
            )
        if added := rules.added_tokens:
            lines.append(
                f"added tokens: {len(added)} ({added[0].content!r} first) keep "
                "their rows; Google's code does not recognize them in text"
            )
        if rules != TokenizerConfig.of(rules.lower_case, added_tokens=added):
            lines.append(
                f"strip_accents is {rules.strip_accents} and "
                f"tokenize_chinese_chars {rules.tokenize_chinese_chars}; "
                "Google's code does not read tokenizer_config.json, which "
                "states this"
            )
        return lines

    def pieces_of(self, tokens: Sequence[str]) -> list[Sequence[int]]:
        """See `TokenizerData`; a name in brackets has no pieces."""
        from bert_tf.text.plain_tokenizer import WordPieces

        old = self.vocabulary
        pieces: dict[str, Sequence[int]] = {
            token: [old.ids[token]] for token in tokens if token in old.ids
        }
        new = {
            token: word
            for token in tokens
            if token not in pieces
            and (word := token.removeprefix(CONTINUATION)).split() == [word]
            and not (word[0] == "[" and word[-1] == "]")
        }
        ids, counts = WordPieces(old)("".join(f"{w}\n" for w in new.values()))
        ends = np.cumsum(counts)
        for token, end, count in zip(new, ends, counts, strict=True):
            first, *rest = ids[end - count : end].tolist()
            if first == old.unk_id:
                continue
            if token.startswith(CONTINUATION):
                # Prefer the continuation of the first piece, if it exists.
                within = CONTINUATION + old.tokens[first]
                first = old.ids.get(within, first)
            pieces[token] = [first, *rest]
        return [pieces.get(token, []) for token in tokens]
