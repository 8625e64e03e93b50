import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_tf.corpora import sentences
from bert_tf.corpora.sentences import split_sentences

# Sentences are separated by "|"; what is split is the text without it.
CASES = {
    "abbreviations": (
        "Dr. J. R. Moss paid $3.14 near St. Ives to Mr. Hill.|He left."
    ),
    "dotted": "He joined the U.S. Navy, e.g. Unit 55.|Fine.",
    "numbered": "See Fig. 3 and No. 5 on Jan. 4 of it.|He said no.|Then 8.",
    "quotes": '"Really?" he asked.|She said: "No!"|Then (it rained.)|Sun.',
    "ellipses": "Well... perhaps not.|Wait...|What?!|No!!!|Hm…|Yes.",
    "decimals": "It rose 2.5 per cent.|Version 3.11.7 came.",
    "years": "It ended in 1990.|The town grew.",
    "footnotes": "It is old.[1][note 2]|It is small.[citation needed]|Good.",
    "german": (
        "Am 3. Mai kam Prof. Kranz bzw. Hr. Moll.|„Wirklich?“ fragte er.|"
        "»Ja.«|Er ging.|»Komm!« rief sie."
    ),
    "french": "« Quoi ? »|Il part.|« Non. »|Elle reste.",
    "spanish": "¿Qué pasó?|¡Nada!|Eran las 3.|—Ven —dijo.",
    "russian": "Это Иванов И. И. и т.д. Он ушёл.|Куда?|Домой.",
    "greek": "Τι είναι;|Ένα βιβλίο· νέο; ναι.|Καλό.",
    "chinese": "他说：“你好。”|然后走了。|“真的吗？”她问。|是！|好……下一句。",
    "japanese": "「すごい！」と言った。|彼は「はい。」|次は3．14です。",
    "mixed": "宇航员A. B. Moss来了。|OK。|Done.",
    "korean": "안녕하세요.|저는 학생입니다.|왜?|네.",
    "arabic": "هل هذا صحيح؟|نعم.|د. سامي قال ذلك.|حسنا!",
    "urdu": "یہ سچ ہے۔|کیا؟|ہاں۔",
    "hindi": "यह सच है।|क्या यह ठीक है?|हाँ॥",
    "armenian": "Ո՞վ է։|Նա է։",
    "burmese": "မင်္ဂလာပါ။|ကောင်းပါတယ်။",
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_sentences_of_many_languages(case: str) -> None:
    expected = case.split("|")
    no_blanks = any("\u3000" <= character <= "\u9fff" for character in case)
    assert (
        split_sentences(("" if no_blanks else " ").join(expected)) == expected
    )


def test_line_ends_and_runs_of_blanks_are_blanks() -> None:
    text = "  One two\n three.\u00a0\u3000Four\tfive\r\n six. \n"
    assert split_sentences(text) == ["One two three.", "Four five six."]
    assert split_sentences(" \n ") == []


PIECES = st.sampled_from(
    [*".!?…;。！？।؟۔:,\"'“”„»«)(]「」［[]-–", " ", " ", "\n", "\u3000"]
    + ["A", "b", "Dr", "etc", "No", "3", "12", "1990", "U.S", "vgl", "Αυτό"]
    + "他说 です है نعم Wort word İ e\u0301 한국어 z.B".split()
)
TEXTS = st.one_of(
    st.lists(PIECES, max_size=60).map("".join), st.text(max_size=60)
)


@settings(max_examples=100)
@given(text=TEXTS)
def test_nothing_is_lost_and_nothing_is_split_again(text: str) -> None:
    found = split_sentences(text)
    assert "".join("".join(found).split()) == "".join(text.split())
    assert all(s and s == " ".join(s.split()) for s in found)
    assert [again for s in found for again in split_sentences(s)] == found


@settings(max_examples=100)
@given(text=TEXTS, longest=st.integers(1, 12))
def test_long_sentences_are_cut_and_stay_cut(text: str, longest: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sentences, "LONGEST_SENTENCE", longest)
        found = split_sentences(text)
        assert all(0 < len(s) <= longest for s in found)
        assert "".join("".join(found).split()) == "".join(text.split())
        assert [again for s in found for again in split_sentences(s)] == found


def test_a_language_without_stops_is_cut_at_blanks() -> None:
    found = split_sentences("ภาษาไทยไม่มีจุด " * 200)
    assert all(len(s) <= sentences.LONGEST_SENTENCE for s in found)
    assert set(found) == {" ".join(found[0].split()), found[-1]}
    assert found[0].endswith("จุด")


def boundaries(parts: list[str]) -> set[int]:
    ends, size = set(), 0
    for part in parts:
        size += len("".join(part.split()))
        ends.add(size)
    return ends


@pytest.mark.parametrize(
    ("name", "joint", "recall", "precision"),
    [
        ("corpus/wikipedia_squad_train_part1.txt", " ", 0.97, 0.98),
        ("corpus_multilingual/de_xquad.txt", " ", 0.94, 0.98),
        ("corpus_multilingual/ru_xquad.txt", " ", 0.92, 0.98),
        ("corpus_multilingual/hi_xquad.txt", " ", 0.96, 0.96),
        ("corpus_multilingual/ar_xquad.txt", " ", 0.93, 0.97),
        ("corpus_multilingual/zh_wikipedia_cmrc2018dev.txt", "", 0.97, 0.98),
        ("corpus_multilingual/ja_wikipedia_jsquad.txt", "", 0.96, 0.98),
    ],
)
def test_real_text_is_split_where_others_split_it(
    shared_data, name, joint, recall, precision
) -> None:
    text = (shared_data / name).read_text(encoding="utf-8")
    shared = there = found = 0
    for document in text.split("\n\n")[:100]:
        lines = [line.strip() for line in document.split("\n")]
        theirs = boundaries(list(filter(None, lines)))
        ours = boundaries(split_sentences(joint.join(lines)))
        shared += len(theirs & ours)
        there, found = there + len(theirs), found + len(ours)
    assert shared / there > recall
    assert shared / found > precision
