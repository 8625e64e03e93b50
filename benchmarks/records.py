"""Pre-training records: speed and memory beside google-research/bert's script.

python -m benchmarks.records --input='corpus/*.txt' --vocab_file=vocab.txt \
    --original=FOLDER

Parts (--parts, all of them by default), medians of --repeats, in turns:
writing    records a second of a core, from text, of the whole command and of
           the original's script (--original, a checkout of
           github.com/google-research/bert, run by `original_records`), at
           dupe factors 1 and 10 with static masks; CPU seconds of all
           processes count, the start of Python and imports too for ours and
           not for the script. The script gets less text (the same is
           --original_megabytes=20), which does not change its speed. What the
           records are like stands beside.
instances  the same without tokenising, in this process, beside
           `reference_records`, a plain rewrite of the algorithm.
workers    the whole command with one worker and with two, on much text
           (--workers_megabytes): in a little, what each worker does once
           counts.
scripts    the whole command on text of many scripts (--multilingual, with
           --multilingual_vocab_file, which is cased), beside the same amount
           of English, in turns: speed, and memory of the largest process.
reading    sequences a second of one core with new masks, beside the
           original's input pipeline on records with masks in them.
epochs     text to batches for ten epochs: records written once, and read ten
           times with new masks, beside the script at dupe factor 10 and its
           pipeline once. Two ratios: up to the first batch, by the clock on
           two cores; and the ten epochs read as well, a core.
memory     resident memory of each process for texts of several sizes; a
           picture if --picture names an .svg or .png file.
projection minutes and disk for English Wikipedia and books, from what was
           measured.
"""

import argparse
import collections
import dataclasses
import json
import os
import pathlib
import pickle
import random
import re
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np

from benchmarks import comparison
from benchmarks.measured_run import Measured, run
from benchmarks.records_instances import (
    compare_builders,
    like,
    tokenized,
)
from bert_tf.corpora.sources import files_of
from bert_tf.corpora.streams import Position
from bert_tf.files import expand_inputs
from bert_tf.records.corpus import read_blocks
from bert_tf.records.recipe import RecordsRecipe
from bert_tf.text.vocabulary import Vocabulary

# Wikipedia and books of Devlin et al. 2019, section 3.1.
WORDS_OF_THE_PAPER = 3.3e9
_CHANGED_WORDS = 0.03
PARTS = (
    "writing",
    "instances",
    "workers",
    "scripts",
    "reading",
    "epochs",
    "memory",
    "projection",
)


@dataclasses.dataclass
class Bench:
    """What the parts share, and what one part measures for the next.

    Attributes:
      arguments: of the command.
      folder: for texts and records.
      found: numbers by name.
    """

    arguments: argparse.Namespace
    folder: pathlib.Path
    found: dict[str, float] = dataclasses.field(default_factory=dict)

    def text(
        self, megabytes: float, multilingual: bool = False
    ) -> pathlib.Path:
        """Text of a size, made at the first call."""
        kind = "multilingual" if multilingual else "input"
        path = self.folder / f"{kind}-{megabytes:g}.txt"
        if not path.exists():
            sources = expand_inputs(getattr(self.arguments, kind))
            write_text_of_size(sources, path, int(megabytes * 1e6), seed=1)
        return path

    def ours(
        self,
        text: pathlib.Path,
        workers: int,
        *flags: str,
        watch: bool = False,
    ) -> Measured:
        """Our command; the records are in `records`."""
        shutil.rmtree(self.folder / "records", ignore_errors=True)
        return run(
            [
                *(sys.executable, "-m", "tools.create_pretraining_data"),
                f"--input={text}",
                f"--vocab_file={self.arguments.vocab_file}",
                f"--output_dir={self.folder / 'records'}",
                f"--workers={workers}",
                *flags,
            ],
            cores=workers,
            watch=watch,
        )

    def script(self, text: pathlib.Path, dupe_factor: int) -> Measured:
        """The original's script; the records are in `original`."""
        measured = run(
            [
                *(sys.executable, "-m", "benchmarks.original_records"),
                self.arguments.original,
                f"--input_file={text}",
                f"--vocab_file={self.arguments.vocab_file}",
                f"--output_file={self.folder / 'original'}",
                f"--dupe_factor={dupe_factor}",
            ],
            cores=1,
        )
        said = json.loads(measured.output.splitlines()[-1])
        measured.seconds = said["seconds"]
        measured.cpu_seconds = said["cpu_seconds"]
        return measured

    def written(self, name: str) -> list[str]:
        """The training record files of a side."""
        if name == "original":
            return [str(self.folder / "original")]
        return sorted(map(str, (self.folder / "records").glob("records-*")))


