"""What passes between the steps of the pipeline, without Apache Beam."""

import dataclasses

import numpy as np

from bert_tf.corpora.sources import CorpusFile
from bert_tf.records.plan import RecordsPlan
from bert_tf.records.shards import ShardJob
from bert_tf.records.token_blocks import Documents, deal_documents
from bert_tf.records.tokenized_corpus import BlockSummary
from bert_tf.records.visits import CorpusSummary


@dataclasses.dataclass(frozen=True)
class PipelineTask:
    """What the steps need to know; it can be pickled.

    Attributes:
      plan: what is to be built.
      files: the input files.
      tokens: the vocabulary.
      output_dir: folder of the records, a path or a URL.
      outcome: name of the file in it that tells what the pipeline did.
    """

    plan: RecordsPlan
    files: tuple[CorpusFile, ...]
    tokens: tuple[str, ...]
    output_dir: str
    outcome: str

    def pools(self, documents: int, block: int) -> np.ndarray:
        """The pool of each document of a block, int64 [d]."""
        recipe, shards = self.plan.recipe, self.plan.num_shards
        return deal_documents(
            documents, block, recipe.seed, shards, recipe.held_out
        )


@dataclasses.dataclass(frozen=True)
class Mistake:
    """A mistake of the user's, and the block in which it was met."""

    block: int
    text: str


@dataclasses.dataclass(frozen=True)
class BlockFacts:
    """What is known of a tokenised block.

    Attributes:
      number: of the block.
      summary: its counts.
      tokens: of each document, int64 [d].
      signatures: as `signature_bytes` gives them; None if none are needed.
    """

    number: int
    summary: BlockSummary
    tokens: np.ndarray
    signatures: bytes | None


@dataclasses.dataclass(frozen=True)
class Decision:
    """What all blocks together came to.

    Attributes:
      mistake: what makes records impossible; None for nothing.
      blocks: what is known of each block, in order.
      corpora: what is taken of each corpus.
      counts: documents of each pool, int64 [shards + 1].
      jobs: the files to write.
      visits: how often each document of a block is used, by the block's
        number; None where each is used once.
    """

    mistake: str | None
    blocks: tuple[BlockSummary, ...] = ()
    corpora: dict[str, CorpusSummary] = dataclasses.field(default_factory=dict)
    counts: np.ndarray | None = None
    jobs: tuple[ShardJob, ...] = ()
    visits: dict[int, np.ndarray] | None = None


@dataclasses.dataclass(frozen=True)
class Part:
    """The documents of one block in one file.

    Attributes:
      pool: place of their pool among those of the file.
      block: number of the block.
      is_own: whether they become records, or lend their sentences only.
      documents: the documents.
    """

    pool: int
    block: int
    is_own: bool
    documents: Documents
