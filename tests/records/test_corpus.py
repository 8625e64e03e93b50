import gzip
import pathlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_tf.corpora.recipe import CorpusRecipe
from bert_tf.corpora.sources import files_of
from bert_tf.corpora.streams import Position
from bert_tf.errors import UserError
from bert_tf.records import corpus
from bert_tf.records.corpus import Block, read_blocks
from bert_tf.records.token_blocks import (
    Documents,
    deal_documents,
    pool_documents,
    read_header,
    read_pool,
    write_block,
)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "BLOCK_BYTES", 100)
    monkeypatch.setattr(corpus, "DOCUMENT_BYTES", 400)


def write(folder: pathlib.Path, *texts: bytes) -> list[pathlib.Path]:
    paths = []
    for number, text in enumerate(texts):
        paths.append(folder / f"{number}.txt")
        paths[-1].write_bytes(text)
    return paths


def documents_of(block: Block) -> list[list[bytes]]:
    ends = [*block.document_starts[1:], len(block.sentences)]
    return [
        block.sentences[start:end]
        for start, end in zip(block.document_starts, ends, strict=True)
    ]


def read(paths: list[pathlib.Path], errors: str = "strict") -> list[Block]:
    return rest(paths, Position(), 0, errors)


def rest(
    paths: list[pathlib.Path], start: Position, number: int, errors: str
) -> list[Block]:
    recipe = CorpusRecipe(encoding_errors=errors)
    return list(read_blocks(files_of(paths, recipe), start, number, recipe))


def documents_in(paths: list[pathlib.Path]) -> list[list[bytes]]:
    return [d for block in read(paths) for d in documents_of(block)]


def test_documents_end_at_blank_lines_and_at_file_ends(
    tmp_path: pathlib.Path,
) -> None:
    paths = write(
        tmp_path,
        b"\n\n a one \r\na two\n \t \n\xc2\xa0\nb one\xe2\x80\xa8still b one\n",
        b"",
        b"c one\n\n\n\nd one",
    )
    assert documents_in(paths) == [
        [b"a one", b"a two"],
        ["b one\u2028still b one".encode()],
        [b"c one"],
        [b"d one"],
    ]
    (block,) = read(paths)
    assert block.end == Position(file=3)
    assert block.bytes_read == sum(p.stat().st_size for p in paths)


def test_blocks_hold_the_corpus_and_can_be_entered_anywhere(
    tmp_path: pathlib.Path, small_blocks: None
) -> None:
    texts = [
        "\n".join(
            f"file {f} sentence {n}" + "\n" * (n % 4 == 0) for n in range(60)
        ).encode()
        for f in range(3)
    ]
    paths = write(tmp_path, *texts)
    with gzip.open(tmp_path / "1.txt.gz", "wb") as file:
        file.write(texts[1])
    paths[1] = tmp_path / "1.txt.gz"
    blocks = read(paths)
    assert len(blocks) > 10
    assert [b.number for b in blocks] == list(range(len(blocks)))
    assert not any(block.cut for block in blocks)
    every = [d for block in blocks for d in documents_of(block)]
    assert [s for d in every for s in d] == [
        line for text in texts for line in text.split(b"\n") if line
    ]
    assert len(every) == 3 * 16
    progress = [block.bytes_read for block in blocks]
    assert progress == sorted(progress)
    assert progress[-1] == sum(p.stat().st_size for p in paths)
    for k, block in enumerate(blocks):
        assert rest(paths, block.end, k + 1, "strict") == blocks[k + 1 :]


def test_a_document_without_end_is_cut(
    tmp_path: pathlib.Path, small_blocks: None
) -> None:
    paths = write(tmp_path, b"one sentence of it\n" * 60 + b"\nother\n")
    blocks = read(paths)
    assert [block.cut for block in blocks] == [True, True, False, False]
    assert blocks[0].end.line == len(blocks[0].sentences)
    assert documents_of(blocks[-1])[-1] == [b"other"]
    assert sum(len(block.sentences) for block in blocks) == 61


