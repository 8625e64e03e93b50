"""What every architecture promises.

Its layers through Keras' files, SavedModels, precisions and replicas are in
`tests/conformance/`, which takes the cases from here.
"""

import dataclasses
import json
import math
import pathlib
import shutil
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.architecture_list import ARCHITECTURES
from bert_tf.checkpoints import (
    CLASSIFIER,
    MASKED_LM,
    MULTIPLE_CHOICE,
    REPLACED_TOKENS,
    Checkpoint,
    head_shapes,
    load_checkpoint,
    save_checkpoint,
)
from bert_tf.checkpoints.folder import save_adapter
from bert_tf.checkpoints.layout import block_parts
from bert_tf.checkpoints.pruned import keep_parts, refuse_shared_blocks
from bert_tf.encoders import encoder_class
from bert_tf.memory.prediction import Workload
from bert_tf.pretraining.recipe import PretrainingRecipe
from bert_tf.pretraining.run import run_pretraining
from bert_tf.records.build import create_records
from bert_tf.records.recipe import RecordsRecipe
from bert_tf.text.tokenizer_protocol import TokenizerData
from bert_tf.text.unigram import AlbertUnigram
from bert_tf.text.wordpiece import WordPiece
from tests import commands
from tests.contracts.architecture_cases import CASES, Case
from tests.contracts.made_up_architecture import add_to_package
from tests.model_helpers import fill
from tests.records_corpus import text
from tests.relatives import (
    CLOSE,
    assert_same,
    assert_the_whole_way_by_commands,
)
from tests.user_errors import error_of

RECORDED = [case for case in CASES.values() if case.golden]
CLASSES = [(case, name) for case in RECORDED for name in case.recorded.classes]


@pytest.fixture(autouse=True)
def made_up_too(monkeypatch) -> None:
    add_to_package(monkeypatch)


every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
every_class = pytest.mark.parametrize(
    ("case", "name"), CLASSES, ids=[name for _, name in CLASSES]
)
with_heads = pytest.mark.parametrize(
    ("case", "name"),
    [(case, name) for case, name in CLASSES if "For" in name],
    ids=[name for _, name in CLASSES if "For" in name],
)


def batch_of(case: Case) -> dict[str, tf.Tensor]:
    """Three rows, of which two are padded."""
    random = np.random.default_rng(0)
    mask = (np.arange(9) < np.array([[9], [5], [7]])).astype("int32")
    ids = random.integers(1, 24, (3, 9)) * mask
    types = random.integers(0, case.config().segment_limit, (3, 9)) * mask
    given = {"input_ids": ids, "input_mask": mask, "segment_ids": types}
    return {name: tf.constant(a, tf.int32) for name, a in given.items()}


def encoder_of(case: Case, seed: int = 0, **changes):
    config = case.config(**changes)
    return fill(encoder_class(config)(config), seed)


def test_every_architecture_has_a_case() -> None:
    assert CASES.keys() == ARCHITECTURES.keys()


@every_class
def test_every_hidden_state_is_that_of_transformers(case, name):
    case.recorded.assert_hidden_states(name)


@with_heads
def test_logits_and_gradients_are_those_of_transformers(case, name):
    recorded = case.recorded
    model = recorded.model(name)
    recorded.assert_logits(name, model)
    recorded.assert_gradients(name, model)


@every_class
def test_what_transformers_wrote_is_written_again(case, name, tmp_path):
    source = load_checkpoint(case.recorded.saved / name)
    save_checkpoint(tmp_path, source, "hugging_face")
    assert_same(load_checkpoint(tmp_path), source)


@pytest.mark.parametrize("case", RECORDED, ids=lambda case: case.name)
def test_converting_there_and_back_is_exact_and_proved(case, tmp_path):
    name = next(n for n in case.recorded.classes if "ForSequence" in n)
    case.recorded.assert_round_trip(name, case.tokenizer, tmp_path)


@every_case
def test_tokens_alone_get_what_they_get_in_rows(case):
    """Without padding, and where the pooled token alone is computed."""
    encoder, batch = encoder_of(case), batch_of(case)
    real = batch["input_mask"].numpy() == 1
    whole = encoder(batch, return_all_layers=True)
    found = encoder(batch, return_all_layers=True, unpadded=True)
    for ours, theirs in zip(
        [*found["all_encoder_layers"], found["embedding_output"]],
        [*whole["all_encoder_layers"], whole["embedding_output"]],
        strict=True,
    ):
        np.testing.assert_allclose(
            np.asarray(ours)[real], np.asarray(theirs)[real], **CLOSE
        )
    for unpadded in (False, True):
        pooled = encoder(batch, pooled_only=True, unpadded=unpadded)
        np.testing.assert_allclose(
            pooled["pooled_output"], whole["pooled_output"], **CLOSE
        )


