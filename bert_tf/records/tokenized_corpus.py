"""From text files to tokenised blocks on the disk, block by block.

Run as a module this is a worker process that tokenises; without TensorFlow for
most texts.
"""

import collections
import concurrent.futures
import dataclasses
import functools
import itertools
import os
import pathlib
from collections.abc import Iterator, Sequence

import numpy as np

from bert_tf.corpora.sources import CorpusFile
from bert_tf.corpora.streams import Position
from bert_tf.errors import UserError
from bert_tf.processes import WorkerPool, give_memory_back, serve
from bert_tf.records.corpus import (
    LONG_LINE_CHARACTERS,
    Block,
    read_blocks,
)
from bert_tf.records.plan import RecordsPlan
from bert_tf.records.recipe import RecordsRecipe
from bert_tf.records.repeats import write_signatures
from bert_tf.records.token_blocks import (
    BlockSummary,
    Documents,
    block_path,
    read_header,
    write_block,
)
from bert_tf.text.token_table import TokenTable
from bert_tf.text.tokenizer_protocol import TokenizerData, WorkerTokenizer

# Sentences are tokenised in batches of about this much text: large enough to
# make calls cheap, small enough to keep what is pending small.
_BATCH_BYTES = 1 << 17


def finished_blocks(work_dir: pathlib.Path) -> list[BlockSummary]:
    """The summaries of the blocks that an earlier run finished, in order."""
    found: list[BlockSummary] = []
    while (path := block_path(work_dir, len(found))).exists():
        found.append(BlockSummary.from_header(read_header(path)))
    return found


def tokenize_block(
    block: Block, tokenizer: WorkerTokenizer
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


def take_block(
    block: Block,
    ids: np.ndarray,
    lengths: np.ndarray,
    files: Sequence[CorpusFile],
    vocabulary: TokenTable,
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
    most = recipe.max_seq_length - vocabulary.packing.num_special(2)
    warnings = [
        f"{line.path}, line {line.line}: one sentence of more than "
        f"{LONG_LINE_CHARACTERS:,} characters, "
        f"{lengths[line.sentence]:,} tokens, of which a record keeps at most "
        f"{most}; write one sentence a line."
        for line in block.long_lines
    ]
    if warnings and recipe.long_lines == "refuse":
        raise UserError(
            f"{warnings[0]} To continue anyway, pass `long_lines`=cut."
        )
    if block.cut:
        warnings.append(
            f"{files[block.end.file].path}, line {block.end.line}: the "
            "document is longer than 32 MB and continues as a new one after "
            "this line; blank lines should stand between documents."
        )
    summary = BlockSummary(
        documents=len(documents),
        sentences=len(documents.sentence_starts) - 1,
        tokens=len(documents.ids),
        unknown=int(np.sum(ids == vocabulary.unk_id)),
        end=block.end,
        bytes_read=block.bytes_read,
        cut=block.cut,
        warnings=tuple(warnings),
        corpus=block.corpus,
    )
    return documents, summary


@dataclasses.dataclass(frozen=True)
class BlockWriter:
    """Writes blocks of text as files of tokens; can be sent to a process."""

    files: Sequence[CorpusFile]
    tokenizer: TokenizerData
    plan: RecordsPlan
    work_dir: pathlib.Path

    @functools.cached_property
    def _worker(self) -> WorkerTokenizer:
        return self.tokenizer.worker()

    def write(self, block: Block) -> BlockSummary:
        """Writes one block, whole or not at all."""
        plan, recipe = self.plan, self.plan.recipe
        ids, lengths = tokenize_block(block, self._worker)
        give_memory_back()
        documents, summary = take_block(
            block, ids, lengths, self.files, self.tokenizer.vocabulary, recipe
        )
        path = block_path(self.work_dir, block.number)
        if recipe.near_duplicates:
            write_signatures(path, documents, recipe.near_duplicates)
        write_block(
            path,
            documents,
            plan.deal(len(documents), block.number),
            plan.num_shards + 1,
            summary.header(),
        )
        return summary


def tokenize_corpus(
    writer: BlockWriter, workers: int, done: Sequence[BlockSummary]
) -> Iterator[BlockSummary]:
    """Tokenises the rest of a corpus into block files.

    Args:
      writer: writes them.
      workers: processes that tokenise, and the same number that split
        documents; with one it is done in this process.
      done: the blocks that are already there.

    Yields:
      The summary of each further block in order, once its file is written.
    """
    start = done[-1].end if done else Position()
    blocks = read_blocks(
        writer.files, start, len(done), writer.plan.recipe, workers
    )
    if workers == 1:
        yield from map(writer.write, blocks)
        return
    pending: collections.deque[concurrent.futures.Future] = collections.deque()
    with WorkerPool(
        "bert_tf.records.tokenized_corpus", writer, workers
    ) as pool:
        for block in blocks:
            pending.append(pool.submit(block))
            # One block waits, so that no worker does.
            if len(pending) > workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


if __name__ == "__main__":
    # Where TensorFlow is needed after all: there is a worker a processor.
    os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
    os.environ.setdefault("TF_NUM_INTEROP_THREADS", "1")
    serve(lambda writer: writer.write)
