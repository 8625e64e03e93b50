"""A small corpus and vocabulary that tests of records are run on."""

import dataclasses
import hashlib
import json
import pathlib
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.corpora.sources import parse_inputs
from bert_tf.records.build import RecordsReport, create_records
from bert_tf.records.recipe import RecordsRecipe
from bert_tf.records.token_blocks import Documents
from bert_tf.text.vocabulary import Vocabulary

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LETTERS = [chr(code) for code in range(ord("a"), ord("z") + 1)]
WORDS = [a + b + c for a in "bdfgk" for b in "aeiou" for c in "lmnrst"]
TOKENS = [*SPECIALS, *LETTERS, *WORDS, *("##" + x for x in LETTERS), "."]
VOCABULARY = Vocabulary(TOKENS)
PACKING = VOCABULARY.packing

Batch = dict[str, np.ndarray]


def write_vocabulary(folder: pathlib.Path) -> pathlib.Path:
    """Writes the vocabulary into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    VOCABULARY.save(folder / "vocab.txt")
    return folder / "vocab.txt"


def sentence(rng: random.Random) -> str:
    """A sentence of known words, some of them with an ending."""
    words = [
        rng.choice(WORDS) + rng.choice(["", "", "s", "xy"])
        for _ in range(rng.randint(1, 12))
    ]
    return " ".join(words) + " ."


def text(documents: int, seed: int = 1) -> str:
    """Documents of 1 to 20 sentences, blank lines between them."""
    rng = random.Random(seed)
    return "\n\n".join(
        "\n".join(sentence(rng) for _ in range(rng.randint(1, 20)))
        for _ in range(documents)
    )


def documents(count: int, seed: int = 1) -> list[list[list[int]]]:
    """The same kind of corpus as token ids, without a tokenizer."""
    rng = random.Random(seed)
    low, high = len(SPECIALS), len(TOKENS) - 1
    return [
        [
            [rng.randint(low, high) for _ in range(rng.randint(1, 30))]
            for _ in range(rng.randint(1, 20))
        ]
        for _ in range(count)
    ]


def digests(folder: pathlib.Path) -> dict[str, str]:
    """A fingerprint of each file of a folder, by name."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.iterdir())
    }


def made_documents(count: int, seed: int) -> list[str]:
    """Documents of sentences that the splitter tells apart."""
    rng = random.Random(seed)
    return [
        " ".join(
            sentence(rng).capitalize().replace(" .", ".")
            for _ in range(rng.randint(4, 20))
        )
        for _ in range(count)
    ]


def flat(corpus: Sequence[Sequence[Sequence[int]]]) -> Documents:
    """Documents of token ids as flat arrays."""
    sizes = [len(sentence) for document in corpus for sentence in document]
    return Documents(
        np.array([x for d in corpus for s in d for x in s], dtype=np.uint16),
        np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        np.cumsum([0, *map(len, corpus)]).astype(np.int64),
    )


def parsed(path: pathlib.Path) -> list[dict[str, list[float]]]:
    """The records of a file as TensorFlow's own protobuf reads them."""
    rows = []
    for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
        features = tf.train.Example.FromString(record).features.feature
        rows.append(
            {
                name: list(value.int64_list.value or value.float_list.value)
                for name, value in features.items()
            }
        )
    return rows


def sequences_of(row: dict[str, list[float]]) -> list[tuple[float, ...]]:
    """The sequences of a record without masks, with segments and label."""
    found, start = [], 0
    sizes = row.get("sequence_lengths", [len(row["input_ids"])])
    labels = row["next_sentence_labels"]
    for size, label in zip(sizes, labels, strict=True):
        end = start + size
        segments = sum(row["segment_ids"][start:end])
        found.append((*row["input_ids"][start:end], segments, label))
        start = end
    assert start == len(row["input_ids"]) == len(row["segment_ids"])
    return found


def take(batches: tf.data.Dataset, count: int) -> list[Batch]:
    """The first batches of a data set."""
    return list(batches.take(count).as_numpy_iterator())


def joined(batches: Sequence[Batch]) -> Batch:
    """Batches concatenated."""
    return {
        name: np.concatenate([batch[name] for batch in batches])
        for name in batches[0]
    }


SETTINGS = {
    "max_seq_length": 48,
    "max_predictions_per_seq": 7,
    "num_shards": 3,
    "held_out": 0.1,
}


@dataclasses.dataclass(frozen=True)
class Workshop:
    """A folder of text files, a vocabulary, and records made of them.

    Attributes:
      folder: holds a.txt and b.txt, which `build` reads by default.
      vocab_file: the vocabulary.
    """

    folder: pathlib.Path
    vocab_file: pathlib.Path

    def write(self, name: str, content: str | list[str]) -> str:
        """Writes a text, or documents in the format of the name."""
        path = self.folder / name
        if isinstance(content, list):
            if name.endswith(".jsonl"):
                rows = [json.dumps({"text": document}) for document in content]
                content = "\n".join(rows)
            elif name.endswith(".xml"):
                pages = "".join(PAGE.format(document) for document in content)
                content = f"<mediawiki>\n{pages}</mediawiki>\n"
            else:
                content = "\n\n".join(content)
        path.write_text(content)
        return str(path)

    def build(
        self,
        name: str = "out",
        workers: int = 1,
        inputs: str = "",
        overwrite: bool = False,
        log: Callable[[str], Any] = lambda line: None,
        **changes: Any,
    ) -> RecordsReport:
        """Makes records in a folder of the name."""
        recipe = RecordsRecipe(**(SETTINGS | changes))
        return create_records(
            parse_inputs(inputs or f"{self.folder}/*.txt", recipe),
            self.vocab_file,
            self.folder / name,
            recipe,
            workers,
            overwrite,
            log,
        )

    def digests(self, name: str = "out") -> dict[str, str]:
        """A digest of each file of a folder, by name."""
        return digests(self.folder / name)

    def records(self, name: str = "out") -> dict[str, str]:
        """A digest of each record file of a folder, by name."""
        found = self.digests(name)
        return {file: d for file, d in found.items() if "tfrecord" in file}

    def mixed_inputs(self) -> tuple[str, dict[str, Any]]:
        """Three corpora in two formats, seven documents twice; settings."""
        documents = made_documents(40, seed=2)
        names = [
            "big:0.5=" + self.write("a.jsonl", documents + documents[:7]),
            "small:3=" + self.write("b.xml", made_documents(8, seed=3)),
            "other=" + self.write("c.jsonl", made_documents(10, seed=4)),
        ]
        return ",".join(names), {"near_duplicates": 0.8, "smoothing": 0.7}


PAGE = (
    "<page><title>T</title><ns>0</ns><revision><text>{{{{box}}}} {}"
    "</text></revision></page>\n"
)
