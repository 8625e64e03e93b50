"""Requests and what TensorFlow Serving answers to them, as a table.

Drawn from tensorflow/serving's tests and documentation: json_tensor_test.cc,
http_rest_api_handler_test.cc, http_rest_api_util_test.cc, predict_util_test.cc,
get_model_status_impl_test.cc and g3doc/api_rest.md. The tables lie in
conformance/: a row has its columns between bars, and an answer after "!" is a
part of an error's text.
"""

import json
import pathlib

import aiohttp
import pytest

from bert_tf.server.batching import BATCHING_ON_CPU
from bert_tf.server.config import ModelConfig
from tests.server.served_models import DTYPES, Background, fetch_text, served

PREDICT = "/v1/models/m:predict"


def rows(name: str) -> list[tuple[str, ...]]:
    path = pathlib.Path(__file__).parent / "conformance" / f"{name}.txt"
    head, *lines = path.read_text(encoding="utf-8").splitlines()
    return [tuple(line.split("|", head.count("|"))) for line in lines]


@pytest.fixture(scope="module")
def table_server(versions):
    """Two versions with a label, batched as `bert-tf serve` does by itself."""
    model = ModelConfig("m", versions, "all", labels=(("stable", 1),))
    with served(models=(model,), batching=BATCHING_ON_CPU) as background:
        yield background


def ask(server: Background, asked: list[tuple[str, str, str]]) -> list:
    """The status and text of the answer to each method, path and body."""
    answers = []
    for method, path, body in asked:
        url = aiohttp.client.URL(server.rest + path, encoded=True)
        data = body.encode() if method in ("POST", "PUT") else None
        status, _, text = fetch_text(url, data, method)
        answers.append((status, text))
    return answers


def check(asked: str, answer: tuple[int, str], code: int, wanted: str) -> bool:
    """Checks the status and the error; returns whether there is none."""
    status, text = answer
    assert status == code, (asked, text)
    if not wanted.startswith("!"):
        return True
    found = json.loads(text)
    assert list(found) == ["error"]
    assert wanted[1:] in found["error"], asked
    return False


@pytest.mark.parametrize("dtype", [d.name for d in DTYPES[:12]])
def test_values(table_server, dtype):
    cases = [row[1:] for row in rows("values") if row[0] == dtype]
    assert cases
    start = f'{{"signature_name": "{dtype}", '
    bodies = [f'{start}"{form}": {value}}}' for form, value, _ in cases]
    answers = ask(table_server, [("POST", PREDICT, body) for body in bodies])
    for body, (*_, wanted), answer in zip(bodies, cases, answers, strict=True):
        code = 400 if wanted.startswith("!") else 200
        if "Conversion of" in wanted:
            code = 501
        if check(body, answer, code, wanted):
            (found,) = json.loads(answer[1]).values()
            # As text, since NaN is not itself, and 1 is 1.0.
            assert json.dumps(found) == json.dumps(json.loads(wanted)), body


def test_bodies(table_server):
    cases = rows("bodies")
    asked = [("POST", PREDICT, body) for body, _, _ in cases]
    answers = ask(table_server, asked)
    for (body, code, wanted), answer in zip(cases, answers, strict=True):
        if check(body, answer, int(code), wanted):
            assert json.loads(answer[1]) == json.loads(wanted), body


def test_paths(table_server):
    cases = rows("paths")
    asked = [(*head.split(" "), body) for head, body, _, _ in cases]
    answers = ask(table_server, asked)
    for (head, body, code, wanted), answer in zip(cases, answers, strict=True):
        if check(f"{head} {body}", answer, int(code), wanted):
            assert wanted in answer[1], (head, body)


def test_the_tables_are_whole():
    sizes = [len(rows("values")), len(rows("bodies")), len(rows("paths"))]
    assert sum(sizes) >= 290


@pytest.mark.parametrize("depth", [1, 31, 32, 33, 64, 65, 200, 1000, 100_000])
@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_brackets(table_server, depth, opening):
    """Deep ones are harmless where nobody reads them, and told elsewhere."""
    closing = "]" if opening == "[" else "}"
    inside = "" if opening == "[" else "1"
    deep = opening * depth + inside + closing * depth
    good = '"signature_name": "string", "inputs": "a"'
    bodies = [
        f'{{"unused": {deep}, {good}}}',
        f'{{"signature_name": "string", "inputs": {deep}}}',
        f'{{"signature_name": "string", "instances": [{deep}]}}',
        f'{{"unused": {deep[:-1]}, {good}}}',
        f'{{"unused": {deep[:-1]}) , {good}}}',
    ]
    answers = ask(table_server, [("POST", PREDICT, body) for body in bodies])
    assert answers[0][0] == 200
    fits = opening == "[" and depth <= 31
    expected = [200 if fits else 400] * 2 + [400] * 2
    assert [status for status, _ in answers[1:]] == expected
