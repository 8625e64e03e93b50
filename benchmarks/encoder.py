"""Speed of the encoder on this machine, against KerasHub's BertBackbone.

    python -m benchmarks.encoder

Both encoders hold the same weights. Each round times every candidate once,
in turn, so that a slow minute of the machine falls on all of them; the
figures are medians over the rounds. A training step is forward, a scalar
loss, gradients, and the optimizer's update compiled by XLA on its own.
Dropout is 0.1 in training, as in the paper.
"""

import functools
import os
import statistics
from collections.abc import Callable

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import keras_hub
import numpy as np
import tensorflow as tf
from absl import app, flags

from benchmarks import comparison
from bert_tf.config import BertConfig
from bert_tf.encoder import BertEncoder
from bert_tf.optimization import AdamW

_SIZE = flags.DEFINE_string("size", "base", "Size of the encoder.")
_BATCH = flags.DEFINE_integer("batch", 8, "Sequences a batch.")
_LENGTH = flags.DEFINE_integer("length", 128, "Tokens a sequence.")
_ROUNDS = flags.DEFINE_integer("rounds", 5, "Rounds, of which the median.")
_STEPS = flags.DEFINE_integer("steps", 3, "Steps timed in each round.")

VOCAB = 30522


def hub_backbone(config: BertConfig, dtype: str) -> keras.Model:
    return keras_hub.models.BertBackbone(
        vocabulary_size=config.vocab_size,
        num_layers=config.num_hidden_layers,
        num_heads=config.num_attention_heads,
        hidden_dim=config.hidden_size,
        intermediate_dim=config.intermediate_size,
        dropout=config.hidden_dropout_prob,
        max_sequence_length=config.max_position_embeddings,
        num_segments=config.type_vocab_size,
        dtype=dtype,
    )


def copy_to_hub(encoder: BertEncoder, hub: keras.Model) -> None:
    """Copies the encoder's weights into KerasHub's backbone."""
    arrays = encoder.to_arrays()
    config = encoder.config
    heads = config.num_attention_heads

    def at(name: str) -> np.ndarray:
        return arrays[f"bert/{name}"]

    def norm(layer: keras.layers.Layer, name: str) -> None:
        layer.set_weights([at(f"{name}/gamma"), at(f"{name}/beta")])

    def dense(layer: keras.layers.Layer, name: str) -> None:
        pair = [at(f"{name}/kernel"), at(f"{name}/bias")]
        layer.set_weights(
            [
                value.reshape(weight.shape)
                for value, weight in zip(pair, layer.weights, strict=True)
            ]
        )

    assert config.hidden_size % heads == 0
    hub.token_embedding.embeddings.assign(at("embeddings/word_embeddings"))
    hub.position_embedding.position_embeddings.assign(
        at("embeddings/position_embeddings")
    )
    hub.segment_embedding.embeddings.assign(
        at("embeddings/token_type_embeddings")
    )
    norm(hub.embeddings_layer_norm, "embeddings/LayerNorm")
    for i, layer in enumerate(hub.transformer_layers):
        name = f"encoder/layer_{i}"
        attention = layer._self_attention_layer
        for part in ("query", "key", "value"):
            dense(
                getattr(attention, f"_{part}_dense"),
                f"{name}/attention/self/{part}",
            )
        dense(attention._output_dense, f"{name}/attention/output/dense")
        norm(
            layer._self_attention_layer_norm,
            f"{name}/attention/output/LayerNorm",
        )
        dense(
            layer._feedforward_intermediate_dense, f"{name}/intermediate/dense"
        )
        dense(layer._feedforward_output_dense, f"{name}/output/dense")
        norm(layer._feedforward_layer_norm, f"{name}/output/LayerNorm")
    dense(hub.pooled_dense, "pooler/dense")


def candidates(
    config: BertConfig, dtype: str, batch: dict[str, tf.Tensor]
) -> tuple[dict[str, Callable], dict[str, Callable], float]:
    """Inference and training functions of both, and their difference."""
    encoder = BertEncoder(config, dtype=dtype)
    hub = hub_backbone(config, dtype)
    copy_to_hub(encoder, hub)
    hub_batch = {
        "token_ids": batch["input_ids"],
        "padding_mask": batch["input_mask"],
        "segment_ids": batch["segment_ids"],
    }
    infer, train = {}, {}
    for name, model, inputs in (
        ("bert_tf", encoder, batch),
        ("keras_hub", hub, hub_batch),
    ):
        infer[name] = inference(model, inputs)
        train[name] = training(model, inputs)
    ours, theirs = infer["bert_tf"](), infer["keras_hub"]()
    real = batch["input_mask"].numpy().astype(bool)
    difference = np.abs(
        ours.numpy()[real].astype("float32")
        - theirs.numpy()[real].astype("float32")
    ).max()
    return infer, train, float(difference)


def inference(model: keras.Model, inputs: dict) -> Callable:
    @tf.function
    def step():
        return model(inputs, training=False)["sequence_output"]

    return step


def training(model: keras.Model, inputs: dict) -> Callable:
    variables = model.trainable_variables
    optimizer = AdamW(1e-5)
    optimizer.build(variables)

    @tf.function
    def gradients():
        with tf.GradientTape() as tape:
            outputs = model(inputs, training=True)
            loss = tf.add_n(
                [
                    tf.reduce_mean(tf.square(tf.cast(o, tf.float32)))
                    for o in (
                        outputs["sequence_output"],
                        outputs["pooled_output"],
                    )
                ]
            )
        return tape.gradient(loss, variables)

    @tf.function(jit_compile=True)
    def update(grads):
        optimizer.apply(grads, variables)

    return lambda: update([tf.convert_to_tensor(g) for g in gradients()])


def median_seconds(functions: dict[str, Callable]) -> dict[str, float]:
    """Median seconds of a step, each round timing every function in turn."""

    def steps(function: Callable) -> None:
        for _ in range(_STEPS.value):
            result = function()
        if result is not None:
            result.numpy()

    for function in functions.values():
        function()
        function()
    times = comparison.seconds_in_turns(
        {n: functools.partial(steps, f) for n, f in functions.items()},
        _ROUNDS.value,
    )
    return {n: statistics.median(t) / _STEPS.value for n, t in times.items()}


def main(_: list[str]) -> None:
    size, rows, length = _SIZE.value, _BATCH.value, _LENGTH.value
    config = BertConfig.from_size(size, VOCAB)
    packages = ("tensorflow", "keras", "keras_hub")
    comparison.show_machine("benchmarks.encoder", *packages)
    random = np.random.default_rng(0)
    lengths = random.integers(length // 2, length + 1, rows)
    batch = {
        "input_ids": random.integers(0, VOCAB, (rows, length)),
        "input_mask": np.arange(length)[None] < lengths[:, None],
        "segment_ids": random.integers(0, 2, (rows, length)),
    }
    batch = {k: tf.constant(v.astype("int32")) for k, v in batch.items()}
    for dtype in ("float32", "mixed_bfloat16"):
        infer, train, difference = candidates(config, dtype, batch)
        for kind, functions in (("inference", infer), ("training", train)):
            seconds = median_seconds(functions)
            rates = {name: rows / s for name, s in seconds.items()}
            print(
                f"{size} {rows}x{length} {dtype} {kind}: "
                + ", ".join(f"{n} {r:.1f} seq/s" for n, r in rates.items())
                + f", ratio {rates['bert_tf'] / rates['keras_hub']:.2f}"
                + f", max |difference| {difference:.1e}",
                flush=True,
            )


if __name__ == "__main__":
    app.run(main)
