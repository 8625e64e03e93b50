"""Prediction files of taggers: written, read, scored, refused."""

import re

import pytest

from bert_tf.errors import UserError
from bert_tf.finetuning.token_classification.conll_files import (
    ConllLayout,
    read_conll,
    read_tag_predictions,
    score_tag_file,
    write_tag_predictions,
)
from bert_tf.finetuning.token_classification.entities import EntityCounts

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


def test_a_written_file_reads_and_scores(tmp_path):
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
    scores = score_tag_file(references, path).scores()
    assert scores == {
        "f1": 2 * 2 / (2 + 3),
        "precision": 1.0,
        "recall": 2 / 3,
        "accuracy": 4 / 5,
    }


def test_words_with_blanks_and_no_tags(tmp_path, capsys):
    path = str(tmp_path / "predictions.txt")
    data = read_conll(
        gold(tmp_path, "New York\tx\nhas\ty\n\nit\tz\n"),
        ConllLayout(tag_column=None),
    )
    write_tag_predictions(path, data, ["B-LOC", "O", "O"])
    with open(path, encoding="utf-8") as file:
        assert file.read() == "New York\tB-LOC\nhas\tO\n\nit\tO\n\n"
    assert read_tag_predictions(path, data) == ["B-LOC", "O", "O"]
    assert "hold blanks" in capsys.readouterr().err


def test_a_file_of_another_system(tmp_path):
    """The predicted tag is the last, in IOB1; the rest is its own affair."""
    path = tmp_path / "other.txt"
    path.write_text(
        "EU\tX\tI-ORG\nrejects\tX\tO\nGerman\tX\tB-MISC\n\n"
        "-DOCSTART-\tX\tO\n\nPeter\tX\tI-PER\nBlackburn\tX\tB-PER",
        encoding="utf-8",
    )
    scores = score_tag_file(gold(tmp_path), str(path))
    counts = scores.overall
    assert counts == EntityCounts(3, 4, 2)
    columns = ConllLayout(token_column=0, tag_column=2)
    again = score_tag_file(
        gold(tmp_path), str(path), ConllLayout(tag_column=2), columns
    )
    assert again == scores


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
    scores = score_tag_file(*pasted(tmp_path, (gold_tags, found_tags)))
    assert scores.accuracy == num_same / 3
    assert scores.overall.num_correct == num_correct
    told = "found.txt: has tags in IOB2 and" in capsys.readouterr().err
    assert told == ("I-PER" in gold_tags and found_tags == "O B-PER O")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "EU O\nreject O\nGerman O\n\nPeter O\nBlackburn O\n",
            "other.txt, row 2: predicts 'reject' where {gold}, row 4, has "
            "'rejects'; predict every word, in its order.",
        ),
        (
            "EU O\nrejects O\nGerman O\n\nPeter O\n",
            "other.txt: has 4 words and {gold} has 5; predict every word, in "
            "its order.",
        ),
        (
            "EU O\nrejects O\nGerman O\n\nPeter O\nBlackburn O\n\nx O\n",
            "other.txt: has 6 words and {gold} has 5; predict",
        ),
        (
            "EU O\nrejects O\n\nGerman O\n\nPeter O\nBlackburn O\n",
            "other.txt, row 2: ends a sentence, unlike {gold}, row 4; a blank",
        ),
        (
            "EU O\nrejects O\nGerman O\nPeter O\nBlackburn O\n",
            "other.txt, row 3: does not end a sentence, unlike {gold}, row 5;",
        ),
        ("EU O\nrejects VBZ\n", "other.txt, row 2: 'VBZ' is no tag"),
    ],
)
def test_files_that_do_not_fit(tmp_path, text, expected):
    references = gold(tmp_path)
    (tmp_path / "other.txt").write_text(text, encoding="utf-8")
    with pytest.raises(UserError) as caught:
        score_tag_file(references, str(tmp_path / "other.txt"))
    line = str(caught.value)
    assert "\n" not in line
    assert line.removeprefix(f"{tmp_path}/").startswith(
        expected.format(gold=references)
    )