@every_case
def test_a_packed_row_gives_what_separate_rows_give(case):
    encoder, batch = encoder_of(case), batch_of(case)
    packed = {
        name: tf.concat([rows[:1, :5], rows[1:2, :4]], axis=1)
        for name, rows in batch.items()
    } | {
        "position_ids": tf.constant([[*range(5), *range(4)]]),
        "sequence_ids": tf.constant([[1] * 5 + [2] * 4]),
        "cls_positions": tf.constant([[0, 5]]),
    }
    together = [encoder(packed, unpadded=each) for each in (False, True)]
    for row, (begin, length) in enumerate(((0, 5), (5, 4))):
        alone = {name: batch[name][row : row + 1, :length] for name in batch}
        expected = encoder(alone)
        for found in together:
            np.testing.assert_allclose(
                found["sequence_output"][0, begin : begin + length],
                expected["sequence_output"][0],
                **CLOSE,
            )
            np.testing.assert_allclose(
                found["pooled_output"][0, row],
                expected["pooled_output"][0],
                **CLOSE,
            )


@every_case
def test_the_longest_input_is_computed_and_no_longer_one(case):
    encoder = encoder_of(case)
    longest = encoder.config.longest_input

    def of_length(length):
        rows = tf.ones([1, length], tf.int32)
        return {n: rows for n in ("input_ids", "input_mask", "segment_ids")}

    assert encoder(of_length(longest))["sequence_output"].shape[1] == longest
    line = error_of(encoder, of_length(longest + 1))
    assert f"more than the longest input, {longest}" in line


@every_case
def test_files_hold_every_array_by_the_names_of_the_table(case, tmp_path):
    """Of an encoder and every head that pre-training and tasks make."""
    config = case.config()
    random = np.random.default_rng(0)
    arrays = encoder_of(case).to_arrays()
    heads = head_shapes(config)
    for head in (MASKED_LM, CLASSIFIER):
        for name, shape in heads[head].items():
            sizes = [3 if size is None else size for size in shape]
            arrays[name] = random.normal(size=sizes).astype("float32")
    checkpoint = Checkpoint(config, arrays).with_tokenizer(case.tokenizer)
    save_checkpoint(tmp_path / "ours", checkpoint)
    found = load_checkpoint(tmp_path / "ours")
    assert_same(found, checkpoint)
    assert {MASKED_LM, CLASSIFIER} <= set(found.heads)
    pretrainer = bert_tf.BertPretrainer.from_checkpoint(tmp_path / "ours")
    if REPLACED_TOKENS not in heads:
        for name, array in pretrainer.to_arrays().items():
            if name in arrays:
                np.testing.assert_array_equal(array, arrays[name])
    model = bert_tf.bert_classifier(bert_tf.load_encoder(tmp_path / "ours"), 3)
    assert bert_tf.restore(model, tmp_path / "ours") == ()
    for name, array in bert_tf.model_arrays(model).items():
        np.testing.assert_array_equal(array, arrays[name])
    if case.google_tf1:
        line = error_of(
            save_checkpoint, tmp_path / "google", checkpoint, "google_tf1"
        )
        assert case.google_tf1 in line
        assert not (tmp_path / "google").exists()


@every_case
def test_an_adapter_is_written_as_peft_names_it_and_proved(case, tmp_path):
    arrays = encoder_of(case).to_arrays()
    base = Checkpoint(case.config(), arrays, source=str(tmp_path / "base"))
    base = base.with_tokenizer(case.tokenizer)
    save_checkpoint(tmp_path / "base", base)
    encoder = encoder_of(
        case, 1, lora_rank=2, lora_alpha=2.0, lora_on="all_dense"
    )
    layers = {weight.path.split("/")[1] for weight in encoder.trainable_weights}
    blocks = len(set(encoder.config.block_numbers))
    assert layers - {"pooler"} == {f"layer_{i}" for i in range(blocks)}
    trained = encoder.to_arrays()
    trained |= {n: a for n, a in arrays.items() if "pooler" not in n}
    for head, rows, whole in zip(
        (CLASSIFIER, MULTIPLE_CHOICE), (3, 1), case.whole, strict=True
    ):
        (weights, bias) = head_shapes(encoder.config)[head]
        of_head = {
            weights: np.ones((rows, 8), "float32"),
            bias: np.ones(rows, "float32"),
        }
        adapted = dataclasses.replace(
            base, config=encoder.config, arrays=trained | of_head
        )
        folder = tmp_path / f"adapter_{head}"
        save_adapter(folder, adapted, base)
        written = json.loads((folder / "adapter_config.json").read_text())
        assert written["target_modules"] == list(case.targets)
        assert written["modules_to_save"] == list(whole)
        assert_same(load_checkpoint(folder, merge=False), adapted)
        # Merged, it computes the same.
        merged = tmp_path / f"merged_{head}"
        save_checkpoint(merged, load_checkpoint(folder))
        beside = encoder_class(encoder.config)(encoder.config)
        beside.load_arrays(adapted.arrays)
        np.testing.assert_allclose(
            bert_tf.load_encoder(merged)(batch_of(case))["pooled_output"],
            beside(batch_of(case))["pooled_output"],
            **CLOSE,
        )


