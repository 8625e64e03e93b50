import random
import re
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.lib.stride_tricks import sliding_window_view
from records_corpus import TOKENS, VOCABULARY, text

from bert_tf.records import dynamic_masking, masking
from bert_tf.records.masking import MaskingRule
from bert_tf.records.recipe import RecordsRecipe
from bert_tf.text.wordpiece import WordPiece
from tests.relatives import ALBERT_UNIGRAM, BYTES, UNIGRAM

V = VOCABULARY
SIZE = len(TOKENS)
CONTINUES = V.is_continuation


def rule(**changes: object) -> MaskingRule:
    return MaskingRule.from_recipe(RecordsRecipe(**changes), V)


def rows(
    count: int, length: int, seed: int, pieces: float = 0.4
) -> tuple[np.ndarray, np.ndarray]:
    """Random [CLS] A [SEP] B [SEP] rows, padded to `length`."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(5, length + 1, count)
    words = np.flatnonzero(~CONTINUES)[5:]
    ids = np.where(
        rng.random((count, length)) < pieces,
        rng.choice(np.flatnonzero(CONTINUES), (count, length)),
        rng.choice(words, (count, length)),
    ).astype(np.int32)
    for row, size in zip(ids, lengths, strict=True):
        row[0] = V.cls_id
        row[[rng.integers(2, size - 2), size - 1]] = V.sep_id
        row[size:] = 0
    return ids, lengths


def repeated(ids: np.ndarray, lengths: np.ndarray, copies: int) -> tuple:
    return np.repeat(ids, copies, axis=0), np.repeat(lengths, copies)


def by_numpy(ids, lengths, rule: MaskingRule, seed: int) -> SimpleNamespace:
    rng = np.random.default_rng(seed)
    return SimpleNamespace(**masking.mask_rows(ids, lengths, rule, rng))


def by_tensorflow(
    ids, lengths, rule: MaskingRule, seed: int
) -> SimpleNamespace:
    seeds = tf.constant([seed, 0], tf.int64)
    noise = dynamic_masking.draw_noise(*ids.shape, seeds, rule)
    masked = dynamic_masking.mask_rows(
        tf.constant(ids), tf.constant(lengths, tf.int32), noise, rule
    )
    return SimpleNamespace(**{n: x.numpy() for n, x in masked.items()})


# [MASK], same and random: the rows of table 8 of the paper, and one of all.
MIXES = [
    (0.8, 0.1, 0.1),
    (1.0, 0.0, 0.0),
    (0.8, 0.0, 0.2),
    (0.8, 0.2, 0.0),
    (0.0, 0.2, 0.8),
    (0.0, 0.0, 1.0),
    (0.35, 0.2, 0.45),
    (0.0, 1.0, 0.0),
]
BOTH = pytest.mark.parametrize("draw", [by_numpy, by_tensorflow])


@pytest.mark.parametrize("whole_words", [False, True])
@settings(max_examples=50, deadline=None)
@given(
    seed=st.integers(0, 2**20),
    length=st.integers(5, 80),
    prob=st.floats(0.01, 0.99),
    most=st.integers(1, 40),
    ngrams=st.sampled_from([1, 1, 2, 3, 5]),
    mix=st.sampled_from(MIXES),
)
def test_same_noise_gives_the_same_masks_and_those_of_a_plain_loop(
    whole_words, seed, length, prob, most, ngrams, mix
) -> None:
    ids, lengths = rows(8, length, seed)
    most = min(most, length)
    law = rule(
        max_seq_length=length,
        max_predictions_per_seq=most,
        masked_lm_prob=prob,
        mask_token_rate=mix[0],
        random_token_rate=mix[2],
        whole_word_mask=whole_words,
        masked_ngram_length=ngrams,
    )
    rng = np.random.default_rng(seed)
    noise, ngram_noise = rng.random((2, *ids.shape), dtype=np.float32)
    action = rng.random((8, most), dtype=np.float32)
    others = rng.integers(SIZE, size=(8, most), dtype=np.int32)
    chosen = masking.choose_tokens(ids, lengths, noise, ngram_noise, law)
    positions = dynamic_masking.choose_tokens(
        *(tf.constant(ids), tf.constant(lengths, tf.int32)),
        *(noise, ngram_noise, law),
    )
    assert (positions.numpy() == chosen).all()
    masked = masking.replace_tokens(ids, chosen, action, others, law)
    drawn = action, others, law
    theirs = dynamic_masking.replace_tokens(tf.constant(ids), positions, *drawn)
    for name, value in theirs.items():
        assert value.dtype.name == masked[name].dtype.name, name
        assert (value.numpy() == masked[name]).all(), name
    ours = SimpleNamespace(**masked)
    for row, size in enumerate(lengths):
        to_take = min(most, max(1, round(int(size) * prob)))
        drawn = noise[row], ngram_noise[row]
        expected = take_groups(ids[row, :size], *drawn, law, to_take)
        used = len(expected)
        assert chosen[row, :used].tolist() == expected
        assert ours.masked_lm_positions[row, :used].tolist() == expected
        weights = np.arange(most) < used
        assert (ours.masked_lm_weights[row] == weights).all()
        assert (ours.masked_lm_ids[row, :used] == ids[row, expected]).all()
        assert not ours.masked_lm_ids[row, used:].any()
        assert not ours.masked_lm_positions[row, used:].any()
        by = np.float32(mix[0]), np.float32(1 - mix[2])
        drawn = action[row], others[row]
        for place, noisy, other in zip(expected, *drawn, strict=False):
            new = ids[row, place] if noisy < by[1] else other
            new = V.mask_id if noisy < by[0] else new
            assert ours.input_ids[row, place] == new
        restored = ours.input_ids[row].copy()
        restored[expected] = ids[row, expected]
        assert (restored == ids[row]).all()


def test_words_longer_than_what_remains_are_skipped() -> None:
    """More of them than predictions, before the first that fits."""
    word, piece = np.flatnonzero(~CONTINUES)[20], np.flatnonzero(CONTINUES)[3]
    text = [word, piece, piece] * 10 + [word, piece, word]
    ids = np.array([[V.cls_id, *text, V.sep_id]], np.int32)
    law = rule(
        max_seq_length=ids.size, max_predictions_per_seq=2, whole_word_mask=True
    )
    # The words of three come first, then that of two, then the single one.
    noise = np.linspace(0, 0.9, ids.size, dtype=np.float32)[None]
    lengths = np.array([ids.size])
    chosen = masking.choose_tokens(ids, lengths, noise, noise, law)
    positions = dynamic_masking.choose_tokens(
        *(tf.constant(ids), tf.constant(lengths, tf.int32)),
        *(noise, noise, law),
    )
    assert positions.numpy().tolist() == [[31, 32]]
    assert chosen.tolist() == [[31, 32]]


def take_ngrams(groups: list[list[int]], order, ngrams, to_take) -> list[int]:
    """The places of n-grams, one after the other, as google-research/albert.

    Args:
      groups: the places of each word.
      order: the words in the order in which they are tried.
      ngrams: the number of words of the n-gram that each word begins.
      to_take: the number of places.
    """
    chosen: list[int] = []
    for first in order:
        if len(chosen) >= to_take:
            break
        longest = ngrams[first]
        for count in range(longest, 0, -1):
            places = sum(groups[first : first + count], [])
            if len(chosen) + len(places) <= to_take:
                # One that is taken already is not tried with fewer words.
                if not set(places) & set(chosen):
                    chosen += places
                break
    return sorted(chosen)


def take_groups(tokens, noise, ngram_noise, law: MaskingRule, to_take: int):
    """The choice one group after the other, in the order of the noise."""
    groups: list[list[int]] = []
    for place, token in enumerate(tokens):
        if token in (V.cls_id, V.sep_id):
            continue
        if groups and law.joins_previous[token]:
            groups[-1].append(place)
        else:
            groups.append([place])
    several = law.joins_previous.any() or law.masked_ngram_length > 1
    if not several:
        noise = noise[[group[0] for group in groups]]
    order = sorted(range(len(groups)), key=noise.__getitem__)
    shares = np.cumsum([1 / n for n in range(1, law.masked_ngram_length + 1)])
    ends = (shares / shares[-1]).astype(np.float32)
    ngrams = [int((number >= ends).sum()) + 1 for number in ngram_noise]
    return take_ngrams(groups, order, ngrams, to_take)


@BOTH
def test_ngrams_are_distributed_as_in_the_authors_algorithm(draw) -> None:
    """How often each place is chosen, and n places in a row."""
    ids, lengths = rows(1, 64, seed=2)
    ids = np.where(np.isin(ids, [V.cls_id, V.sep_id, 0]), ids, 20)
    ids[0, 10:40:3] = np.flatnonzero(CONTINUES)[3]
    size, copies = int(lengths[0]), 6000
    words = {"masked_lm_prob": 0.3, "whole_word_mask": True}
    law = rule(max_seq_length=64, masked_ngram_length=3, **words)
    masked = draw(*repeated(ids, lengths, copies), law, 11)
    ours = np.zeros((copies, 64), bool)
    row, slot = np.nonzero(masked.masked_lm_weights)
    ours[row, masked.masked_lm_positions[row, slot]] = True
    groups: list[list[int]] = []
    for place in range(size):
        if ids[0, place] in (V.cls_id, V.sep_id):
            continue
        if groups and CONTINUES[ids[0, place]]:
            groups[-1].append(place)
        else:
            groups.append([place])
    rng = random.Random(3)
    theirs = np.zeros_like(ours)
    for drawn in theirs:
        order = rng.sample(range(len(groups)), len(groups))
        ngrams = rng.choices([1, 2, 3], [6 / 11, 3 / 11, 2 / 11], k=len(groups))
        to_take = int(law.num_to_predict[size])
        drawn[take_ngrams(groups, order, ngrams, to_take)] = True
    assert ours[:, size:].sum() == ours[:, 0].sum() == 0
    for length in (1, 2, 3, 4):
        counts = []
        for sample in (ours, theirs):
            windows = sliding_window_view(sample, length, axis=1)
            counts.append(windows.all(axis=2).sum(axis=0))
        spread = np.sqrt(np.maximum(counts[0] + counts[1], 9))
        assert (abs(counts[0] - counts[1]) < 4.5 * spread).all()


def test_count_rounds_halves_to_even_as_python_does() -> None:
    counts = rule(masked_lm_prob=0.5).num_to_predict
    # 2.5 -> 2, 3.5 -> 4, and never below one.
    assert counts[[0, 1, 5, 7]].tolist() == [1, 1, 2, 4]
    default = rule().num_to_predict
    assert default[[10, 128]].tolist() == [2, 19]
    assert rule(max_predictions_per_seq=7).num_to_predict.max() == 7


@pytest.mark.parametrize(
    ("data", "begins"),
    [
        (WordPiece(V), lambda token: not token.startswith("##")),
        (BYTES, lambda token: token.startswith("\u0120")),
        (UNIGRAM, lambda token: token.startswith(("\u2581", "<unk>"))),
        # A Latin letter that no blank precedes continues a word.
        (ALBERT_UNIGRAM, lambda token: not re.fullmatch("[a-z]+", token, re.I)),
    ],
    ids=["wordpiece", "byte_bpe", "unigram", "albert"],
)
@BOTH
def test_all_of_a_word_is_masked_in_every_tokenizer(draw, data, begins) -> None:
    vocabulary = data.vocabulary
    packing = vocabulary.packing
    lines = text(20).replace(" .", ".").replace("\n\n", "\n").split("\n")
    ids = data.tokenizer().tokenize(lines).numpy()
    begin, end = packing.begin, packing.end
    framed = [np.concatenate([begin, row[:40], end]) for row in ids]
    lengths = np.array([len(row) for row in framed])
    padded = np.full((len(framed), 64), packing.pad_id, np.int32)
    for row, one in zip(padded, framed, strict=True):
        row[: len(one)] = one
    settings = {"masked_lm_prob": 0.3, "whole_word_mask": True}
    recipe = RecordsRecipe(max_seq_length=64, **settings)
    law = MaskingRule.from_recipe(recipe, vocabulary)
    masked = draw(padded, lengths, law, 7)
    several = 0
    for row, one in enumerate(framed):
        used = masked.masked_lm_weights[row] > 0
        chosen = set(masked.masked_lm_positions[row, used].tolist())
        words: list[set[int]] = []
        for place in range(len(begin), len(one) - len(end)):
            if not words or begins(vocabulary.tokens[one[place]]):
                words.append(set())
            words[-1].add(place)
        for word in words:
            assert len(word & chosen) in (0, len(word))
            several += len(word) > 1 and word <= chosen
    assert several > 20


def within(successes: int, trials: int, share: float) -> bool:
    """Whether a count is within four standard deviations."""
    spread = (trials * share * (1 - share)) ** 0.5
    return abs(successes - trials * share) <= 4 * spread


@BOTH
@pytest.mark.parametrize("mix", [MIXES[0], MIXES[6]], ids=str)
def test_shares_of_mask_keep_and_random(draw, mix) -> None:
    ids, lengths = rows(6000, 64, seed=5)
    mask, same_share, random_share = mix
    rates = {"mask_token_rate": mask, "random_token_rate": random_share}
    law = rule(max_seq_length=64, **rates)
    masked = draw(ids, lengths, law, 5)
    used = masked.masked_lm_weights > 0
    places = masked.masked_lm_positions
    new = np.take_along_axis(masked.input_ids, places, axis=1)[used]
    labels = masked.masked_lm_ids[used]
    is_mask = new == V.mask_id
    same = new == labels
    # A random token is [MASK] or the label itself now and then.
    by_chance = random_share / SIZE
    assert within(is_mask.sum(), len(new), mask + by_chance)
    assert within(same.sum(), len(new), same_share + by_chance)
    drawn = new[~is_mask & ~same]
    counts = np.bincount(drawn, minlength=SIZE)
    # Uniform over the whole vocabulary, specials included.
    for special in (V.pad_id, V.unk_id, V.cls_id, V.sep_id):
        assert within(counts[special], len(new), by_chance)
    expected = len(drawn) / (SIZE - 2)
    assert abs(counts.astype(float) - expected)[5:].max() <= 6 * expected**0.5


@BOTH
def test_every_text_token_is_chosen_equally_often(draw) -> None:
    ids, lengths = rows(1, 40, seed=9)
    copies = 8000
    law = rule(max_seq_length=40)
    masked = draw(*repeated(ids, lengths, copies), law, 11)
    used = masked.masked_lm_weights > 0
    counts = np.bincount(masked.masked_lm_positions[used], minlength=40)
    texts = (ids[0] != V.cls_id) & (ids[0] != V.sep_id) & (ids[0] != 0)
    share = law.num_to_predict[lengths[0]] / texts.sum()
    assert (counts[~texts] == 0).all()
    assert all(within(count, copies, share) for count in counts[texts])
