"""Every public layer and model through everything that Keras promises.

A new layer or model gets one line in `CASES`; the last tests fail until it
has one. The weights hold distinct values, so that a pair exchanged on the way
through a file is seen.
"""

import dataclasses
import functools
import inspect
import json
from collections.abc import Callable

import keras
import numpy as np
import pytest
import tensorflow as tf
from model_helpers import OF_BERT, fill, numpy, pretraining_batch, small_config

import bert_tf
from bert_tf import layers
from bert_tf.compat import sum_over_replicas
from bert_tf.encoders import BertEncoder, encoder_class
from bert_tf.models import (
    bert_classifier,
    bert_multiple_choice,
    bert_span_labeler,
    bert_token_classifier,
    replaced_token_detector,
)
from bert_tf.pretraining.electra import ElectraPretrainer
from bert_tf.pretraining.objective import OBJECTIVES
from bert_tf.pretraining.pretrainer import BertPretrainer
from bert_tf.text.token_table import SPECIAL_TOKENS
from bert_tf.training.step import TrainingStep
from tests.contracts.architecture_cases import CASES as ARCHITECTURE_CASES
from tests.contracts.made_up_architecture import add_to_package

# A layer each, but "BertEncoder", whose two must not be exchanged.
CONFIG = small_config(num_hidden_layers=1)
ELECTRA = bert_tf.ElectraConfig(**{**vars(CONFIG), "embedding_size": 10})
# Sizes of `small_config` that every architecture has.
ENCODER_SIZES = {
    name: getattr(CONFIG, name)
    for name in (
        *("vocab_size", "hidden_size", "num_attention_heads"),
        *("intermediate_size", "max_position_embeddings"),
        *("hidden_dropout_prob", "attention_probs_dropout_prob"),
    )
}
# Their layers are of two kinds, or share weights.
SEVERAL_LAYERS = ("albert", "modernbert", "mosaic")
ON_TOP = small_config(causal=True, bilstm=True, num_hidden_layers=1)
RANDOM = np.random.default_rng(8)
BATCH = pretraining_batch(CONFIG, rows=4, length=6)
ENCODER_INPUTS = {
    k: BATCH[k] for k in ("input_ids", "input_mask", "segment_ids")
}
HIDDEN = {"hidden": RANDOM.normal(size=(4, 6, 24)).astype("float32")}
ATTENTION_BIAS = {
    "attention_bias": 1e4
    * (BATCH["input_mask"][:, None, None] - 1).astype("float32")
}
TABLE = RANDOM.normal(size=(1, 41, 24)).astype("float32")
WORDS = {"words": np.repeat(TABLE, 4, axis=0)}
POSITIONS = {"masked_lm_positions": BATCH["masked_lm_positions"]}
PREDICTED = {
    name: BATCH[name] for name in ("masked_lm_ids", "masked_lm_weights")
}


@pytest.fixture(autouse=True)
def made_up_too(monkeypatch) -> None:
    add_to_package(monkeypatch)


def encoder_of(config: bert_tf.BertConfig, **arguments) -> BertEncoder:
    return encoder_class(config)(config, **arguments)


def electra_pretrainer(**arguments) -> ElectraPretrainer:
    return ElectraPretrainer(
        ELECTRA, generator=ELECTRA.generator(0.5), **arguments
    )


def filled(model: keras.Model, seed: int) -> keras.Model:
    """The model with distinct weights, which draws the same everywhere."""
    fill(model, seed, scale=0.2)
    if isinstance(model, ElectraPretrainer):
        bias = 40.0 * (np.arange(ELECTRA.vocab_size) == 7)
        model.masked_lm.output_bias.assign(bias.astype("float32"))
    return model


def around(
    layer: keras.layers.Layer, arrays: dict[str, np.ndarray]
) -> keras.Model:
    """A functional model that passes its inputs to a layer, in order."""
    inputs = {
        name: keras.Input(value.shape[1:], dtype=value.dtype.name, name=name)
        for name, value in arrays.items()
    }
    return keras.Model(inputs, layer(*inputs.values()))


