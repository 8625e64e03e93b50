"""SavedModels in TF Serving's layout, and a server of them, for the tests."""

import asyncio
import contextlib
import io
import json
import pathlib
import resource
import shutil
import threading
from collections.abc import Iterator

import aiohttp
import keras
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_serving.apis import predict_pb2

import bert_tf
from bert_tf.server.config import ModelConfig, ServerConfig
from bert_tf.server.server import Server
from tests.server.page_models import PageAnswers

STRING, FLOAT = tf.string, tf.float32


def _spec(name: str, shape: list, dtype: tf.DType = STRING) -> tf.TensorSpec:
    return tf.TensorSpec(shape, dtype, name=name)


class Answers(PageAnswers):
    """Every kind of signature; what they compute can be told by hand."""

    def __init__(self):
        super().__init__()
        self.number = tf.Variable(0)
        self.weights = tf.Variable(tf.zeros([256, 3]))

    def _logits(self, text):
        codes = tf.io.decode_raw(text, tf.uint8, fixed_length=16)
        codes = tf.cast(codes, tf.int32)
        return tf.reduce_sum(tf.gather(self.weights, codes), 1)

    @tf.function(input_signature=[_spec("text", [None])])
    def label(self, text):
        probabilities = tf.nn.softmax(self._logits(text))
        names = tf.constant(["bad", "fair", "good"])
        return {
            "label": tf.gather(names, tf.argmax(probabilities, -1)),
            "probabilities": probabilities,
            "labels": tf.tile(names[None], [tf.size(text), 1]),
        }

    @tf.function(input_signature=[_spec("text", [None])])
    def version(self, text):
        return {"version": tf.fill(tf.shape(text), self.number)}

    @tf.function(
        input_signature=[_spec("text", [None]), _spec("text_b", [None])]
    )
    def pair(self, text, text_b):
        length = tf.strings.length(text) - tf.strings.length(text_b)
        return {"score": tf.cast(length, FLOAT), "joined": text + text_b}

    @tf.function(
        input_signature=[_spec("text", [None]), _spec("choices", [None, None])]
    )
    def choice(self, text, choices):
        lengths = tf.cast(tf.strings.length(choices), FLOAT)
        best = tf.argmax(lengths, -1, output_type=tf.int32)
        return {
            "choice": tf.gather(choices, best, batch_dims=1),
            "probabilities": tf.nn.softmax(lengths),
        }

    @tf.function(
        input_signature=[_spec("question", [None]), _spec("context", [None])]
    )
    def span(self, question, context):
        """Finds the question's text in the context."""
        place = tf.strings.unicode_decode(context, "UTF-8").to_tensor()
        wanted = tf.strings.unicode_decode(question, "UTF-8").to_tensor()
        start = tf.argmax(
            tf.equal(place, wanted[:, :1]), -1, output_type=tf.int32
        )
        end = start + tf.strings.length(question, "UTF8_CHAR")
        return {
            "answer": tf.strings.substr(
                context, start, end - start, "UTF8_CHAR"
            ),
            "start": start,
            "end": end,
            "score": tf.cast(end, FLOAT),
            "no_answer_probability": tf.fill(tf.shape(start), 0.25),
        }

    @tf.function(input_signature=[_spec("text", [None])])
    def tags(self, text):
        """Says that the first two words are entities."""
        words = tf.strings.split(text).to_tensor("")[:, :2]
        ends = tf.strings.length(words, "UTF8_CHAR")
        starts = tf.stack([tf.zeros_like(ends[:, 0]), ends[:, 0] + 1], 1)
        return {
            "entities": tf.concat([words, tf.fill([tf.size(text), 1], "")], 1),
            "labels": tf.tile(
                tf.constant([["PER", "LOC", ""]]), [tf.size(text), 1]
            ),
            "starts": tf.concat([starts, tf.zeros_like(starts[:, :1])], 1),
            "ends": tf.concat([starts + ends, tf.zeros_like(starts[:, :1])], 1),
            "scores": tf.tile([[0.75, 0.5, 0.0]], [tf.size(text), 1]),
            "count": tf.fill(tf.shape(text), 2),
        }

    @tf.function(input_signature=[_spec("text", [None])])
    def fill_mask(self, text):
        tokens = tf.constant([[["Ġred", "blue"], ["ĠskÃ½", "sea"]]])
        scores = tf.constant([[[0.75, 0.125], [0.5, 0.25]]])
        rows = [tf.size(text), 1, 1]
        return {
            "tokens": tf.tile(tokens, rows),
            "scores": tf.tile(scores, rows),
        }

    @tf.function(input_signature=[_spec("image_bytes", [None])])
    def raw_bytes(self, image_bytes):
        return {
            "data_bytes": tf.strings.join([image_bytes, b"\xff\x00"]),
            "size": tf.strings.length(image_bytes),
        }

    @tf.function(
        input_signature=[
            _spec("scale", [], tf.float32),
            _spec("values", [3], tf.int32),
        ]
    )
    def no_batch(self, scale, values):
        return {"scaled": scale * tf.cast(values, FLOAT)}

    @tf.function(input_signature=[_spec("ids", [None, None], tf.int32)])
    def tokens(self, ids):
        total = tf.cumsum(ids, axis=1)
        return {"total": total, "pooled": tf.cast(total[:, -1:], FLOAT)}

    @tf.function(input_signature=[_spec("text", [None])])
    def picky(self, text):
        message = "the text must not be bad"
        check = tf.debugging.assert_none_equal(text, "bad", message=message)
        with tf.control_dependencies([check]):
            return {"echo": tf.identity(text)}

    @tf.function(input_signature=[_spec("text", [None])])
    def slow(self, text):
        """Takes as many steps as the text says."""
        end = tf.strings.to_number(text[0], tf.int32)
        seed = tf.ones([200, 200]) / 200.0
        last = tf.while_loop(
            lambda i, m: i < end, lambda i, m: (i + 1, m @ seed), [0, seed]
        )[1]
        return {"score": tf.fill(tf.shape(text), tf.reduce_sum(last))}

    @tf.function(input_signature=[_spec("inputs", [None])])
    def classify(self, inputs):
        text = _text_of(inputs)
        names = tf.constant([["bad", "fair", "good"]])
        classes = tf.tile(names, [tf.size(text), 1])
        return {"classes": classes, "scores": tf.nn.softmax(self._logits(text))}

    @tf.function(input_signature=[_spec("inputs", [None])])
    def regress(self, inputs):
        length = tf.strings.length(_text_of(inputs))
        return {"outputs": tf.cast(length, FLOAT)[:, None]}


