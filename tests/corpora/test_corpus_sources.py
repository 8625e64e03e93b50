import pathlib
import re

import pytest

from bert_tf.corpora.recipe import CorpusRecipe
from bert_tf.corpora.sources import (
    CorpusFile,
    files_of,
    format_of,
    parse_inputs,
    sampling_rates,
)
from bert_tf.errors import UserError
from tests.user_errors import error_of


@pytest.mark.parametrize(
    ("expected", "names"),
    {
        "sentences": "a.txt a a.txt.gz a.txt.bz2",
        "table": "a.csv A.TSV.gz a.csv.zst a.parquet",
        "jsonl": "a.jsonl A.JSONL.GZ a.ndjson.bz2",
        "wikipedia": "a.xml a.xml.gz "
        "enwiki-20230601-pages-articles-multistream.xml.bz2 "
        "enwiki-x-articles27.xml-p68475910p69975909.bz2",
    }.items(),
)
def test_formats_by_name(expected: str, names: str) -> None:
    for name in names.split():
        assert format_of(name) == expected
        assert format_of(name, "text") == "text"


def test_names_that_tell_no_format() -> None:
    assert "pass `input_format`=jsonl" in error_of(format_of, "c4.json.gz")
    assert format_of("c4.json.gz", "jsonl") == "jsonl"
    for name in ("a.xml.7z", "a.txt.lz4", "a.tar.gz", "a.zip"):
        for given in ("auto", "text"):
            with pytest.raises(UserError, match="are not read; give plain"):
                format_of(name, given)


@pytest.fixture
def folder(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> pathlib.Path:
    (tmp_path / "lang=en").mkdir()
    for name in ("a.txt", "b.txt", "c.jsonl", "lang=en/d.txt"):
        (tmp_path / name).write_text("text")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def parse(text: str, **settings: object) -> list[tuple]:
    return [
        (pathlib.Path(f.path).name, f.format, f.corpus, f.weight)
        for f in parse_inputs(text, CorpusRecipe(**settings))
    ]


def test_inputs_without_names(folder: pathlib.Path) -> None:
    assert parse("b.txt, *.txt,c.jsonl") == [
        ("a.txt", "sentences", "", 1.0),
        ("b.txt", "sentences", "", 1.0),
        ("c.jsonl", "jsonl", "", 1.0),
    ]
    assert parse("a.txt", input_format="text")[0][1] == "text"
    # As it stands it is a path, so it is no name.
    assert parse("lang=en/*.txt") == [("d.txt", "sentences", "", 1.0)]
    (file,) = parse_inputs("a.txt", CorpusRecipe())
    assert file == CorpusFile(str(folder / "a.txt"), "sentences")
    assert file.size() == 4


def test_paths_are_completed(folder: pathlib.Path) -> None:
    named = CorpusFile("x", "text", "en", 2.0)
    paths = ["tfds:wiki@test", pathlib.Path("c.jsonl"), named, "a.txt"]
    assert files_of(paths, CorpusRecipe()) == (
        CorpusFile("tfds:wiki@test", "tfds"),
        CorpusFile(str(folder / "c.jsonl"), "jsonl"),
        named,
        CorpusFile(str(folder / "a.txt"), "sentences"),
    )


def test_inputs_with_names_and_weights(folder: pathlib.Path) -> None:
    expected = [
        ("c.jsonl", "jsonl", "books", 2.5),
        ("a.txt", "sentences", "en", 1.0),
        ("b.txt", "sentences", "en", 1.0),
        ("tfds:wiki", "tfds", "zh_tw", 0.5),
    ]
    text = ["en=a.txt", "books:2.5=c.jsonl", "zh_tw:.5=tfds:wiki", "en=b*"]
    assert parse(",".join(text)) == expected
    assert parse(",".join(reversed(text))) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "`inputs`: give one or more"),
        (" , ", "`inputs`: give one or more"),
        ("none.txt", "`inputs`=none.txt: no such file"),
        ("en=none.txt", "`inputs`=none.txt: no such file"),
        ("en=", "`inputs`=en=: give a file after en="),
        ("en=a.txt,b.txt", "b.txt: has no name and others have one"),
        ("en:x=a.txt", "the weight 'x' is no number above 0"),
        ("en:=a.txt", "the weight '' is no number"),
        ("en:0=a.txt", "the weight '0' is no number above 0"),
        ("en:-1=a.txt", "the weight '-1' is no number above 0"),
        ("en:inf=a.txt", "the weight 'inf' is no number above 0"),
        ("en:nan=a.txt", "the weight 'nan' is no number above 0"),
        ("en:2=a.txt,en=b.txt", "en has the weight 2 elsewhere"),
        ("en=a.txt,de=a.txt", "a.txt is in de and in en"),
    ],
)
def test_mistakes(folder: pathlib.Path, text: str, message: str) -> None:
    line = error_of(parse, text)
    assert re.search(message, line), line


def test_smoothing_wants_several_corpora(folder: pathlib.Path) -> None:
    for text in ("a.txt,b.txt", "en=a.txt,en=b.txt"):
        with pytest.raises(UserError, match="there is one corpus; name the"):
            parse(text, smoothing=0.7)
    assert len(parse("en=a.txt,de=b.txt", smoothing=0.7)) == 2


SIZES = {"de": 3000, "en": 60_000, "sw": 70}
ONES = dict.fromkeys(SIZES, 1.0)


def shares(rates: dict[str, float]) -> dict[str, float]:
    taken = {name: rates[name] * SIZES[name] for name in SIZES}
    return {name: taken[name] / sum(taken.values()) for name in SIZES}


def test_smoothed_shares_worked_by_hand() -> None:
    rates = sampling_rates(SIZES, ONES, 0.7)
    total = sum(SIZES.values())
    powers = {name: (size / total) ** 0.7 for name, size in SIZES.items()}
    expected = {name: p / sum(powers.values()) for name, p in powers.items()}
    assert shares(rates) == pytest.approx(expected)
    # The amount of text stays; the small grow and the large shrink.
    taken = sum(rates[name] * SIZES[name] for name in SIZES)
    assert taken == pytest.approx(total)
    assert rates["en"] < 1 < rates["de"] < rates["sw"]


def test_the_ends_of_smoothing() -> None:
    weights = {"de": 1.0, "en": 0.5, "sw": 3.0}
    assert sampling_rates(SIZES, weights, 1.0) == weights
    even = sampling_rates(SIZES, ONES, 0.0)
    assert shares(even) == pytest.approx(dict.fromkeys(SIZES, 1 / 3))
    mixed = shares(sampling_rates(SIZES, weights, 0.0))
    assert mixed == pytest.approx({"de": 2 / 9, "en": 1 / 9, "sw": 6 / 9})


def test_empty_and_tiny_corpora() -> None:
    rates = sampling_rates({"a": 10, "b": 0}, {"a": 1.0, "b": 1.0}, 0.5)
    assert rates == {"a": 1.0, "b": 0.0}
    with pytest.raises(UserError, match="b would be repeated 50,000 times"):
        sampling_rates({"a": 99_999, "b": 1}, {"a": 1.0, "b": 1.0}, 0.0)