Case = tuple[Callable[[str], keras.Model], dict]


def layer_case(
    kind: type, arrays: dict, *arguments, config=CONFIG, wrapper=None
) -> Case:
    """A case of a layer that is called with the arrays in their order."""

    def make(policy: str) -> keras.Model:
        layer = kind(config, *arguments, dtype=policy)
        if wrapper is not None:
            layer = wrapper(layer, dtype=policy)
        return around(layer, arrays)

    return make, arrays


def model_case(
    make: Callable = lambda encoder: encoder,
    inputs: dict = ENCODER_INPUTS,
    config: bert_tf.BertConfig = CONFIG,
    **arguments,
) -> Case:
    """A case of an encoder or what a function makes of it."""
    return (
        lambda policy: make(encoder_of(config, dtype=policy), **arguments),
        inputs,
    )


def with_changes(**changes) -> bert_tf.BertConfig:
    return dataclasses.replace(CONFIG, **changes)


def text_classifier(encoder: BertEncoder) -> bert_tf.TextClassifier:
    tokenizer = bert_tf.BertTokenizer([*SPECIAL_TOKENS, *"abc"])
    labels = ("bad", "fair", "good")
    return bert_tf.TextClassifier(
        encoder, tokenizer, labels, max_seq_length=6, dropout=0.0
    )


# Public name, and maybe what is special -> a function from dtype policy to a
# model, and its inputs.
CASES: dict[str, Case] = {
    "BiLSTM": layer_case(
        layers.BiLSTM,
        HIDDEN | {"input_mask": BATCH["input_mask"]},
        config=ON_TOP,
    ),
    "Dense": layer_case(layers.Dense, HIDDEN, 7, "gelu"),
    "Embeddings": layer_case(
        layers.Embeddings, {k: BATCH[k] for k in ("input_ids", "segment_ids")}
    ),
    "FactorizedEmbeddings": layer_case(
        layers.FactorizedEmbeddings,
        {k: BATCH[k] for k in ("input_ids", "segment_ids")},
        config=ELECTRA,
    ),
    "GlorotDense": layer_case(layers.GlorotDense, HIDDEN, 7),
    "LayerNorm": layer_case(layers.LayerNorm, HIDDEN),
    "MaskedLMHead": layer_case(
        layers.MaskedLMHead,
        HIDDEN | POSITIONS | WORDS,
        wrapper=lambda head, dtype: TableFromBatch(head, dtype),
    ),
    "NextSentenceHead": layer_case(
        layers.NextSentenceHead, {"pooled": HIDDEN["hidden"][:, 0]}
    ),
    "Pooler": layer_case(layers.Pooler, HIDDEN),
    "ReplacedTokensHead": layer_case(
        layers.ReplacedTokensHead, HIDDEN, config=ELECTRA
    ),
    "RotaryAttention": layer_case(
        layers.RotaryAttention, HIDDEN | ATTENTION_BIAS, 1e4, 2
    ),
    "SelfAttention": layer_case(layers.SelfAttention, HIDDEN | ATTENTION_BIAS),
    "TransformerBlock": layer_case(
        layers.TransformerBlock, HIDDEN | ATTENTION_BIAS
    ),
    "BertEncoder": model_case(config=small_config()),
    "BertEncoder, of narrow heads": model_case(
        config=with_changes(num_attention_heads=2, attention_head_size=7)
    ),
    "BertEncoder, with LoRA": model_case(
        config=with_changes(lora_rank=3, lora_alpha=3.0, lora_on="all_dense")
    ),
    **{
        f"BertEncoder, of {case.name}": (
            lambda policy, case=case: encoder_of(
                case.config(
                    **ENCODER_SIZES,
                    num_hidden_layers=1 + (case.name in SEVERAL_LAYERS),
                ),
                dtype=policy,
            ),
            ENCODER_INPUTS,
        )
        for case in ARCHITECTURE_CASES.values()
        if case.name != "bert"
    },
    # A model that each of the objectives trains.
    **{
        "BertPretrainer"
        if name == "masked_lm_next_sentence"
        else type(objective).__name__: (
            lambda policy, objective=objective: BertPretrainer(
                with_changes(causal=objective.reads_next_tokens),
                dtype=policy,
                objective=objective,
            ),
            ENCODER_INPUTS | POSITIONS,
        )
        for name, objective in OBJECTIVES.items()
        if name in OF_BERT
    },
    "ElectraPretrainer": (
        lambda policy: electra_pretrainer(dtype=policy),
        ENCODER_INPUTS | POSITIONS | PREDICTED,
    ),
    "bert_classifier": model_case(bert_classifier, num_classes=3, dropout=0.0),
    "bert_token_classifier": model_case(
        bert_token_classifier, num_classes=3, dropout=0.0
    ),
    "bert_token_classifier, on a BiLSTM": model_case(
        bert_token_classifier, config=ON_TOP, num_classes=3, dropout=0.0
    ),
    "bert_span_labeler": model_case(bert_span_labeler),
    "replaced_token_detector": model_case(
        replaced_token_detector, config=ELECTRA
    ),
    "TextClassifier": model_case(text_classifier),
    "bert_multiple_choice": model_case(
        bert_multiple_choice,
        {k: v.reshape(2, 2, 6) for k, v in ENCODER_INPUTS.items()},
        dropout=0.0,
    ),
}


