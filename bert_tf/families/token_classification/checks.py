"""Data doctor of tagged words."""

import collections
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.families import checks
from bert_tf.families.checks import Fact, percent
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


def examine(
    task: Any,
    recipe: TagRecipe,
    tokenizer: Tokenizer,
    splits: Mapping[str, TaggedWords],
) -> checks.Examination:
    """Counts entities, unknown words, windows and repeats; see `Task`."""
    kinds = {
        split: collections.Counter(
            entity.kind
            for entity in entities(words.learned_tags, words.sentence_starts)
        )
        for split, words in splits.items()
    }
    new_types = checks.not_in_train(kinds)
    found = checks.examine(
        task.name,
        {
            split: _split_rows(
                words, recipe, tokenizer, kinds[split], new_types.get(split, {})
            )
            for split, words in splits.items()
        },
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
    part = found.numbers["splits"][train]
    for text in _remarks(part, tokenizer.lower_case):
        found.add(checks.REMARK, train, text)
    return found


def _split_rows(
    words: TaggedWords,
    recipe: TagRecipe,
    tokenizer: Tokenizer,
    kinds: Mapping[str, int],
    new_types: Mapping[str, int],
) -> checks.SplitRows:
    """The sentences of a split, with the counts of entities by type."""
    num_words, documents = len(words.words), len(words.document_starts) - 1
    marked = "" if words.marks else " (no -DOCSTART- lines)"
    lengths = checks.percentiles(np.diff(words.sentence_starts))
    shown = ", ".join(
        f"{kind} {count:,}{' (not in train)' * (kind in new_types)}"
        for kind, count in sorted(kinds.items())
    )
    unit = "runs of a tag" if words.scheme == IO else "entities"
    capitals = sum(word != word.lower() for word in words.words)
    tokens, _ = word_tokens(words.words, tokenizer)
    is_unknown = tf.reduce_any(tokens == tokenizer.vocabulary.unk_id, 1).numpy()
    unknown = int(is_unknown.sum())
    unknown_words = collections.Counter(
        words.words[number][:30] for number in np.flatnonzero(is_unknown)
    )
    commonest = dict(unknown_words.most_common(checks.UNKNOWN_WORDS))
    share = f"{unknown:,} words, {percent(unknown / num_words, 2)}"
    room = recipe.max_seq_length - tokenizer.packing.num_special(1)
    sizes = sentences_in_context(words, tokens, recipe.context, room).count
    windows = np.bincount(sentence_windows(sizes, room, recipe.doc_stride).text)
    several = windows[windows > 1]
    long = f"sentences longer than {recipe.max_seq_length} tokens: "
    long += f"{len(several):,}"
    if len(several):
        long += f", read in {several.sum():,} windows"
    oddities = {
        word: dict.fromkeys(checks.suspicious(word), word[:30])
        for word in set(words.words)
    }
    odd_words = map(oddities.__getitem__, words.words)
    facts = [
        Fact("words", num_words),
        Fact("documents", documents),
        Fact("document_marks", words.marks),
        Fact(
            "words_per_sentence",
            lengths,
            [f"words of a sentence: {checks.lengths_shown(lengths)}"],
        ),
        Fact("scheme", words.scheme),
        Fact(
            "entities",
            dict(sorted(kinds.items())),
            [f"{unit}: {shown or 'none'}"],
        ),
        Fact("capital_share", capitals / num_words),
        Fact("tokens_per_word", len(tokens.flat_values) / num_words),
        Fact("unknown", unknown, [checks.unknown_text(share, commonest)]),
        Fact("unknown_words", commonest),
        Fact("long_sentences", len(several), [long]),
        Fact("windows_of_long_sentences", int(several.sum())),
        checks.suspicious_fact(
            zip(odd_words, words.rows.tolist(), strict=True), "words", "word"
        ),
    ]
    rows = checks.ComparedRows(
        checks.Row(
            int(words.rows[part.start]),
            tuple(words.words[part]),
            tuple(words.learned_tags[part]),
        )
        for part in words.sentences()
    )
    title = (
        f"{len(words):,} sentences, {num_words:,} words, "
        f"{documents:,} documents{marked}"
    )
    return checks.SplitRows(words.path, rows, title, facts=facts)


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
