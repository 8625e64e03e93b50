"""What explanations promise, on small models of every kind."""

import functools
import html
import json
import math
import re

import numpy as np
import pytest

from bert_tf.inference.load import LoadedModel
from tests.inference import serving_models as models
from tests.model_helpers import numpy
from tests.reference_bert import ReferenceBert
from tests.server.browser import CHROMIUM, Browser
from tests.user_errors import error_of

LONG = " ".join(["the ferry is good", "U.N. don't"] * 4)
ASKED = {
    "classes": {"text": "the ferry is good", "text_b": "smith-jones 1,999"},
    # Of several windows.
    "regression": {"text": LONG},
    "several_labels": {"text": "the Café's ferry"},
    "span": {"question": "is the ferry good?", "context": LONG},
    "tags": {"text": LONG},
    "choice": {
        "text": "the ferry",
        "choices": ["is good", "smith", "", "a cafe is"],
        "start": "it",
    },
}
TARGETS = {"span": "ferry is", "tags": "don't"}
EVIL = '</script><img src=x onerror="document.title=1"> \u2028 \U0001f600 b'


loaded = models.loaded


@functools.cache
def explained(kind, method="integrated_gradients", target=None):
    return loaded(kind).explain(**ASKED[kind], target=target, method=method)


def log_odds(probability):
    return math.log(probability / (1 - probability))


@pytest.mark.parametrize("kind", ASKED)
def test_what_the_words_add_up_to(kind):
    found = explained(kind, target=TARGETS.get(kind))
    total = sum(word.attribution for word in found.words)
    missed = abs(total - (found.score - found.baseline_score))
    assert missed / abs(found.score - found.baseline_score) < 0.01
    assert found.completeness_error < 0.01
    sizes = [abs(word.share) for word in found.words]
    assert sum(sizes) == pytest.approx(1)
    assert min(sizes) > 0
    for word in found.words:
        text = found.texts[word.column]
        assert text[word.start : word.end] == word.text != ""
    read = [(word.column, word.start) for word in found.words]
    assert len(set(read)) == len(read)


def test_the_number_is_the_answers():
    """It can be told from what the model answers."""
    for kind, of in (
        ("classes", lambda answer: log_odds(answer["probability"])),
        ("regression", lambda answer: answer["score"]),
        (
            "several_labels",
            lambda a: log_odds(max(a["probabilities"].values())),
        ),
        ("choice", lambda answer: log_odds(max(answer["probabilities"]))),
    ):
        answer = loaded(kind)(**ASKED[kind])
        found = explained(kind)
        assert found.score == pytest.approx(of(answer), rel=1e-3)
    answer = loaded("classes")(**ASKED["classes"])
    for label, probability in answer["probabilities"].items():
        found = explained("classes", "occlusion", label)
        assert found.target == label
        assert found.score == pytest.approx(log_odds(probability), rel=1e-3)
    span = loaded("span")(**ASKED["span"])
    assert explained("span").target == (span["answer"] or "no answer")
    assert explained("choice").target in ASKED["choice"]["choices"]
    columns = [word.column for word in explained("choice").words]
    assert set(columns) == {"text", "choices[0]", "choices[1]", "choices[3]"}
    assert explained("choice").texts["choices[1]"] == "it smith"


def reference_outputs(kind, tokens):
    """The NumPy forward of a row of two texts."""
    encoder = loaded(kind).encoder
    ids = models.tokenizer().vocabulary.ids
    row = [ids[token] for token in tokens]
    first = row.index(ids["[SEP]"]) + 1
    batch = {
        "input_ids": np.array([row]),
        "input_mask": np.ones((1, len(row)), int),
        "segment_ids": (np.arange(len(row)) >= first)[None].astype(int),
    }
    return ReferenceBert(encoder.config, encoder.to_arrays())(batch)


def reference(kind, explanation, tokens=None, target=None):
    """Outputs and score of the first row, with other tokens if given."""
    found = reference_outputs(kind, tokens or explanation.rows[0].tokens)
    head = loaded(kind).served.model.get_layer("classifier")
    logits = found["pooled_output"][0] @ numpy(head.kernel) + numpy(head.bias)
    target = logits.argmax() if target is None else target
    others = np.delete(logits, target)
    return found, logits[target] - np.logaddexp.reduce(others)


def test_attention_and_scores_are_the_references():
    found = explained("classes")
    tokens = found.rows[0].tokens
    outputs, score = reference("classes", found)
    assert found.score == pytest.approx(score, abs=1e-4)
    attention = found.rows[0].attention
    assert attention.shape == (2, 3, len(tokens), len(tokens))
    np.testing.assert_allclose(attention.sum(-1), 1, atol=1e-5)
    expected = np.stack(outputs["attention_probs"])[:, 0]
    np.testing.assert_allclose(attention, expected, atol=1e-5)
    # Rows of a batch are shown without their padding.
    rows = explained("choice").rows
    assert len({len(row.tokens) for row in rows}) > 1
    for row in rows:
        assert row.tokens[-1] == "[SEP]"
        assert row.attention.shape[2:] == (len(row.tokens),) * 2
        np.testing.assert_allclose(row.attention.sum(-1), 1, atol=1e-5)