@keras.saving.register_keras_serializable(package="tests")
class TableFromBatch(keras.layers.Layer):
    """Gives a masked-LM head the word table as an input with a batch axis."""

    def __init__(self, head, dtype=None, name=None, trainable=True):
        super().__init__(dtype=dtype, name=name, trainable=trainable)
        self.head = head

    def build(self, *_):
        if not self.head.built:
            self.head.build(None)

    def call(self, hidden, positions, words):
        return self.head(hidden, positions, words[0])

    def get_config(self):
        head = keras.saving.serialize_keras_object(self.head)
        return {**super().get_config(), "head": head}

    @classmethod
    def from_config(cls, config):
        head = keras.saving.deserialize_keras_object(config["head"])
        return super().from_config({**config, "head": head})


def made(name: str, policy: str = "float32") -> keras.Model:
    return filled(CASES[name][0](policy), seed=1)


def outputs_of(model: Callable, name: str) -> list[np.ndarray]:
    return [numpy(t) for t in keras.tree.flatten(model(CASES[name][1]))]


def assert_equal(ours: list, expected: list, atol: float = 1e-6) -> None:
    for left, right in zip(ours, expected, strict=True):
        assert np.abs(right).max() > 1e-3
        np.testing.assert_allclose(left, right, atol=atol)


@functools.cache
def shared(name: str, policy: str = "float32") -> keras.Model:
    """What `made` gives, for tests that do not change it."""
    return made(name, policy)


@functools.cache
def exact(name: str) -> list[np.ndarray]:
    """What `made(name)` gives."""
    return outputs_of(shared(name), name)


every_case = pytest.mark.parametrize("name", CASES)
# Others compute what these do, or a part of it.
COMPUTED = CASES.keys() - {
    *("BertEncoder, of xlm-roberta", "MaskedLanguageModeling"),
    "SentenceOrderPrediction",
}
every_computation = pytest.mark.parametrize("name", sorted(COMPUTED))
# Layers are in models where these are exported or stored in 16 bits.
MODELS = [n for n in sorted(COMPUTED) if n.split(",")[0] not in layers.__all__]


@every_case
def test_keras_files(name, tmp_path) -> None:
    model = shared(name)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    names = [[w.path for w in m.weights] for m in (loaded, model)]
    ours, expected = ([n.split("/")[-2:] for n in each] for each in names)
    assert ours == expected
    assert_equal(outputs_of(loaded, name), exact(name), 0.0)
    assert json.dumps(loaded.get_config()) == json.dumps(model.get_config())
    # A file of weights alone.
    model.save_weights(tmp_path / "model.weights.h5")
    filled(loaded, seed=2)
    loaded.load_weights(tmp_path / "model.weights.h5")
    for left, right in zip(loaded.weights, model.weights, strict=True):
        np.testing.assert_array_equal(numpy(left), numpy(right))