@every_case
def test_what_is_cut_off_is_as_if_it_gave_nothing(case):
    """A model with fewer heads and columns; or the line that refuses it."""
    encoder = encoder_of(case)
    whole = Checkpoint(encoder.config, encoder.to_arrays(), source="here")
    if case.pruned:
        assert case.pruned in error_of(refuse_shared_blocks, whole)
        return
    refuse_shared_blocks(whole)
    layers = encoder.config.num_hidden_layers
    heads = np.array([[1], [0], [1], [1]])[:layers]
    columns = np.array([[0, 3, 5], [1, 2, 11], [0, 1, 2], [7, 8, 9]])[:layers]
    cut = keep_parts(whole, heads, columns)
    assert cut.config.intermediate_size == 3
    smaller = encoder_class(cut.config)(cut.config)
    smaller.load_arrays(cut.arrays)
    # Rows of kernels that read what is cut off.
    silent = dict(whole.arrays)
    stays = {
        "attention_size": [4 * h[0] + np.arange(4) for h in heads],
        "intermediate_size": list(columns),
    }
    for layer in range(layers):
        for part in block_parts(encoder.config, layer):
            if part.sizes[0] in stays:
                name, *_ = part.shapes(encoder.config)
                kernel = np.zeros_like(silent[name])
                rows = stays[part.sizes[0]][layer]
                kernel[rows] = silent[name][rows]
                silent[name] = kernel
    encoder.load_arrays(silent)
    np.testing.assert_allclose(
        smaller(batch_of(case))["sequence_output"],
        encoder(batch_of(case))["sequence_output"],
        **CLOSE,
    )


@pytest.fixture(scope="module")
def records_of(tmp_path_factory) -> Callable[[Case], pathlib.Path]:
    """Records of 16 tokens that an architecture is pre-trained on."""
    finished: dict[str, pathlib.Path] = {}

    def made(case: Case) -> pathlib.Path:
        data = case.records_tokenizer
        key = f"{type(data)} {case.records}"
        if key not in finished:
            finished[key] = make(data, case.records)
        return finished[key]

    def make(data: TokenizerData, changes: Mapping[str, Any]) -> pathlib.Path:
        folder = tmp_path_factory.mktemp("records")
        data.save(folder)
        corpus = folder / "corpus.txt"
        corpus.write_text(text(40) + "\n", encoding="utf-8")
        settings = {
            "max_seq_length": 16,
            "max_predictions_per_seq": 3,
            "held_out": 0.1,
            "lower_case": isinstance(data, WordPiece | AlbertUnigram),
        }
        create_records(
            [corpus],
            folder / data.FILES[0],
            folder / "out",
            RecordsRecipe(**settings | changes),
            1,
            log=lambda _: None,
        )
        return folder / "out"

    return made


@pytest.mark.filterwarnings("ignore:Even though the .tf.config")
@every_case
def test_it_is_pre_trained_on_records(case, records_of, tmp_path, eagerly):
    """The loss begins at chance, and the folder has what was trained."""
    rows = len(case.records_tokenizer.vocabulary)
    config = case.config(
        vocab_size=rows, max_position_embeddings=20, num_hidden_layers=2
    )
    config.save(tmp_path / "config.json")
    recipe = PretrainingRecipe(
        data_dir=str(records_of(case)),
        config_file=str(tmp_path / "config.json"),
        objective=case.objective,
        train_batch_size=8,
        num_train_steps=1,
        log_steps=1,
        seed=1,
    )
    run_pretraining(recipe, tmp_path / "run")
    history = (tmp_path / "run" / "history.jsonl").read_text().splitlines()
    loss = json.loads(history[0])["masked_lm_loss"]
    assert loss == pytest.approx(math.log(rows), abs=0.3)
    trained = load_checkpoint(tmp_path / "run")
    assert trained.config == config
    assert case.head in trained.heads
    encoder = bert_tf.load_encoder(tmp_path / "run")
    for name, array in encoder.to_arrays().items():
        if "/pooler/" not in name:
            np.testing.assert_array_equal(array, trained.arrays[name])


