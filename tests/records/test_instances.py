import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from records_corpus import VOCABULARY, documents, flat

from benchmarks import reference_records as reference
from bert_tf.records.instances import Instances, make_instances
from bert_tf.records.recipe import RecordsRecipe

V = VOCABULARY
REFERENCE_IDS = reference.Vocabulary(V.cls_id, V.sep_id, V.mask_id, len(V))


CORPORA = st.lists(
    st.lists(st.integers(1, 40), min_size=1, max_size=12),
    min_size=2,
    max_size=6,
).map(lambda sizes: [[[0] * size for size in d] for d in sizes])


def ranges(instances: Instances) -> list[tuple[int, int, int, int, bool]]:
    columns = list(vars(instances).values())[:5]
    return list(zip(*(values.tolist() for values in columns), strict=True))


@settings(max_examples=100, deadline=None)
@given(
    corpus=CORPORA,
    length=st.integers(5, 64) | st.just(10_000),
    short=st.floats(0, 1),
    random_next=st.sampled_from([0.0, 0.5]) | st.floats(0, 1),
    seed=st.integers(0, 1000),
)
def test_pairs_keep_the_rule(
    corpus: list[list[list[int]]],
    length: int,
    short: float,
    random_next: float,
    seed: int,
) -> None:
    """If nothing is truncated, each token is in one A, or in a B after its A.

    Except sentences of one token, if no text B is random.
    """
    pool = flat(corpus)
    recipe = RecordsRecipe(
        max_seq_length=length,
        max_predictions_per_seq=1,
        short_seq_prob=short,
        random_next_prob=random_next,
    )
    instances = make_instances(pool, len(pool), recipe, 3, str(seed))
    token_starts = pool.sentence_starts[pool.document_starts]

    def document_of(token: int) -> int:
        return int(np.searchsorted(token_starts, token, side="right"))

    assert instances.lengths().max(initial=0) <= length
    times_used = np.zeros(pool.sentence_starts[-1], int)
    for a_start, a_end, b_start, b_end, is_random in ranges(instances):
        assert a_end > a_start
        assert b_end > b_start
        assert document_of(a_start) == document_of(a_end - 1)
        assert document_of(b_start) == document_of(b_end - 1)
        same = document_of(a_start) == document_of(b_start)
        assert is_random != same
        assert random_next or same
        times_used[a_start:a_end] += 1
        if same:
            # B follows A; truncation may have opened a gap.
            assert b_start >= a_end
            assert b_start == a_end or length < 10_000
            times_used[b_start:b_end] += 1
    everything = instances.lengths().sum() - 3 * len(instances)
    assert everything + instances.tokens_cut >= pool.sentence_starts[-1]
    assert (times_used <= 1).all()
    if length == 10_000:
        sentences = np.diff(pool.sentence_starts)
        (left_out,) = np.nonzero(times_used == 0)
        assert len(left_out) == instances.tokens_cut
        assert not (random_next and len(left_out))
        starts = pool.sentence_starts[:-1]
        assert np.isin(left_out, starts[sentences == 1]).all()


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 1.0])
def test_share_of_random_texts(share: float) -> None:
    """Of the pairs of several sentences, where a random text is by choice."""
    rng = np.random.default_rng(0)
    pool = flat([[[0] * int(n) for n in rng.integers(2, 9, 400)]] * 40)
    recipe = RecordsRecipe(
        max_seq_length=64, short_seq_prob=0, random_next_prob=share
    )
    made = make_instances(pool, len(pool), recipe, 3, "x")
    count = len(made)
    # At most one sentence a document stands alone at its end.
    lone = 40 / count
    spread = 4 * (share * (1 - share) / count) ** 0.5
    assert share - spread <= made.is_random.mean()
    assert made.is_random.mean() <= share + spread + lone * (share > 0)