def _text_of(examples):
    features = {"text": tf.io.FixedLenFeature([], STRING)}
    return tf.io.parse_example(examples, features)["text"]


_NAMES = ("version", "pair", "choice", "span", "tags", "fill_mask", "embed")
_NAMES += ("raw_bytes", "no_batch", "tokens", "picky", "slow", "classify")
_NAMES += ("regress", "questions", "several", "many", "short")
_NAMES += ("zero_shot",)
# Each has a signature of its name, which gives back what it is given.
DTYPES = [tf.float32, tf.float64, tf.int8, tf.int16, tf.int32, tf.int64]
DTYPES += [tf.uint8, tf.uint32, tf.uint64, tf.bool, tf.string, tf.float16]
DTYPES += [tf.bfloat16, tf.complex64, tf.complex128]


def write_versions(folder: pathlib.Path) -> None:
    """Writes the versions 1 and 2 of Answers into their folder."""
    module = Answers()
    signatures = {name: getattr(module, name) for name in _NAMES}
    signatures["serving_default"] = module.label
    for dtype in DTYPES:
        signatures[dtype.name] = tf.function(
            lambda x: {"y": tf.identity(x)},
            input_signature=[_spec("x", None, dtype)],
        )
    for number in (1, 2):
        module.number.assign(number)
        weights = tf.random.stateless_normal([256, 3], seed=[number, 7])
        module.weights.assign(weights)
        version = folder / str(number)
        tf.saved_model.save(module, str(version), signatures=signatures)
        with changed_signatures(version) as definitions:
            optional = definitions["optional"]
            optional.CopyFrom(definitions["pair"])
            optional.defaults["text_b"].CopyFrom(tf.make_tensor_proto(["!"]))