def after_a_step(case: Case, devices: list[str]) -> list[np.ndarray]:
    """A classifier's weights after a step of fine-tuning on devices."""
    # Not collective operations: their instance keys clash when one process
    # makes several strategies over the same devices.
    strategy = tf.distribute.MirroredStrategy(
        devices, tf.distribute.ReductionToOneDevice()
    )
    config = case.config(
        num_hidden_layers=2,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    with strategy.scope():
        encoder = encoder_class(config)(config)
        model = fill(bert_tf.bert_classifier(encoder, 3, dropout=0.0))
        loss = keras.losses.SparseCategoricalCrossentropy(
            from_logits=True, reduction="sum"
        )
        eager = len(devices) == 1
        model.compile(keras.optimizers.SGD(0.1), loss, run_eagerly=eager)
    rows = {name: np.repeat(a, 2, 0)[:4] for name, a in batch_of(case).items()}
    data = tf.data.Dataset.from_tensors((rows, np.array([0, 1, 2, 1])))
    model.fit(
        data.unbatch().batch(4, drop_remainder=True), shuffle=False, verbose=0
    )
    return [np.asarray(weight) for weight in model.weights]


# The encoders of the others compute with the same layers.
@pytest.mark.parametrize("name", ["bert", "mosaic"])
def test_a_step_of_fine_tuning_on_two_replicas_is_that_on_one(name):
    case = CASES[name]
    one = after_a_step(case, ["/cpu:0"])
    two = after_a_step(case, ["/cpu:0", "/cpu:1"])
    first = encoder_of(case, num_hidden_layers=2).weights
    first = [np.asarray(weight) for weight in first]
    changed = [np.abs(a - b).max() for a, b in zip(first, one, strict=False)]
    assert max(changed) > 1e-3
    for left, right in zip(two, one, strict=True):
        np.testing.assert_allclose(left, right, **CLOSE)


@pytest.mark.parametrize("predictions", [0, 4])
@every_case
def test_its_parameters_are_counted(case, predictions):
    config = case.config()
    encoder = encoder_class(config)(config)
    if predictions:
        trained = bert_tf.BertPretrainer(encoder).trainable_weights
    else:
        trained = bert_tf.bert_classifier(encoder, 2).weights
    work = Workload(config, 8, 2, predictions, "float32")
    assert work.num_parameters == sum(math.prod(w.shape) for w in trained)


@every_case
def test_sizes_by_name(case):
    kind = type(case.config())
    for size, expected in case.sizes.items():
        config = kind.from_size(size, 30522)
        assert expected == (
            config.num_hidden_layers,
            config.hidden_size,
            config.num_attention_heads,
            config.intermediate_size,
            config.embedding_size,
        )
    line = error_of(kind.from_size, "huge", 30522)
    assert f"one of {', '.join(kind.sizes)}, or layers" in line


@pytest.mark.parametrize("case", RECORDED, ids=lambda case: case.name)
def test_other_descriptions_are_refused(case, tmp_path):
    for number, (name, old, new, part) in enumerate(case.refused):
        folder = tmp_path / str(number)
        shutil.copytree(case.recorded.saved / name, folder)
        text = (folder / "config.json").read_text()
        assert old in text
        (folder / "config.json").write_text(text.replace(old, new))
        line = error_of(load_checkpoint, folder)
        assert str(folder) in line
        assert part in line


def test_a_bert_imports_no_other_architecture(tmp_path):
    encoder = encoder_of(CASES["bert"])
    arrays = encoder.to_arrays()
    save_checkpoint(tmp_path, Checkpoint(encoder.config, arrays))
    done = commands.run_as_process(
        "tests.contracts.modules_of_a_model", tmp_path, environment={}
    )
    assert done.returncode == 0, done.stderr
    loaded = done.stdout.split()
    assert "bert_tf.encoders.bert" in loaded
    others = [name for name in CASES if name != "bert"]
    assert not [m for m in loaded if m.rpartition(".")[2] in others]


def test_the_whole_way_by_commands(tmp_path):
    """Another architecture and tokenizer: converted, fine-tuned and served."""
    case = CASES["modernbert"]
    config = case.config(
        hidden_size=16, max_position_embeddings=32, num_hidden_layers=2
    )
    assert_the_whole_way_by_commands(config, case.tokenizer, tmp_path)
