"""How often the documents of each corpus are taken."""

from collections.abc import Mapping

from bert_tf.errors import UserError

MOST_VISITS = 10_000


def sampling_rates(
    sizes: Mapping[str, int], weights: Mapping[str, float], smoothing: float
) -> dict[str, float]:
    """How often, on average, a document of each corpus is taken.

    The share q of a corpus in the text becomes q^s / sum(q^s), with s the
    smoothing, and the amount of text stays: multilingual BERT's exponentially
    smoothed weighting (google-research/bert, multilingual.md, with 0.7). That
    is multiplied by the weight, so with s = 1 the weight is how often each
    document is taken, and with s = 0 weights are the shares.

    Args:
      sizes: tokens or words of each corpus.
      weights: of each corpus.
      smoothing: s, from 0 to 1.

    Raises:
      UserError: a small corpus would be repeated beyond all reason.
    """
    total = sum(sizes.values())
    if smoothing == 1 or not total:
        return dict(weights)
    shares = {name: size / total for name, size in sizes.items() if size}
    norm = sum(share**smoothing for share in shares.values())
    rates = {
        name: weights[name] * share ** (smoothing - 1) / norm
        for name, share in shares.items()
    }
    for name, rate in rates.items():
        if rate > MOST_VISITS:
            raise UserError(
                f"`inputs`: {name} would be taken {rate:,.0f} times; give it "
                "more text or a smaller weight, or raise `smoothing`."
            )
    return dict.fromkeys(sizes, 0.0) | rates
