import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from records_corpus import PACKING, VOCABULARY, documents, flat

from benchmarks import reference_records as reference
from bert_tf.records.instances import Instances, make_instances
from bert_tf.records.recipe import (
    DOCUMENT_SENTENCES,
    FULL_SENTENCES,
    SENTENCE_ORDER,
    SENTENCE_PAIRS,
    SEQUENCES,
    RecordsRecipe,
)
from tests.user_errors import error_of

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
    kind=st.sampled_from([SENTENCE_PAIRS, SENTENCE_ORDER]),
    seed=st.integers(0, 1000),
)
def test_pairs_keep_the_rule(corpus, length, short, random_next, kind, seed):
    """If nothing is truncated, each token is in one A, or in a B beside its A.

    B follows A, or if swapped precedes it. Except sentences of one token, if
    no text B is random.
    """
    pool = flat(corpus)
    recipe = RecordsRecipe(
        max_seq_length=length,
        max_predictions_per_seq=1,
        short_seq_prob=short,
        random_next_prob=random_next,
        sequences=kind,
    )
    instances = make_instances(pool, len(pool), recipe, PACKING, str(seed))
    token_starts = pool.sentence_starts[pool.document_starts]

    def document_of(token: int) -> int:
        return int(np.searchsorted(token_starts, token, side="right"))

    assert instances.lengths().max(initial=0) <= length
    times_used = np.zeros(pool.sentence_starts[-1], int)
    for a_start, a_end, b_start, b_end, label in ranges(instances):
        assert a_end > a_start
        assert b_end > b_start
        assert document_of(a_start) == document_of(a_end - 1)
        assert document_of(b_start) == document_of(b_end - 1)
        same = document_of(a_start) == document_of(b_start)
        assert (label == 1) != same or kind == SENTENCE_ORDER
        assert label == 1 or same
        assert random_next or label == 0
        times_used[a_start:a_end] += 1
        if same:
            # B follows A; truncation may have opened a gap.
            gap = a_start - b_end if label else b_start - a_end
            assert gap >= 0
            assert gap == 0 or length < 10_000
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
    shares = {"short_seq_prob": 0, "random_next_prob": share}
    recipe = RecordsRecipe(max_seq_length=64, **shares)
    made = make_instances(pool, len(pool), recipe, PACKING, "x")
    count = len(made)
    # At most one sentence a document stands alone at its end.
    lone = 40 / count
    spread = 4 * (share * (1 - share) / count) ** 0.5
    assert share - spread <= made.labels.mean()
    assert made.labels.mean() <= share + spread + lone * (share > 0)


def test_a_lone_sentence_is_divided_where_no_text_is_random() -> None:
    """Anywhere between two of its tokens; one of one token is left out."""
    pool = flat([[[0] * 10], [[0]]])
    shares = {"short_seq_prob": 0, "random_next_prob": 0}
    recipe = RecordsRecipe(dupe_factor=4000, **shares)
    made = make_instances(pool, 2, recipe, PACKING, "x")
    assert len(made) == made.tokens_cut == 4000
    assert not made.labels.any()
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
    found = make_instances(pool, 2, recipe, PACKING, "x")
    assert (found.a_end - found.a_start == 50).all()
    front = found.a_start % 1000
    # Binomial(950, 1/2): mean 475, standard deviation 15.4.
    error = 15.4 / len(front) ** 0.5
    assert abs(front.mean() - 475) < 5 * error
    assert abs(front.std() - 15.4) < 5 * error


def test_only_own_documents_give_text_a() -> None:
    pool = flat(documents(30))
    first_borrowed = pool.sentence_starts[pool.document_starts[10]]
    made = make_instances(pool, 10, RecordsRecipe(), PACKING, "x")
    assert made.a_end.max() <= first_borrowed
    assert (made.b_start >= first_borrowed).any()
    assert len(make_instances(pool, 0, RecordsRecipe(), PACKING, "x")) == 0


@pytest.mark.parametrize("kind", SEQUENCES)
def test_passes_and_seeds_give_other_sequences(kind: str) -> None:
    pool = flat(documents(30))
    once, again, other, twice = (
        ranges(make_instances(pool, 30, recipe, PACKING, seed))
        for recipe, seed in (
            (RecordsRecipe(dupe_factor=n, sequences=kind), seed)
            for n, seed in ((1, "1"), (1, "1"), (1, "2"), (2, "1"))
        )
    )
    assert once == again != other
    assert 1.5 < len(twice) / len(once) < 2.5
    assert len(set(twice)) > 1.3 * len(set(once))