# Those that differ in what a graph has to hold: layers that share weights or
# are of two kinds, rotations, a loop, draws, text, and inputs of three axes.
# Graphs of all others are computed below.
EXPORTED = (
    *("BertEncoder, with LoRA", "BertEncoder, of albert"),
    *("BertEncoder, of modernbert", "ElectraPretrainer", "TextClassifier"),
    *("bert_token_classifier, on a BiLSTM", "bert_multiple_choice"),
)


@pytest.mark.parametrize("name", EXPORTED)
def test_saved_model(name, tmp_path) -> None:
    model = shared(name)
    signature = {
        key: keras.InputSpec(shape=(None, *v.shape[1:]), dtype=v.dtype.name)
        for key, v in CASES[name][1].items()
    }
    model.export(
        tmp_path / "export", verbose=False, input_signature=[signature]
    )
    loaded = tf.saved_model.load(str(tmp_path / "export"))
    assert_equal(outputs_of(loaded.serve, name), exact(name), 1e-5)


# Policies, and the largest relative error of an output.
PRECISIONS = {"mixed_bfloat16": 0.05, "bfloat16": 0.1, "float16": 0.01}


@every_computation
def test_precisions(name) -> None:
    for policy, limit in PRECISIONS.items():
        model = shared(name, policy)
        stored = "float32" if policy.startswith("mixed_") else policy
        # What a task adds to the encoder computes in float32.
        heads = [w for w in model.weights if w.dtype != stored]
        assert {w.dtype for w in heads} <= {"float32"}
        has_head = name.startswith(("bert_", "TextClassifier"))
        expected = 2 if has_head and stored == policy else 0
        assert len(heads) == expected
        for left, right in zip(
            outputs_of(model, name), exact(name), strict=True
        ):
            error = np.abs(left - right).max() / np.abs(right).max()
            # Which tokens were replaced is no computed number.
            whole = (right == np.round(right)).all()
            assert (error == 0) if whole else (0 < error < limit)


@pytest.mark.parametrize("name", MODELS)
def test_weights_of_16_bits_in_files_and_graphs(name, tmp_path) -> None:
    model = shared(name, "bfloat16")
    outputs = outputs_of(model, name)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert [w.dtype for w in loaded.weights] == [w.dtype for w in model.weights]
    assert_equal(outputs_of(loaded, name), outputs, 0.0)
    scale = max(np.abs(x).max() for x in outputs)
    assert_equal(outputs_of(tf.function(model), name), outputs, 0.02 * scale)


def summed(model: keras.Model, inputs: dict) -> tf.Tensor:
    outputs = keras.tree.flatten(model(inputs, training=True))
    parts = [tf.square(tf.cast(output, "float32")) for output in outputs]
    return tf.add_n([tf.reduce_sum(part) for part in parts])


def gradients_of(model: keras.Model, inputs: dict) -> list[tf.Tensor]:
    """Those of a sum over the batch."""
    variables = [w.value for w in model.trainable_weights]
    with tf.GradientTape() as tape:
        total = summed(model, inputs)
    found = tape.gradient(total, variables, unconnected_gradients="zero")
    return [tf.convert_to_tensor(gradient) for gradient in found]


# Other models are trained on replicas below (by their objectives) and in
# contracts/test_architectures.py (classifiers).
REPLICATED = (
    *("BertEncoder, with LoRA", "bert_token_classifier, on a BiLSTM"),
    *("bert_span_labeler", "bert_multiple_choice"),
)