def writing(bench: Bench) -> None:
    """From text to static records, per core."""
    text = bench.text(bench.arguments.megabytes)
    less = bench.text(bench.arguments.original_megabytes)
    size = text.stat().st_size
    for passes in (1, 10):
        flags = ("--static_masking", f"--dupe_factor={passes}", "--held_out=0")
        works = {"ours": lambda f=flags: bench.ours(text, 1, *f)}
        if bench.arguments.original:
            works["original"] = lambda p=passes: bench.script(less, p)
        speeds, last = collections.defaultdict(list), {}
        for _ in range(bench.arguments.repeats):
            for name, work in works.items():
                done = work()
                last[name] = like(bench.written(name))
                records = last[name].records
                speeds[name].append(
                    (records / done.cpu_seconds, records / done.seconds)
                )
        for name, values in speeds.items():
            by_cpu, by_clock = (
                statistics.median(v) for v in zip(*values, strict=True)
            )
            bench.found[f"{name} {passes}"] = by_cpu
            print(
                f"writing, dupe factor {passes:2}, {name:8}: {by_cpu:8,.0f} "
                f"records a CPU second, {by_clock:8,.0f} by the clock; "
                f"{last[name]}"
            )
        bench.found[f"bytes {passes}"] = size / last["ours"].records
        if len(works) == 2:
            ratio = bench.found[f"ours {passes}"]
            ratio /= bench.found[f"original {passes}"]
            print(f"  ratio {ratio:.1f}")


def instances(bench: Bench) -> None:
    """Instances and records of tokenised documents."""
    vocabulary = Vocabulary.from_file(bench.arguments.vocab_file)
    inputs = expand_inputs(bench.arguments.input)
    documents = tokenized(inputs, vocabulary)
    # The plain algorithm needs minutes for more.
    documents = documents.take(np.arange(min(len(documents), 100)))
    compare_builders(
        documents, vocabulary, bench.arguments.repeats, str(bench.folder)
    )


def workers(bench: Bench) -> None:
    """One worker and two."""
    text = bench.text(bench.arguments.workers_megabytes)
    seconds = collections.defaultdict(list)
    for _ in range(bench.arguments.repeats):
        for count in (1, 2):
            done = bench.ours(text, count)
            seconds[count].append(done.seconds)
            bench.found["plain CPU seconds a byte"] = (
                done.cpu_seconds / text.stat().st_size
            )
    one, two = (statistics.median(seconds[count]) for count in (1, 2))
    size = text.stat().st_size / 1e6
    bench.found["seconds a byte"] = two / 1e6 / size
    bench.found["reading seconds a byte"] = _reading_seconds(text) / 1e6 / size
    bench.found["plain disk"] = sum(
        pathlib.Path(path).stat().st_size for path in bench.written("ours")
    ) / (1e6 * size)
    with open(text, encoding="utf-8") as lines:
        words = sum(len(line.split()) for line in lines)
    bench.found["bytes a word"] = 1e6 * size / words
    print(
        f"workers: {size:.0f} MB in {one:.1f} s with one and {two:.1f} s with "
        f"two, {size / one:.2f} and {size / two:.2f} MB/s; ratio "
        f"{one / two:.2f}"
    )


def scripts(bench: Bench) -> None:
    """English and many scripts."""
    arguments = bench.arguments
    if not arguments.multilingual:
        print("scripts: needs --multilingual and --multilingual_vocab_file.")
        return
    size = arguments.scripts_megabytes
    flags = (f"--vocab_file={arguments.multilingual_vocab_file}",)
    sides = {
        "English": (bench.text(size), ()),
        "many scripts": (bench.text(size, True), (*flags, "--nolower_case")),
    }
    found = collections.defaultdict(list)
    for _ in range(arguments.repeats):
        for name, (text, flags) in sides.items():
            done = bench.ours(text, 2, *flags, watch=True)
            megabytes = text.stat().st_size / 1e6
            found[name].append(
                (
                    megabytes / done.cpu_seconds,
                    megabytes / done.seconds,
                    done.largest_peak,
                )
            )
    for name, values in found.items():
        by_cpu, by_clock, peak = map(
            statistics.median, zip(*values, strict=True)
        )
        print(
            f"scripts, {name}, {size:g} MB: {by_cpu:.1f} MB a CPU second of "
            f"all processes, {by_clock:.1f} MB/s by the clock with two "
            f"workers; largest process {peak:.0f} MB"
        )