@pytest.mark.parametrize(
    ("length", "kind"),
    [(20, SENTENCE_PAIRS), (128, SENTENCE_PAIRS), (64, SENTENCE_ORDER)],
)
def test_shares_are_those_of_the_plain_algorithm(length, kind) -> None:
    """Two samples of thousands of pairs, from us and from the reference."""
    corpus = documents(120)
    lengths = reference.Lengths(
        max_seq_length=length, swaps=kind == SENTENCE_ORDER
    )
    theirs = reference.all_instances(corpus, REFERENCE_IDS, lengths, 40, seed=1)
    recipe = RecordsRecipe(
        max_seq_length=length, dupe_factor=40, sequences=kind
    )
    pool = flat(corpus)
    ours = make_instances(pool, len(pool), recipe, PACKING, "1")
    assert abs(len(ours) / len(theirs) - 1) < 0.02

    def close(a: np.ndarray, b: np.ndarray) -> bool:
        spread = (a.var() / len(a) + b.var() / len(b)) ** 0.5
        # Pairs of one document and pass are correlated, hence six.
        return abs(a.mean() - b.mean()) < 6 * spread

    their_random = np.array([i.is_random for i in theirs], float)
    assert close(ours.labels.astype(float), their_random)
    assert their_random.mean() > 0.5
    their_length = np.array([len(i.tokens) for i in theirs])
    assert close(ours.lengths(), their_length)
    assert largest_gap(ours.lengths(), their_length) < 0.03
    their_a = np.array([i.segment_ids.count(0) - 2 for i in theirs])
    our_a = ours.a_end - ours.a_start
    assert largest_gap(our_a, their_a) < 0.03
    for is_random in (False, True):
        our_b = (ours.b_end - ours.b_start)[ours.labels == is_random]
        chosen = [i for i in theirs if i.is_random == is_random]
        their_b = np.array([sum(i.segment_ids) - 1 for i in chosen])
        assert largest_gap(our_b, their_b) < 0.04


def plain_rows(corpus, room: int, crosses: bool) -> list[list[int]]:
    """Rows of whole sentences, one sentence after the other."""
    rows: list[list[int]] = [[]]
    for document in corpus:
        if not crosses:
            rows.append([])
        elif rows[-1]:
            # Before a document that does not fit, it is dropped below.
            rows[-1] += [V.sep_id]
        for sentence in document:
            for start in range(0, len(sentence), room):
                part = sentence[start : start + room]
                if len(rows[-1]) + len(part) > room:
                    rows.append([])
                rows[-1] += part
    for row in rows:
        if row[-1:] == [V.sep_id]:
            row.pop()
    return [row for row in rows if row]


@settings(max_examples=100, deadline=None)
@given(
    corpus=CORPORA,
    length=st.integers(5, 64) | st.just(10_000),
    kind=st.sampled_from([FULL_SENTENCES, DOCUMENT_SENTENCES]),
    passes=st.integers(1, 2),
    own=st.integers(0, 6),
    seed=st.integers(0, 1000),
)
def test_whole_sentences_fill_rows(corpus, length, kind, passes, own, seed):
    """Of every own document, in an order that is drawn for each pass."""
    own = min(own, len(corpus))
    # Each document consists of its own number.
    corpus = [
        [[100 + number] * len(sentence) for sentence in document]
        for number, document in enumerate(corpus)
    ]
    recipe = RecordsRecipe(
        max_seq_length=length,
        max_predictions_per_seq=1,
        sequences=kind,
        dupe_factor=passes,
    )
    found = make_instances(flat(corpus), own, recipe, PACKING, str(seed))
    assert found.packing == PACKING.of_one_text()
    assert (found.labels == -1).all()
    assert found.tokens_cut == 0
    assert (found.b_start == found.b_end).all()
    order = np.argsort(found.a_start)
    ends = zip(found.a_start[order], found.a_end[order], strict=True)
    rows = [found.ids[start:end].tolist() for start, end in ends]
    lengths = found.lengths()[order]
    assert lengths.tolist() == [len(row) + 2 for row in rows]
    seen = [token for row in rows for token in row if token != V.sep_id]
    used = [d for d in range(own) for _ in range(passes)]
    sizes = [sum(map(len, document)) for document in corpus]
    assert len(seen) == sum(sizes[d] for d in used)
    # The documents in the order in which they were taken.
    taken = []
    while seen:
        taken.append(seen[0] - 100)
        assert set(seen[: sizes[taken[-1]]]) == {seen[0]}
        del seen[: sizes[taken[-1]]]
    for start in range(0, len(taken), max(own, 1)):
        assert sorted(taken[start : start + own]) == list(range(own))
    crosses = kind == FULL_SENTENCES
    assert rows == plain_rows([corpus[d] for d in taken], length - 2, crosses)


def test_rows_are_shuffled_and_documents_too() -> None:
    """Neither rows nor documents are in the order of the text."""
    pool = flat([[[5 + number] * 50] for number in range(50)])
    recipe = RecordsRecipe(sequences=FULL_SENTENCES)
    made = make_instances(pool, 50, recipe, PACKING, "x")
    # Two sentences and a separator.
    assert (made.lengths() == 103).sum() >= 24
    numbers = made.ids[made.a_start].tolist()
    assert sorted(numbers) != numbers
    assert (np.diff(made.a_start) < 0).any()


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"packing": True}, "(rows are filled already; document_sentences a"),
        ({"static_masking": True}, "(the layout of google-research/bert hold"),
        ({"short_seq_prob": 0.0}, "(rows are filled)"),
        ({"random_next_prob": 0.0}, "and `random_next_prob`=0.0: leave one of"),
    ],
)
def test_settings_of_pairs_do_not_fit_whole_sentences(settings, line) -> None:
    kind = {"sequences": FULL_SENTENCES}
    assert line in error_of(RecordsRecipe, **{**kind, **settings})
    RecordsRecipe(sequences=DOCUMENT_SENTENCES, packing=True)


def largest_gap(a: np.ndarray, b: np.ndarray) -> float:
    """The Kolmogorov-Smirnov distance of two samples."""
    places = np.arange(0, max(a.max(), b.max()) + 1)
    below_a = np.searchsorted(np.sort(a), places, side="right") / len(a)
    below_b = np.searchsorted(np.sort(b), places, side="right") / len(b)
    return float(abs(below_a - below_b).max())
