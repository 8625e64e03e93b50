"""What a build came to: the manifest of its folder, and a few lines to read."""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence

import numpy as np

from bert_tf.corpora.sources import CorpusFile
from bert_tf.errors import UserError
from bert_tf.records.folder import Manifest, Packing
from bert_tf.records.plan import RecordsPlan
from bert_tf.records.recipe import RecordsRecipe
from bert_tf.records.repeats import CorpusSummary
from bert_tf.records.shards import ShardResult
from bert_tf.records.token_blocks import BlockSummary

_MAX_WARNINGS = 5


def first_warnings(warnings: Sequence[str]) -> list[str]:
    """The first few warnings, and how many more there are."""
    found = list(warnings[:_MAX_WARNINGS])
    if len(warnings) > _MAX_WARNINGS:
        found.append(f"{len(warnings) - _MAX_WARNINGS} more lines like these.")
    return found


def check_documents(
    recipe: RecordsRecipe,
    files: Sequence[CorpusFile],
    blocks: Sequence[BlockSummary],
    counts: np.ndarray,
) -> None:
    """Raises `UserError` for text of no document, or of too few.

    Args:
      recipe: whether random next sentences are needed.
      files: the input files, for the error.
      blocks: what they came to.
      counts: documents of each pool, int64 [shards + 1].
    """
    names = ", ".join(file.path for file in files[:3])
    more = f" and {len(files) - 3} more" if files[3:] else ""
    documents = int(counts.sum()) - sum(block.cut for block in blocks)
    if not documents:
        raise UserError(f"`inputs`={names}{more}: holds no text.")
    if documents == 1 and recipe.random_next_prob:
        raise UserError(
            f"`inputs`={names}{more}: is one single document, and a random "
            "next sentence must come from another one; put a blank line "
            "between documents, or pass `random_next_prob`=0."
        )


def manifest_of(
    plan: RecordsPlan,
    blocks: Sequence[BlockSummary],
    corpora: Mapping[str, CorpusSummary],
    results: Sequence[ShardResult],
) -> Manifest:
    """The manifest of a finished folder, of the results in the jobs' order."""
    num_training = plan.num_shards
    training, held_out = results[:num_training], results[num_training:]
    statistics = {
        "documents": sum(block.documents for block in blocks),
        "sentences": sum(block.sentences for block in blocks),
        "tokens": sum(block.tokens for block in blocks),
        "unknown": sum(block.unknown for block in blocks),
        "near_duplicates": sum(
            corpus.near_duplicates for corpus in corpora.values()
        ),
        "passes": plan.recipe.dupe_factor,
        "shards": num_training,
        "records": sum(r.records for r in training),
        "random_next": sum(r.random_next for r in training),
        "record_tokens": sum(r.tokens for r in training),
        "tokens_cut": sum(r.tokens_cut for r in training),
        "held_out_documents": sum(r.documents for r in held_out),
        "held_out_records": sum(r.records for r in held_out),
    }
    packing = None
    if plan.recipe.packing:
        places = statistics["records"] * plan.recipe.max_seq_length
        packing = Packing(
            sequences=sum(r.sequences for r in training),
            held_out_sequences=sum(r.sequences for r in held_out),
            most_sequences=max(r.most_sequences for r in results),
            most_predictions=max(r.most_predictions for r in results),
            filled=statistics["record_tokens"] / max(places, 1),
        )
    return Manifest(
        plan.vocabulary_digest,
        plan.inputs,
        tuple((r.name, r.records, r.size) for r in training),
        tuple((r.name, r.records, r.size) for r in held_out),
        statistics,
        {name: dataclasses.asdict(c) for name, c in corpora.items()},
        packing,
    )


@dataclasses.dataclass(frozen=True)
class RecordsReport:
    """What a finished folder holds.

    Attributes:
      output_dir: the folder; a string if it is a URL.
      manifest: of the folder.
      seconds: time of this run; 0 where everything was there already.
    """

    output_dir: pathlib.Path | str
    manifest: Manifest
    seconds: float

    @property
    def statistics(self) -> dict[str, int]:
        """Counts, as in the manifest."""
        return self.manifest.statistics

    @property
    def corpora(self) -> dict[str, dict[str, float]]:
        """What was taken of each corpus, as in the manifest."""
        return self.manifest.corpora

    def _corpus_lines(self) -> list[str]:
        """What was left out, and what was taken of each corpus."""
        lines = []
        if self.statistics.get("near_duplicates"):
            lines.append(
                f"{self.statistics['near_duplicates']:,} documents left out "
                "as near-duplicates of earlier ones"
            )
        taken = sum(c["tokens_taken"] for c in self.corpora.values())
        for name, corpus in self.corpora.items():
            if name:
                lines.append(
                    f"{name}: {corpus['documents']:,} documents, "
                    f"{corpus['tokens']:,} tokens, each taken "
                    f"{corpus['rate']:.3g} times: "
                    f"{corpus['tokens_taken'] / max(taken, 1):.1%} of the mix"
                )
        return lines

    def _packing_lines(self) -> list[str]:
        """How many sequences stand in a record, and how full it is."""
        packing = self.manifest.packing
        if packing is None:
            return []
        mean = packing.sequences / max(self.statistics["records"], 1)
        return [
            f"packed records are filled {packing.filled:.1%}, with {mean:.2f} "
            f"sequences each on average and {packing.most_sequences} at most, "
            f"and {packing.most_predictions} masked tokens at most"
        ]

    def __str__(self) -> str:
        s = self.statistics
        count, shown = s["records"], f"{s['records']:,} training records"
        if self.manifest.packing is not None:
            count = self.manifest.packing.sequences
            shown = f"{count:,} training sequences in {s['records']:,} records"
        count = max(count, 1)
        passes = f"{s['passes']} pass{'es' if s['passes'] > 1 else ''}"
        lines = [
            f"{s['documents']:,} documents, {s['sentences']:,} sentences, "
            f"{s['tokens']:,} tokens, {s['unknown'] / s['tokens']:.3%} [UNK]",
            *self._corpus_lines(),
            f"{shown} in {s['shards']} file{'s' if s['shards'] > 1 else ''} "
            f"from {passes}: "
            f"{s['random_next'] / count:.1%} with a random next sentence, "
            f"{s['record_tokens'] / count:.1f} tokens each on average; "
            f"truncation cut off {s['tokens_cut']:,} tokens",
            *self._packing_lines(),
            f"{s['held_out_records']:,} held-out records from "
            f"{s['held_out_documents']:,} documents",
        ]
        if self.seconds:
            size = sum(file.size for file in self.manifest.inputs)
            speed = size / 1e6 / self.seconds
            lines.append(
                f"{self.seconds:.1f} seconds, {speed:.2f} MB of input a second"
            )
        if isinstance(self.output_dir, str):
            lines.append(f"next: copy {self.output_dir} to a disk as DIR")
            return "\n".join(lines)
        lines.append(
            "next: python -m tools.run_pretraining "
            f"--data_dir={self.output_dir} --output_dir=DIR --size=mini"
        )
        return "\n".join(lines)