def _reading_seconds(text: pathlib.Path) -> float:
    """Seconds that one process takes to read a text block by block."""
    recipe = RecordsRecipe()
    started = time.process_time()
    for block in read_blocks(files_of([text], recipe), Position(), 0, recipe):
        # As it is sent to a worker.
        pickle.dumps(block, pickle.HIGHEST_PROTOCOL)
    return time.process_time() - started


def reading(bench: Bench) -> None:
    """Batches as a training loop takes them, on one core."""
    text = bench.text(bench.arguments.megabytes)
    kinds = {
        "new masks": (),
        "new masks of whole words": ("--whole_word_mask",),
        "the original's pipeline, masks in the records": ("--static_masking",),
    }
    for number, (name, flags) in enumerate(kinds.items()):
        bench.ours(text, 1, *flags)
        side = ("ours", "ours", "original")[number]
        command = ("benchmarks.records_reading", side, bench.folder / "records")
        speeds = []
        for seed in range(bench.arguments.repeats):
            done = run(
                [sys.executable, "-m", *map(str, command), str(seed)], cores=1
            )
            said = json.loads(done.output.splitlines()[-1])
            speeds.append((said["a_cpu_second"], said["a_second"]))
            bench.found[f"first batch {number}"] = said["first_batch"]
        by_cpu, by_clock = (
            statistics.median(v) for v in zip(*speeds, strict=True)
        )
        bench.found[f"reading {number}"] = by_cpu
        print(
            f"reading, {name}: {by_cpu:,.0f} sequences of 128 a CPU second, "
            f"{by_clock:,.0f} by the clock on one core"
        )


def epochs(bench: Bench) -> None:
    """Ten epochs from text to batches, from the parts before."""
    found = bench.found
    if not {"original 10", "reading 2", "plain disk"} <= found.keys():
        print("epochs: needs --original, writing, workers and reading.")
        return
    # Seconds for each byte of text, of which epoch after epoch has a record.
    records = 10 / found["bytes 1"]
    theirs = records / found["original 10"]
    ours = found["seconds a byte"]
    size = bench.text(bench.arguments.workers_megabytes).stat().st_size
    ours += found["first batch 0"] / size
    print(
        f"text to the first batch, for ten epochs: {1e-6 / ours:.2f} MB/s by "
        f"the clock with two workers, the original {1e-6 / theirs:.4f} (one "
        f"process is all it has); ratio {theirs / ours:.0f}"
    )
    ours = found["plain CPU seconds a byte"] + records / found["reading 0"]
    theirs += records / found["reading 2"]
    print(
        f"text to the last batch of ten epochs: {1e-6 / ours:.3f} MB of text a "
        f"CPU second, the original {1e-6 / theirs:.4f}; ratio "
        f"{theirs / ours:.0f}"
    )


def memory(bench: Bench) -> None:
    """Peak memory of each process over the size of the text."""
    count = min(comparison.threads(), 2)
    traces = {}
    for megabytes in map(float, bench.arguments.memory_megabytes.split(",")):
        text = bench.text(megabytes)
        done = bench.ours(text, count, watch=True)
        traces[megabytes] = done
        print(
            f"memory, {megabytes:g} MB of text, {count} workers: largest "
            f"process {done.largest_peak:.0f} MB, all at once "
            f"{max(total for _, _, total in done.trace):.0f} MB"
        )
    if bench.arguments.picture:
        draw_memory(traces, bench.arguments.picture)
        print(f"memory: {bench.arguments.picture}")