def test_the_number_of_an_answer_is_that_of_its_two_ends():
    found = explained("span", target="ferry is")
    tokens = found.rows[0].tokens
    outputs = reference_outputs("span", tokens)
    head = loaded("span").served.model.get_layer("span")
    logits = outputs["sequence_output"][0] @ numpy(head.kernel)
    logits += numpy(head.bias)
    begin = tokens.index("ferry", tokens.index("[SEP]"))
    assert tokens[begin + 1] == "is"
    expected = 0.0
    for position, values in zip((begin, begin + 1), logits.T, strict=True):
        others = np.delete(values, position)
        expected += values[position] - np.logaddexp.reduce(others)
    assert found.score == pytest.approx(expected, abs=1e-4)


def test_gradients_are_finite_differences():
    """One step takes the gradient in the middle, by NumPy in float64."""
    asked = {"text": "ferry is", "text_b": "good"}
    model = loaded("classes")
    found = model.explain(**asked, steps=1)
    assert found.steps == 1
    arrays = {k: v.astype(float) for k, v in model.encoder.to_arrays().items()}
    name = "bert/embeddings/word_embeddings"
    ids = model.tokenizer.vocabulary.ids
    tokens = found.rows[0].tokens
    own = arrays[name][[ids[token] for token in tokens]]
    change = own - arrays[name][ids["[MASK]"]]
    special = np.isin(tokens, ["[CLS]", "[SEP]"])
    change[special] = 0
    middle = own - change / 2
    head = model.served.model.get_layer("classifier")
    label = model.labels.index(found.target)
    count = len(own)
    segments = np.array([0] * 4 + [1] * (count - 4))

    def score(embeddings):
        # Words of the vocabulary's own, one for each position.
        bert = ReferenceBert(model.encoder.config, {**arrays, name: embeddings})
        rows = np.arange(count), np.ones(count), segments
        *_, pooled, _ = bert.encode_row(*rows)
        logits = pooled @ numpy(head.kernel) + numpy(head.bias)
        others = np.delete(logits, label)
        return logits[label] - np.logaddexp.reduce(others)

    expected = []
    for index in np.flatnonzero(~special):
        step = np.zeros_like(own)
        step[index] = 1e-4 * change[index]
        expected.append((score(middle + step) - score(middle - step)) / 2e-4)
    # "ferry" and "is" are tokens, "good" is several.
    assert tokens[:4] == ("[CLS]", "ferry", "is", "[SEP]")
    ours = [word.attribution for word in found.words]
    expected = [*expected[:2], sum(expected[2:])]
    np.testing.assert_allclose(ours, expected, rtol=1e-3, atol=1e-5)


def test_occlusion_is_each_word_masked():
    found = explained("classes", "occlusion")
    assert (found.steps, found.completeness_error) == (None, None)
    tokens = list(found.rows[0].tokens)
    label = loaded("classes").labels.index(found.target)
    _, score = reference("classes", found)
    for word in found.words:
        if word.text in ("ferry", "the"):
            masked = ["[MASK]" if t == word.text else t for t in tokens]
            _, without = reference("classes", found, masked, label)
            near = pytest.approx(score - without, rel=1e-3, abs=1e-4)
            assert word.attribution == near


def test_steps_are_doubled_until_the_error_is_small(capsys):
    model = loaded("classes")
    found = explained("classes")
    assert found.steps in (32 << n for n in range(6))
    rough = model.explain(**ASKED["classes"], steps=1)
    assert rough.completeness_error > found.completeness_error
    if rough.completeness_error > 0.01:
        assert "after 1 steps the words' shares" in capsys.readouterr().err


def test_what_is_not_read_is_told():
    found = loaded("several_labels").explain(LONG)
    assert found.num_unread > 0
    last = found.words[-1]
    assert LONG[last.end :].split()
    assert f"{found.num_unread} more words" in str(found)
    # A question's window is one row, of a text of several.
    assert len(explained("span").rows) == 1
    assert len(explained("regression").rows) > 1
    assert explained("regression").num_unread == 0


def test_table_numbers_and_page(tmp_path):
    found = explained("classes")
    lines = str(found).splitlines()
    assert lines[0].startswith(f"{found.target}: log odds {found.score:.4g}; ")
    assert "completeness error" in lines[1]
    assert len(lines) == 3 + len(found.words)
    for line, word in zip(lines[3:], found.words, strict=True):
        shown = re.fullmatch(r"(\S+) +([+-][\d.]+)% +([+-][\d.]+) *[+-]*", line)
        assert shown[1] == word.text
        assert float(shown[2]) == pytest.approx(100 * word.share, abs=0.06)
    found.write(tmp_path / "x.json")
    values = json.loads((tmp_path / "x.json").read_text(encoding="utf-8"))
    assert values == json.loads(json.dumps(found.to_dict()))
    assert values["words"][0]["share"] == found.words[0].share
    (attention, *_) = (row["attention"] for row in values["rows"])
    np.testing.assert_allclose(attention, found.rows[0].attention, atol=1e-4)


