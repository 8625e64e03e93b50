"""From text files to tokenised blocks on the disk, block by block."""

import collections
import concurrent.futures
import dataclasses
import functools
import itertools
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np

from bert_tf.corpora.sources import CorpusFile
from bert_tf.corpora.streams import Position
from bert_tf.errors import UserError
from bert_tf.processes import WorkerPool, give_memory_back
from bert_tf.records.corpus import (
    LONG_LINE_CHARACTERS,
    Block,
    read_blocks,
)
from bert_tf.records.near_duplicates import write_signatures
from bert_tf.records.recipe import RecordsRecipe
from bert_tf.records.shards import block_path
from bert_tf.records.token_blocks import (
    Documents,
    deal_documents,
    read_header,
    write_block,
)
from bert_tf.text.corpus_tokenizer import CorpusTokenizer
from bert_tf.text.tokenizer_config import TokenizerConfig
from bert_tf.text.vocabulary import Vocabulary

# Sentences are tokenised in batches of about this much text: large enough to
# make calls cheap, small enough that what is under way stays small.
_BATCH_BYTES = 1 << 17


@dataclasses.dataclass(frozen=True)
class BlockSummary:
    """What is known of a tokenised block.

    Attributes:
      documents, sentences, tokens, unknown: counts; unknown are [UNK].
      end: the place where the next block begins.
      bytes_read: bytes of the input files up to there.
      cut: whether the last document goes on in the next block.
      warnings: one line for each unusual line of text.
      corpus: name of the corpus that it is of.
    """

    documents: int
    sentences: int
    tokens: int
    unknown: int
    end: Position
    bytes_read: int
    cut: bool
    warnings: tuple[str, ...]
    corpus: str = ""

    @classmethod
    def read(cls, path: pathlib.Path) -> Self:
        """Reads the summary of a block file."""
        return cls.from_header(read_header(path))

    @classmethod
    def from_header(cls, header: Mapping[str, Any]) -> Self:
        """The inverse of `header`; what else stands there is passed over."""
        names = {f.name for f in dataclasses.fields(cls)}
        values = {name: header[name] for name in names & header.keys()}
        values["end"] = Position(*header["end"])
        values["warnings"] = tuple(header["warnings"])
        return cls(**values)

    def header(self) -> dict[str, Any]:
        """The values as JSON takes them."""
        values = dataclasses.asdict(self)
        return values | {"end": dataclasses.astuple(self.end)}


def finished_blocks(work_dir: pathlib.Path) -> list[BlockSummary]:
    """The summaries of the blocks that an earlier run finished, in order."""
    found: list[BlockSummary] = []
    while block_path(work_dir, len(found)).exists():
        found.append(BlockSummary.read(block_path(work_dir, len(found))))
    return found


def tokenize_block(
    block: Block, tokenizer: CorpusTokenizer
) -> tuple[np.ndarray, np.ndarray]:
    """The token ids of a block, [t], and tokens a sentence, int64 [s]."""
    sizes = block.sentence_bytes
    ends = np.concatenate([[0], np.cumsum(sizes + 1)])
    # A batch ends with the first sentence that reaches its share of the text.
    shares = np.arange(_BATCH_BYTES, len(block.text), _BATCH_BYTES)
    cuts = np.unique([0, *np.searchsorted(ends, shares), len(sizes)])
    parts = [
        tokenizer.tokenize(
            block.text[ends[first] : ends[last]], sizes[first:last]
        )
        for first, last in itertools.pairwise(cuts.tolist())
    ]
    return (
        np.concatenate(
            [np.zeros(0, tokenizer.dtype), *(ids for ids, _ in parts)]
        ),
        np.concatenate([np.zeros(0, np.int64), *(count for _, count in parts)]),
    )


def _long_line_warnings(
    block: Block, lengths: np.ndarray, recipe: RecordsRecipe
) -> list[str]:
    room = recipe.max_seq_length - 3
    return [
        f"{line.path}, line {line.line}: one sentence of more than "
        f"{LONG_LINE_CHARACTERS:,} characters, "
        f"{lengths[line.sentence]:,} tokens, of which a record keeps at most "
        f"{room}; write one sentence a line."
        for line in block.long_lines
    ]


