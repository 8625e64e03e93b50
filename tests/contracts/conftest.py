"""Records of a small corpus, as the tests of pre-training have them."""

from tests.pretraining.conftest import (  # noqa: F401
    config_file,
    make_records,
    small_corpus,
    small_vocab,
    without_curves,
)
