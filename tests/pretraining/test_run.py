"""A whole pre-training run: exact resume, phases, precisions, bad input."""

import dataclasses
import json
import math
import pathlib
import shutil
import time

import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.checkpoints import load_checkpoint, save_checkpoint
from bert_tf.encoders import bert
from bert_tf.errors import UserError
from bert_tf.files import locked
from bert_tf.pretraining import report, run
from bert_tf.pretraining.objective import PretrainingObjective
from bert_tf.pretraining.recipe import PretrainingRecipe
from bert_tf.pretraining.run import run_pretraining
from bert_tf.records.dataset import RecordFolder, training_batches
from bert_tf.training import loop, recovery
from bert_tf.training.loop import TrainingLoop
from bert_tf.training.run_folder import claim
from bert_tf.training.saved_states import load_state
from bert_tf.training.setup import make_step
from tests.pretraining.conftest import FILES, draw_curves
from tests.run_folders import history as rows
from tests.run_folders import weights
from tests.sharing.cards import ask, read_card, scores_of, table

# Without graphs a batch takes long, whatever its size.
FEW = "eval_batch_size=128"


def eagerly(test):
    """Runs a test without graphs; TensorFlow warns of its data sets."""
    ignore = "ignore:Even though the `tf.config"
    test = pytest.mark.filterwarnings(ignore)(test)
    # A group of rows may have one token each.
    test = pytest.mark.filterwarnings("ignore:.*softmax over axis")(test)
    return pytest.mark.usefixtures("eagerly")(test)


SMALL = {
    "train_batch_size": 8,
    "num_train_steps": 12,
    "learning_rate": 1e-2,
    "log_steps": 5,
    "eval_steps": 6,
    "save_checkpoints_steps": 4,
    "keep_checkpoint_max": 2,
    "eval_batch_size": 16,
    "keep_model_steps": 2,
}


@pytest.fixture(scope="module")
def recipe(records, config_file) -> PretrainingRecipe:
    return PretrainingRecipe(
        data_dir=str(records), config_file=str(config_file), **SMALL
    )


@pytest.fixture(scope="module")
def finished(recipe, tmp_path_factory) -> pathlib.Path:
    """A run in which each model takes a quarter of an hour to write."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    save, clock, written = run.save_checkpoint, time.monotonic, []

    def slow(folder, checkpoint):
        written.append(1000)
        save(folder, checkpoint)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report, "_draw", draw_curves)
        patch.setattr(run, "save_checkpoint", slow)
        patch.setattr(loop.time, "monotonic", lambda: clock() + sum(written))
        run_pretraining(recipe, folder)
    return folder


def assert_same_run(first: pathlib.Path, second: pathlib.Path) -> None:
    assert rows(first) == rows(second)
    expected = weights(second)
    for name, array in weights(first).items():
        np.testing.assert_array_equal(array, expected[name])


@pytest.mark.witness("pre-training learns and leaves a model folder")
def test_the_folder_of_a_finished_run(finished, recipe, small_vocab):
    assert {path.name for path in finished.iterdir()} == FILES
    states = sorted(p.name for p in (finished / "checkpoints").iterdir())
    assert states == ["step-00000008", "step-00000012"]
    assert PretrainingRecipe.from_json(finished / "recipe.json") == recipe
    assert [row["step"] for row in rows(finished)] == [5, 6, 10, 12, 12]
    results = json.loads((finished / "results.json").read_text())
    loss = rows(finished)[-1]["eval_masked_lm_loss"]
    assert results["masked_lm_loss"] == pytest.approx(loss)
    assert results["masked_lm_perplexity"] == pytest.approx(np.exp(loss))
    assert (finished / "vocab.txt").read_text() == small_vocab.read_text()
    losses = [r["masked_lm_loss"] for r in rows(finished) if "loss" in r]
    assert losses[-1] < losses[0] - 0.3
    encoder = bert_tf.BertEncoder.from_checkpoint(finished)
    arrays = load_checkpoint(finished).arrays
    np.testing.assert_array_equal(
        arrays["bert/pooler/dense/kernel"], encoder.pooler.kernel.numpy()
    )


def test_its_card(finished, records):
    card, results = read_card(finished), finished / "results.json"
    results = json.loads(results.read_text())
    scores = scores_of(card)
    assert scores["held_out", "masked_lm_loss"] == results["masked_lm_loss"]
    assert card.data.pipeline_tag == "fill-mask"
    (row,) = (r for r in table(card, "Scores") if "perplexity" in r[1])
    shown = [float(cell.replace(",", "")) for cell in row[2:]]
    names = "masked_lm_perplexity", "unigram_perplexity"
    assert shown == pytest.approx([results[n] for n in names], rel=1e-3)
    folder = RecordFolder.open(records)
    assert ["training", f"{folder.num_records:,}"] in table(card, "Data")
    assert str(records) not in card.text
    assert "[MASK]" in ask(finished)["text"]


def test_tensorboard_has_the_numbers(finished):
    seen = {}
    for path in sorted((finished / "tensorboard").glob("events*")):
        for record in tf.data.TFRecordDataset(str(path)):
            event = tf.compat.v1.Event.FromString(record.numpy())
            for value in event.summary.value:
                number = tf.make_ndarray(value.tensor)
                seen[value.tag, event.step] = float(number)
    for row in rows(finished):
        for name, value in row.items():
            if name != "step":
                assert seen[name, row["step"]] == pytest.approx(value)


def kept(folder: pathlib.Path) -> list[int]:
    """The steps whose models are in a run's folder."""
    names = sorted(path.name for path in (folder / "models").iterdir())
    return [int(name.removeprefix("step-")) for name in names]


