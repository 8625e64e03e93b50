"""Subword tokenizers beside the libraries tokenizers and sentencepiece.

Byte-level BPE is compared with tokenizers, ids and offsets, with blanks in the
offsets and without; unigram models with sentencepiece, and with the pipeline
that transformers builds. Texts that differ are counted by cause. Then all run
in turn in one process on one core; each figure is the median of five rounds of
processor time.

python -m benchmarks.subwords --input='corpus/*.txt,corpus_multilingual/*.txt'
"""

import os

# One core for everyone; read when the libraries are imported.
os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import collections
import functools
import json
import lzma
import pathlib
import random
import re
import statistics
import tempfile
import time
import unicodedata
from collections.abc import Callable, Iterable

import numpy as np
from absl import flags

from benchmarks import comparison
from bert_tf.files import expand_inputs
from bert_tf.text.byte_bpe import ByteLevelBpe
from bert_tf.text.subwords import Subwords
from bert_tf.text.unigram import AlbertUnigram, Unigram
from tests.reference_albert import encode_pieces
from tools import command_line

_TOKENIZERS = flags.DEFINE_string(
    "tokenizers",
    "../shared/data/relatives/tokenizer_files",
    "Folder with a folder of files, possibly .xz, for each of: roberta, "
    "modernbert, xlm_roberta, t5, bigbird, albert_german; some may be missing.",
)
_INPUT = flags.DEFINE_string("input", None, "Text files.", required=True)
_TEXTS = flags.DEFINE_integer("texts", 20000, "Texts to compare.")
_SEED = flags.DEFINE_integer("seed", 1, "Seed of the texts.")
_BATCH = flags.DEFINE_integer("batch", 256, "Texts in a batch.")
_ROUNDS = flags.DEFINE_integer("rounds", 5, "Rounds to take the median of.")

_KINDS: dict[str, type[Subwords]] = {
    "roberta": ByteLevelBpe,
    "modernbert": ByteLevelBpe,
    "xlm_roberta": Unigram,
    "t5": Unigram,
    "bigbird": Unigram,
    "albert_german": AlbertUnigram,
}
# T5's tokens have other names, and no model of it is read here.
_T5 = {"cls_token": "</s>", "sep_token": "</s>", "mask_token": "<unk>"}
# What tokenizers are known to disagree on; blanks twice as likely.
_BLANKS = (
    *("  ", "   ", " " * 8, "\t", "\n", "\r\n", "\n\n", " \n", "\v", "\x85"),
    *("\u00a0", "\u1680", "\u2003", "\u200b", "\u2028", "\u3000"),
)
_TRAPS = (
    _BLANKS,
    _BLANKS,
    ("<s>", "</s>", "<mask>", "[CLS]", "[MASK]", "<pad>", "▁", "Ġ", "<mask >"),
    ("it's", "they're", "IT'S", "'s", "''ll", " 'd", "!'s", "\n've", "'''"),
    ("1,000", "9,", "12,,", "a9,b", "3.14", "½", "Ⅷ", "१२", "----", "0000"),
    ("ﬁ", "①", "ｆｕｌｌ", "ﾊﾝ", "㍿", "e\u0301", "\u0344", "İ", "ΣΑΣ", "``"),
    ("\x00", "\x1b", "\x7f", "\ufeff", "\u200d", "\u00ad", "\ufffd", "\ue000"),
    ("😀", "👩\u200d👧", "🇩🇪", "❤\ufe0f", "가", "\u1112\u1161\u11ab", "ậ"),
)
# What NFKD makes a capital sigma, whose lower case depends on its word.
_SIGMAS = "[\u03a3\u03f9\U0001d6ba\U0001d6f4\U0001d72e\U0001d768\U0001d7a2]"
# Code points to draw from, with weights.
_RANGES = ((32, 127), (0, 0x250), (0, 0xD800), (0xE000, 0x20000), (0, 0x110000))
_WEIGHTS = (5, 3, 8, 3, 1)

# Ids and, where they are compared, offsets.
Row = tuple[list[int], list[tuple[int, int]] | None]


