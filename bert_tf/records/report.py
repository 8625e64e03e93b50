"""The result of a build: the manifest of its folder, and a short report."""

import dataclasses
import pathlib
from collections.abc import Sequence

from bert_tf.architecture_list import ARCHITECTURES, find_architecture
from bert_tf.config import BertConfig
from bert_tf.records.allocation import Allocation
from bert_tf.records.folder import Manifest, Packing
from bert_tf.records.plan import RecordsPlan
from bert_tf.records.recipe import (
    DOCUMENT_SENTENCES,
    SENTENCE_ORDER,
    SENTENCE_PAIRS,
    RecordsRecipe,
)
from bert_tf.records.shards import ShardResult
from bert_tf.text.tokenizer_protocol import TokenizerData


def manifest_of(
    plan: RecordsPlan, allocation: Allocation, results: Sequence[ShardResult]
) -> Manifest:
    """Returns the manifest of a finished folder.

    Args:
      plan: what was built.
      allocation: how its documents were allocated.
      results: statistics of all shards, in any order.
    """
    by_name = {result.name: result for result in results}
    ordered = [by_name[job.name] for job in allocation.jobs]
    training, held_out = ordered[: plan.num_shards], ordered[plan.num_shards :]
    blocks = allocation.blocks
    statistics = {
        "documents": sum(block.documents for block in blocks),
        "sentences": sum(block.sentences for block in blocks),
        "tokens": sum(block.tokens for block in blocks),
        "unknown": sum(block.unknown for block in blocks),
        "near_duplicates": sum(
            int(corpus["near_duplicates"])
            for corpus in allocation.corpora.values()
        ),
        "passes": plan.recipe.dupe_factor,
        "shards": plan.num_shards,
        "records": sum(r.records for r in training),
        "random_next": sum(r.random_next for r in training),
        "record_tokens": sum(r.tokens for r in training),
        "tokens_cut": sum(r.tokens_cut for r in training),
        "held_out_documents": sum(r.documents for r in held_out),
        "held_out_records": sum(r.records for r in held_out),
    }
    packing = None
    if plan.recipe.packing:
        size = statistics["records"] * plan.recipe.max_seq_length
        packing = Packing(
            sequences=sum(r.sequences for r in training),
            held_out_sequences=sum(r.sequences for r in held_out),
            most_sequences=max(r.most_sequences for r in ordered),
            most_predictions=max(r.most_predictions for r in ordered),
            filled=statistics["record_tokens"] / max(size, 1),
        )
    return Manifest(
        plan.vocabulary_digest,
        plan.inputs,
        tuple((r.name, r.records, r.size) for r in training),
        tuple((r.name, r.records, r.size) for r in held_out),
        statistics,
        allocation.corpora,
        packing,
    )


@dataclasses.dataclass(frozen=True)
class RecordsReport:
    """What a finished folder holds; as a string, a report to print.

    Attributes:
      output_dir: the folder; a string if it is a URL.
      manifest: its manifest.
      recipe: how the records were made.
      tokenizer: the tokenizer.
      seconds: duration of this run; 0 if the folder was finished before.
    """

    output_dir: pathlib.Path | str
    manifest: Manifest
    recipe: RecordsRecipe
    tokenizer: TokenizerData
    seconds: float

    @property
    def statistics(self) -> dict[str, int]:
        """Statistics of the manifest."""
        return self.manifest.statistics

    @property
    def corpora(self) -> dict[str, dict[str, float]]:
        """Statistics of each corpus, from the manifest."""
        return self.manifest.corpora

    def __str__(self) -> str:
        s, packing = self.statistics, self.manifest.packing
        lines = [
            f"{s['documents']:,} documents, {s['sentences']:,} sentences, "
            f"{s['tokens']:,} tokens, {s['unknown'] / s['tokens']:.3%} "
            f"{self.tokenizer.vocabulary.special.unk or 'unknown'}"
        ]
        if s.get("near_duplicates"):
            lines.append(
                f"{s['near_duplicates']:,} documents left out as "
                "near-duplicates of earlier ones"
            )
        total = sum(c["tokens_taken"] for c in self.corpora.values())
        lines += [
            f"{name}: {corpus['documents']:,} documents, "
            f"{corpus['tokens']:,} tokens, each taken {corpus['rate']:.3g} "
            f"times: {corpus['tokens_taken'] / max(total, 1):.1%} of the mix"
            for name, corpus in self.corpora.items()
            if name
        ]
        sequences, unit = s["records"], f"{s['records']:,} training records"
        if packing:
            sequences = packing.sequences
            unit = (
                f"{sequences:,} training sequences in {s['records']:,} records"
            )
        count = max(sequences, 1)
        share = f"{s['random_next'] / count:.1%} "
        share = {
            SENTENCE_PAIRS: f"{share}with a random next sentence, ",
            SENTENCE_ORDER: f"{share}not in order, ",
        }.get(self.recipe.sequences, "")
        lines.append(
            f"{unit} in {s['shards']} file{'s' if s['shards'] > 1 else ''} "
            f"from {s['passes']} pass{'es' if s['passes'] > 1 else ''}: "
            f"{share}{s['record_tokens'] / count:.1f} tokens each on average; "
            f"truncation cut off {s['tokens_cut']:,} tokens"
        )
        if packing:
            mean = packing.sequences / max(s["records"], 1)
            lines.append(
                f"packed records are filled {packing.filled:.1%}, with "
                f"{mean:.2f} sequences each on average and "
                f"{packing.most_sequences} at most, and "
                f"{packing.most_predictions} masked tokens at most"
            )
        lines.append(
            f"{s['held_out_records']:,} held-out records from "
            f"{s['held_out_documents']:,} documents"
        )
        if self.seconds:
            size = sum(file.size for file in self.manifest.inputs)
            speed = size / 1e6 / self.seconds
            lines.append(
                f"{self.seconds:.1f} seconds, {speed:.2f} MB of input a second"
            )
        if isinstance(self.output_dir, str):
            lines.append(f"next: copy {self.output_dir} to a disk as DIR")
        else:
            lines.append(
                "next: bert-tf pretrain "
                f"--data_dir={self.output_dir} --output_dir=DIR "
                + " ".join(
                    f"--{name}={value}"
                    for name, value in self._new_model().items()
                )
            )
        return "\n".join(lines)

    def _new_model(self) -> dict[str, str]:
        """The settings of a new model for the tokenizer and the rows."""
        architectures = (
            find_architecture(name, "the list") for name in ARCHITECTURES
        )
        kind = type(self.tokenizer)
        fitting = [a.config for a in architectures if a.tokenizer is kind]
        # ModernBERT takes RoBERTa's tokenizer too, and rows of one document.
        is_modern = self.recipe.sequences == DOCUMENT_SENTENCES
        config = max(
            fitting, key=lambda c: is_modern and c.model_type == "modernbert"
        )
        settings = {}
        if config is not BertConfig:
            settings["architecture"] = config.model_type
        settings["size"] = "mini" if "mini" in config.sizes else "base"
        objective = self.recipe.objective if config.has_pooler else "masked_lm"
        if objective != RecordsRecipe().objective:
            settings["set"] = f"objective={objective}"
        return settings
