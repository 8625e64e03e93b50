"""What is odd about tagged words, told before a model is trained on them."""

import collections
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from bert_tf.errors import excerpt
from bert_tf.finetuning.doctor.lines import MUCH_UNKNOWN, lengths_shown
from bert_tf.finetuning.doctor.suspicious_text import DESCRIPTIONS, suspicious
from bert_tf.finetuning.tags.tag_recipe import TagRecipe
from bert_tf.finetuning.token_classification.conll_files import TaggedWords
from bert_tf.finetuning.token_classification.entities import entities
from bert_tf.finetuning.token_classification.windows import (
    num_windows,
    token_stream,
)
from bert_tf.text.tokenizer import BertTokenizer

_PERCENTILES = (50, 90, 95, 99, 100)
_UNKNOWN_WORDS = 10
# A text with fewer capitals than this share of its words has none to tell
# names by.
_FEW_CAPITALS = 0.005


def examine(
    task: str,
    recipe: TagRecipe,
    tokenizer: BertTokenizer,
    splits: Mapping[str, TaggedWords],
) -> dict[str, Any]:
    """Looks the training and dev words over.

    Args:
      task: the name of the task.
      recipe: says max_seq_length, context and doc_stride.
      tokenizer: of the model that will be trained.
      splits: split to its words; the first one is the one to train on.

    Returns:
      Numbers of types that JSON knows, and `lines`, what they say.
    """
    train_name, train = next(iter(splits.items()))
    numbers: dict[str, Any] = {
        "task": task,
        "max_seq_length": recipe.max_seq_length,
        "context": recipe.context,
        "train_split": train_name,
        "lower_case": tokenizer.lower_case,
        "splits": {
            split: _split(words, recipe, tokenizer)
            for split, words in splits.items()
        },
    }
    others = {name: part for name, part in splits.items() if name != train_name}
    known = numbers["splits"][train_name]["entities"]
    numbers["in_train"] = {
        name: _shared(train, words) for name, words in others.items()
    }
    numbers["types_not_in_train"] = {
        name: {
            kind: count
            for kind, count in numbers["splits"][name]["entities"].items()
            if kind not in known
        }
        for name in others
    }
    numbers["lines"] = list(_lines(numbers))
    return numbers


def _split(
    words: TaggedWords, recipe: TagRecipe, tokenizer: BertTokenizer
) -> dict[str, Any]:
    """The numbers of one split."""
    found = entities(words.known_tags, words.sentence_starts)
    counts = collections.Counter(entity.kind for entity in found)
    capitals = sum(word != word.lower() for word in words.words)
    lengths = np.diff(words.sentence_starts)
    percentiles = np.percentile(lengths, _PERCENTILES, method="higher")
    return {
        "file": words.path,
        "sentences": len(words),
        "words": len(words.words),
        "documents": len(words.document_starts) - 1,
        "document_marks": words.marks,
        "words_per_sentence": {
            str(percent): int(length)
            for percent, length in zip(_PERCENTILES, percentiles, strict=True)
        },
        "entities": dict(sorted(counts.items())),
        "capital_share": capitals / len(words.words),
        **_tokens(words, recipe, tokenizer),
        "suspicious": _suspicious(words),
    }


def _tokens(
    words: TaggedWords, recipe: TagRecipe, tokenizer: BertTokenizer
) -> dict[str, Any]:
    """Unknown words, and sentences that need several windows."""
    ids, starts = token_stream(words.words, tokenizer)
    is_unknown = np.logical_or.reduceat(
        ids == tokenizer.vocabulary.unk_id, starts[:-1]
    )
    unknown = collections.Counter(
        words.words[place][:30] for place in np.flatnonzero(is_unknown)
    )
    windows = num_windows(
        words,
        starts,
        recipe.max_seq_length,
        recipe.context,
        recipe.doc_stride or None,
    )
    return {
        "tokens_per_word": len(ids) / len(words.words),
        "unknown": int(is_unknown.sum()),
        "unknown_words": dict(unknown.most_common(_UNKNOWN_WORDS)),
        "long_sentences": int(np.sum(windows > 1)),
        "windows_of_long_sentences": int(windows[windows > 1].sum()),
    }


def _suspicious(words: TaggedWords) -> dict[str, dict[str, Any]]:
    """Kinds of suspicious characters: how many words, and the first one."""
    found: dict[str, dict[str, Any]] = {}
    of_word = {word: suspicious(word) for word in set(words.words)}
    for word, row in zip(words.words, words.rows.tolist(), strict=True):
        for kind in of_word[word]:
            first = {"words": 0, "first_row": row, "excerpt": word[:30]}
            found.setdefault(kind, first)["words"] += 1
    return found