def projection(bench: Bench) -> None:
    """What the corpus of the paper would take."""
    found = bench.found
    if "plain disk" not in found:
        print("projection: needs workers.")
        return
    size = WORDS_OF_THE_PAPER * found["bytes a word"]
    minutes = size * found["plain CPU seconds a byte"] / 60
    # One process reads and hands out the text, however many others there are.
    reading = size * found["reading seconds a byte"] / 60
    times = ", ".join(
        f"{max(minutes / n, reading):.1f} on {n}" for n in (2, 16, 96)
    )
    print(
        f"projection, {WORDS_OF_THE_PAPER / 1e9:.1f} G words, {size / 1e9:.1f} "
        f"GB of text: {minutes:.0f} minutes of a core; {times} if all of them "
        f"are busy, but the one that reads needs {reading:.1f}; records "
        f"{size * found['plain disk'] / 1e9:.1f} GB"
    )


def write_text_of_size(
    sources: Sequence[pathlib.Path], path: pathlib.Path, size: int, seed: int
) -> None:
    """Writes at least `size` bytes of documents.

    The documents of the sources come in an order of chance, again and again;
    each time some words give way to others, or to numbers, so that neither
    documents nor words repeat themselves.
    """
    rng = random.Random(seed)
    text = "\n\n".join(source.read_text(encoding="utf-8") for source in sources)
    documents = [part for part in text.split("\n\n") if part.strip()]
    words = text.split()
    with open(path, "w", encoding="utf-8") as file:
        while file.tell() < size:
            document = rng.choice(documents)
            lines = []
            for line in document.split("\n"):
                parts = line.split(" ")
                for _ in range(1 + int(len(parts) * _CHANGED_WORDS)):
                    place = rng.randrange(len(parts))
                    parts[place] = (
                        rng.choice(words)
                        if rng.random() < 0.8
                        else f"{rng.choice(words)}{rng.randrange(10_000)}"
                    )
                lines.append(" ".join(parts))
            file.write("\n".join(lines) + "\n\n")


def draw_memory(measured: Mapping[float, Measured], path: str) -> None:
    """Draws memory over the size of the text and over time.

    Args:
      measured: by megabytes of text.
      path: the file to write; its name tells the format.
    """
    import matplotlib
    from matplotlib.figure import Figure

    # The same picture every time.
    with matplotlib.rc_context({"svg.hashsalt": "records"}):
        figure = Figure(figsize=(9, 3.5), layout="constrained")
        sizes, times = figure.subplots(1, 2)
        largest = [done.largest_peak for done in measured.values()]
        totals = [max(t for _, _, t in d.trace) for d in measured.values()]
        sizes.plot(list(measured), largest, "o-", label="largest process")
        sizes.plot(list(measured), totals, "s-", label="all processes")
        sizes.set(xscale="log", xlabel="MB of text", ylabel="peak resident MB")
        for megabytes, done in measured.items():
            seconds, _, total = zip(*done.trace, strict=True)
            end = done.trace[-1][0]
            share = [second / end for second in seconds]
            times.plot(share, total, label=f"{megabytes:g} MB")
        times.set(xlabel="share of the time", ylabel="resident MB, all")
        for axes in (sizes, times):
            axes.set_ylim(bottom=0)
            axes.grid(alpha=0.3)
            axes.legend()
        metadata = {"Date": None} if re.search(r"\.svg$", path) else None
        figure.savefig(path, metadata=metadata)


def main() -> None:
    """Runs the parts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--input", required=True)
    parser.add_argument("--vocab_file", required=True)
    parser.add_argument("--multilingual", default="")
    parser.add_argument("--multilingual_vocab_file", default="")
    parser.add_argument("--scripts_megabytes", type=float, default=100)
    parser.add_argument("--original", default="")
    parser.add_argument("--megabytes", type=float, default=20)
    parser.add_argument("--original_megabytes", type=float, default=2)
    parser.add_argument("--workers_megabytes", type=float, default=1000)
    parser.add_argument("--memory_megabytes", default="10,50,100,500")
    parser.add_argument("--picture", default="")
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    comparison.show_machine("benchmarks.records", "tensorflow", "numpy")
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(arguments, pathlib.Path(folder))
        for part in arguments.parts.split(","):
            if part not in PARTS:
                parser.error(f"--parts={part}: takes {', '.join(PARTS)}")
            globals()[part](bench)


if __name__ == "__main__":
    main()
