import pytest

from bert_tf.corpora.sources import sampling_rates
from bert_tf.errors import UserError

SIZES = {"de": 3000, "en": 60_000, "sw": 70}
ONES = dict.fromkeys(SIZES, 1.0)


def shares(rates: dict[str, float]) -> dict[str, float]:
    taken = {name: rates[name] * SIZES[name] for name in SIZES}
    return {name: taken[name] / sum(taken.values()) for name in SIZES}


def test_smoothed_shares_worked_by_hand() -> None:
    rates = sampling_rates(SIZES, ONES, 0.7)
    total = sum(SIZES.values())
    powers = {name: (size / total) ** 0.7 for name, size in SIZES.items()}
    wanted = {name: p / sum(powers.values()) for name, p in powers.items()}
    assert shares(rates) == pytest.approx(wanted)
    # The amount of text stays; the small grow and the large shrink.
    taken = sum(rates[name] * SIZES[name] for name in SIZES)
    assert taken == pytest.approx(total)
    assert rates["en"] < 1 < rates["de"] < rates["sw"]


def test_the_ends_of_smoothing() -> None:
    weights = {"de": 1.0, "en": 0.5, "sw": 3.0}
    assert sampling_rates(SIZES, weights, 1.0) == weights
    even = sampling_rates(SIZES, ONES, 0.0)
    assert shares(even) == pytest.approx(dict.fromkeys(SIZES, 1 / 3))
    mixed = shares(sampling_rates(SIZES, weights, 0.0))
    assert mixed == pytest.approx({"de": 2 / 9, "en": 1 / 9, "sw": 6 / 9})


def test_empty_and_tiny_corpora() -> None:
    rates = sampling_rates({"a": 10, "b": 0}, {"a": 1.0, "b": 1.0}, 0.5)
    assert rates == {"a": 1.0, "b": 0.0}
    with pytest.raises(UserError, match="b would be taken 50,000 times"):
        sampling_rates({"a": 99_999, "b": 1}, {"a": 1.0, "b": 1.0}, 0.0)
