"""CoNLL-style files, also of predictions, and all that is wrong with them."""

import re

import pytest

from bert_tf.families.token_classification.conll_files import (
    read_conll,
    read_tag_predictions,
    write_tag_predictions,
)
from bert_tf.families.token_classification.entities import (
    EntityCounts,
    score_entities,
)
from bert_tf.families.token_classification.recipe import TagRecipe
from tests import user_errors

CONLL = """-DOCSTART- -X- O O

EU NNP I-NP I-ORG
rejects VBZ I-VP O

Peter NNP I-NP I-PER
-DOCSTART- -X- O O

BRUSSELS NNP I-NP I-LOC
Paris NNP I-NP B-LOC

"""


def written(tmp_path, text, name="words.txt"):
    path = tmp_path / name
    path.write_bytes(text.encode())
    return str(path)


def error_of(tmp_path, text, **layout):
    path = written(tmp_path, text)
    line = user_errors.error_of(read_conll, path, TagRecipe(**layout))
    assert line.startswith(path)
    return line.removeprefix(path)


def test_words_tags_sentences_and_documents(tmp_path):
    data = read_conll(written(tmp_path, CONLL))
    assert data.words == ["EU", "rejects", "Peter", "BRUSSELS", "Paris"]
    assert data.tags == ["I-ORG", "O", "I-PER", "I-LOC", "B-LOC"]
    assert data.scheme == "IOB1"
    assert data.learned_tags == ["B-ORG", "O", "B-PER", "B-LOC", "B-LOC"]
    assert data.rows.tolist() == [3, 4, 6, 9, 10]
    assert data.sentence_starts.tolist() == [0, 2, 3, 5]
    assert data.document_starts.tolist() == [0, 2, 3]
    assert (data.marks, data.separator, len(data)) == (2, " ", 3)
    assert [data.words[part] for part in data.sentences()] == [
        ["EU", "rejects"],
        ["Peter"],
        ["BRUSSELS", "Paris"],
    ]


VARIANTS = {
    "several blank lines": CONLL.replace("\n\n", "\n\n \n\t\n"),
    "several blanks": CONLL.replace(" ", "   "),
    "blanks at the ends": CONLL.replace("\n", "  \n").replace("EU", " EU"),
    "documents without words": f"-DOCSTART-\n\n{CONLL}\n-DOCSTART-\n",
}


@pytest.mark.parametrize("text", VARIANTS.values(), ids=VARIANTS)
def test_the_same_file_in_other_dress(tmp_path, text):
    expected = read_conll(written(tmp_path, CONLL))
    data = read_conll(written(tmp_path, text, "other.txt"))
    assert data.words == expected.words
    assert data.tags == expected.tags
    for name in ("sentence_starts", "document_starts"):
        found, same = getattr(data, name), getattr(expected, name)
        assert found.tolist() == same.tolist()


def test_tabs_divide_alone_where_there_are_any(tmp_path, capsys):
    text = CONLL.replace(" ", "\t").replace("rejects", "New York")
    data = read_conll(written(tmp_path, text.replace("Peter", "1\u00a0000")))
    assert data.words[:3] == ["EU", "New York", "1\u00a0000"]
    assert data.separator == "\t"
    assert "1 of 5 words contain blanks ('New York'" in capsys.readouterr().err


def test_other_columns(tmp_path):
    text = "1 O EU x\n2 B-ORG EC y\n"
    layout = TagRecipe(token_column=-2, tag_column=1)
    data = read_conll(written(tmp_path, text), layout)
    assert data.words == ["EU", "EC"]
    assert data.tags == ["O", "B-ORG"]
    # With such a file, a document mark need not come first.
    marked = f"0 -DOCSTART- -DOCSTART- O\n\n{text}"
    assert read_conll(written(tmp_path, marked), layout).marks == 1