def test_long_lines_are_named(tmp_path: pathlib.Path) -> None:
    (block,) = read(write(tmp_path, b"\nshort\n" + b"word " * 3000 + b"\n"))
    (line,) = block.long_lines
    assert (line.sentence, line.line) == (1, 3)
    assert line.path.endswith("0.txt")


def test_bytes_that_are_not_utf8(tmp_path: pathlib.Path) -> None:
    paths = write(tmp_path, b"good\n", b"good\n\nbad \xff here\n")
    with pytest.raises(
        UserError, match=r"1\.txt, line 3: byte 5 .*--encoding_errors=replace"
    ):
        read(paths)
    (block,) = read(paths, "replace")
    assert block.sentences[-1] == "bad \ufffd here".encode()


def test_damaged_gzip_is_named(tmp_path: pathlib.Path) -> None:
    data = gzip.compress(b"some text\n" * 1000)
    for name, damaged in {
        "cut": data[:-20],
        "no": b"no gzip at all",
    }.items():
        path = tmp_path / f"{name}.gz"
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=f"{name}.gz: damaged gzip"):
            read([path])


SENTENCES = st.lists(
    st.lists(st.lists(st.integers(0, 500), max_size=6), max_size=5),
    max_size=12,
)


@given(corpus=SENTENCES, pools=st.integers(1, 4), seed=st.integers(0, 99))
def test_block_files_give_back_every_document(
    tmp_path_factory: pytest.TempPathFactory,
    corpus: list[list[list[int]]],
    pools: int,
    seed: int,
) -> None:
    path = tmp_path_factory.mktemp("blocks") / "block"
    sizes = [len(s) for d in corpus for s in d]
    documents = Documents(
        np.array([t for d in corpus for s in d for t in s], np.uint16),
        np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        np.cumsum([0, *(len(d) for d in corpus)]).astype(np.int64),
    ).without_empty()
    wanted = [[s for s in d if s] for d in corpus]
    wanted = [d for d in wanted if d]
    assert as_lists(documents) == wanted
    dealt = np.random.default_rng(seed).integers(0, pools, len(wanted))
    write_block(path, documents, dealt, pools, {"note": "kept"})
    assert read_header(path)["note"] == "kept"
    counts = pool_documents(path)
    for pool in range(pools):
        mine = [d for d, p in zip(wanted, dealt, strict=True) if p == pool]
        assert counts[pool] == len(mine)
        assert as_lists(read_pool([path], pool)) == mine
        assert as_lists(read_pool([path, path], pool)) == mine + mine


def as_lists(documents: Documents) -> list[list[list[int]]]:
    sentences = [
        documents.ids[start:end].tolist()
        for start, end in zip(
            documents.sentence_starts[:-1],
            documents.sentence_starts[1:],
            strict=True,
        )
    ]
    return [
        sentences[start:end]
        for start, end in zip(
            documents.document_starts[:-1],
            documents.document_starts[1:],
            strict=True,
        )
    ]


def test_documents_are_dealt_evenly_and_by_seed() -> None:
    count = 40_000
    pools = deal_documents(count, 3, seed=5, num_shards=4, held_out=0.1)
    shares = np.bincount(pools, minlength=5) / count
    assert abs(shares[4] - 0.1) < 4 * (0.09 / count) ** 0.5
    assert abs(shares[:4] - 0.225).max() < 4 * (0.18 / count) ** 0.5
    assert (pools == deal_documents(count, 3, 5, 4, 0.1)).all()
    # A document's fate does not hang on how many follow it.
    assert (pools[:50] == deal_documents(50, 3, 5, 4, 0.1)).all()
    for block, seed in ((4, 5), (3, 6)):
        other = deal_documents(count, block, seed, 4, 0.1)
        assert abs((other == pools).mean() - (shares**2).sum()) < 0.02
    assert deal_documents(1000, 0, 1, 4, 0.0).max() == 3