def contents(model: pathlib.Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in model.iterdir()}


def test_they_are_the_models_of_the_run(finished):
    assert kept(finished) == [2, 4, 6, 8, 10, 12]
    last = contents(finished / "models" / "step-00000012")
    assert last == {name: (finished / name).read_bytes() for name in last}
    folder = finished / "models" / "step-00000008"
    assert contents(folder).keys() == last.keys()
    config = bert_tf.load_checkpoint(folder).config
    model = bert_tf.BertPretrainer(bert_tf.BertEncoder(config))
    state = load_state(finished / "checkpoints" / folder.name)
    found = sorted(n for n in state.arrays if n.startswith("weights/"))
    for name, variable in zip(found, model.trainable_variables, strict=True):
        variable.assign(state.arrays[name])
    expected = model.to_arrays()
    arrays = weights(folder)
    assert arrays.keys() == expected.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, expected[name])
    # A tool takes it as it takes any model folder.
    tokenizer = bert_tf.BertTokenizer.from_checkpoint(folder)
    pack = bert_tf.SentencePacker(tokenizer, 16)
    encoder = bert_tf.BertEncoder.from_checkpoint(folder)
    output = encoder(pack(["a function call"]))["sequence_output"]
    assert np.isfinite(output.numpy()).all()


def test_keeping_models_takes_no_training_time(finished):
    lines = (finished / "history.jsonl").read_text().splitlines()
    speeds = [json.loads(r).get("sequences_per_second") for r in lines]
    # Eight rows in a quarter of an hour would be less.
    assert min(filter(None, speeds)) > 0.1


def test_models_go_with_the_run_that_kept_them(recipe, tmp_path):
    """A folder of models alone is somebody's; a run that never trained not."""
    model = tmp_path / "models" / "step-00000002"
    model.mkdir(parents=True)
    with pytest.raises(UserError, match="holds a models/step-00000002 that no"):
        claim(tmp_path, recipe)
    model.rmdir()
    other = tmp_path / "models" / "mine"
    other.mkdir()
    claim(tmp_path, recipe)
    (tmp_path / "checkpoints" / "step-00000000").mkdir(parents=True)
    model.mkdir()
    claim(tmp_path, recipe.override(["seed=2"]))
    assert [p.name for p in (tmp_path / "models").iterdir()] == ["mine"]
    (tmp_path / "checkpoints" / "step-00000004").mkdir(parents=True)
    model.mkdir()
    claim(tmp_path, recipe.override(["seed=2", "keep_model_steps=7"]))
    assert model.exists()


