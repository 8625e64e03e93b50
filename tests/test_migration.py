"""Every line on the right of docs/migration.md's tables runs as printed."""

import json
import pathlib
import re
import tarfile

import keras_hub
import pytest

import bert_tf
from tests import commands
from tests.documents import ROOT, blocks
from tests.model_helpers import fill, small_config
from tests.small_runs import shorten_runs

PAGE = (ROOT / "docs" / "migration.md").read_text(encoding="utf-8")
GOLDEN = ROOT / "tests" / "golden"
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = "a lovely film . so dull that i fell asleep the cat sat on mat".split()
pytestmark = [
    # Keras 3.15 says so of every data set that is fitted with its defaults.
    pytest.mark.filterwarnings("ignore:.shuffle=True. was passed"),
    # Graphs of tf.data stay graphs.
    pytest.mark.filterwarnings("ignore:Even though the .tf.config"),
]
# Flags whose values are files and folders of the reader's.
PATHS = "input|output|vocab_file|data_dir|init_from|model|output_dir"


def lines_of(section: str) -> list[str]:
    """What is on the right of a section's table, in order."""
    text = PAGE.split(f"## {section}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (.+) \| `([^`]+)` \|$", text, re.MULTILINE)
    assert len(rows) == text.count("\n| ") - 1 >= 7
    return [here for _, here in rows]


def run_all(section: str, folder: pathlib.Path, **changes: str) -> dict:
    """Runs a table's lines; `changes` are sizes of the tests' small models."""
    names: dict = {}
    (program,) = blocks("docs/migration.md", "python")
    exec(program, names)
    for line in lines_of(section):
        for name, value in changes.items():
            line = re.sub(rf"\b{name}=\d+", f"{name}={value}", line)
        if line.startswith("bert-tf "):
            line = re.sub(rf"--({PATHS})=", rf"--\1={folder}/", line)
            done = commands.run_line(line)
            assert done.returncode == 0, (line, done.stdout + done.stderr)
        else:
            exec(line, names)
    return names


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch, eagerly) -> pathlib.Path:
    """The reader's folder."""
    monkeypatch.chdir(tmp_path)
    shorten_runs(monkeypatch)
    return tmp_path


def unpack(name: str) -> None:
    with tarfile.open(GOLDEN / name / "saved.tar.xz") as archive:
        archive.extractall(filter="data")


def test_transformers(here):
    unpack("transformers_tf")
    tokens = [*SPECIAL, *WORDS, "films", "##s", "##ing"]
    for name, saved in (
        ("bert", "TFBertModel"),
        ("reviews", "TFBertForSequenceClassification"),
        ("pretrained", "TFBertForPreTraining"),
    ):
        (here / "saved" / saved).rename(here / name)
        text = "\n".join(tokens[:24]) + "\n"
        (here / name / "vocab.txt").write_text(text)
    names = run_all(
        "transformers' TFBert, TFDistilBert, TFElectra",
        here,
        seq_length=12,
        max_seq_length=12,
    )
    assert names["classifier"].predict(names["texts"]).shape == (2, 2)
    assert (here / "films" / "bert_model.safetensors").exists()
    assert (here / "converted" / "model.safetensors").exists()


def test_tensorflow_hub(here):
    unpack("tf_hub")
    (here / "saved" / "with_mlm").rename(here / "hub_encoder")
    (here / "saved" / "preprocess_uncased").rename(here / "hub_preprocess")
    names = run_all("hub.KerasLayer", here, seq_length=12)
    assert names["pack"].tokenizer.lower_case


def test_keras_hub(here):
    tokens = [*SPECIAL, *WORDS]
    keras_hub.models.BertBackbone(
        vocabulary_size=len(tokens),
        num_layers=1,
        num_heads=2,
        hidden_dim=8,
        intermediate_dim=12,
        max_sequence_length=16,
    ).save_to_preset("preset")
    keras_hub.models.BertTokenizer(
        vocabulary=tokens, lowercase=True
    ).save_to_preset("preset")
    run_all("keras_hub", here, seq_length=16, max_seq_length=16)


def test_google_research(here):
    tokens = [*SPECIAL, *WORDS]
    config = small_config(
        vocab_size=len(tokens), num_hidden_layers=1, max_position_embeddings=128
    )
    bert_tf.save_checkpoint(
        here / "google",
        bert_tf.Checkpoint(
            config,
            fill(bert_tf.BertPretrainer(config)).to_arrays(),
            bert_tf.Vocabulary(tokens),
            lower_case=True,
        ),
        to="google_tf1",
    )
    text = "the cat sat on a mat .\nso dull a film .\n\n"
    (here / "corpus.txt").write_text(text * 40)
    pairs = "text,text_b\na film .,the film .\n"
    (here / "pairs.csv").write_text(pairs)
    (here / "glue" / "MRPC").mkdir(parents=True)
    row = "\t1\t2\tthe cat sat .\ta lovely film .\n"
    head = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
    for split in ("train", "dev"):
        rows = head + f"1{row}0{row}" * 8
        (here / "glue" / "MRPC" / f"{split}.tsv").write_text(rows)
    (here / "squad").mkdir()
    answer = {"text": "cat", "answer_start": 4}
    questions = [
        {"id": f"q{i}", "question": "so ?", "answers": [answer]}
        for i in range(11)
    ]
    paragraph = {"context": "the cat sat .", "qas": questions}
    data = {"data": [{"title": "t", "paragraphs": [paragraph]}]}
    for split in ("train", "dev"):
        path = here / "squad" / f"{split}-v1.1.json"
        path.write_text(json.dumps({"version": "1.1", **data}))
    run_all("google-research/bert", here, num_train_steps=1, train_batch_size=4)
    assert (here / "features.jsonl").read_text().count("\n") >= 80
    answers = (here / "answers.jsonl").read_text().splitlines()
    assert "probabilities" in json.loads(answers[0])