def write_classifier(
    folder: pathlib.Path, tokens: list[str], config: bert_tf.BertConfig
) -> None:
    """Writes version 1 of a classifier of text, with its tokenizer."""
    keras.utils.set_random_seed(3)
    model = bert_tf.bert_classifier(bert_tf.BertEncoder(config), 3)
    pack = bert_tf.SentencePacker(bert_tf.BertTokenizer(tokens), 32)

    @tf.function(input_signature=[_spec("text", [None])])
    def from_text(text):
        logits = model(pack(text), training=False)
        return {"logits": logits, "probabilities": tf.nn.softmax(logits)}

    module = tf.Module()
    module.pack = pack
    # The session-based loader restores TensorFlow's variables, not Keras'.
    module.weights = [variable.value for variable in model.variables]
    signatures = {"serving_default": from_text}
    tf.saved_model.save(module, str(folder / "1"), signatures=signatures)


def resident(process: int) -> float:
    """The memory of a process in MiB, as Linux counts it."""
    pages = pathlib.Path(f"/proc/{process}/statm").read_text().split()[1]
    return int(pages) * resource.getpagesize() / 2**20


@contextlib.contextmanager
def changed_signatures(version: pathlib.Path) -> Iterator:
    """The signatures of a version by name, which may be changed."""
    path = version / "saved_model.pb"
    model = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    yield model.meta_graphs[0].signature_def
    path.write_bytes(model.SerializeToString())


def copy_version(source: pathlib.Path, target: pathlib.Path) -> None:
    """Copies a version folder so that it appears at once."""
    beside = target.with_name(f"copying-{target.name}")
    shutil.copytree(source, beside)
    beside.rename(target)


class Background:
    """A server in a thread of its own."""

    def __init__(self, config: ServerConfig):
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        try:
            self.server: Server = self.call(_made(config))
            self.call(self.server.start())
        except BaseException:
            self.call(self.server.stop())
            self._end()
            raise
        self.rest = f"http://127.0.0.1:{self.server.rest_port}"
        self.grpc = f"127.0.0.1:{self.server.grpc_port}"

    def call(self, coroutine, timeout: float = 120):
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        return future.result(timeout)

    def stop(self) -> None:
        self.call(self.server.stop())
        self._end()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _made(config: ServerConfig) -> Server:
    return Server(config)


@contextlib.contextmanager
def served(
    folder: pathlib.Path | None = None, name: str = "m", **settings
) -> Iterator[Background]:
    """A server of one model, or of settings["models"]."""
    settings.setdefault("models", (ModelConfig(name, folder),))
    settings = {"rest_port": 0, "grpc_port": 0, "poll_wait": 0.05} | settings
    background = Background(ServerConfig(**settings))
    try:
        yield background
    finally:
        background.stop()


def predict_request(signature="", name="m", **inputs):
    """A request of gRPC."""
    request = predict_pb2.PredictRequest()
    request.model_spec.name = name
    request.model_spec.signature_name = signature
    for alias, value in inputs.items():
        request.inputs[alias].CopyFrom(tf.make_tensor_proto(value))
    return request


def fetch_text(url: str, body=None, method: str | None = None, **more):
    """One HTTP request: the status, headers and text of the answer."""

    async def ask():
        async with aiohttp.ClientSession() as session:
            kind = method or ("GET" if body is None else "POST")
            data = None
            if body is not None:
                plain = isinstance(body, bytes)
                data = body if plain else json.dumps(body).encode()
                data = io.BytesIO(data)
            async with session.request(kind, url, data=data, **more) as answer:
                return answer.status, answer.headers, await answer.text()

    return asyncio.run(ask())


def fetch(url: str, body=None, **more):
    """One HTTP request: the status and the JSON of the answer."""
    status, _, text = fetch_text(url, body, **more)
    return status, json.loads(text)