def test_a_lone_sentence_is_divided_where_no_text_is_random() -> None:
    """Anywhere between two of its tokens; one of one token is left out."""
    pool = flat([[[0] * 10], [[0]]])
    recipe = RecordsRecipe(
        random_next_prob=0, short_seq_prob=0, dupe_factor=4000
    )
    made = make_instances(pool, 2, recipe, 3, "x")
    assert len(made) == made.tokens_cut == 4000
    assert not made.is_random.any()
    assert (made.a_start == 0).all()
    assert (made.b_end == 10).all()
    assert (made.a_end == made.b_start).all()
    counts = np.bincount(made.a_end, minlength=10)
    assert not counts[0]
    assert abs(counts[1:] - 4000 / 9).max() < 5 * (4000 / 9) ** 0.5


def test_front_and_back_are_cut_with_even_chances() -> None:
    """Two long sentences: what is kept begins at a binomial place."""
    pool = flat([[[0] * 1000, [0] * 1000], [[0] * 1000, [0] * 1000]])
    recipe = RecordsRecipe(
        max_seq_length=103, short_seq_prob=0, dupe_factor=2000
    )
    found = make_instances(pool, 2, recipe, 3, "x")
    assert (found.a_end - found.a_start == 50).all()
    front = found.a_start % 1000
    # Binomial(950, 1/2): mean 475, standard deviation 15.4.
    error = 15.4 / len(front) ** 0.5
    assert abs(front.mean() - 475) < 5 * error
    assert abs(front.std() - 15.4) < 5 * error


def test_only_own_documents_give_text_a() -> None:
    pool = flat(documents(30))
    first_borrowed = pool.sentence_starts[pool.document_starts[10]]
    made = make_instances(pool, 10, RecordsRecipe(), 3, "x")
    assert made.a_end.max() <= first_borrowed
    assert (made.b_start >= first_borrowed).any()
    assert len(make_instances(pool, 0, RecordsRecipe(), 3, "x")) == 0


def test_passes_and_seeds_give_other_pairs() -> None:
    pool = flat(documents(30))
    once, again, other, twice = (
        ranges(make_instances(pool, 30, RecordsRecipe(dupe_factor=n), 3, seed))
        for n, seed in ((1, "1"), (1, "1"), (1, "2"), (2, "1"))
    )
    assert once == again != other
    assert 1.5 < len(twice) / len(once) < 2.5
    assert len(set(twice)) > 1.3 * len(set(once))


@pytest.mark.parametrize("length", [20, 128])
def test_shares_are_those_of_the_plain_algorithm(length: int) -> None:
    """Two samples of thousands of pairs, from us and from the reference."""
    corpus = documents(120)
    lengths = reference.Lengths(max_seq_length=length)
    theirs = reference.all_instances(corpus, REFERENCE_IDS, lengths, 40, seed=1)
    recipe = RecordsRecipe(max_seq_length=length, dupe_factor=40)
    pool = flat(corpus)
    ours = make_instances(pool, len(pool), recipe, 3, "1")
    assert abs(len(ours) / len(theirs) - 1) < 0.02

    def close(a: np.ndarray, b: np.ndarray) -> bool:
        spread = (a.var() / len(a) + b.var() / len(b)) ** 0.5
        # Pairs of one document and pass are correlated, hence six.
        return abs(a.mean() - b.mean()) < 6 * spread

    their_random = np.array([i.is_random for i in theirs], float)
    assert close(ours.is_random.astype(float), their_random)
    assert their_random.mean() > 0.5
    their_length = np.array([len(i.tokens) for i in theirs])
    assert close(ours.lengths(), their_length)
    assert largest_gap(ours.lengths(), their_length) < 0.03
    their_a = np.array([i.segment_ids.count(0) - 2 for i in theirs])
    our_a = ours.a_end - ours.a_start
    assert largest_gap(our_a, their_a) < 0.03
    for is_random in (False, True):
        our_b = (ours.b_end - ours.b_start)[ours.is_random == is_random]
        their_b = np.array(
            [sum(i.segment_ids) - 1 for i in theirs if i.is_random == is_random]
        )
        assert largest_gap(our_b, their_b) < 0.04


def largest_gap(a: np.ndarray, b: np.ndarray) -> float:
    """The Kolmogorov-Smirnov distance of two samples."""
    places = np.arange(0, max(a.max(), b.max()) + 1)
    below_a = np.searchsorted(np.sort(a), places, side="right") / len(a)
    below_b = np.searchsorted(np.sort(b), places, side="right") / len(b)
    return float(abs(below_a - below_b).max())
