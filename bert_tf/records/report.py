"""What a finished folder of records holds, in a few lines."""

import dataclasses
import pathlib
from typing import Self

from bert_tf.records.folder import Manifest, Packing


@dataclasses.dataclass(frozen=True)
class RecordsReport:
    """What a finished folder holds.

    Attributes:
      output_dir: the folder; a string if it is a URL.
      statistics: counts, as in the manifest.
      input_bytes: bytes of the input files.
      seconds: time of this run; 0 where everything was there already.
      corpora: what was taken of each corpus, as in the manifest.
      packing: how full packed records are, as in the manifest.
    """

    output_dir: pathlib.Path | str
    statistics: dict[str, int]
    input_bytes: int
    seconds: float
    corpora: dict[str, dict[str, float]]
    packing: Packing | None

    @classmethod
    def of(
        cls,
        output_dir: pathlib.Path | str,
        manifest: Manifest,
        input_bytes: int,
        seconds: float,
    ) -> Self:
        """The report of a folder that has a manifest."""
        return cls(
            output_dir,
            manifest.statistics,
            input_bytes,
            seconds,
            manifest.corpora,
            manifest.packing,
        )

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
        packing = self.packing
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
        if self.packing is not None:
            count = self.packing.sequences
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
            speed = self.input_bytes / 1e6 / self.seconds
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