def _cut_warning(block: Block, files: Sequence[CorpusFile]) -> list[str]:
    if not block.cut:
        return []
    return [
        f"{files[block.end.file].path}, line {block.end.line}: the document is "
        "longer than 32 MB and goes on as a new one after this line; blank "
        "lines should stand between documents."
    ]


def take_block(
    block: Block,
    ids: np.ndarray,
    lengths: np.ndarray,
    files: Sequence[CorpusFile],
    vocabulary: Vocabulary,
    recipe: RecordsRecipe,
) -> tuple[Documents, BlockSummary]:
    """The documents of a tokenised block, and what is known of them.

    Args:
      block: the block.
      ids: its token ids, [t].
      lengths: the tokens of each sentence, int64 [s].
      files: the input files, for warnings.
      vocabulary: made the ids.
      recipe: treatment of long lines.

    Raises:
      UserError: a line is too long.
    """
    documents = Documents(
        ids,
        np.concatenate([[0], np.cumsum(lengths)]),
        np.append(block.document_starts, len(lengths)).astype(np.int64),
    ).without_empty()
    long_lines = _long_line_warnings(block, lengths, recipe)
    if long_lines and recipe.long_lines == "refuse":
        raise UserError(
            f"{long_lines[0]} To go on all the same, pass `long_lines`=cut."
        )
    summary = BlockSummary(
        documents=len(documents),
        sentences=len(documents.sentence_starts) - 1,
        tokens=len(documents.ids),
        unknown=int(np.sum(ids == vocabulary.unk_id)),
        end=block.end,
        bytes_read=block.bytes_read,
        cut=block.cut,
        warnings=(*long_lines, *_cut_warning(block, files)),
        corpus=block.corpus,
    )
    return documents, summary


@dataclasses.dataclass(frozen=True)
class BlockWriter:
    """Writes blocks of text as files of tokens; can be sent to a process.

    Attributes:
      files: the input files in their order.
      vocabulary: makes the ids.
      tokenizer_config: how text is split into words.
      recipe: seed, held-out share and treatment of long lines.
      num_shards: training pools; one more pool is held out.
      work_dir: folder of the block files.
    """

    files: Sequence[CorpusFile]
    vocabulary: Vocabulary
    tokenizer_config: TokenizerConfig
    recipe: RecordsRecipe
    num_shards: int
    work_dir: pathlib.Path

    @functools.cached_property
    def _tokenizer(self) -> CorpusTokenizer:
        return CorpusTokenizer(self.vocabulary, self.tokenizer_config)

    def write(self, block: Block) -> BlockSummary:
        """Writes one block, whole or not at all.

        Raises:
          UserError: a line is too long.
        """
        ids, lengths = tokenize_block(block, self._tokenizer)
        give_memory_back()
        documents, summary = take_block(
            block, ids, lengths, self.files, self.vocabulary, self.recipe
        )
        pools = deal_documents(
            len(documents),
            block.number,
            self.recipe.seed,
            self.num_shards,
            self.recipe.held_out,
        )
        path = block_path(self.work_dir, block.number)
        if self.recipe.near_duplicates:
            write_signatures(path, documents, self.recipe.near_duplicates)
        write_block(
            path, documents, pools, self.num_shards + 1, summary.header()
        )
        return summary


def tokenize_corpus(
    writer: BlockWriter, workers: int, done: Sequence[BlockSummary]
) -> Iterator[BlockSummary]:
    """Tokenises the rest of a corpus into block files.

    Args:
      writer: writes them.
      workers: processes that tokenise, and as many that take documents apart;
        with one it is done in this process.
      done: the blocks that are already there.

    Yields:
      The summary of each further block in order, once its file is written.

    Raises:
      UserError: a file is damaged or not of its format, or a line is not
        UTF-8 or too long.
    """
    start = done[-1].end if done else Position()
    blocks = read_blocks(writer.files, start, len(done), writer.recipe, workers)
    if workers == 1:
        yield from map(writer.write, blocks)
        return
    under_way: collections.deque[concurrent.futures.Future] = (
        collections.deque()
    )
    with WorkerPool(
        "bert_tf.records.tokenizing_workers", writer, workers
    ) as pool:
        for block in blocks:
            under_way.append(pool.submit(block))
            # One block waits, so that no worker does.
            if len(under_way) > workers:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()
