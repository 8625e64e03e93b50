"""How fast texts become ids, beside three other tokenizers.

All run in turn in one process on one core; each figure is the median of five
rounds. "equal" is the share of lines whose ids are those of bert_tf.

python -m benchmarks.tokenization --vocab_file=vocab.txt \
    --input='corpus/*.txt' --multilingual='corpus_multilingual/*.txt'
"""

import os

# One core for everyone; read when the libraries are imported.
os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import functools
import json
import pathlib
import pydoc_data.topics
import statistics
from collections.abc import Callable, Sequence

import numpy as np
from absl import flags

from benchmarks import comparison
from bert_tf.files import expand_inputs
from tools import command_line

_INPUT = flags.DEFINE_string(
    "input", "", "English text; empty takes Python's language reference."
)
_MULTILINGUAL = flags.DEFINE_string(
    "multilingual", "", "Text in many scripts; empty takes the golden texts."
)
_VOCAB_FILE = flags.DEFINE_string(
    "vocab_file", "", "A vocabulary; empty learns one from both texts."
)
_LOWER_CASE = flags.DEFINE_bool("lower_case", True, "As the vocabulary.")
_MEGABYTES = flags.DEFINE_float("megabytes", 4.0, "Text to take of each kind.")
_BATCH = flags.DEFINE_integer("batch", 256, "Lines in a batch.")
_ROUNDS = flags.DEFINE_integer("rounds", 5, "Rounds to take the median of.")

_GOLDEN = pathlib.Path("tests/golden/tokenizer/uncased.jsonl")
_OURS = "bert_tf BertTokenizer"


def english_lines() -> list[str]:
    if _INPUT.value:
        files = expand_inputs(_INPUT.value)
        lines = [line for file in files for line in text_lines(file)]
    else:
        topics = pydoc_data.topics.topics
        lines = "\n".join(topics[name] for name in sorted(topics)).split("\n")
    return [line for line in lines if line.strip() and line.isascii()]


def text_lines(file: pathlib.Path) -> list[str]:
    """The lines of a file; only a line feed ends a line."""
    return file.read_text(encoding="utf-8").split("\n")


def multilingual_lines() -> list[str]:
    if _MULTILINGUAL.value:
        # Every file gives its share of the beginning.
        files = expand_inputs(_MULTILINGUAL.value, "--multilingual")
        share = _MEGABYTES.value / len(files)
        return [
            line
            for file in files
            for line in limited(text_lines(file), share)
            if line.strip()
        ]
    rows = _GOLDEN.read_text(encoding="utf-8").splitlines()
    return [json.loads(row)["text"] for row in rows] * 1000


def limited(lines: Sequence[str], megabytes: float) -> list[str]:
    """The first lines, up to a size."""
    size, kept = 0, []
    for line in lines:
        size += len(line.encode())
        if size > megabytes * 1e6:
            break
        kept.append(line)
    return kept


def tokenizers_by_name(vocab_file: str) -> dict[str, tuple[str, Callable]]:
    """What takes a batch and the call, by name.

    A batch is a "tensor", a "list" of strings or one of "bytes".
    """
    import tensorflow as tf
    import tensorflow_text as tf_text
    import tokenizers

    from bert_tf.text.tokenizer import BertTokenizer

    lower_case = _LOWER_CASE.value
    ours = BertTokenizer(vocab_file, lower_case)
    tokens = list(ours.vocabulary.tokens)
    table = tf.lookup.StaticVocabularyTable(
        tf.lookup.KeyValueTensorInitializer(
            tokens, tf.range(len(tokens), dtype=tf.int64)
        ),
        num_oov_buckets=1,
    )
    plain = tf_text.BertTokenizer(table, lower_case=lower_case)
    fast = tf_text.FastBertTokenizer(
        tokens,
        max_bytes_per_word=200,
        token_out_type=tf.int32,
        lower_case_nfd_strip_accents=lower_case,
    )
    signature = [tf.TensorSpec([None], tf.string)]

    @tf.function(input_signature=signature, autograph=False)
    def tokenize_plain(texts):
        return plain.tokenize(texts).merge_dims(1, 2)

    @tf.function(input_signature=signature, autograph=False)
    def tokenize_fast(texts):
        return fast.tokenize(texts)

    other = tokenizers.BertWordPieceTokenizer(vocab_file, lowercase=lower_case)

    def tokenize_other(texts):
        encoded = other.encode_batch(texts, add_special_tokens=False)
        return [row.ids for row in encoded]

    by_words = ours.data.worker()

    def tokenize_corpus(texts):
        sizes = np.fromiter(map(len, texts), np.int64, len(texts))
        return by_words.tokenize(b"\n".join([*texts, b""]), sizes)

    return {
        _OURS: ("tensor", ours.tokenize),
        "bert_tf CorpusTokenizer": ("bytes", tokenize_corpus),
        f"{_OURS}, offsets": ("tensor", ours.tokenize_with_offsets),
        "TF Text FastBertTokenizer": ("tensor", tokenize_fast),
        "TF Text BertTokenizer": ("tensor", tokenize_plain),
        "Hugging Face tokenizers": ("list", tokenize_other),
    }


