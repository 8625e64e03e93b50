"""What DistilBERT, ELECTRA and RoBERTa do otherwise than a BERT.

contracts/test_architectures.py compares their numbers with transformers'.
"""

import dataclasses
import functools
import json
import math
import pathlib
import shutil

import keras
import numpy as np
import pytest

import bert_tf
from bert_tf.checkpoints import (
    CLASSIFIER,
    head_shapes,
    load_checkpoint,
    save_checkpoint,
)
from bert_tf.checkpoints.hugging_face import read_config
from bert_tf.config import BertConfig
from bert_tf.encoders import BertEncoder, encoder_class
from bert_tf.encoders.distilbert import DistilBertBlock
from bert_tf.encoders.electra import ElectraEncoder
from bert_tf.families.usage_options import UsageOptions
from bert_tf.finetuning.setup import lr_multipliers
from bert_tf.inference.predict import predict_file
from bert_tf.layers import ReplacedTokensHead
from bert_tf.models import model_arrays
from bert_tf.pretraining.objective import PretrainingObjective
from tests.contracts.architecture_cases import CASES
from tests.model_helpers import fill
from tests.relatives import (
    CLOSE,
    LETTERS,
    Golden,
)
from tests.user_errors import error_of

GOLDEN = Golden("electra")
DISCRIMINATOR = "ElectraForPreTraining"
GENERATOR = "ElectraForMaskedLM"
batch = GOLDEN.batch
distilbert, electra, roberta = (
    CASES[name].config for name in ("distilbert", "electra", "roberta")
)


def test_a_distilbert_has_no_dropout_before_the_residual_of_attention():
    config = distilbert(
        hidden_dropout_prob=0.5, attention_probs_dropout_prob=0.0
    )
    block = DistilBertBlock(config)
    block.build((None, None, 8))
    block.output_dropout.rate = 0.0
    hidden = keras.random.normal((2, 5, 8), seed=1)
    bias = np.zeros((2, 1, 1, 5), "float32")
    still, _ = block(hidden, bias, training=False)
    trained, _ = block(hidden, bias, training=True)
    np.testing.assert_array_equal(still, trained)


def test_classes_are_scored_with_the_dropout_of_the_architecture():
    for config in (
        distilbert(seq_classif_dropout=0.4),
        electra(hidden_dropout_prob=0.4),
        roberta(hidden_dropout_prob=0.4),
    ):
        encoder = encoder_class(config)(config)
        model = bert_tf.bert_classifier(encoder, 2)
        assert model.get_layer("dropout").rate == 0.4


def test_what_is_refused():
    objective = PretrainingObjective()
    for make in (distilbert, electra, roberta):
        config = make()
        line = error_of(bert_tf.BertPretrainer, config, objective=objective)
        assert f"{config.model_type} has no pooler" in line
        assert "`objective`=masked_lm" in line
        assert type(config).__name__ in error_of(BertEncoder, config)
    line = error_of(distilbert, type_vocab_size=2)
    assert "type_vocab_size is 2; it takes 0" in line
    bert = BertEncoder(BertConfig(24, hidden_size=8, num_attention_heads=2))
    line = error_of(bert_tf.replaced_token_detector, bert)
    assert "encoder is a BertEncoder" in line
    assert "embedding_size is -1" in error_of(electra, embedding_size=-1)
    words = batch() | {"word_embeddings": np.zeros([3, 9, 8], "float32")}
    assert "they take [B, S, 6]" in error_of(ElectraEncoder(electra()), words)
    line = error_of(bert_tf.BertConfig.from_dict, {"model_type": "t5"}, "here")
    assert "here: model_type is 't5'" in line


@pytest.mark.parametrize("case", ["bert", "electra", "modernbert"])
@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize("unpadded", [False, True])
def test_sequences_of_packed_rows_are_pooled(case, pooling, unpadded):
    config = CASES[case].config(classifier_pooling=pooling, num_hidden_layers=1)
    encoder = fill(encoder_class(config)(config))
    sequences = np.array([[1] * 4 + [2] * 3 + [0], [1] * 6 + [0] * 2], "int32")
    mask = np.minimum(sequences, 1)
    random = np.random.default_rng(3)
    ids = random.integers(5, config.vocab_size, mask.shape) * mask
    row = {"input_ids": ids, "input_mask": mask, "segment_ids": 0 * mask}
    places = np.array([[*range(4), *range(3), 0], [*range(6), 0, 0]], "int32")
    packed = {**row, "sequence_ids": sequences, "position_ids": places}

    def pooled(rows, **more):
        return np.asarray(
            encoder(rows | more, unpadded=unpadded)["pooled_output"]
        )

    first, second = (
        pooled({k: v[:1, part] for k, v in row.items()})
        for part in (slice(4), slice(4, 7))
    )
    np.testing.assert_allclose(pooled(packed)[:1], first, **CLOSE)
    starts = np.array([[0, 4], [0, 0]], "int32")
    both = pooled(packed, cls_positions=starts)
    np.testing.assert_allclose(both[0], [first[0], second[0]], **CLOSE)
    # Without sequence_ids a row is one sequence.
    both = pooled(row, cls_positions=0 * starts)
    np.testing.assert_allclose(both[:, 1], pooled(row), **CLOSE)


