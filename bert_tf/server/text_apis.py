"""OpenAI's embeddings and text-embeddings-inference's reranking of texts.

Both are computed by signatures of these names, inputs and outputs, which
exports of `bert_tf` have:

embed              text, string [B] -> embedding, float [B, D]
embed_with_prompt  text and prompt_name, string [B] -> the same
count_tokens       text, string [B] -> num_tokens, int [B]
rank               text and text_b, string [B] -> logits, float [B]
"""

import base64
import json
from collections.abc import Iterable
from typing import Any, NamedTuple

import grpc
import numpy as np
from tensorflow_serving.apis import model_pb2

from bert_tf.errors import excerpt
from bert_tf.server.json_answers import write_floats, write_string
from bert_tf.server.json_parser import parse
from bert_tf.server.prediction import Predictor, off_loop
from bert_tf.server.status import RequestError
from bert_tf.server.versions import Models, Version

EMBED, EMBED_WITH_PROMPT = "embed", "embed_with_prompt"
COUNT_TOKENS, RANK = "count_tokens", "rank"
# The output of each.
_OUTPUTS = {
    EMBED: "embedding",
    EMBED_WITH_PROMPT: "embedding",
    COUNT_TOKENS: "num_tokens",
    RANK: "logits",
}
FLOAT, BASE64 = _ENCODINGS = ("float", "base64")
# The input of each signature that is not a text.
_PROMPT_NAME = "prompt_name"
_SHORTEST = 1e-12


class FieldError(RequestError):
    """The error of a field of a request.

    Args:
      field: its name.
      message: what it takes.
    """

    def __init__(self, field: str, message: str) -> None:
        super().__init__(grpc.StatusCode.INVALID_ARGUMENT, message)
        self.field = field


class _Field(NamedTuple):
    """The type of a field of a request in JSON.

    Attributes:
      kind: its types in Python.
      takes: the same in words.
      default: its value if it is missing or null; ... if it is required.
    """

    kind: tuple[type, ...]
    takes: str
    default: Any = ...


_TEXT = _Field((str,), "a string")
_FLAG = _Field((bool,), "true or false", False)
_EMBEDDINGS = {
    "input": _Field((str, list), "a string or a list of strings"),
    "model": _TEXT,
    "encoding_format": _Field((str,), "float or base64", FLOAT),
    "dimensions": _Field((int,), "a positive whole number", None),
    _PROMPT_NAME: _Field((str,), "a string", ""),
    "user": _Field((str,), "a string", ""),
}
_RERANK = {
    "query": _TEXT,
    "texts": _Field((list,), "a list of strings"),
    "model": _Field((str,), "a string", ""),
    "raw_scores": _FLAG,
    "return_text": _FLAG,
    "truncate": _FLAG,
    "truncation_direction": _Field((str,), "Right", "Right"),
}


class TextApis:
    """Answers requests of both APIs.

    Args:
      models: the served models.
      predictor: runs their signatures.
    """

    def __init__(self, models: Models, predictor: Predictor) -> None:
        self._models = models
        self._predictor = predictor

    async def embeddings(self, request: dict) -> bytes:
        """Answers a request to /v1/embeddings; see `read_embeddings`."""
        texts, name = request["input"], request[_PROMPT_NAME]
        dimensions: int | None = request["dimensions"]
        with self._models.find(
            self._spec(request, EMBED, COUNT_TOKENS)
        ) as version:
            inputs: dict[str, Any] = {"text": texts}
            signature = EMBED
            if name:
                signature = EMBED_WITH_PROMPT
                inputs[_PROMPT_NAME] = [name] * len(texts)
            vectors = await self._run(version, signature, **inputs)
            counts = await self._run(version, COUNT_TOKENS, text=texts)
        size = vectors.shape[1]
        if dimensions is not None and dimensions > size:
            raise FieldError(
                "dimensions",
                f"dimensions is {dimensions}; the vectors of "
                f"{request['model']} have {size}",
            )
        return await off_loop(
            vectors.nbytes,
            _write_embeddings,
            vectors[:, :dimensions],
            int(counts.sum()),
            request,
        )

    async def rerank(self, request: dict) -> bytes:
        """Answers a request to /rerank; see `read_rerank`."""
        texts = request["texts"]
        with self._models.find(self._spec(request, RANK)) as version:
            queries = [request["query"]] * len(texts)
            logits = await self._run(version, RANK, text=queries, text_b=texts)
        return await off_loop(len(texts), _write_ranks, logits, request)

    def _spec(self, request: dict, *signatures: str) -> model_pb2.ModelSpec:
        """Returns the model that a request names, or else the only one.

        Raises:
          RequestError: several models have the signatures, or none.
        """
        able = []
        for name in sorted(self._models.configs):
            versions = self._models.available(name)
            latest = versions.get(max(versions, default=0))
            if latest and all(_has(latest, each) for each in signatures):
                able.append(name)
        name = request["model"]
        if name in able:
            return model_pb2.ModelSpec(name=name)
        wanted = " and ".join(signatures)
        known = f"models with {wanted}: {', '.join(able) or 'none'}"
        if name and name not in self._models.configs:
            raise RequestError(
                grpc.StatusCode.NOT_FOUND,
                f"The model {excerpt(name)} does not exist; {known}",
            )
        if not name and len(able) == 1:
            return model_pb2.ModelSpec(name=able[0])
        given = "is missing"
        if name:
            given = f"{excerpt(name)} lacks the signature {wanted}"
        raise FieldError("model", f"model {given}; {known}")

    async def _run(
        self, version: Version, name: str, **texts: list[str]
    ) -> np.ndarray:
        """Runs a signature of texts and returns its output."""
        if not _has(version, name):
            raise FieldError(
                _PROMPT_NAME, f"{_PROMPT_NAME}: {version.model} has no prompts"
            )
        inputs = {}
        for alias, values in texts.items():
            inputs[alias] = np.empty(len(values), object)
            inputs[alias][:] = [text.encode() for text in values]
        signature = version.graph.signatures[name]
        outputs = await self._predictor.predict(version, signature, inputs)
        return outputs[_OUTPUTS[name]]


