"""The metadata of a fine-tuned model are converted with it."""

import dataclasses
import json

import pytest

from bert_tf.checkpoints import (
    Checkpoint,
    load_checkpoint,
    save_adapter,
    save_checkpoint,
)
from bert_tf.checkpoints.checkpoint import MULTI_LABEL
from bert_tf.conversion import convert_checkpoint
from bert_tf.families.model_folder import read_config_as
from bert_tf.families.question_answering.config import QuestionAnsweringConfig
from bert_tf.families.text_classification.config import TextClassificationConfig
from bert_tf.text.vocabulary import Vocabulary
from tests.checkpoints.arrays import assert_same_arrays
from tests.fine_tuned_models import recorded, write_folder
from tests.hugging_face_models import TOKENS, random_arrays, tiny_config
from tests.user_errors import error_of

TARGETS = ("bert_tf", "google_tf1", "hugging_face")
LABELS = ("insult", "spam", "toxic")
CONFIG = TextClassificationConfig(
    task="abuse",
    labels=LABELS,
    max_seq_length=10,
    label_kind="multi_label",
    num_outputs=3,
    num_texts=1,
    text_columns="text",
    label_separator=";",
    long_inputs="windows",
    doc_stride=4,
    threshold=0.3,
)
CARD = "# Abuse\r\nMeasured on nothing.\n"
# Keys of config.json by which transformers answers.
STATED = ("architectures", "id2label", "problem_type")


def outputs_of(report):
    return {c.output: c.difference for c in report.comparisons}


@pytest.fixture
def source(tmp_path):
    """A folder as a fine-tuning leaves it."""
    config = tiny_config()
    arrays = random_arrays(config, ("pooler", "classifier"))
    save_checkpoint(
        tmp_path / "source",
        Checkpoint(config, arrays, Vocabulary(TOKENS), True, LABELS),
    )
    described(tmp_path / "source", CONFIG)
    return tmp_path / "source"


def described(folder, config):
    text = json.dumps(dataclasses.asdict(config))
    (folder / "task.json").write_text(text)
    (folder / "README.md").write_bytes(CARD.encode())


@pytest.mark.parametrize("to", TARGETS)
def test_what_a_fine_tuning_left(to, source, tmp_path, capsys):
    report = convert_checkpoint(source, to, tmp_path / "out")
    found = outputs_of(report)
    assert found["classifier_logits"] < 1e-6
    assert "files kept: README.md, task.json\n" in capsys.readouterr().out
    for folder in (tmp_path / "out", tmp_path / "back"):
        assert read_config_as(folder, TextClassificationConfig) == CONFIG
        assert (folder / "README.md").read_bytes() == CARD.encode()
        checkpoint = load_checkpoint(folder)
        assert checkpoint.labels == LABELS
        assert checkpoint.problem_type == MULTI_LABEL
        assert checkpoint.max_seq_length == 10
        if folder.name == "out":
            convert_checkpoint(folder, "bert_tf", tmp_path / "back")
    if to == "hugging_face":
        written = json.loads((tmp_path / "out" / "config.json").read_text())
        assert written["problem_type"] == MULTI_LABEL
        path = tmp_path / "out" / "tokenizer_config.json"
        assert json.loads(path.read_text())["model_max_length"] == 10


@pytest.mark.parametrize(
    "name", [name for name in recorded() if "Classification" in name]
)
def test_what_transformers_saved(name, tmp_path):
    """There and back, config.json states what transformers answers by."""
    source = write_folder(tmp_path / "source", name)
    found = outputs_of(convert_checkpoint(source, "bert_tf", tmp_path / "own"))
    (logits,) = (key for key in found if key.endswith("_logits"))
    assert found[logits] < 1e-6
    back = tmp_path / "back"
    convert_checkpoint(tmp_path / "own", "hugging_face", back)
    checkpoints = list(map(load_checkpoint, (source, tmp_path / "own", back)))
    for field in ("labels", "problem_type", "max_seq_length"):
        assert len({getattr(each, field) for each in checkpoints}) == 1
    values = json.loads((back / "config.json").read_text())
    for key in STATED:
        assert values.get(key) == recorded()[name]["config"].get(key), key
    assert_same_arrays(checkpoints[2].arrays, checkpoints[0].arrays)