def _sentences(
    words: TaggedWords,
) -> Iterator[tuple[tuple[str, ...], tuple[str, ...], int]]:
    """The words, the tags and the row of each sentence."""
    for part in words.sentences():
        row = int(words.rows[part.start])
        yield tuple(words.words[part]), tuple(words.known_tags[part]), row


def _shared(train: TaggedWords, others: TaggedWords) -> dict[str, Any]:
    """Sentences that the training words have too."""
    rows: dict[tuple[str, ...], int] = {}
    tags = collections.defaultdict(set)
    for words, their_tags, row in _sentences(train):
        rows.setdefault(words, row)
        tags[words].add(their_tags)
    seen = [sentence for sentence in _sentences(others) if sentence[0] in rows]
    other = sum(their_tags not in tags[words] for words, their_tags, _ in seen)
    return {
        "sentences": len(seen),
        "share": len(seen) / len(others),
        "with_other_tags": other,
        "first": [rows[seen[0][0]], seen[0][2]] if seen else None,
    }


def _lines(numbers: Mapping[str, Any]) -> Iterator[str]:
    """The numbers as lines for a person."""
    yield f"data of {numbers['task']}:"
    for split, part in numbers["splits"].items():
        new = numbers["types_not_in_train"].get(split, {})
        yield from _split_lines(split, part, new, numbers)
    train = numbers["train_split"]
    for split, shared in numbers["in_train"].items():
        line = (
            f"  sentences of {split} that are in {train}: "
            f"{shared['sentences']:,}"
        )
        if shared["sentences"]:
            first, second = shared["first"]
            line += (
                f", {_percent(shared['share'])}, {shared['with_other_tags']:,} "
                f"with other tags (row {first} of {train}, row {second} of "
                f"{split})"
            )
        yield line
    yield from (f"  remark: {remark}" for remark in _remarks(numbers))


def _split_lines(
    split: str,
    part: Mapping[str, Any],
    new_types: Mapping[str, int],
    numbers: Mapping[str, Any],
) -> Iterator[str]:
    marked = "" if part["document_marks"] else " (no -DOCSTART- lines)"
    yield (
        f"  {split}: {part['sentences']:,} sentences, {part['words']:,} words, "
        f"{part['documents']:,} documents{marked} ({part['file']})"
    )
    lengths = lengths_shown(part["words_per_sentence"])
    yield f"    words of a sentence: {lengths}"
    kinds = ", ".join(
        f"{kind} {count:,}{' (not in train)' * (kind in new_types)}"
        for kind, count in part["entities"].items()
    )
    yield f"    entities: {kinds or 'none'}"
    words = ", ".join(map(excerpt, part["unknown_words"]))
    yield (
        f"    [UNK]: {part['unknown']:,} words, "
        f"{_percent(part['unknown'] / part['words'])}"
        f"{': ' * bool(words)}{words}"
    )
    line = (
        f"    sentences longer than {numbers['max_seq_length']} tokens: "
        f"{part['long_sentences']:,}"
    )
    if part["long_sentences"]:
        line += f", read in {part['windows_of_long_sentences']:,} windows"
    yield line
    for kind, seen in part["suspicious"].items():
        yield (
            f"    {DESCRIPTIONS[kind]}: {seen['words']:,} words, first row "
            f"{seen['first_row']}, {excerpt(seen['excerpt'])}"
        )


def _remarks(numbers: Mapping[str, Any]) -> Iterator[str]:
    """What is worth doing something about, and what would do."""
    train = numbers["splits"][numbers["train_split"]]
    capitals = train["capital_share"]
    if numbers["lower_case"] and capitals >= _FEW_CAPITALS:
        yield (
            f"the model is uncased, and {_percent(capitals)} of the words have "
            "capitals, which it will not see; names are told by them, so cased "
            "models do better."
        )
    if not numbers["lower_case"] and capitals < _FEW_CAPITALS:
        yield (
            "the model is cased, and the words have hardly any capitals; an "
            "uncased model suits them better."
        )
    if train["unknown"] / train["words"] > MUCH_UNKNOWN:
        yield (
            "many words are unknown to this vocabulary; is it of this "
            "language, cased or uncased as the words are?"
        )


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"