def _has(version: Version, name: str) -> bool:
    """Returns whether a version has a signature of these APIs."""
    signature = version.graph.signature(name)
    return signature is not None and _OUTPUTS[name] in signature.outputs


def read_embeddings(body: bytes) -> dict:
    """Reads a request to /v1/embeddings; `input` becomes a list."""
    request = _read(body, _EMBEDDINGS)
    if isinstance(request["input"], str):
        request["input"] = [request["input"]]
    _check_texts("input", request["input"])
    if request["encoding_format"] not in _ENCODINGS:
        raise _wrong("encoding_format", request, _EMBEDDINGS)
    if request["dimensions"] is not None and request["dimensions"] < 1:
        raise _wrong("dimensions", request, _EMBEDDINGS)
    return request


def read_rerank(body: bytes) -> dict:
    """Reads a request to /rerank."""
    request = _read(body, _RERANK)
    _check_texts("texts", request["texts"])
    # A row is truncated at its end.
    if request["truncation_direction"].lower() != "right":
        raise _wrong("truncation_direction", request, _RERANK)
    return request


def _read(body: bytes, fields: dict[str, _Field]) -> dict:
    """Parses an object and checks the types of its fields.

    Raises:
      RequestError: it is no object of these fields.
    """
    given = parse(body)
    for name in given:
        if name not in fields:
            raise FieldError(
                name,
                f"Unknown field {excerpt(name)}; the request takes "
                f"{', '.join(fields)}",
            )
    request = {name: field.default for name, field in fields.items()}
    request |= {n: value for n, value in given.items() if value is not None}
    for name, field in fields.items():
        if request[name] is ...:
            raise FieldError(name, f"{name} is missing; it takes {field.takes}")
        # A bool is an int.
        if (
            given.get(name) is not None
            and type(request[name]) not in field.kind
        ):
            raise _wrong(name, request, fields)
    return request


def _wrong(name: str, request: dict, fields: dict[str, _Field]) -> FieldError:
    """Returns the error of a field's value."""
    return FieldError(
        name,
        f"{name} is {excerpt(request[name])}; it takes {fields[name].takes}",
    )


def _check_texts(name: str, texts: list) -> None:
    """Raises FieldError unless there are texts, which UTF-8 can represent."""
    if not texts:
        raise FieldError(name, f"{name} is empty; it takes at least one text")
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise FieldError(
                name,
                f"{name}[{number}] is {excerpt(text)}; it takes a string (ids "
                "of tokens are not taken)",
            )
        if any("\ud800" <= letter <= "\udfff" for letter in text):
            raise FieldError(
                name, f"{name}[{number}] has half of a surrogate pair"
            )


def _write_embeddings(
    vectors: np.ndarray, num_tokens: int, request: dict
) -> bytes:
    """Writes vectors [B, D] at unit length."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors = (vectors / np.maximum(norms, _SHORTEST)).astype("<f4")
    shown: Iterable[str]
    if request["encoding_format"] == BASE64:
        shown = (f'"{base64.b64encode(row).decode()}"' for row in vectors)
    else:
        shown = (f"[{', '.join(write_floats(row))}]" for row in vectors)
    data = (
        f'{{"object": "embedding", "index": {n}, "embedding": {vector}}}'
        for n, vector in enumerate(shown)
    )
    usage = json.dumps(
        {"prompt_tokens": num_tokens, "total_tokens": num_tokens}
    )
    return (
        f'{{"object": "list", "data": [{", ".join(data)}], "model": '
        f'{json.dumps(request["model"])}, "usage": {usage}}}'
    ).encode()


def _write_ranks(logits: np.ndarray, request: dict) -> bytes:
    """Writes logits [B] as ranks, best first."""
    scores = logits.astype(np.float64)
    if not request["raw_scores"]:
        # The sigmoid without overflow.
        scores = np.exp(-np.logaddexp(0, -scores))
    order = np.argsort(-logits, kind="stable").tolist()
    shown = write_floats(scores.astype(np.float32))
    ranks = []
    for index in order:
        text = ""
        if request["return_text"]:
            text = f'"text": {write_string(request["texts"][index].encode())}, '
        ranks.append(f'{{"index": {index}, {text}"score": {shown[index]}}}')
    return f"[{', '.join(ranks)}]".encode()


def openai_error(status: int, error: RequestError) -> tuple[int, bytes]:
    """Returns the status and the text of an error in OpenAI's form."""
    is_unknown = error.code is grpc.StatusCode.NOT_FOUND
    values = {
        "message": error.message,
        "type": "invalid_request_error" if status < 500 else "server_error",
        "param": getattr(error, "field", "model" if is_unknown else None),
        "code": "model_not_found" if is_unknown else None,
    }
    return status, json.dumps({"error": values}).encode()


def rerank_error(status: int, error: RequestError) -> tuple[int, bytes]:
    """Returns the status and the text of text-embeddings-inference's errors.

    Values of wrong types are 422, and a full queue is 429.
    """
    kind = "Backend" if status >= 500 else "Validation"
    if error.code is grpc.StatusCode.UNAVAILABLE:
        kind, status = "Overloaded", 429
    elif isinstance(error, FieldError):
        status = 422
    values = {"error": error.message, "error_type": kind}
    return status, json.dumps(values).encode()