def drawn_texts(lines: list[str], count: int, seed: int) -> list[str]:
    """Lines, as they are or with other blanks, traps, and random characters."""
    rng = random.Random(seed)
    words = [word for line in rng.sample(lines, 2000) for word in line.split()]

    def line() -> str:
        return rng.choice(lines)

    def other_blanks() -> str:
        blank, ends = rng.choice(_BLANKS), ("", " ", rng.choice(_BLANKS))
        text = line().replace(" ", blank, rng.randint(0, 5))
        return rng.choice(ends) + text + rng.choice(ends)

    def traps() -> str:
        parts = (
            rng.choice(words if rng.random() < 0.4 else rng.choice(_TRAPS))
            for _ in range(rng.randint(1, 10))
        )
        return "".join(parts)

    def characters() -> str:
        ranges = rng.choices(_RANGES, _WEIGHTS, k=rng.randint(1, 24))
        codes = (rng.randrange(*bounds) for bounds in ranges)
        return "".join(chr(c) for c in codes if not 0xD800 <= c < 0xE000)

    makers = rng.choices((line, other_blanks, traps, characters), k=count)
    return [make() for make in makers]


def open_tokenizer(name: str, folder: pathlib.Path) -> Subwords:
    """Unpacks the files of a tokenizer into `folder` and reads it."""
    for path in (pathlib.Path(_TOKENIZERS.value) / name).iterdir():
        content = path.read_bytes()
        if path.suffix == ".xz":
            path, content = path.with_suffix(""), lzma.decompress(content)
        (folder / path.name).write_bytes(content)
    if name == "t5":
        (folder / "tokenizer_config.json").write_text(json.dumps(_T5))
    found = _KINDS[name].read(folder)
    assert found is not None
    return found


def with_trim(data: ByteLevelBpe, trim: bool) -> ByteLevelBpe:
    values = data.to_dict()
    values["tokenizer"]["trim_offsets"] = trim
    return ByteLevelBpe.from_dict(values)


def bpe_of_files(folder: pathlib.Path, trim: bool):
    """The tokenizer of the library, from the published files."""
    import tokenizers
    from tokenizers import models, pre_tokenizers, processors

    path = folder / "tokenizer.json"
    if path.exists():
        library = tokenizers.Tokenizer.from_file(str(path))
    else:
        model = models.BPE.from_file(
            str(folder / "vocab.json"), str(folder / "merges.txt")
        )
        library = tokenizers.Tokenizer(model)
        library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        mask = tokenizers.AddedToken("<mask>", lstrip=True, normalized=False)
        names = ["<s>", "<pad>", "</s>", "<unk>", mask]
        library.add_special_tokens(names)
    library.post_processor = processors.ByteLevel(
        add_prefix_space=False, trim_offsets=trim
    )
    return library


def pipeline_of_transformers(data: Unigram):
    """What transformers makes of an XLM-R's or an ALBERT's file."""
    import tokenizers
    from tokenizers import models, normalizers, pre_tokenizers

    pairs = [(piece.piece, piece.score) for piece in data.proto.pieces]
    library = tokenizers.Tokenizer(models.Unigram(pairs, data.unk_id, False))
    steps: list = []
    if isinstance(data, AlbertUnigram):
        steps += [normalizers.Replace(x, '"') for x in ("``", "''")]
        steps += [normalizers.NFKD(), normalizers.StripAccents()]
        steps += [normalizers.Lowercase()]
    table = data.proto.normalizer_spec.precompiled_charsmap
    steps.append(normalizers.Precompiled(table))
    library.normalizer = normalizers.Sequence(steps)
    library.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace("▁")]
    )
    for token in data.special.present:
        lstrip = token == data.special.mask
        added = tokenizers.AddedToken(token, lstrip=lstrip, normalized=False)
        library.add_special_tokens([added])
    return library


def rows_of_graph(data: Subwords, split: bool, texts: list[str]) -> list[Row]:
    found = data.tokenizer(split).tokenize_with_offsets(texts)
    ids, begins, ends = (values.to_list() for values in found)
    spans = (
        list(zip(*each, strict=True)) for each in zip(begins, ends, strict=True)
    )
    return list(zip(ids, spans, strict=True))


