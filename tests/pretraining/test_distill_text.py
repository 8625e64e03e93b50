"""Pre-training with a teacher: three models, resuming, and mistakes."""

import dataclasses
import json
import pathlib
import shutil

import pytest

from bert_tf.checkpoints import Checkpoint, load_checkpoint, save_checkpoint
from bert_tf.config import BertConfig
from bert_tf.distillation.run import distill_text
from bert_tf.pretraining.pretrainer import BertPretrainer
from bert_tf.pretraining.recipe import PretrainingRecipe
from bert_tf.teacher_settings import StudentSettings
from bert_tf.text.vocabulary import Vocabulary
from tests.contracts.task_cases import model_folder
from tests.model_helpers import fill
from tests.user_errors import error_of


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory, records, config_file) -> pathlib.Path:
    """A model with both heads, with the vocabulary of the records."""
    folder = tmp_path_factory.mktemp("pretrained")
    config = BertConfig.from_json(config_file)
    config = dataclasses.replace(config, num_hidden_layers=2)
    arrays = fill(BertPretrainer(config), 2, 0.1).to_arrays()
    words = Vocabulary.from_file(records / "vocab.txt")
    save_checkpoint(folder, Checkpoint(config, arrays, words, True))
    return folder


@pytest.fixture(scope="module")
def recipe(pretrained, records) -> PretrainingRecipe:
    return PretrainingRecipe(
        objective="masked_lm",
        data_dir=str(records),
        teacher=str(pretrained),
        num_train_steps=4,
        train_batch_size=8,
        save_checkpoints_steps=2,
        log_steps=1,
        # Without graphs a batch takes long, whatever its size.
        eval_batch_size=128,
    )


@pytest.mark.usefixtures("eagerly")
@pytest.mark.filterwarnings("ignore:Even though the `tf.config")
# A group of rows may have one token each.
@pytest.mark.filterwarnings("ignore:.*softmax over axis")
def test_three_models_of_packed_text_and_resuming(
    recipe, make_records, tmp_path
) -> None:
    data = make_records(
        "packed", max_seq_length=32, max_predictions_per_seq=5, packing=True
    )
    recipe = recipe.override([f"data_dir={data}", "hidden_state_weight=1"])
    student = StudentSettings(layers="1", architecture="distilbert")
    done = distill_text(recipe, student, tmp_path)
    names = ["teacher", "student", "undistilled"]
    heads = [line.split()[-3:] for line in done.table().splitlines()]
    assert names in heads
    facts = json.loads((tmp_path / "distillation.json").read_text())
    for model in facts["models"].values():
        assert model["scores"]["masked_lm_perplexity"] > 1
    assert load_checkpoint(tmp_path).config.model_type == "distilbert"
    model = tmp_path / "bert_model.safetensors"
    trained = model.read_bytes()
    model.unlink()
    shutil.rmtree(tmp_path / "checkpoints" / "step-00000004")
    distill_text(recipe, student, tmp_path, undistilled=False)
    assert model.read_bytes() == trained


def test_mistakes_of_text(pretrained, recipe, tmp_path) -> None:
    def line(layers: str = "", **changes) -> str:
        changed = dataclasses.replace(recipe, **changes)
        student = StudentSettings(layers=layers)
        text = error_of(distill_text, changed, student, tmp_path / "out")
        assert not (tmp_path / "out").exists()
        return text

    assert "`teacher`: name the model" in line(teacher="")
    assert "give the student: `size`, `layers`" in line()
    assert "whose layers are 0 to 1" in line("0,7")
    start = {"init_from": str(pretrained)}
    assert "is already the student; leave out" in line("0", **start)
    # Another vocabulary, and no masked LM head.
    other = model_folder(tmp_path / "other")
    other_words = line(teacher=str(other), **start)
    assert "another vocabulary than that of `data_dir`=" in other_words
    whole = load_checkpoint(pretrained)
    body = {n: a for n, a in whole.arrays.items() if "cls/" not in n}
    without = Checkpoint(whole.config, body, whole.vocabulary, True)
    save_checkpoint(tmp_path / "body", without)
    headless = line(teacher=str(tmp_path / "body"), **start)
    assert "body: has no masked LM head" in headless


# Without graphs, whose tracing takes longest. TensorFlow warns of data sets.
@pytest.mark.usefixtures("eagerly")
@pytest.mark.filterwarnings("ignore:Even though the `tf.config")
def test_a_student_that_has_not_learnt_makes_way(recipe, tmp_path) -> None:
    """A mistake that is found late does not hold the folder."""
    electra = StudentSettings(size="2/128/2", architecture="electra")
    wrong = recipe.override(["objective=replaced_tokens"])
    line = error_of(distill_text, wrong, electra, tmp_path, False)
    assert "predicts no words; choose masked_lm" in line
    distill_text(recipe, StudentSettings(layers="0"), tmp_path, False)
    assert load_checkpoint(tmp_path).config.model_type == "bert"
