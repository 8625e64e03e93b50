"""Stage 1 of a build: from text files to block files of tokenised documents.

Run as a module, this is a worker process that tokenises; it imports TensorFlow
only for tokenizers with added tokens.
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

from bert_tf.corpora.streams import Position
from bert_tf.errors import UserError
from bert_tf.files import written_beside
from bert_tf.processes import WorkerPool, give_memory_back, serve
from bert_tf.records.corpus import LONG_LINE_CHARACTERS, Block, read_blocks
from bert_tf.records.near_duplicates import signature_bytes, signature_path
from bert_tf.records.plan import RecordsTask
from bert_tf.records.token_blocks import (
    BlockSummary,
    Documents,
    block_path,
    write_block,
)
from bert_tf.text.tokenizer_protocol import WorkerTokenizer

# Text per call of the tokenizer: enough to make calls cheap, little enough to
# keep temporary arrays small.
_BATCH_BYTES = 1 << 17


def _reads_blanks(tokenizer: WorkerTokenizer) -> bool:
    """Whether the ids of a word depend on a blank before it (GPT-2's BPE)."""
    ids, counts = tokenizer.tokenize(b"a\n a\n", np.array([1, 2]))
    return not np.array_equal(ids[: counts[0]], ids[counts[0] :])


def _with_blanks(block: Block) -> tuple[bytes, np.ndarray]:
    """Returns the text and the bytes of each sentence, apart by blanks.

    All sentences but the first of a document begin with a blank, as they do in
    running text.
    """
    sizes = block.sentence_bytes
    starts = np.cumsum(sizes + 1) - sizes - 1
    is_inner = np.ones(len(sizes), dtype=bool)
    is_inner[block.document_starts] = False
    text = np.frombuffer(block.text, np.uint8)
    text = np.insert(text, starts[is_inner], ord(" "))
    return text.tobytes(), sizes + is_inner


def tokenize_block(
    block: Block, tokenizer: WorkerTokenizer, task: RecordsTask
) -> tuple[Documents, BlockSummary]:
    """Tokenises a block.

    Args:
      block: the block.
      tokenizer: the tokenizer of the task, as workers use it.
      task: what is built.

    Returns:
      The documents without empty sentences, and their statistics.

    Raises:
      UserError: a line is too long.
    """
    text, sizes = block.text, block.sentence_bytes
    if _reads_blanks(tokenizer):
        text, sizes = _with_blanks(block)
    ends = np.concatenate([[0], np.cumsum(sizes + 1)])
    # A batch ends with the first sentence that reaches its share of the text.
    shares = np.arange(_BATCH_BYTES, len(text), _BATCH_BYTES)
    cuts = np.unique([0, *np.searchsorted(ends, shares), len(sizes)])
    batches = [
        tokenizer.tokenize(text[ends[first] : ends[last]], sizes[first:last])
        for first, last in itertools.pairwise(cuts.tolist())
    ]
    ids = np.concatenate(
        [np.zeros(0, tokenizer.dtype), *(ids for ids, _ in batches)]
    )
    lengths = np.concatenate(
        [np.zeros(0, np.int64), *(counts for _, counts in batches)]
    )
    del batches
    give_memory_back()
    documents = Documents(
        ids,
        np.concatenate([[0], np.cumsum(lengths)]),
        np.append(block.document_starts, len(lengths)).astype(np.int64),
    ).without_empty()
    recipe, vocabulary = task.plan.recipe, task.tokenizer.vocabulary
    special = vocabulary.packing.num_special(2 if recipe.has_pairs else 1)
    longest = recipe.max_seq_length - special
    warnings = [
        f"{line.path}, line {line.line}: one sentence of more than "
        f"{LONG_LINE_CHARACTERS:,} characters, "
        f"{lengths[line.sentence]:,} tokens, of which a record keeps at most "
        f"{longest}; write one sentence a line."
        for line in block.long_lines
    ]
    if warnings and recipe.long_lines == "refuse":
        raise UserError(
            f"{warnings[0]} To continue anyway, pass `long_lines`=cut."
        )
    if block.cut:
        warnings.append(
            f"{task.files[block.end.file].path}, line {block.end.line}: the "
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
    """Tokenises blocks of text and writes them as block files; picklable."""

    task: RecordsTask
    work_dir: pathlib.Path

    @functools.cached_property
    def _tokenizer(self) -> WorkerTokenizer:
        return self.task.tokenizer.worker()

    def write(self, block: Block) -> BlockSummary:
        """Writes the file of a block, atomically."""
        plan, path = self.task.plan, block_path(self.work_dir, block.number)
        documents, summary = tokenize_block(block, self._tokenizer, self.task)
        if threshold := plan.recipe.near_duplicates:
            with written_beside(signature_path(path)) as partial:
                partial.write_bytes(signature_bytes(documents, threshold))
        pools = plan.assign_pools(len(documents), block.number)
        write_block(path, documents, pools, plan.num_shards + 1, summary)
        return summary


def tokenize_corpus(
    writer: BlockWriter, workers: int, done: Sequence[BlockSummary]
) -> Iterator[BlockSummary]:
    """Tokenises the rest of a corpus into block files.

    Args:
      writer: writes the files.
      workers: number of processes that tokenise, and of those that split
        documents; with one, this process does both.
      done: the blocks that exist already.

    Yields:
      The summary of each further block, in order, once its file is written.
    """
    start = done[-1].end if done else Position()
    task = writer.task
    blocks = read_blocks(
        task.files, start, len(done), task.plan.recipe, workers
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
            # One block is queued, so that no worker is idle.
            if len(pending) > workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


if __name__ == "__main__":
    # If TensorFlow is needed: there is one worker per processor already.
    os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
    os.environ.setdefault("TF_NUM_INTEROP_THREADS", "1")
    serve(lambda writer: writer.write)