def test_a_finished_run_is_not_trained_again(
    finished, recipe, tmp_path, capsys
):
    """Also with settings that may change; others are refused."""
    with pytest.raises(UserError, match="learning_rate was 0.01 and is now"):
        run_pretraining(recipe.override(["learning_rate=1e-3"]), finished)
    shutil.copytree(finished, tmp_path / "copy")
    changes = ["keep_checkpoint_max=1", "rematerialize=true"]
    run_pretraining(recipe.override(changes), tmp_path / "copy")
    assert "already finished" in capsys.readouterr().out
    assert_same_run(tmp_path / "copy", finished)


@pytest.mark.witness("pre-training resumes exactly")
def test_a_torn_newest_state_falls_back(finished, tmp_path, capsys):
    copy = tmp_path / "copy"
    shutil.copytree(finished, copy)
    torn = copy / "checkpoints" / "step-00000012" / "state.safetensors"
    torn.write_bytes(torn.read_bytes()[:-100])
    (copy / "bert_model.safetensors").unlink()
    shutil.rmtree(copy / "models")
    # Keeping models changes no number.
    stored, changes = copy / "recipe.json", ["keep_model_steps=0"]
    run_pretraining(PretrainingRecipe.from_json(stored, changes), copy)
    assert not (copy / "models").exists()
    printed = capsys.readouterr().out
    assert "step-00000012" in printed
    assert "using the state before it" in printed
    assert "resuming from step 8 of 12" in printed
    assert_same_run(copy, finished)


@eagerly
def test_short_rows_then_long_packed_ones(
    records, recipe, make_records, tmp_path, monkeypatch, capsys
):
    long = make_records(
        "long", max_seq_length=64, max_predictions_per_seq=10, packing=True
    )
    changes = [f"data_dir={recipe.data_dir},{long}", "num_train_steps=3", FEW]
    changes += ["final_phase_proportion=0.34", "final_phase_batch_size=4"]
    recipe = recipe.override([*changes, "seed=2"])
    ids = []
    train = TrainingLoop._train

    def watch(self, phase, batch, number, progress, history):
        ids.append(batch["input_ids"].numpy())
        train(self, phase, batch, number, progress, history)

    monkeypatch.setattr(TrainingLoop, "_train", watch)
    run_pretraining(recipe, tmp_path)
    assert [each.shape for each in ids] == [(8, 32), (8, 32), (4, 64)]
    short = RecordFolder.open(records)
    (first,) = training_batches(short, 8, seed=2).take(1)
    np.testing.assert_array_equal(ids[0], first["input_ids"])
    assert np.isfinite(rows(tmp_path)[-1]["eval_loss"])
    folder = RecordFolder.open(long)
    count = folder.num_records
    mean = 4 * folder.packing.sequences / count
    shown = f"1 steps of 4 rows ({mean:.0f} sequences) of 64 tokens"
    shown += f": {4 / count:.2g} epochs of {count:,} records"
    assert shown in capsys.readouterr().out


