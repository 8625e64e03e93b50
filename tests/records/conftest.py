"""Folders of records that the tests of this room build."""

from collections.abc import Callable

import pytest
from records_corpus import Workshop, text, write_vocabulary

from bert_tf.records import corpus
from bert_tf.records.folder import RecordFolder


@pytest.fixture
def workshop(tmp_path, monkeypatch) -> Workshop:
    """Two files of text, which are read in several blocks."""
    monkeypatch.setattr(corpus, "BLOCK_BYTES", 8000)
    (tmp_path / "a.txt").write_text(text(60, seed=1))
    (tmp_path / "b.txt").write_text(text(30, seed=2))
    return Workshop(tmp_path, write_vocabulary(tmp_path / "vocab"))


@pytest.fixture(scope="session")
def build(tmp_path_factory) -> Callable[..., RecordFolder]:
    """Builds a folder of records once for each set of settings."""
    base = tmp_path_factory.mktemp("records")
    (base / "text.txt").write_text(text(150))
    shop = Workshop(base, write_vocabulary(base / "vocab"))
    built: dict[str, RecordFolder] = {}

    def build(**changes: object) -> RecordFolder:
        name = "-".join(f"{k}={v}" for k, v in changes.items()) or "plain"
        if name not in built:
            settings = {"max_seq_length": 64, "num_shards": 4, "held_out": 0.2}
            shop.build(name, **(settings | changes))
            built[name] = RecordFolder.open(base / name)
        return built[name]

    return build