@pytest.mark.parametrize("tokens", [513, 514])
def test_514_positions_are_512_tokens(tokens, tmp_path):
    case = CASES["roberta"]
    config = case.config(max_position_embeddings=514)
    encoder = fill(encoder_class(config)(config))
    arrays = encoder.to_arrays()
    for name, shape in head_shapes(config)[CLASSIFIER].items():
        arrays[name] = np.ones([n or 3 for n in shape], "float32")
    model = bert_tf.Checkpoint(config, arrays).with_tokenizer(case.tokenizer)
    save_checkpoint(tmp_path / "m", model, "hugging_face")
    written = json.loads((tmp_path / "m/tokenizer_config.json").read_text())
    assert written["model_max_length"] == 512
    (tmp_path / "rows.txt").write_text("a\n")
    rows = (["a", "b"], ["x", "y"])
    tokenizer = case.tokenizer.tokenizer()
    length = {"max_seq_length": tokens}
    for use in (
        functools.partial(bert_tf.load, tmp_path / "m", **length),
        functools.partial(bert_tf.embed, tmp_path / "m", rows[0], **length),
        functools.partial(
            bert_tf.finetune,
            *(tmp_path / "m", rows),
            output_dir=tmp_path / "run",
            **length,
        ),
        functools.partial(
            bert_tf.TextClassifier, encoder, tokenizer, rows[1], **length
        ),
        functools.partial(
            predict_file,
            *(tmp_path / "m", tmp_path / "rows.txt", tmp_path / "out.jsonl"),
            options=UsageOptions(**length),
        ),
    ):
        line = error_of(use)
        assert f"`max_seq_length`={tokens}: " in line
        assert " to 512 (longest_input" in line
    ids = np.ones((1, tokens), "int32")
    inputs = {n: ids for n in ("input_ids", "input_mask", "segment_ids")}
    assert "the longest input, 512" in error_of(encoder, inputs)


@pytest.mark.parametrize("name", ["roberta", "xlm-roberta"])
def test_a_description_without_keys_has_the_defaults_of_the_class(name):
    """Not those of the released models, which state them all."""
    values = {"model_type": name}
    config = read_config(values, pathlib.Path("config.json"))
    assert type(config) is type(CASES[name].config())
    assert (config.max_position_embeddings, config.type_vocab_size) == (512, 2)
    assert config.layer_norm_eps == 1e-12
    released = type(config)(config.vocab_size)
    assert released.max_position_embeddings == 514
    assert (released.type_vocab_size, released.layer_norm_eps) == (1, 1e-5)


