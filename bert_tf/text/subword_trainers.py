"""Trains unigram models and byte-level BPE."""

import collections
import dataclasses
import functools
import io
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import sentencepiece
import tokenizers
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from bert_tf.errors import UserError
from bert_tf.recipe import Limits
from bert_tf.text.byte_bpe import ByteLevelBpe, byte_letters
from bert_tf.text.token_table import SpecialTokens
from bert_tf.text.tokenizer_files import TOKENIZER_FILE
from bert_tf.text.unigram import (
    MODEL_FILE,
    AlbertUnigram,
    Unigram,
    decomposed,
    in_order_of_fairseq,
)
from bert_tf.text.vocabulary_trainer import (
    Learned,
    VocabularyTrainer,
    repeated,
)

_ROBERTA = SpecialTokens("<pad>", "<unk>", "<s>", "</s>", "<mask>")
_ALBERT = SpecialTokens("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")
# Marks that ALBERT's pieces keep apart (google-research/albert, README.md).
_MARKS = '()"-.\u2013\u00a3\u20ac'
# A word with the blank before it, or a run of white space (GPT-2's pattern).
_CHUNK = re.compile(r" ?\S+|\s+(?!\S)|\s+")
# What sentencepiece says of a size that is too small.
_TOO_SMALL = re.compile(
    r"Vocabulary size is smaller than required_chars\D*\d+ vs (\d+)"
)


@dataclasses.dataclass(frozen=True)
class UnigramTrainer(VocabularyTrainer):
    """Learns a unigram model by the sentencepiece library.

    The rules and special tokens are those of ALBERT if text is lower-cased,
    else those of XLM-R.

    Attributes:
      lower_case, strip_accents, character_coverage: see `train_vocab`.
    """

    KIND: ClassVar[str] = "unigram"
    FILE: ClassVar[str] = MODEL_FILE

    lower_case: bool = False
    strip_accents: bool = False
    character_coverage: float = 0.9999

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.strip_accents and not self.lower_case:
            raise UserError(
                "`strip_accents` is True: a unigram model that keeps case "
                "keeps accents; pass `lower_case`=True or leave it out."
            )

    def limits(self) -> dict[str, Limits]:
        """See `VocabularyTrainer`."""
        return {
            "vocab_size": Limits(above=len(_ROBERTA)),
            "character_coverage": Limits(above=0, at_most=1),
            **super().limits(),
        }

    @functools.cached_property
    def _replacements(self) -> Mapping[int, str]:
        if not self.lower_case:
            return {}
        return dict(decomposed(True, not self.strip_accents))

    def words(self, lines: Sequence[str]) -> collections.Counter[str]:
        """Counts what blanks separate."""
        counts: collections.Counter[str] = collections.Counter()
        for line in lines:
            if self._replacements:
                line = line.translate(self._replacements)
            counts.update(line.split())
        return counts

    def learn(self, counts: Mapping[str, int]) -> Learned:
        """See `VocabularyTrainer`."""
        # Those of fairseq are added afterwards: <pad> and <mask>.
        outside = 0 if self.lower_case else 2
        albert: dict[str, Any] = {
            "pad_id": 0,
            "unk_id": 1,
            "bos_id": -1,
            "eos_id": -1,
            "control_symbols": ["[CLS]", "[SEP]", "[MASK]"],
            "user_defined_symbols": list(_MARKS),
        }
        model = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=(f"{w}\t{n}" for w, n in counts.items()),
                input_format="tsv",
                model_writer=model,
                model_type="unigram",
                vocab_size=self.vocab_size - outside,
                # A small text gives fewer pieces.
                hard_vocab_limit=False,
                character_coverage=self.character_coverage,
                # The sums of scores depend on the number of threads.
                num_threads=16,
                minloglevel=2,
                **(albert if self.lower_case else {}),
            )
        except RuntimeError as error:
            raise self._size_error(str(error), outside) from None
        proto = ModelProto.FromString(model.getvalue())
        data: Unigram
        if self.lower_case:
            data = AlbertUnigram(
                proto.SerializeToString(),
                _ALBERT,
                keep_accents=not self.strip_accents,
            )
        else:
            ordered = in_order_of_fairseq(proto)
            data = Unigram(ordered.SerializeToString(), _ROBERTA)
        library = sentencepiece.SentencePieceProcessor(
            model_proto=model.getvalue()
        )
        seen = sorted({char for word in counts for char in word})
        unknown = sum(library.unk_id() in ids for ids in library.encode(seen))
        return Learned(data, len(seen) - unknown, unknown)

    def _size_error(self, message: str, outside: int) -> UserError:
        too_small = _TOO_SMALL.search(message)
        if too_small:
            least = int(too_small[1]) + outside
            return UserError(
                f"`vocab_size`={self.vocab_size}: at least {least} are needed "
                "for special tokens and the alphabet; ask for more, or lower "
                "`character_coverage`."
            )
        return UserError(f"sentencepiece: {message}")

    def rules(self) -> dict[str, Any]:
        """See `VocabularyTrainer`."""
        return {
            "lower_case": self.lower_case,
            "strip_accents": self.strip_accents,
        }


@dataclasses.dataclass(frozen=True)
class ByteBpeTrainer(VocabularyTrainer):
    """Learns the merges of byte-level BPE by the tokenizers library.

    The tokens are in RoBERTa's order: four special tokens, the 256 bytes, the
    merges, and <mask>.

    Attributes:
      min_frequency: see `train_vocab`.
    """

    KIND: ClassVar[str] = "byte_bpe"
    FILE: ClassVar[str] = TOKENIZER_FILE

    min_frequency: int = 2

    def limits(self) -> dict[str, Limits]:
        """See `VocabularyTrainer`."""
        bytes_and_special = len(byte_letters()) + len(_ROBERTA)
        return {
            "vocab_size": Limits(
                above=bytes_and_special,
                why=f"{len(byte_letters())} bytes and {len(_ROBERTA)} special "
                "tokens",
            ),
            "min_frequency": Limits(at_least=1),
            **super().limits(),
        }

    def words(self, lines: Sequence[str]) -> collections.Counter[str]:
        """Counts words with the blank before them, and other white space."""
        counts: collections.Counter[str] = collections.Counter()
        for line in lines:
            counts.update(_CHUNK.findall(line))
        return counts

    def learn(self, counts: Mapping[str, int]) -> Learned:
        """See `VocabularyTrainer`."""
        splitter = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        words: collections.Counter[str] = collections.Counter()
        for chunk, count in counts.items():
            for word, _ in splitter.pre_tokenize_str(chunk):
                words[word] += count
        pad, unk, begin, end, mask = _ROBERTA.present
        # As special tokens of the trainer they keep this order.
        fixed = [begin, pad, end, unk, *byte_letters()]
        library = tokenizers.Tokenizer(tokenizers.models.BPE())
        library.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
        trainer = tokenizers.trainers.BpeTrainer(
            vocab_size=self.vocab_size - 1,
            min_frequency=self.min_frequency,
            special_tokens=fixed,
            show_progress=False,
        )
        library.train_from_iterator(repeated(words), trainer)
        model = json.loads(library.to_str())["model"]
        ids: dict[str, int] = model["vocab"]
        tokens = [*sorted(ids, key=ids.__getitem__), mask]
        merges = [(a, b) for a, b in model["merges"]]
        data = ByteLevelBpe(tokens, merges, _ROBERTA)
        return Learned(data, len(byte_letters()), 0)