def ids_of_worker(data: Subwords, texts: list[str]) -> list[list[int]]:
    encoded = [text.encode() for text in texts]
    sizes = np.array([len(text) for text in encoded])
    ids, counts = data.worker().tokenize(b"\n".join([*encoded, b""]), sizes)
    return [r.tolist() for r in np.split(ids, np.cumsum(counts)[:-1])]


def rows_of_library(library, texts: list[str]) -> list[Row]:
    encoded = library.encode_batch(texts, add_special_tokens=False)
    return [(row.ids, row.offsets) for row in encoded]


def rows_of_sentencepiece(library, data: Unigram, texts: list[str]):
    """The authors' ids, under our numbers, and offsets."""
    if isinstance(data, AlbertUnigram):
        for text in texts:
            pieces = encode_pieces(library, text)
            yield [data.ids.get(p, data.unk_id) for p in pieces], None
        return
    known = [
        data.ids.get(library.id_to_piece(number), data.unk_id)
        for number in range(library.get_piece_size())
    ]
    for text in texts:
        found = library.encode_as_offset_mapping(text)
        yield [known[number] for number in found["ids"]], found["offsets"]


def cause_of(data: Unigram) -> Callable[[str, list[int], list[int]], str]:
    """A function of a text and its ids, ours and theirs: why they differ."""
    pieces = data.proto.pieces
    scores = np.array([piece.score for piece in pieces])
    defined = (p.piece for p in pieces if p.type == p.USER_DEFINED)
    special = [*data.special.present, *(d for d in defined if len(d) > 1)]
    patterns = {
        "special tokens in the text": "|".join(map(re.escape, special)),
        "letters of Hangul": "[\u1100-\u11ff\ua960-\ua97f\ud7b0-\ud7ff]",
    }
    if isinstance(data, AlbertUnigram):
        patterns["quotes"] = "``|''"
        patterns["commas behind digits"] = r"\d\s*,"
        patterns["capital sigmas"] = _SIGMAS
    patterns["other blanks and control characters"] = (
        r"[^\S ]|[\x00-\x1f\u200b-\u200f\ufeff▁]|  |^ | $"
    )

    def cause(text: str, ours: list[int], theirs: list[int]) -> str:
        # BigBird's scores are all zero.
        is_tie = abs(scores[ours].sum() - scores[theirs].sum()) < 1e-3
        if is_tie and scores.any():
            return "ties"
        for why, pattern in patterns.items():
            if re.search(pattern, text):
                return why
        kinds = "".join(map(unicodedata.category, text))
        if "M" in kinds:
            return "combining characters"
        if "Cn" in kinds:
            return "characters newer than Python's tables"
        return "other"

    return cause


def show_differences(
    name: str,
    data: Subwords,
    texts: list[str],
    ours: Iterable[Row],
    theirs: Iterable[Row],
) -> None:
    causes: collections.Counter[str] = collections.Counter()
    offsets = 0
    cause = cause_of(data) if isinstance(data, Unigram) else None
    for text, own, other in zip(texts, ours, theirs, strict=True):
        if own[0] != other[0]:
            why = (
                cause(text, own[0], other[0]) if cause else "of no known cause"
            )
            causes[why] += 1
        elif own[1] is not None and other[1] is not None:
            offsets += own[1] != [tuple(span) for span in other[1]]
    reasons = ", ".join(f"{n} {why}" for why, n in causes.most_common())
    total = sum(causes.values())
    print(
        f"  {name:46} ids of {total:4} texts differ"
        f"{f' ({reasons})' if reasons else ''}; offsets of {offsets}",
        flush=True,
    )