def test_groups_of_an_albert_are_those_of_whole_numbers():
    """Google's floats give others: 31 / 39 * 39 is less than 31."""
    assert int(31 / 39 * 39) == 30
    for groups in range(1, 50):
        for layers in range(groups, 100, groups):
            config = CASES["albert"].config(
                num_hidden_layers=layers,
                num_hidden_groups=groups,
                inner_group_num=1,
            )
            each = layers // groups
            expected = [(layer // each, 0) for layer in range(layers)]
            assert list(config.block_numbers) == expected
            theirs = [int(n / (layers / groups)) for n in range(layers)]
            assert theirs == [group for group, _ in expected]


@pytest.mark.parametrize("version", [4, 5])
def test_the_rotations_of_a_modernbert_are_those_of_its_file(version, tmp_path):
    """Until it reads long texts, base 10,000 is that of every layer."""
    golden = Golden("modernbert")
    folder = shutil.copytree(golden.saved / "ModernBertModel", tmp_path / "m")
    values = json.loads((folder / "config.json").read_text())
    ropes = values["rope_parameters"]
    assert ropes["full_attention"]["rope_theta"] == 160000.0
    if version == 4:
        del values["rope_parameters"]
        values |= {"global_rope_theta": 10000.0, "local_rope_theta": 10000.0}
    else:
        ropes["full_attention"]["rope_theta"] = 10000.0
    (folder / "config.json").write_text(json.dumps(values))
    encoder = bert_tf.load_encoder(folder)
    config = encoder.config
    assert config.global_rope_theta == config.local_rope_theta == 10000.0
    assert {block.attention.base for block in encoder.blocks} == {10000.0}
    states = encoder(golden.batch(), return_all_layers=True)
    first = golden.real(states["all_encoder_layers"][0])
    theirs = golden.real(golden.outputs["ModernBertModel/hidden_1"])
    assert np.abs(first - theirs).max() > 1e-4


def test_a_roberta_padded_with_another_token_is_not_written(tmp_path):
    config = roberta()
    arrays = encoder_class(config)(config).to_arrays()
    given = bert_tf.Checkpoint(config, arrays).with_tokenizer(LETTERS)
    line = error_of(save_checkpoint, tmp_path / "no", given, "hugging_face")
    assert "pads with token 0" in line
    assert not (tmp_path / "no").exists()


def test_the_layer_wise_decay_is_that_of_its_authors():
    """decay ** (L + 2 - depth): 0 of embeddings, l + 1 of layer l, L + 2."""
    encoder = ElectraEncoder(electra())
    model = bert_tf.bert_classifier(encoder, 2)
    variables = model.trainable_variables
    layers = encoder.config.num_hidden_layers
    depths = {f"layer_{n}/": n + 1 for n in range(layers)} | {"embeddings": 0}
    found = lr_multipliers(encoder, variables, 0.5)
    for variable, factor in zip(variables, found, strict=True):
        parts = [part for part in depths if part in variable.path]
        depth = depths[parts[0]] if parts else layers + 2
        assert factor == 0.5 ** (layers + 2 - depth), variable.path
    assert min(found) == 0.5 ** (layers + 2)
    assert max(f for f in found if f < 1) == 0.25


def test_a_generators_head_has_gelu_whatever_its_blocks_have(tmp_path):
    checkpoint = load_checkpoint(GOLDEN.saved / GENERATOR)
    assert checkpoint.config.hidden_act == "relu"
    assert checkpoint.config.masked_lm_act == "gelu_erf"
    other = dataclasses.replace(checkpoint.config, masked_lm_act="")
    other = dataclasses.replace(checkpoint, config=other)
    line = error_of(save_checkpoint, tmp_path / "m", other, "hugging_face")
    assert "hugging_face" in line
    assert "head of relu" in line
    line = error_of(save_checkpoint, tmp_path / "m", checkpoint, "google_tf1")
    assert "google_tf1" in line
    assert "head of gelu_erf" in line


def test_initial_weights_are_drawn_as_by_googles_code():
    keras.utils.set_random_seed(1)
    config = electra(embedding_size=60, hidden_size=80)
    encoder = ElectraEncoder(config)
    head = ReplacedTokensHead(config)
    head.build(None)
    # Glorot and Bengio 2010: uniform within these.
    for layer, rows in (
        (encoder.embeddings.project_to_hidden, 60),
        (head.score, 80),
    ):
        bound = math.sqrt(6 / (rows + layer.kernel.shape[1]))
        kernel = np.abs(layer.kernel)
        assert 0.9 * bound < kernel.max() <= bound
        np.testing.assert_allclose(kernel.mean(), bound / 2, rtol=0.2)
    # All else within two standard deviations of 0.02.
    arrays = encoder.to_arrays()
    del arrays["bert/embeddings_project/kernel"]
    kernels = [a for a in arrays.values() if a.ndim == 2]
    for kernel in (*kernels, np.asarray(head.transform.kernel)):
        assert 0.03 < np.abs(kernel).max() <= 0.04


def test_initial_kernels_of_a_modern_bert_are_smaller_where_they_are_added():
    config = CASES["modernbert"].config(hidden_size=64, num_hidden_layers=8)
    arrays = encoder_class(config)(config).to_arrays()
    kernels = {name: a for name, a in arrays.items() if a.ndim == 2}
    added = [name for name in kernels if "/output/dense/" in name]
    assert len(added) == 2 * 8
    for name, kernel in kernels.items():
        deviation = 0.02 / (4 if name in added else 1)
        # Truncated at two standard deviations.
        assert 1.5 * deviation < np.abs(kernel).max() <= 2 * deviation, name


@pytest.mark.parametrize(
    ("pooled_only", "unpadded"), [(False, False), (True, True)]
)
def test_the_pooled_token_is_dropped_before_its_dense_layer(
    pooled_only, unpadded
):
    rates = {"hidden_dropout_prob": 0.5, "attention_probs_dropout_prob": 0.0}
    encoder = fill(ElectraEncoder(electra(**rates)))
    encoder.embeddings.dropout.rate = 0.0
    for block in encoder.blocks:
        block.attention_dropout.rate = block.output_dropout.rate = 0.0
    kernel, bias = encoder.pooler.weights
    kernel.assign(np.eye(8))
    bias.assign(np.zeros(8))

    def pooled(training):
        outputs = encoder(
            batch(),
            training=training,
            pooled_only=pooled_only,
            unpadded=unpadded,
        )
        return np.asarray(outputs["pooled_output"])

    outputs = encoder(batch(), unpadded=unpadded)
    first = np.asarray(outputs["sequence_output"])[:, 0]

    def gelu(values):
        return np.asarray(keras.ops.gelu(values, approximate=False))

    np.testing.assert_allclose(pooled(False), gelu(first), **CLOSE)
    trained = pooled(True)
    kept = trained != 0
    assert 0 < kept.sum() < kept.size
    np.testing.assert_allclose(trained[kept], gelu(2 * first)[kept], **CLOSE)


def test_a_task_begins_with_a_discriminator(capsys):
    """Its head is left out, and a message names what is initialized."""
    folder = GOLDEN.saved / DISCRIMINATOR
    model = bert_tf.bert_classifier(ElectraEncoder(electra()), 2)
    drawn = bert_tf.restore(model, folder)
    assert drawn == ("pooler", CLASSIFIER)
    assert "has no classifier" in capsys.readouterr().err
    ours, theirs = model_arrays(model), load_checkpoint(folder).arrays
    for name in theirs:
        if name in ours:
            np.testing.assert_array_equal(ours[name], theirs[name])