@pytest.mark.parametrize("name", REPLICATED)
def test_two_replicas_are_one(name) -> None:
    """Half of the batch each, in a graph, against the whole batch, eagerly."""
    one = gradients_of(made(name), CASES[name][1])
    # Not collective operations: their instance keys clash when one process
    # makes several strategies over the same devices.
    strategy = tf.distribute.MirroredStrategy(
        ["/cpu:0", "/cpu:1"], tf.distribute.ReductionToOneDevice()
    )
    with strategy.scope():
        model = made(name)

    def half(value: np.ndarray):
        parts = np.split(value, 2)
        return strategy.experimental_distribute_values_from_function(
            lambda c: tf.constant(parts[c.replica_id_in_sync_group])
        )

    def replica(inputs):
        return sum_over_replicas(gradients_of(model, inputs))

    inputs = {k: half(v) for k, v in CASES[name][1].items()}
    two = tf.function(lambda: strategy.run(replica, (inputs,)))()
    for left, right in zip(two, one, strict=True):
        left = strategy.experimental_local_results(left)[0]
        scale = max(1.0, np.abs(right).max())
        np.testing.assert_allclose(left / scale, right / scale, atol=1e-5)


def public_names() -> set[str]:
    """Public layer classes, model classes and functions that make models."""
    names = {n for n in layers.__all__ if inspect.isclass(getattr(layers, n))}
    for name in bert_tf.__all__:
        value = getattr(bert_tf, name)
        if inspect.isclass(value) and issubclass(value, keras.layers.Layer):
            # Those of all architectures are cases of one.
            encoder = issubclass(value, BertEncoder)
            names.add("BertEncoder" if encoder else name)
        elif inspect.isfunction(value):
            if inspect.signature(value).return_annotation is keras.Model:
                names.add(name)
    return names


def test_every_public_layer_model_and_objective_has_a_case() -> None:
    objectives = {type(objective).__name__ for objective in OBJECTIVES.values()}
    # The defaults of pretrainers.
    objectives -= {"PretrainingObjective", "ReplacedTokenDetection"}
    cases = {name.partition(",")[0] for name in CASES}
    assert public_names() | objectives == cases


def trained(name: str, replicas: int, slices: int) -> tuple[list, float]:
    """The weights after a step on an objective, and its loss."""
    objective = OBJECTIVES[name]
    strategy = tf.distribute.get_strategy()
    if replicas > 1:
        strategy = tf.distribute.MirroredStrategy(
            [f"/cpu:{number}" for number in range(replicas)],
            tf.distribute.ReductionToOneDevice(),
        )
    with strategy.scope():
        if objective.detects_replaced_tokens:
            model = electra_pretrainer(objective=objective)
        else:
            config = with_changes(causal=objective.reads_next_tokens)
            model = BertPretrainer(config, objective=objective)
        step = TrainingStep(
            filled(model, 0),
            objective,
            keras.optimizers.SGD(1.0),
            strategy,
            accumulation=slices,
            frozen=model.non_trainable_weights,
        )
    batches = tf.data.Dataset.from_tensors(BATCH).unbatch()
    batches = batches.batch(4, drop_remainder=True)
    (batch,) = strategy.experimental_distribute_dataset(batches)
    result = step(batch)
    losses = [float(loss) for loss in result.losses.values()]
    return [numpy(w) for w in model.weights], sum(losses)


# Eagerly run, tf.data's functions stay graphs, of which TensorFlow warns.
@pytest.mark.filterwarnings("ignore:Even though")
@pytest.mark.parametrize("name", OBJECTIVES)
def test_an_objective_over_replicas_and_slices_is_that_of_the_batch(
    name,
) -> None:
    """Of two slices on each of two replicas, in a graph."""
    tf.config.run_functions_eagerly(True)
    try:
        weights, loss = trained(name, 1, 1)
    finally:
        tf.config.run_functions_eagerly(False)
    others, other_loss = trained(name, 2, 2)
    np.testing.assert_allclose(other_loss, loss, rtol=1e-5)
    for left, right in zip(others, weights, strict=True):
        np.testing.assert_allclose(left, right, atol=1e-5)


def test_every_layer_class_is_public() -> None:
    written = set()
    for module in vars(layers).values():
        if inspect.ismodule(module):
            written |= {
                name
                for name, value in vars(module).items()
                if inspect.isclass(value)
                and issubclass(value, keras.layers.Layer)
                and value.__module__ == module.__name__
            }
    # The base of the layers, and a part of them that is no layer of BERT's.
    assert written - {"ConfiguredLayer", "Dropout"} == {
        name
        for name in layers.__all__
        if inspect.isclass(getattr(layers, name))
    }
