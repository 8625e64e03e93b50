"""How pre-training records are made, as a frozen dataclass."""

import dataclasses
from typing import Any

from bert_tf.corpora.recipe import CorpusRecipe
from bert_tf.errors import UserError
from bert_tf.recipe import setting

# [CLS] A [SEP] B [SEP] with one token in A and one in B.
_SHORTEST_PAIR = 5
# [CLS] A [SEP] with one token in A.
_SHORTEST_TEXT = 3
# What a sequence is: texts A and B with a label, or one text without.
SENTENCE_PAIRS, SENTENCE_ORDER = "sentence_pairs", "sentence_order"
FULL_SENTENCES, DOCUMENT_SENTENCES = "full_sentences", "document_sentences"
SEQUENCES = (SENTENCE_PAIRS, SENTENCE_ORDER, FULL_SENTENCES, DOCUMENT_SENTENCES)
LONG_LINES = ("refuse", "cut")
# What builds the records: this machine, or an Apache Beam pipeline.
LOCAL, BEAM = RUNNERS = ("local", "beam")

# Fields that recipe files have only if they are not the default, so that files
# written before these fields existed stay valid.
_ADDED_LATER = (
    "mask_token_rate",
    "random_token_rate",
    "random_next_prob",
    "sequences",
    "masked_ngram_length",
)


@dataclasses.dataclass(frozen=True)
class RecordsRecipe(CorpusRecipe):
    """All settings of pre-training records.

    Names and defaults follow create_pretraining_data.py of
    google-research/bert.
    """

    sequences: str = setting(
        SENTENCE_PAIRS,
        "what a sequence is: sentence_pairs, text B follows text A or is "
        "random (BERT); sentence_order, the texts are in order or swapped "
        "(ALBERT); full_sentences, whole sentences up to max_seq_length, also "
        "of several documents (RoBERTa); document_sentences, the same within "
        "a document",
        choices=SEQUENCES,
    )
    max_seq_length: int = setting(
        128,
        "maximum sequence length, special tokens included",
        at_least=_SHORTEST_PAIR,
        at_most=1 << 20,
    )
    max_predictions_per_seq: int = setting(
        20,
        "maximum number of masked tokens in a sequence, packed or not",
        at_least=1,
        at_most=lambda recipe: recipe.max_seq_length,
        why="`max_seq_length`",
    )
    masked_lm_prob: float = setting(
        0.15, "share of tokens to mask, as in the paper", above=0, below=1
    )
    mask_token_rate: float = setting(
        0.8,
        "share of the selected tokens replaced by [MASK]; those replaced "
        "neither by [MASK] nor by random tokens are kept",
        at_least=0,
        # Rounded, so that 0.1 + 0.9 is 1.
        at_most=lambda recipe: round(1 - recipe.random_token_rate, 9),
        why="what `random_token_rate`={random_token_rate:g} leaves",
    )
    random_token_rate: float = setting(
        0.1,
        "share of the selected tokens replaced by random tokens",
        at_least=0,
        at_most=1,
    )
    whole_word_mask: bool = setting(
        False, "mask all pieces of a word or none of them"
    )
    masked_ngram_length: int = setting(
        1,
        "maximum number n of consecutive tokens, or words with "
        "whole_word_mask, that are masked together; each n has a probability "
        "proportional to 1/n (3 in ALBERT)",
        at_least=1,
        at_most=10,
    )
    static_masking: bool = setting(
        False,
        "draw the masks now and write the features of google-research/bert; "
        "otherwise records hold plain ids, and new masks are drawn in every "
        "epoch",
    )
    packing: bool = setting(
        False,
        "fill each row of max_seq_length with several whole sequences, which "
        "do not attend to each other, instead of padding",
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
        "probability that text B is random, from another document, instead of "
        "what follows text A, or with sentence_order that they are swapped; a "
        "single sentence always gets a random text B, except with 0: it is "
        "then divided between two of its tokens, so that every text B follows",
        at_least=0,
        at_most=1,
    )
    seed: int = setting(
        12345, "seed of all random choices", at_least=0, at_most=2**31 - 1
    )
    lower_case: bool | None = setting(
        None,
        "lower-case and strip accents; by default what the tokenizer's files "
        "state, or if they do not, whether no token of vocab.txt has capital "
        "letters",
    )
    held_out: float = setting(
        0.01,
        "share of documents held out for evaluation, in separate files",
        at_least=0,
        at_most=0.5,
    )
    near_duplicates: float = setting(
        0.0,
        "drop documents whose estimated Jaccard similarity to an earlier one, "
        "over runs of five tokens, is at least this; 0 keeps all, 0.8 is "
        "common",
        at_least=0.3,
        at_most=1,
        or_exactly=0,
    )
    long_lines: str = setting(
        "refuse",
        "lines of more than 10,000 characters, of which a record keeps only "
        "a part: refuse stops and names the line, cut continues",
        choices=LONG_LINES,
    )
    num_shards: int = setting(
        0,
        "number of record files; 0 is one per 16 MB of text and pass",
        at_least=0,
        at_most=99_999,
    )

    def __post_init__(self) -> None:
        """Raises `UserError` on settings that do not fit each other."""
        super().__post_init__()
        if self.has_pairs:
            return
        without = {
            "static_masking": "the layout of google-research/bert holds pairs",
            "random_next_prob": "there is no second text",
            "short_seq_prob": "rows are filled",
        }
        if self.sequences == FULL_SENTENCES:
            without["packing"] = (
                "rows are filled already; document_sentences are packed"
            )
        for name, why in without.items():
            value = getattr(self, name)
            if value != getattr(RecordsRecipe, name):
                raise UserError(
                    f"`sequences`={self.sequences} and `{name}`={value}: leave "
                    f"one of the two out ({why})."
                )

    @property
    def has_pairs(self) -> bool:
        """Whether a sequence has two texts and a label."""
        return self.sequences in (SENTENCE_PAIRS, SENTENCE_ORDER)

    @property
    def objective(self) -> str:
        """The objective of pre-training that learns the rows' labels."""
        return {
            SENTENCE_PAIRS: "masked_lm_next_sentence",
            SENTENCE_ORDER: "masked_lm_sentence_order",
        }.get(self.sequences, "masked_lm")

    @property
    def takes_random_texts(self) -> bool:
        """Whether a text B may be from another document."""
        return self.has_pairs and self.random_next_prob > 0

    @property
    def shortest_sequence(self) -> int:
        """The minimum length of a sequence of BERT's tokens."""
        return _SHORTEST_PAIR if self.has_pairs else _SHORTEST_TEXT

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields; those added later only if not the default."""
        values = super().to_dict()
        for name in _ADDED_LATER:
            if values[name] == getattr(RecordsRecipe, name):
                del values[name]
        return values

    def warnings(self) -> list[str]:
        """Returns a line for each valid but probably unintended setting."""
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