def as_lists(result) -> list[list[int]]:
    if isinstance(result, tuple):
        first, *more = result
        if isinstance(first, np.ndarray):
            rows = np.split(first, np.cumsum(more[0])[:-1])
            return [row.tolist() for row in rows]
        result = first
    return result if isinstance(result, list) else result.to_list()


def compare(name: str, lines: list[str], subjects: dict) -> None:
    import tensorflow as tf

    starts = range(0, len(lines), _BATCH.value)
    lists = [lines[start : start + _BATCH.value] for start in starts]
    batches = {
        "list": lists,
        "tensor": [tf.constant(rows) for rows in lists],
        "bytes": [[line.encode() for line in rows] for rows in lists],
    }
    size = sum(len(line.encode()) for line in lines) / 1e6
    ids = {
        subject: [row for rows in batches[kind] for row in as_lists(call(rows))]
        for subject, (kind, call) in subjects.items()
    }

    def tokenize_all(kind: str, call: Callable) -> None:
        for rows in batches[kind]:
            call(rows)

    works = {
        n: functools.partial(tokenize_all, *s) for n, s in subjects.items()
    }
    seconds = comparison.seconds_in_turns(works, _ROUNDS.value)
    print(f"\n{name}: {len(lines):,} lines, {size:.1f} MB")
    reference = statistics.median(seconds[_OURS])
    for subject, times in seconds.items():
        median = statistics.median(times)
        same = sum(map(list.__eq__, ids[subject], ids[_OURS])) / len(lines)
        print(
            f"  {subject:32} {size / median:6.1f} MB/s  "
            f"{reference / median:5.2f} x ours  equal {same:8.3%}"
        )


def main() -> None:
    """Prints the machine, the versions and the two comparisons."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    english = limited(english_lines(), _MEGABYTES.value)
    multilingual = limited(multilingual_lines(), _MEGABYTES.value)
    packages = ("tensorflow", "tensorflow-text", "tokenizers")
    comparison.show_machine("benchmarks.tokenization", *packages)
    print(
        f"one core used; batches of {_BATCH.value}, median of {_ROUNDS.value}"
    )
    subjects = tokenizers_by_name(vocabulary([*english, *multilingual]))
    compare("English, ASCII", english, subjects)
    compare("Many scripts", multilingual, subjects)


def vocabulary(lines: list[str]) -> str:
    """The vocabulary file given, or one learned from the texts."""
    if _VOCAB_FILE.value:
        return _VOCAB_FILE.value
    import tempfile

    from bert_tf.corpora.vocabulary import train_vocab

    folder = pathlib.Path(tempfile.mkdtemp())
    (folder / "text.txt").write_text("\n".join(lines), encoding="utf-8")
    trained = train_vocab(
        [folder / "text.txt"], 4096, _LOWER_CASE.value, min_frequency=1
    )
    trained.save(folder / "vocab.txt")
    return str(folder / "vocab.txt")


if __name__ == "__main__":
    command_line.run(main)
