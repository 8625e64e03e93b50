import gzip
import pathlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from records_corpus import flat

from benchmarks.records_instances import as_lists
from bert_tf.corpora import streams
from bert_tf.corpora.recipe import CorpusRecipe
from bert_tf.corpora.sources import files_of
from bert_tf.corpora.streams import Position
from bert_tf.errors import UserError
from bert_tf.records import corpus
from bert_tf.records.corpus import Block, read_blocks
from bert_tf.records.plan import RecordsPlan
from bert_tf.records.recipe import RecordsRecipe
from bert_tf.records.token_blocks import (
    BlockSummary,
    document_tokens,
    read_pool,
    write_block,
)

BEGINNING = Position()


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


def sentences_of(block: Block) -> list[bytes]:
    sentences = block.text.split(b"\n")
    assert sentences.pop() == b""
    assert block.sentence_bytes.tolist() == [len(s) for s in sentences]
    return sentences


def vars_of(block: Block) -> dict[str, object]:
    return vars(block) | {"sentence_bytes": block.sentence_bytes.tolist()}


def documents_of(block: Block) -> list[list[bytes]]:
    sentences = sentences_of(block)
    ends = [*block.document_starts[1:], len(sentences)]
    bounds = zip(block.document_starts, ends, strict=True)
    return [sentences[start:end] for start, end in bounds]


def read(
    paths: list[pathlib.Path],
    errors: str = "strict",
    start: Position = BEGINNING,
    number: int = 0,
) -> list[Block]:
    recipe = CorpusRecipe(encoding_errors=errors)
    return list(read_blocks(files_of(paths, recipe), start, number, recipe))


def test_documents_end_at_blank_lines_and_at_file_ends(tmp_path) -> None:
    paths = write(
        tmp_path,
        b"\n\n a one \r\na two\n \t \n\xc2\xa0\nb one\xe2\x80\xa8still b one\n",
        b"",
        b"c one\n\n\n\nd one",
    )
    (block,) = read(paths)
    assert documents_of(block) == [
        [b"a one", b"a two"],
        ["b one\u2028still b one".encode()],
        [b"c one"],
        [b"d one"],
    ]
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
        found = read(paths, start=block.end, number=k + 1)
        assert list(map(vars_of, found)) == list(map(vars_of, blocks[k + 1 :]))


BLANKS = [b"", b" \t", b"\x1c", b"\xc2\xa0"]
LINES = st.lists(
    st.sampled_from([*BLANKS, b"a", b" b c\r", "é \u2028".encode()])
    | st.integers(1, 700).map(lambda size: b"x" * size),
    max_size=40,
)


def line_by_line(texts: list[bytes]) -> list[tuple[int, list[bytes]]]:
    """The number of lines read, and the sentences, where each block ends."""
    found: list[tuple[int, list[bytes]]] = []
    sentences: list[bytes] = []
    size, in_document = 0, False
    for file, text in enumerate(texts, start=1):
        for number, line in enumerate(text.splitlines(keepends=True), start=1):
            sentence = line.decode().strip().encode()
            in_document = bool(sentence)
            sentences += [sentence] * in_document
            size += len(line)
            if size >= 400 or (size >= 100 and not in_document):
                found.append((number, sentences))
                sentences, size = [], 0
        in_document = False
        if size >= 100 or file == len(texts):
            found.append((0, sentences))
            sentences, size = [], 0
    return found


@given(texts=st.lists(LINES, min_size=1, max_size=3), batch=st.integers(1, 900))
def test_blocks_end_where_reading_line_by_line_ends_them(
    tmp_path_factory, texts, batch
) -> None:
    joined = [b"\n".join(lines) for lines in texts]
    paths = write(tmp_path_factory.mktemp("lines"), *joined)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpus, "BLOCK_BYTES", 100)
        patch.setattr(corpus, "DOCUMENT_BYTES", 400)
        patch.setattr(streams, "_READ_BYTES", batch)
        blocks = read(paths)
    found = [(block.end.line, sentences_of(block)) for block in blocks]
    assert found == line_by_line(joined)


def test_bytes_that_are_not_utf8(tmp_path: pathlib.Path) -> None:
    paths = write(tmp_path, b"good\n", b"good\n\nbad \xff here\n")
    line = r"1\.txt, line 3: byte 5 .*`encoding_errors`=rep"
    with pytest.raises(UserError, match=line):
        read(paths)
    (block,) = read(paths, "replace")
    assert sentences_of(block)[-1] == "bad \ufffd here".encode()


SENTENCES = st.lists(
    st.lists(st.lists(st.integers(0, 500), max_size=6), max_size=5), max_size=12
)


@given(corpus=SENTENCES, pools=st.integers(1, 4), seed=st.integers(0, 99))
def test_block_files_give_back_every_document(
    tmp_path_factory, corpus, pools, seed
) -> None:
    path = tmp_path_factory.mktemp("blocks") / "block"
    documents = flat(corpus).without_empty()
    expected = [[s for s in d if s] for d in corpus if any(d)]
    assert as_lists(documents) == expected
    dealt = np.random.default_rng(seed).integers(0, pools, len(expected))
    summary = BlockSummary(
        documents=len(documents),
        sentences=len(documents.sentence_starts) - 1,
        tokens=len(documents.ids),
        unknown=3,
        end=Position(1, 2, 3, 4, 5),
        bytes_read=7,
        cut=True,
        warnings=("a", "b"),
        corpus="en",
    )
    write_block(path, documents, dealt, pools, summary)
    assert BlockSummary.load(path) == summary
    in_file = documents.take(np.argsort(dealt, kind="stable"))
    assert document_tokens(path).tolist() == in_file.lengths().tolist()
    for pool in range(pools):
        mine = [d for d, p in zip(expected, dealt, strict=True) if p == pool]
        assert as_lists(read_pool([path], pool)) == mine
        assert as_lists(read_pool([path, path], pool)) == mine + mine


def deal(count: int, block: int, seed: int, held_out=0.1) -> np.ndarray:
    recipe = RecordsRecipe(seed=seed, num_shards=4, held_out=held_out)
    plan = RecordsPlan(recipe, "", (), {})
    return plan.assign_pools(count, block)


def test_documents_are_dealt_evenly_and_by_seed() -> None:
    count = 40_000
    pools = deal(count, 3, seed=5)
    shares = np.bincount(pools, minlength=5) / count
    assert abs(shares[4] - 0.1) < 4 * (0.09 / count) ** 0.5
    assert abs(shares[:4] - 0.225).max() < 4 * (0.18 / count) ** 0.5
    assert (pools == deal(count, 3, seed=5)).all()
    # A document's pool does not depend on how many follow it.
    assert (pools[:50] == deal(50, 3, seed=5)).all()
    for block, seed in ((4, 5), (3, 6)):
        other = deal(count, block, seed)
        assert abs((other == pools).mean() - (shares**2).sum()) < 0.02
    assert deal(1000, 0, seed=1, held_out=0.0).max() == 3
