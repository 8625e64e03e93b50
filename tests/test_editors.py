"""What an editor and a notebook know of bert_tf: its names and signatures."""

import contextlib
import inspect
import json
import pathlib
import subprocess
import sys

import jedi
import pytest

import bert_tf
from tests.finetuning.sentence_runs import TOKENS

ROOT = pathlib.Path(__file__).resolve().parent.parent


class LanguageServer:
    """Pyright as Visual Studio Code starts it, asked about one document.

    The Language Server Protocol is JSON-RPC with a header of HTTP's form:
    https://microsoft.github.io/language-server-protocol
    """

    def __init__(self, folder: pathlib.Path, text: str):
        self.document = {"uri": (folder / "program.py").as_uri()}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pyright.langserver", "--stdio"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=folder,
        )
        self.request(
            "initialize",
            processId=None,
            rootUri=folder.as_uri(),
            capabilities={"workspace": {"configuration": True}},
        )
        self._send({"method": "initialized", "params": {}})
        opened = self.document | {"version": 1, "languageId": "python"}
        params = {"textDocument": opened | {"text": text}}
        self._send({"method": "textDocument/didOpen", "params": params})

    def ask(self, method: str, line: int, character: int) -> dict:
        place = {"line": line, "character": character}
        return self.request(
            f"textDocument/{method}",
            textDocument=self.document,
            position=place,
        )

    def request(self, method: str, **params) -> dict:
        self._send({"id": method, "method": method, "params": params})
        while True:
            message = self._receive()
            if "method" not in message and message.get("id") == method:
                return message["result"]
            if "method" in message and "id" in message:
                self._send({"id": message["id"], "result": self._settings()})

    def _settings(self) -> list[dict]:
        """What it asks for: the environment, and where the package lies."""
        settings = {
            "pythonPath": sys.executable,
            "analysis": {"extraPaths": [str(ROOT)]},
        }
        return [settings] * 3

    def _send(self, message: dict) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body))
        self.process.stdin.write(body)
        self.process.stdin.flush()

    def _receive(self) -> dict:
        size = 0
        while line := self.process.stdout.readline().strip():
            if line.lower().startswith(b"content-length:"):
                size = int(line.partition(b":")[2])
        return json.loads(self.process.stdout.read(size))

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


def parameters(name: str) -> list[str]:
    return list(inspect.signature(getattr(bert_tf, name)).parameters)


def without_underscore(names) -> set[str]:
    return {name for name in names if not name.startswith("_")}


@pytest.mark.slow
def test_pyright(tmp_path) -> None:
    # An error has the arguments of every exception.
    names = [name for name in bert_tf.__all__ if name != "UserError"]
    lines = ["import bert_tf", "bert_tf.", *(f"bert_tf.{n}(" for n in names)]
    server = LanguageServer(tmp_path, "\n".join(lines))
    with contextlib.closing(server):
        found = server.ask("completion", 1, len("bert_tf."))
        labels = without_underscore(item["label"] for item in found["items"])
        # Pyright knows it by no other name, so it cannot be hidden.
        assert labels - {"TYPE_CHECKING"} == set(bert_tf.__all__)
        for number, name in enumerate(names, start=2):
            asked = server.ask("signatureHelp", number, len(lines[number]))
            # Of a Keras model, that of its `__new__` too, which takes anything.
            shown = [
                [
                    p["label"].split(":")[0]
                    for p in known["parameters"]
                    if p["label"] != "*"
                ]
                for known in asked["signatures"]
            ]
            assert parameters(name) in shown, (name, shown)


@pytest.mark.slow
def test_jedi() -> None:
    """What Jupyter, IPython and many editors ask."""
    script = jedi.Interpreter("bert_tf.", [{"bert_tf": bert_tf}])
    shown = without_underscore(each.name for each in script.complete())
    assert shown == set(bert_tf.__all__)
    project = jedi.Project(ROOT)
    for name in ("BertTokenizer", "adamw", "embed", "load_checkpoint"):
        script = jedi.Script(
            f"import bert_tf\nbert_tf.{name}(", project=project
        )
        (signature,) = script.get_signatures()
        assert [p.name for p in signature.params] == parameters(name)


def test_what_a_notebook_prints_says_what_it_is() -> None:
    config = bert_tf.BertConfig.from_size("2/8/2", len(TOKENS))
    encoder = bert_tf.BertEncoder(config)
    tokenizer = bert_tf.BertTokenizer(TOKENS, lower_case=False)
    size = "2 layers of 8, 2 attention heads, "
    # Tables, two blocks and the pooler; intermediate_size is 32.
    block = 4 * (8 * 8 + 8) + 2 * 8 * 32 + 32 + 8 + 2 * 2 * 8
    count = 8 * (len(TOKENS) + 512 + 2 + 2) + 2 * block + 8 * 8 + 8
    assert repr(encoder) == (
        f"<BertEncoder name=bert, {size}{count:,} parameters>"
    )
    pretrainer = bert_tf.BertPretrainer(encoder)
    arrays = pretrainer.to_arrays()
    count = sum(array.size for array in arrays.values())
    size = f"{size}{count:,} parameters"
    assert repr(pretrainer) == f"<BertPretrainer name=bert_pretrainer, {size}>"
    heads = "pooler, masked_lm, next_sentence"
    checkpoint = bert_tf.Checkpoint(config, arrays)
    assert repr(checkpoint) == f"Checkpoint({size}; {heads})"
    assert repr(tokenizer) == "BertTokenizer(22 tokens, cased)"
    pack = bert_tf.SentencePacker(tokenizer, seq_length=16)
    assert repr(pack) == f"SentencePacker({tokenizer!r}, seq_length=16)"


def test_a_tokenizer_is_called() -> None:
    tokenizer = bert_tf.BertTokenizer(TOKENS)
    for texts in ("a good film", ["a good film", "", "dull"]):
        called, named = tokenizer(texts), tokenizer.tokenize(texts)
        assert type(called) is type(named)
        # A ragged one has a NumPy array in each row.
        assert str(called) == str(named)