def test_conll_u(tmp_path, capsys):
    """Ranges of words and empty nodes are not words; their words are."""
    lines = ("1-2 du _ _", "1 de de ADP", "2 le le DET", "2.1 x _ _")
    text = "\n".join(["# text = du", *lines, "", "1 Oui oui INTJ", ""])
    path = written(tmp_path, text.replace(" ", "\t"))
    layout = TagRecipe(token_column=1, comment="#")
    data = read_conll(path, layout)
    assert list(zip(data.words, data.tags, strict=True)) == [
        ("de", "ADP"),
        ("le", "DET"),
        ("Oui", "INTJ"),
    ]
    assert data.sentence_starts.tolist() == [0, 2, 3]
    assert "2 lines of CoNLL-U with several words" in capsys.readouterr().err
    # Where the numbers are the words, so are ranges.
    ages = read_conll(written(tmp_path, "1-2\tAGE\n3\tAGE\n"))
    assert ages.words == ["1-2", "3"]


def test_without_marks_each_sentence_is_a_document_or_all_are_one(tmp_path):
    path = written(tmp_path, "a O\n\nb O\nc O\n\nd O\n")
    assert read_conll(path).document_starts.tolist() == [0, 1, 2, 3]
    one = read_conll(path, TagRecipe(unmarked="file"))
    assert one.document_starts.tolist() == [0, 3]
    assert one.marks == 0


def test_comments_stand_before_sentences_alone(tmp_path, capsys):
    text = "# a sentence\n# O\n5 O\n# O\n\n# O\nx O\n"
    path = written(tmp_path, text)
    data = read_conll(path, TagRecipe(comment="#"))
    assert data.words == ["5", "#", "x"]
    assert f"{path}: 3 comment lines are skipped." in (capsys.readouterr().err)
    line = user_errors.error_of(read_conll, path)
    assert "If row 1 is a comment, pass `comment`=#" in line


@pytest.mark.parametrize(
    ("text", "layout", "expected"),
    [
        ("a x O\nb O\n", {}, ", row 2: has 2 columns and row 1 has 3 ('b O')"),
        (
            "a\tO\nb O\n",
            {},
            ", row 2: has 1 column and row 1 has 2 ('b O'); columns are "
            "separated by tabs",
        ),
        ("a\tO\n\tO\n", {}, ", row 2: has an empty word ('\\tO'); remove"),
        ("a B-LOC\nb PER\n", {}, ", row 2: the tag 'PER' has no prefix,"),
        ("a B_PER\n", {}, ", row 1: the tag 'B_PER' has its prefix in a form"),
        ("a\tO\nb\t\n", {}, ", row 2: the tag '' is empty; write O"),
        ("1\ta" + 8 * "\t_" + "\n", {}, ", row 1: has the columns of CoNLL-U"),
        ("a O\n", {"tag_column": 3}, ", row 1: has 2 columns ('a O'), so tag"),
        ("word\n", {}, ", row 1: has 1 column ('word'), so token_column and"),
        ("a B-X\rb O\r", {}, ", line 1: holds a carriage return inside a li"),
        ("-DOCSTART- -X- O O\n\n", {}, ": has no words."),
    ],
)
def test_what_is_no_such_file(tmp_path, text, layout, expected):
    assert error_of(tmp_path, text, **layout).startswith(expected)


GOLD = """-DOCSTART- -X- O

EU NNP I-ORG
rejects VBZ O
German JJ I-MISC

Peter NNP I-PER
Blackburn NNP I-PER
"""
PREDICTED = ["I-ORG", "O", "O", "I-PER", "I-PER"]


def gold(tmp_path, text=GOLD):
    path = tmp_path / "gold.txt"
    path.write_text(text, encoding="utf-8")
    return str(path)


def scored(references, predictions):
    """The scores of a file of predictions."""
    words = read_conll(references)
    tags = read_tag_predictions(predictions, words)
    return score_entities(words.tags, tags, words.sentence_starts)