def test_the_page_is_no_markup_of_the_users(tmp_path):
    found = loaded("several_labels").explain(EVIL)
    found.write(tmp_path / "x.html")
    page = (tmp_path / "x.html").read_text(encoding="utf-8")
    assert "<img" not in page
    assert page.count("</script>") == 2
    assert not re.search(r"https?://|src=\"|@import", page)
    # In a notebook the same page, without attention, in a frame of its own.
    frame = found._repr_html_()
    assert (frame.count("<"), frame.count(">")) == (2, 2)
    shown = re.match(r'<iframe srcdoc="([^"]*)" sandbox="allow-scripts"', frame)
    notebook = html.unescape(shown[1])
    assert "<script" not in notebook
    before, _, _ = page.partition('<section aria-label="Attention">')
    assert notebook.startswith(before.rstrip())
    assert repr(found) == str(found)
    (tmp_path / "notebook.html").write_text(notebook, encoding="utf-8")
    if CHROMIUM is None:
        pytest.skip("no Chromium here (Debian: apt install chromium)")
    browser = Browser(tmp_path / "profile")
    try:
        browser.open((tmp_path / "x.html").as_uri())
        browser.until("document.querySelector('#tokens button') !== null")
        browser.until("document.querySelector('#looks').textContent !== ''")
        text = "document.querySelector('.text').textContent"
        assert browser.value(text) == EVIL
        marks = "[...document.querySelectorAll('mark')].map(m => m.textContent)"
        assert browser.value(marks) == [word.text for word in found.words]
        assert browser.value("document.querySelector('img')") is None
        assert EVIL.split()[0] not in browser.value("document.title")
        browser.open((tmp_path / "notebook.html").as_uri())
        browser.until("document.querySelector('mark') !== null")
        assert browser.value(marks) == [word.text for word in found.words]
        browser.open((tmp_path / "x.html").as_uri())
        browser.until("document.querySelector('#tokens button') !== null")
        browser.until("document.querySelector('#looks').textContent !== ''")
        texts = found.rows[0].texts
        layer, head, place = 1, 2, 3
        browser.value(
            f"""{{ for (const [id, value] of [["layer", {layer}],
            ["head", {head}]]) {{ const s = document.getElementById(id);
            s.value = value; s.dispatchEvent(new Event("change")); }}
            document.querySelectorAll("#tokens button")[{place}].click(); }}"""
        )
        attention = found.rows[0].attention[layer, head, place]
        shown = browser.value(
            "[...document.querySelectorAll('#tokens button')]"
            ".map(b => [b.textContent, Number(b.title)])"
        )
        assert [text for text, _ in shown] == list(texts)
        values = [value for _, value in shown]
        np.testing.assert_allclose(values, attention, atol=0.003)
        assert browser.messages == []
    finally:
        browser.close()


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        ("classes", {"text_b": None}, "`text_b` is missing"),
        ("classes", {"text": ["a", "b"]}, "`text` is a list of rows"),
        ("classes", {"target": "godo"}, "`target`=godo: is no label"),
        ("classes", {"method": "lime"}, "`method`='lime': takes one"),
        ("classes", {"steps": 0}, "`steps`=0: give a whole number from 1 to"),
        ("classes", {"method": "occlusion", "steps": 8}, "`steps`=8: occlu"),
        ("classes", {"text": " ", "text_b": ""}, "no word that could be expl"),
        ("regression", {"target": "x"}, "`target`=x: this model gives a score"),
        ("regression", {"text": "is " * 2000}, "at most 2,048 tokens"),
        ("span", {"context": ""}, "`context`: no word"),
        ("span", {"target": "nowhere"}, "is not in `context`"),
        ("span", {"target": LONG}, "is longer than what the model reads"),
        ("tags", {"target": "nowhere"}, "is not in `text`"),
        ("tags", {"target": ""}, "is not in `text`"),
        ("choice", {"target": 2}, "`target`=2: is no choice"),
        ("choice", {"target": "it"}, "`target`='it': is no choice"),
        ("choice", {"choices": ["only"]}, "nothing else to choose"),
    ],
)
def test_mistakes(kind, changes, message):
    given = {**ASKED[kind], **changes}
    assert message in error_of(loaded(kind).explain, **given)


def test_what_has_no_answer_to_explain(tmp_path):
    line = error_of(loaded("encoder").explain, "a [MASK]")
    assert "was not fine-tuned for a task" in line
    line = error_of(loaded("pretrained").explain, "[MASK]")
    assert "`text`: no word that could be explained" in line
    found = explained("classes")
    line = error_of(found.write, tmp_path / "x.txt")
    assert "end it in .html or .json" in line
    (tmp_path / "file").touch()
    output = tmp_path / "file" / "x.html"
    line = error_of(found.write, output)
    assert f"`output`={output}: cannot be written (" in line
    served = models.choice_model()
    model = LoadedModel(served, models.HERE)
    choices = {"text": "a", "choices": ["is", "the"]}
    assert model.explain(**choices, target="1").target == "the"
    assert model.explain(**choices, target="the").target == "the"