def show_equality(data: Subwords, folder: pathlib.Path, texts: list) -> None:
    if isinstance(data, ByteLevelBpe):
        for trim in (True, False):
            one = with_trim(data, trim)
            ours = rows_of_graph(one, False, texts)
            theirs = rows_of_library(bpe_of_files(folder, trim), texts)
            name = f"graph, tokenizers, trim_offsets={trim}"
            show_differences(name, data, texts, ours, theirs)
        plain = rows_of_graph(data, True, texts)
    else:
        from sentencepiece import SentencePieceProcessor

        assert isinstance(data, Unigram)
        plain = rows_of_graph(data, True, texts)
        (path,) = folder.glob("*.model")
        library = SentencePieceProcessor(model_file=str(path))
        theirs = rows_of_sentencepiece(library, data, texts)
        show_differences("graph, sentencepiece", data, texts, plain, theirs)
        if data.proto.normalizer_spec.precompiled_charsmap:
            found = rows_of_graph(data, False, texts)
            theirs = rows_of_library(pipeline_of_transformers(data), texts)
            bare = [(ids, None) for ids, _ in found]
            name = "graph, transformers' pipeline"
            show_differences(name, data, texts, bare, theirs)
    worker = [(ids, None) for ids in ids_of_worker(data, texts)]
    show_differences("graph, worker", data, texts, plain, worker)
    written = rows_of_library(data.library_tokenizer(), texts)
    bare = [(ids, None) for ids, _ in plain]
    show_differences("graph, our tokenizer.json", data, texts, bare, written)


def show_speed(
    data: Subwords, folder: pathlib.Path, texts: list[str], title: str
) -> None:
    import tensorflow as tf

    starts = range(0, len(texts), _BATCH.value)
    lists = [texts[start : start + _BATCH.value] for start in starts]
    tensors = [tf.constant(rows) for rows in lists]
    tokenizer, worker = data.tokenizer(False), data.worker()
    library = data.library_tokenizer(False)
    if isinstance(data, ByteLevelBpe):
        library = bpe_of_files(folder, data.trim_offsets)

    def work(rows: list[str]) -> None:
        encoded = [row.encode() for row in rows]
        sizes = np.array([len(row) for row in encoded])
        worker.tokenize(b"\n".join([*encoded, b""]), sizes)

    subjects: dict[str, tuple[Callable, list]] = {
        "graph": (tokenizer.tokenize, tensors),
        "graph, offsets": (tokenizer.tokenize_with_offsets, tensors),
        "worker": (work, lists),
        "tokenizers, encode_batch_fast": (library.encode_batch_fast, lists),
        "tokenizers, encode_batch": (library.encode_batch, lists),
    }
    if isinstance(data, Unigram):
        from sentencepiece import SentencePieceProcessor

        plain = SentencePieceProcessor(model_proto=data.model)
        encode = functools.partial(plain.encode, num_threads=1)
        subjects["sentencepiece"] = (encode, lists)

    def run(call: Callable, batches: list) -> None:
        for rows in batches:
            call(rows)

    works = {n: functools.partial(run, *s) for n, s in subjects.items()}
    for each in works.values():
        each()
    seconds = comparison.seconds_in_turns(
        works, _ROUNDS.value, time.process_time
    )
    size = sum(len(text.encode()) for text in texts) / 1e6
    rates = {n: size / statistics.median(t) for n, t in seconds.items()}
    print(f"  MB/s, {title}: ", end="")
    print(", ".join(f"{n} {rate:.1f}" for n, rate in rates.items()), flush=True)


def main() -> None:
    """Prints the machine, the versions and the comparisons."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    by_file = [
        [line for line in path.read_text("utf-8").split("\n") if line.strip()]
        for path in expand_inputs(_INPUT.value)
    ]
    lines = [line for each in by_file for line in each]
    texts = drawn_texts(lines, _TEXTS.value, _SEED.value)
    packages = ("tensorflow-text", "tokenizers", "sentencepiece")
    comparison.show_machine("benchmarks.subwords", *packages)
    print(
        f"{len(texts):,} texts, {sum(len(t.encode()) for t in texts) / 1e6:.1f}"
        f" MB, {len(set(''.join(texts))):,} different characters; one core; "
        f"batches of {_BATCH.value}, median of {_ROUNDS.value}"
    )
    share = [line for each in by_file for line in each[: 20000 // len(by_file)]]
    for name in _KINDS:
        if not (pathlib.Path(_TOKENIZERS.value) / name).is_dir():
            continue
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary)
            data = open_tokenizer(name, folder)
            print(f"\n{name}: {type(data).__name__}, {len(data):,} tokens")
            show_equality(data, folder, texts)
            show_speed(data, folder, texts, "these texts")
            show_speed(data, folder, share, "lines of the files")


if __name__ == "__main__":
    command_line.run(main)