def test_rematerialize_reaches_the_encoder(recipe, tmp_path, monkeypatch):
    def stand_in(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(bert, "rematerialized", stand_in)
    with pytest.raises(ZeroDivisionError):
        run_pretraining(recipe.override(["rematerialize=true"]), tmp_path)


@eagerly
def test_init_from_an_encoder_keeps_its_weights_and_says_what_starts_fresh(
    finished, recipe, tmp_path, capfd
):
    checkpoint = load_checkpoint(finished)
    encoder = {k: v for k, v in checkpoint.arrays.items() if "bert/" in k}
    save_checkpoint(
        tmp_path / "encoder", dataclasses.replace(checkpoint, arrays=encoder)
    )
    start = f"init_from={tmp_path / 'encoder'}"
    recipe = recipe.override(
        [start, "learning_rate=1e-20", "num_train_steps=1", FEW]
    )
    run_pretraining(recipe, tmp_path / "new")
    printed = capfd.readouterr().err
    assert "encoder: has no masked_lm and no next_sentence; " in printed
    assert "initialized randomly" in printed
    found = weights(tmp_path / "new")
    for name, array in encoder.items():
        np.testing.assert_allclose(found[name], array, atol=1e-6)


@pytest.mark.witness("XLA compiles the pre-training step, as for TPUs")
def test_its_step_compiles_with_static_shapes(recipe, records, config_file):
    """XLA, as TPUs need it, takes no batch whose shape may change."""
    config = bert_tf.BertConfig.from_json(config_file)
    config = config.override(
        ["hidden_dropout_prob=0", "attention_probs_dropout_prob=0"]
    )
    step = make_step(
        recipe,
        bert_tf.BertPretrainer(config),
        PretrainingObjective(),
        tf.distribute.get_strategy(),
        recipe.num_train_steps,
    )
    batches = training_batches(RecordFolder.open(records), 8, seed=1)

    def gradients(batch):
        zero = tf.constant(0, tf.int64), tf.constant(0.0)
        return step._gradients(batch, *zero)[0]

    compiled = tf.function(
        gradients, input_signature=[batches.element_spec], jit_compile=True
    )
    (batch,) = batches.take(1)
    for plain, xla in zip(gradients(batch), compiled(batch), strict=True):
        np.testing.assert_allclose(plain, xla, atol=1e-5)


@eagerly
def test_ids_outside_the_vocabulary_are_named(recipe, tmp_path, monkeypatch):
    batches = run.training_batches

    def wrong(*arguments, **more):
        def spoil(batch):
            ids = batch["input_ids"]
            spoilt = tf.tensor_scatter_nd_update(ids, [[2, 3]], [99_999])
            return {**batch, "input_ids": spoilt}

        return batches(*arguments, **more).map(spoil)

    monkeypatch.setattr(run, "training_batches", wrong)
    with pytest.raises(UserError, match=r"input_ids\[2, 3\] is 99999"):
        run_pretraining(recipe, tmp_path)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["train_batch_size=9", "gradient_accumulation_steps=2"], "multiple"),
        (["config_file=", "size=tiny2"], "`size`=tiny2: unknown size"),
        (["config_file=", "size=2/9/2"], "`size`=2/9/2: hidden_size is 9"),
        (["size=tiny"], "not both"),
        (["config_file="], "`size`, `config_file` or `init_from`"),
        (["data_dir="], "one folder of records"),
        (["data_dir=/nowhere"], "/nowhere"),
        (["strategy=tpu"], "needs `tpu`, the TPU's name or address"),
        (["data_streams=3"], "not a multiple of data_streams=3"),
        (["eval_batch_size=9", "strategy=mirrored"], "eval_batch_size 9 is"),
    ],
)
def test_bad_settings(settings, message, recipe, tmp_path):
    with pytest.raises(UserError, match=message):
        run_pretraining(recipe.override(settings), tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_an_architecture_that_does_not_fit(recipe, config_file, tmp_path):
    config = bert_tf.BertConfig.from_json(config_file)
    for change, message in (
        ("vocab_size=7", "vocab_size is 7, but the records"),
        ("max_position_embeddings=31", "max_seq_length 32 is above"),
        ("bilstm=true", "bilstm is true"),
    ):
        config.override([change]).save(tmp_path / "config.json")
        settings = [f"config_file={tmp_path / 'config.json'}"]
        with pytest.raises(UserError, match=message):
            run_pretraining(recipe.override(settings), tmp_path / "new")


def test_another_vocabulary(recipe, small_vocab, tmp_path):
    tokens = small_vocab.read_text().split()
    other = tmp_path / "vocab.txt"
    other.write_text("\n".join([*tokens, "extra"]) + "\n")
    recipe = recipe.override([f"vocab_file={other}"])
    with pytest.raises(UserError, match="another vocabulary than"):
        run_pretraining(recipe, tmp_path / "new")


def test_a_loss_beyond_floats_has_a_perplexity():
    assert report.perplexity(708) == pytest.approx(math.exp(708))
    assert report.perplexity(710) == math.inf


def test_a_folder_of_something_else(finished, records, recipe, tmp_path):
    """A model that no run made, records, a file: none is written over."""
    model = tmp_path / "model"
    shutil.copytree(finished, model)
    (model / "recipe.json").unlink()
    before = weights(model)
    for folder, message in (
        (model, "holds a bert_config.json that no run"),
        (records, "is a folder of records"),
        (model / "vocab.txt", "is a file"),
    ):
        with pytest.raises(UserError, match=message):
            run_pretraining(recipe, folder)
    for name, array in weights(model).items():
        np.testing.assert_array_equal(array, before[name])
    assert not (records / ".lock").exists()


def test_init_from_another_vocabulary(finished, recipe, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(finished, other)
    tokens = (other / "vocab.txt").read_text().split()
    tokens[-1], tokens[-2] = tokens[-2], tokens[-1]
    (other / "vocab.txt").write_text("\n".join(tokens) + "\n")
    recipe = recipe.override([f"init_from={other}"])
    with pytest.raises(UserError, match="`init_from`.*bert-tf convert"):
        run_pretraining(recipe, tmp_path / "new")


def test_records_that_changed_under_a_run(
    finished, recipe, records, make_records, tmp_path
):
    """Others are refused; a damaged file that only the report reads too."""
    copy, moved = tmp_path / "copy", tmp_path / "records"
    shutil.copytree(finished, copy)
    recipe = recipe.override([f"data_dir={moved}"])
    recipe.save(copy / "recipe.json")
    other = make_records(
        "short", max_seq_length=32, max_predictions_per_seq=5, seed=7
    )
    shutil.copytree(other, moved)
    with pytest.raises(UserError, match="had another records; choose"):
        run_pretraining(recipe, copy)
    shutil.rmtree(moved)
    shutil.copytree(records, moved)
    (file,) = moved.glob("held_out-*.tfrecord")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 255
    file.write_bytes(content)
    with pytest.raises(UserError, match="held_out.*tfrecord"):
        run_pretraining(recipe, copy)


@eagerly
def test_a_report_that_fails_is_a_warning(
    finished, recipe, tmp_path, monkeypatch, capfd
):
    def failing(*arguments):
        raise KeyError("token")

    folder = tmp_path / "copy"
    shutil.copytree(finished, folder)
    (folder / "results.json").unlink()
    (folder / "learning_curve.png").unlink()
    (folder / "learning_curve.png").mkdir()
    monkeypatch.setattr(report, "unigram_baseline", failing)
    monkeypatch.setattr(report, "_draw", draw_curves)
    result = run_pretraining(recipe, folder)
    assert result.baseline is None
    scores = json.loads((folder / "results.json").read_text())
    whole = json.loads((finished / "results.json").read_text())
    missing = {"unigram_perplexity", "most_frequent_token_accuracy"}
    assert whole.keys() - scores.keys() == missing
    assert scores["masked_lm_loss"] == pytest.approx(whole["masked_lm_loss"])
    printed = capfd.readouterr().err
    assert "the baseline could not be made (KeyError" in printed
    assert "the learning curve could not be made" in printed


@eagerly
def test_float16_learns_and_an_overflow_stays_out_of_the_numbers(
    recipe, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(recovery, "_INITIAL", 2.0**22)
    changes = ["precision=mixed_float16", "log_steps=3", FEW]
    run_pretraining(recipe.override(changes), tmp_path)
    captured = capsys.readouterr()
    assert "float16 overflow" in captured.out + captured.err
    losses = []
    for row in rows(tmp_path):
        assert all(np.isfinite(value) for value in row.values())
        losses += [row["masked_lm_loss"]] if "loss" in row else []
    assert losses[-1] < losses[0] - 0.1
    assert all(a.dtype == np.float32 for a in weights(tmp_path).values())


def test_two_runs_in_one_folder(recipe, tmp_path):
    with locked(tmp_path / ".lock", tmp_path):
        with pytest.raises(UserError, match="another run is writing there"):
            run_pretraining(recipe, tmp_path)


def test_a_damaged_record_file(records, recipe, tmp_path):
    copy = tmp_path / "records"
    shutil.copytree(records, copy)
    recipe = recipe.override([f"data_dir={copy}"])
    file = next(copy.glob("records-*.tfrecord"))
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 255
    file.write_bytes(content)
    with pytest.raises(UserError, match="tfrecord"):
        run_pretraining(recipe, tmp_path / "new")
