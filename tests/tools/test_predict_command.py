"""The command as a user types it."""

import json
import subprocess

import pytest

import bert_tf
from tests import commands
from tests.families.pretrained.extraction_models import save_model, some_texts


def run(*arguments: object, **options: str) -> subprocess.CompletedProcess:
    return commands.run("tools.predict", *arguments, **options)


def test_files_and_standard_streams(tmp_path, eagerly):
    folder = save_model(tmp_path / "model")
    texts = [text for text in some_texts(9) if text]
    output = tmp_path / "new" / "out.jsonl"
    (tmp_path / "in.txt").write_text("".join(f"{t}\n" for t in texts) + "\n")
    done = run(
        f"--model={folder}", f"--input={tmp_path}/in.txt", f"--output={output}"
    )
    assert done.returncode == 0, done.stderr
    last = done.stderr.splitlines()[-1]
    assert f"{output}: {len(texts)} of {len(texts) + 1} rows answered" in last
    lines = [json.loads(line) for line in output.read_text().splitlines()]
    vectors = bert_tf.embed(folder, texts)
    for line, text, vector in zip(lines, texts, vectors, strict=True):
        assert line["text"] == text
        assert line["embedding"] == pytest.approx(vector, abs=1e-5)
    done = run(
        f"--model={folder}",
        "--input=-",
        "--output=-",
        standard_input="".join(f"{t}\n" for t in texts),
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == output.read_text()
    done = run(f"--model={tmp_path}", "--input=-", "--output=-")
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    done = run(
        f"--model={folder}",
        f"--input={tmp_path}/in.txt",
        f"--output={output}",
        "--question_column=q",
    )
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: --question_column=q: ")
