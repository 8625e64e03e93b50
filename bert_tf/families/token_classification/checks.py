"""Data doctor of tagged words."""

import collections
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.families import checks
from bert_tf.families.checks import percent
from bert_tf.families.token_classification.answers import sentence_windows
from bert_tf.families.token_classification.conll_files import TaggedWords
from bert_tf.families.token_classification.entities import IO, entities
from bert_tf.families.token_classification.recipe import TagRecipe
from bert_tf.families.token_classification.windows import (
    sentences_in_context,
    word_tokens,
)
from bert_tf.text.tokenizer_protocol import Tokenizer

# A file in which fewer words have capitals does not mark names by them.
_FEW_CAPITALS = 0.005
# More tags that occur once suggest a column of words.
_MANY_TAGS = 20


def examine_words(
    task: str,
    recipe: TagRecipe,
    tokenizer: Tokenizer,
    splits: Mapping[str, TaggedWords],
) -> checks.Examination:
    """Counts entities, unknown words, windows and repeats; see `Task`."""
    parts = {
        split: _counts(words, recipe, tokenizer)
        for split, words in splits.items()
    }
    new_types = checks.not_in_train(
        {split: part["entities"] for split, part in parts.items()}
    )
    found = checks.examine(
        task,
        {
            split: checks.SplitRows(
                file=words.path,
                rows=[
                    checks.Row(
                        int(words.rows[part.start]),
                        tuple(words.words[part]),
                        tuple(words.learned_tags[part]),
                    )
                    for part in words.sentences()
                ],
                title=_title(len(words), parts[split]),
                numbers=parts[split],
                details=_details(
                    parts[split],
                    new_types.get(split, {}),
                    recipe.max_seq_length,
                ),
            )
            for split, words in splits.items()
        },
        tokenizer,
        recipe.max_seq_length,
        unit="sentence",
        conflict="with_other_tags",
    )
    found.numbers |= {
        "context": recipe.context,
        "lower_case": tokenizer.lower_case,
        "types_not_in_train": new_types,
    }
    train = found.numbers["train_split"]
    for text in _remarks(parts[train], tokenizer.lower_case):
        found.add(checks.REMARK, train, text)
    return found


def _counts(
    words: TaggedWords, recipe: TagRecipe, tokenizer: Tokenizer
) -> dict[str, Any]:
    found = entities(words.learned_tags, words.sentence_starts)
    kinds = collections.Counter(entity.kind for entity in found)
    capitals = sum(word != word.lower() for word in words.words)
    tokens = word_tokens(words.words, tokenizer)
    is_unknown = tf.reduce_any(tokens == tokenizer.vocabulary.unk_id, 1).numpy()
    unknown = collections.Counter(
        words.words[number][:30] for number in np.flatnonzero(is_unknown)
    )
    room = recipe.max_seq_length - tokenizer.packing.num_special(1)
    lengths = sentences_in_context(words, tokens, recipe.context, room).count
    windows = np.bincount(
        sentence_windows(lengths, room, recipe.doc_stride).text
    )
    oddities = {
        word: dict.fromkeys(checks.suspicious(word), word[:30])
        for word in set(words.words)
    }
    return {
        "words": len(words.words),
        "documents": len(words.document_starts) - 1,
        "document_marks": words.marks,
        "words_per_sentence": checks.percentiles(
            np.diff(words.sentence_starts)
        ),
        "scheme": words.scheme,
        "entities": dict(sorted(kinds.items())),
        "capital_share": capitals / len(words.words),
        "tokens_per_word": len(tokens.flat_values) / len(words.words),
        "unknown": int(is_unknown.sum()),
        "unknown_words": dict(unknown.most_common(checks.UNKNOWN_WORDS)),
        "long_sentences": int(np.sum(windows > 1)),
        "windows_of_long_sentences": int(windows[windows > 1].sum()),
        "suspicious": checks.count_suspicious(
            zip(
                map(oddities.__getitem__, words.words),
                words.rows.tolist(),
                strict=True,
            ),
            "words",
        ),
    }


def _title(num_sentences: int, part: Mapping[str, Any]) -> str:
    marked = "" if part["document_marks"] else " (no -DOCSTART- lines)"
    return (
        f"{num_sentences:,} sentences, {part['words']:,} words, "
        f"{part['documents']:,} documents{marked}"
    )


def _details(
    part: Mapping[str, Any], new_types: Mapping[str, int], max_seq_length: int
) -> Iterator[tuple[str, str] | tuple[str, str, int]]:
    shown = checks.lengths_shown(part["words_per_sentence"])
    yield "lengths", f"words of a sentence: {shown}"
    shown = ", ".join(
        f"{kind} {count:,}{' (not in train)' * (kind in new_types)}"
        for kind, count in part["entities"].items()
    )
    unit = "runs of a tag" if part["scheme"] == IO else "entities"
    yield "entities", f"{unit}: {shown or 'none'}"
    share = percent(part["unknown"] / part["words"], 2)
    shown = f"{part['unknown']:,} words, {share}"
    yield "unknown", checks.unknown_text(shown, part["unknown_words"])
    text = (
        f"sentences longer than {max_seq_length} tokens: "
        f"{part['long_sentences']:,}"
    )
    if part["long_sentences"]:
        text += f", read in {part['windows_of_long_sentences']:,} windows"
    yield "long_sentences", text
    yield from checks.suspicious_details(part, "word", "words")


def _remarks(train: Mapping[str, Any], lower_case: bool) -> Iterator[str]:
    capitals = train["capital_share"]
    kinds = train["entities"]
    rare = sum(count == 1 for count in kinds.values())
    if train["scheme"] == IO and rare > max(_MANY_TAGS, len(kinds) // 2):
        yield (
            f"{rare:,} of the {len(kinds):,} tags occur once, as in a column "
            "of words; does `tag_column` name the column of tags?"
        )
    if train["scheme"] == IO and "B" in kinds and set(kinds) <= set("BIESLUM"):
        yield (
            f"the tags {', '.join(kinds)} are prefixes without a type, so each "
            "is a label, and runs of one label are scored; write B-X and so on "
            "for all prefixes to score whole spans."
        )
    if lower_case and capitals >= _FEW_CAPITALS:
        yield (
            f"the model is uncased, and {percent(capitals, 2)} of the words "
            "have capitals, which it does not see; a cased model recognises "
            "names better."
        )
    if not lower_case and capitals < _FEW_CAPITALS:
        yield (
            "the model is cased, and the words have hardly any capitals; an "
            "uncased model suits them better."
        )
    if train["unknown"] / train["words"] > checks.MUCH_UNKNOWN:
        yield checks.UNKNOWN_TEXTS