def test_without_the_head_or_with_fewer_positions(source, tmp_path, capsys):
    convert_checkpoint(
        source, "bert_tf", tmp_path / "body", drop_heads=["classifier"]
    )
    assert "left out with the classifier: task.json" in capsys.readouterr().out
    names = {path.name for path in (tmp_path / "body").iterdir()}
    assert not names & {"task.json", "README.md", "labels.json"}
    assert load_checkpoint(tmp_path / "body").max_seq_length is None
    convert_checkpoint(
        source, "bert_tf", tmp_path / "short", max_position_embeddings=8
    )
    assert "task.json: max_seq_length is 8, not 10" in capsys.readouterr().out
    found = read_config_as(tmp_path / "short", TextClassificationConfig)
    assert found == dataclasses.replace(CONFIG, max_seq_length=8)


def test_questions_that_no_longer_fit(tmp_path):
    config = tiny_config()
    checkpoint = Checkpoint(
        config, random_arrays(config, ("span",)), Vocabulary(TOKENS), True
    )
    save_checkpoint(tmp_path / "source", checkpoint)
    asked = QuestionAnsweringConfig("mine", (), 12, 4, 6, 5, 3, True, 0.25)
    described(tmp_path / "source", asked)
    line = error_of(
        convert_checkpoint,
        tmp_path / "source",
        "bert_tf",
        tmp_path / "out",
        max_position_embeddings=9,
    )
    assert "max_query_length=6 (task.json); keep" in line
    assert not (tmp_path / "out").exists()
    convert_checkpoint(tmp_path / "source", "hugging_face", tmp_path / "out")
    assert read_config_as(tmp_path / "out", QuestionAnsweringConfig) == asked


def test_of_an_adapter_and_with_another_vocabulary(source, tmp_path):
    base = load_checkpoint(source)
    fields = base.config.to_dict() | {"lora_rank": 2}
    config = type(base.config).from_dict(fields, "test")
    arrays = random_arrays(config, ("pooler", "classifier", "lora"))
    folder = tmp_path / "adapter"
    adapted = dataclasses.replace(
        base, config=config, arrays=arrays, problem_type=None
    )
    save_adapter(folder, adapted, base)
    described(folder, CONFIG)
    words = tmp_path / "words.txt"
    words.write_text("\n".join([*TOKENS, "new"]) + "\n")
    convert_checkpoint(folder, "bert_tf", tmp_path / "out", vocab_file=words)
    out = tmp_path / "out"
    assert read_config_as(out, TextClassificationConfig) == CONFIG
    assert (out / "README.md").read_text() == CARD.replace("\r", "")
    assert load_checkpoint(out).config.lora_rank == 0


def test_a_kind_of_answers_that_is_lost_fails_the_proof(
    source, tmp_path, monkeypatch
):
    write = json.dumps

    def without_the_kind(values, **arguments):
        if isinstance(values, dict):
            values = {k: v for k, v in values.items() if k != "problem_type"}
        return write(values, **arguments)

    (source / "task.json").unlink()
    (source / "labels.json").write_text(
        json.dumps({"problem_type": MULTI_LABEL, "labels": LABELS})
    )
    monkeypatch.setattr(
        "bert_tf.checkpoints.hugging_face.json.dumps", without_the_kind
    )
    arguments = source, "hugging_face", tmp_path / "out"
    line = error_of(convert_checkpoint, *arguments)
    assert "problem_type of the written folder" in line
    assert not (tmp_path / "out").exists()