def test_a_written_file_reads_and_scores(tmp_path, capsys):
    references = gold(tmp_path)
    path = str(tmp_path / "predictions.txt")
    data = read_conll(references)
    write_tag_predictions(path, data, PREDICTED)
    with open(path, encoding="utf-8") as file:
        assert file.read() == (
            "EU I-ORG I-ORG\nrejects O O\nGerman I-MISC O\n\n"
            "Peter I-PER I-PER\nBlackburn I-PER I-PER\n\n"
        )
    assert read_tag_predictions(path, data) == PREDICTED
    scores = scored(references, path).scores()
    assert scores == {
        "f1": 2 * 2 / (2 + 3),
        "precision": 1.0,
        "recall": 2 / 3,
        "accuracy": 4 / 5,
    }
    # Words with blanks, and no tags.
    text = "New York\tx\nhas\ty\n\nit\tz\n"
    data = read_conll(gold(tmp_path, text), tagged=False)
    write_tag_predictions(path, data, ["B-LOC", "O", "O"])
    with open(path, encoding="utf-8") as file:
        assert file.read() == "New York\tB-LOC\nhas\tO\n\nit\tO\n\n"
    assert read_tag_predictions(path, data) == ["B-LOC", "O", "O"]
    assert "contain blanks" in capsys.readouterr().err


def test_a_file_of_another_system(tmp_path):
    """The predicted tag is the last, in IOB1; other columns are ignored."""
    path = tmp_path / "other.txt"
    path.write_text(
        "EU\tX\tI-ORG\nrejects\tX\tO\nGerman\tX\tB-MISC\n\n"
        "-DOCSTART-\tX\tO\n\nPeter\tX\tI-PER\nBlackburn\tX\tB-PER",
        encoding="utf-8",
    )
    scores = scored(gold(tmp_path), str(path))
    assert scores.overall == EntityCounts(3, 4, 2)


def pasted(tmp_path, rows):
    """A file of right tags and one of predicted tags, from a row each."""
    paths = []
    for name, tags in zip(("gold", "found"), rows, strict=True):
        text = "".join(f"{tag} {tag}\n" for tag in tags.split())
        paths.append(tmp_path / f"{name}.txt")
        paths[-1].write_text(re.sub(r"(?m)^\S+", "w", text))
    return map(str, paths)


@pytest.mark.parametrize(
    ("gold_tags", "found_tags", "num_same", "num_correct"),
    [
        # Two neighbours taken for one: IOB1 and IOB2 differ at one word.
        ("I-PER B-PER O", "I-PER I-PER O", 2, 0),
        ("B-PER B-PER O", "B-PER I-PER O", 2, 0),
        # One word too many in front: one tag is wrong in IOB1, two in IOB2.
        ("O I-PER O", "I-PER I-PER O", 2, 0),
        ("O B-PER O", "B-PER I-PER O", 1, 0),
        # The same entity in two schemes is right, and its tag is not.
        ("O I-PER O", "O B-PER O", 2, 1),
    ],
)
def test_accuracy_is_of_the_tags_as_given(
    gold_tags, found_tags, num_same, num_correct, tmp_path, capsys
):
    """Worked by hand: `$correctTag eq $guessed and $guessedType eq ...`."""
    scores = scored(*pasted(tmp_path, (gold_tags, found_tags)))
    assert scores.accuracy == num_same / 3
    assert scores.overall.num_correct == num_correct
    logged = "found.txt: has tags in IOB2 and" in capsys.readouterr().err
    assert logged == ("I-PER" in gold_tags and found_tags == "O B-PER O")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "EU O\nreject O\nGerman O\n\nPeter O\nBlackburn O\n",
            "other.txt, row 2: predicts 'reject' where {gold}, row 4, has",
        ),
        ("EU O\nrejects O\nGerman O\n\nPeter O\n", "other.txt: has 4 words"),
        (
            "EU O\nrejects O\nGerman O\n\nPeter O\nBlackburn O\n\nx O\n",
            "other.txt: has 6 words and {gold} has 5;",
        ),
        (
            "EU O\nrejects O\n\nGerman O\n\nPeter O\nBlackburn O\n",
            "other.txt, row 2: ends a sentence, unlike {gold}, row 4;",
        ),
        (
            "EU O\nrejects O\nGerman O\nPeter O\nBlackburn O\n",
            "other.txt, row 3: does not end a sentence, unlike {gold}, row 5;",
        ),
        ("EU O\nrejects VBZ\n", "other.txt, row 2: the tag 'VBZ' has no"),
    ],
)
def test_files_that_do_not_fit(tmp_path, text, expected):
    references = gold(tmp_path)
    path = written(tmp_path, text, "other.txt")
    line = user_errors.error_of(scored, references, path)
    assert line.removeprefix(f"{tmp_path}/").startswith(
        expected.format(gold=references)
    )
