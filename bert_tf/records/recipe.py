"""How pre-training records are made, as a frozen dataclass."""

import dataclasses
from typing import Any

from bert_tf.corpora.recipe import CorpusRecipe
from bert_tf.recipe import setting

# [CLS] A [SEP] B [SEP] with one token in A and one in B.
SHORTEST_SEQUENCE = 5
LONG_LINES = ("refuse", "cut")

# Fields that files and fingerprints have only where they are not the default:
# those of before the fields existed stay valid.
_ADDED_LATER = ("mask_token_rate", "random_token_rate", "random_next_prob")


@dataclasses.dataclass(frozen=True)
class RecordsRecipe(CorpusRecipe):
    """Everything but the text and the vocabulary that decides the records.

    Names and defaults are those of google-research/bert's
    create_pretraining_data.py where it has them.
    """

    max_seq_length: int = setting(
        128,
        "longest sequence, specials included",
        at_least=SHORTEST_SEQUENCE,
        at_most=1 << 20,
    )
    max_predictions_per_seq: int = setting(
        20,
        "most masked tokens in a sequence, be it alone in a row or packed",
        at_least=1,
        at_most=lambda recipe: recipe.max_seq_length,
        why="`max_seq_length`",
    )
    masked_lm_prob: float = setting(
        0.15, "share of tokens to mask, as in the paper", above=0, below=1
    )
    mask_token_rate: float = setting(
        0.8,
        "share of the chosen tokens that become [MASK]; those that become "
        "neither [MASK] nor random stay as they are",
        at_least=0,
        # Rounded, so that 0.1 and 0.9 are 1 together.
        at_most=lambda recipe: round(1 - recipe.random_token_rate, 9),
        why="what `random_token_rate`={random_token_rate:g} leaves",
    )
    random_token_rate: float = setting(
        0.1,
        "share of the chosen tokens that become any token of the vocabulary",
        at_least=0,
        at_most=1,
    )
    whole_word_mask: bool = setting(
        False, "mask all pieces of a word or none of them"
    )
    static_masking: bool = setting(
        False,
        "draw the masks now and write the features of google-research/bert; "
        "otherwise records hold plain ids and a new mask is drawn whenever "
        "they are read",
    )
    packing: bool = setting(
        False,
        "fill each row of max_seq_length with several whole sequences, which "
        "do not see each other, instead of padding",
        excludes="static_masking",
        why="records in the layout of google-research/bert hold one sequence "
        "each",
    )
    dupe_factor: int = setting(
        1,
        "passes over the corpus, each with new sentence pairs and, with "
        "static_masking, new masks (10 in google-research/bert)",
        at_least=1,
        at_most=10_000,
    )
    short_seq_prob: float = setting(
        0.1,
        "share of documents split into sequences of a random shorter length",
        at_least=0,
        at_most=1,
    )
    random_next_prob: float = setting(
        0.5,
        "chance that the second text is random, from another document, instead "
        "of what follows the first; a sentence that stands alone always gets a "
        "random one, except with 0: it is then divided between two of its "
        "tokens, so that every second text follows",
        at_least=0,
        at_most=1,
    )
    seed: int = setting(
        12345, "seed of every random choice", at_least=0, at_most=2**31 - 1
    )
    lower_case: bool = setting(
        True, "lower-case and strip accents, as an uncased vocabulary needs"
    )
    held_out: float = setting(
        0.01,
        "share of documents kept for evaluation, in files of their own",
        at_least=0,
        at_most=0.5,
    )
    near_duplicates: float = setting(
        0.0,
        "drop documents that share this much with an earlier one, as the "
        "estimated Jaccard similarity of their runs of five tokens; 0 keeps "
        "all, 0.8 is common",
        at_least=0.3,
        at_most=1,
        or_exactly=0,
    )
    long_lines: str = setting(
        "refuse",
        "lines of more than 10,000 characters, of which a record keeps only "
        "the beginning or the end: refuse stops and names it, cut continues",
        choices=LONG_LINES,
    )
    num_shards: int = setting(
        0,
        "record files to write; 0 takes one for each 16 MB of text and pass",
        at_least=0,
        at_most=99_999,
    )

    def to_dict(self) -> dict[str, Any]:
        """The fields by name; those added later only if not the default."""
        values = super().to_dict()
        for name in _ADDED_LATER:
            if values[name] == getattr(RecordsRecipe, name):
                del values[name]
        return values

    def warnings(self) -> list[str]:
        """Settings that are allowed and probably not meant, one line each."""
        full = round(self.max_seq_length * self.masked_lm_prob)
        if 2 * self.max_predictions_per_seq < full:
            return [
                f"max_predictions_per_seq={self.max_predictions_per_seq} masks "
                f"only {self.max_predictions_per_seq / self.max_seq_length:.1%}"
                f" of a full sequence; masked_lm_prob={self.masked_lm_prob} of "
                f"{self.max_seq_length} tokens is {full}."
            ]
        if self.max_predictions_per_seq > 2 * max(full, 1):
            return [
                f"max_predictions_per_seq={self.max_predictions_per_seq} is "
                f"never reached: masked_lm_prob={self.masked_lm_prob} of "
                f"{self.max_seq_length} tokens is {full}; the unused "
                "predictions cost time in training."
            ]
        return []
