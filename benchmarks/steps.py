"""Steps of models that the benchmarks time; a section of the table of a CPU."""

import functools
import pathlib
import statistics
import tempfile
import time
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from benchmarks.comparison import (
    REFERENCE,
    Section,
    Settings,
    start_peer,
    threads,
)
from bert_tf.checkpoints import Checkpoint, hugging_face
from bert_tf.config import BertConfig
from bert_tf.optimization import AdamW
from bert_tf.pretraining.pretrainer import BertPretrainer
from bert_tf.pretraining.recipe import PretrainingRecipe
from bert_tf.training.setup import make_step
from bert_tf.training.step import read_results

VOCAB = 30522
_ROWS, _LENGTH, _MASKED = 8, 128, 20
_PEER = pathlib.Path(__file__).with_name("steps_transformers.py")


def inference(model: keras.Model, inputs: dict) -> Callable:
    @tf.function
    def step():
        return model(inputs, training=False)["sequence_output"]

    return step


def training(model: keras.Model, inputs: dict, loss: Callable) -> Callable:
    variables = model.trainable_variables
    optimizer = AdamW(1e-5)
    optimizer.build(variables)

    @tf.function
    def gradients():
        with tf.GradientTape() as tape:
            scalar = loss(model, inputs)
        return tape.gradient(scalar, variables)

    @tf.function(jit_compile=True)
    def update(grads):
        optimizer.apply(grads, variables)

    return lambda: update([tf.convert_to_tensor(g) for g in gradients()])


def products(config: BertConfig, rows: int, dtype: str) -> tuple[Callable, int]:
    """The four products of a block of so many rows, and their operations."""
    hidden, inner = config.hidden_size, config.intermediate_size
    shapes = (hidden, 3 * hidden), (hidden, hidden), (hidden, inner)
    shapes = (*shapes, (inner, hidden))
    pairs = [
        (
            tf.cast(tf.random.normal((rows, inputs)), dtype),
            tf.Variable(tf.cast(tf.random.normal((inputs, units)), dtype)),
        )
        for inputs, units in shapes
    ]

    @tf.function
    def step():
        # All are read, so that none is left out.
        corners = [tf.matmul(left, right)[0, 0] for left, right in pairs]
        return tf.add_n(corners)

    # A concrete function, since TensorFlow warns of many traces.
    once = step.get_concrete_function()
    return once, sum(2 * rows * inputs * units for inputs, units in shapes)


def _repeated(product: Callable, steps: int) -> Callable[[], float]:
    """A round of products, which returns the seconds of each."""

    def work() -> float:
        begun = time.perf_counter()
        for _ in range(steps):
            product().numpy()
        return (time.perf_counter() - begun) / steps

    return work


def measured_with_products(
    section: Section, rounds: int, config: BertConfig, tokens: int
) -> dict:
    """The table in milliseconds; the speed of products in the same rounds."""
    operations = 0
    dtypes = ("float32", "bfloat16")
    for dtype in dtypes:
        product, operations = products(config, tokens, dtype)
        # A call may take less than a millisecond.
        steps = max(1, round(1e11 / operations))
        section.add(dtype, functools.partial(_repeated, product, steps))
    table = section.measured(rounds, lambda seconds: 1e3 * seconds)
    ceiling = {
        dtype: operations
        / statistics.median(table["rows"].pop(dtype)["values"])
        / 1e6
        for dtype in dtypes
    }
    table["ceiling"] = ceiling
    speeds = (f"{speed:.0f} in {dtype}" for dtype, speed in ceiling.items())
    table["notes"].append(
        f"Products of {tokens} tokens in the same rounds, GFLOP/s: "
        f"{', '.join(speeds)}."
    )
    return table


def _copy_to_hub(pretrainer: BertPretrainer, hub: keras.Model) -> None:
    """Copies the weights into KerasHub's masked LM."""
    arrays = pretrainer.to_arrays()

    def assign(layer: keras.layers.Layer, name: str, *parts: str) -> None:
        values = [arrays[f"{name}/{part}"] for part in parts]
        layer.set_weights(
            [
                value.reshape(weight.shape)
                for value, weight in zip(values, layer.weights, strict=True)
            ]
        )

    def norm(layer: keras.layers.Layer, name: str) -> None:
        assign(layer, f"{name}/LayerNorm", "gamma", "beta")

    def dense(layer: keras.layers.Layer, name: str) -> None:
        assign(layer, f"{name}/dense", "kernel", "bias")

    body, head = hub.backbone, hub.masked_lm_head
    name = "bert/embeddings"
    tables = {
        "word": body.token_embedding.embeddings,
        "position": body.position_embedding.position_embeddings,
        "token_type": body.segment_embedding.embeddings,
    }
    for kind, table in tables.items():
        table.assign(arrays[f"{name}/{kind}_embeddings"])
    norm(body.embeddings_layer_norm, name)
    for number, layer in enumerate(body.transformer_layers):
        name = f"bert/encoder/layer_{number}"
        attention = layer._self_attention_layer
        for part in ("query", "key", "value"):
            assign(
                getattr(attention, f"_{part}_dense"),
                f"{name}/attention/self/{part}",
                *("kernel", "bias"),
            )
        dense(attention._output_dense, f"{name}/attention/output")
        norm(layer._self_attention_layer_norm, f"{name}/attention/output")
        dense(layer._feedforward_intermediate_dense, f"{name}/intermediate")
        dense(layer._feedforward_output_dense, f"{name}/output")
        norm(layer._feedforward_layer_norm, f"{name}/output")
    name = "cls/predictions"
    dense(head._intermediate_dense, f"{name}/transform")
    norm(head._intermediate_layer_norm, f"{name}/transform")
    head._bias.assign(arrays[f"{name}/output_bias"])


def _random_batch() -> dict[str, np.ndarray]:
    """Tokens of rows that are filled by half at least, with labels."""
    random = np.random.default_rng(0)
    lengths = random.integers(_LENGTH // 2, _LENGTH + 1, _ROWS)
    places = [random.choice(_LENGTH // 2, _MASKED, False) for _ in lengths]
    batch = {
        "input_ids": random.integers(0, VOCAB, (_ROWS, _LENGTH)),
        "input_mask": np.arange(_LENGTH)[None] < lengths[:, None],
        "segment_ids": random.integers(0, 2, (_ROWS, _LENGTH)),
        "masked_lm_positions": np.sort(places),
        "masked_lm_ids": random.integers(0, VOCAB, (_ROWS, _MASKED)),
        "next_sentence_labels": random.integers(0, 2, _ROWS),
    }
    found = {name: value.astype("int32") for name, value in batch.items()}
    return found | {"masked_lm_weights": np.ones((_ROWS, _MASKED), "float32")}


def _our_step(pretrainer: BertPretrainer, batch: dict) -> Callable:
    """An optimizer step as tools.run_pretraining takes it."""
    data = tf.data.Dataset.from_tensors(batch).repeat()
    recipe = PretrainingRecipe(precision="mixed_bfloat16")
    strategy = tf.distribute.get_strategy()
    step = make_step(recipe, pretrainer, pretrainer.objective, strategy, 10_000)
    step.expect(data.element_spec)
    batches = iter(data)
    return lambda: read_results([step(next(batches))])


def _hub_step(pretrainer: BertPretrainer, batch: dict) -> tuple:
    """A step of KerasHub's masked LM, and its loss without dropout."""
    import keras_hub

    config = pretrainer.config
    hub = keras_hub.models.BertMaskedLM(
        keras_hub.models.BertBackbone(
            vocabulary_size=config.vocab_size,
            num_layers=config.num_hidden_layers,
            num_heads=config.num_attention_heads,
            hidden_dim=config.hidden_size,
            intermediate_dim=config.intermediate_size,
            dropout=config.hidden_dropout_prob,
            max_sequence_length=config.max_position_embeddings,
            num_segments=config.type_vocab_size,
            dtype="mixed_bfloat16",
        )
    )
    _copy_to_hub(pretrainer, hub)
    inputs = {
        "token_ids": batch["input_ids"],
        "padding_mask": batch["input_mask"],
        "segment_ids": batch["segment_ids"],
        "mask_positions": batch["masked_lm_positions"],
    }

    def loss(model: keras.Model, inputs: dict, training: bool = True):
        logits = tf.cast(model(inputs, training=training), tf.float32)
        return _masked_loss(logits, batch)

    # Its head adds bfloat16 to float32, which only graphs do.
    evaluate = tf.function(functools.partial(loss, hub, inputs, training=False))
    evaluated = float(evaluate())
    hub.backbone.pooled_dense.trainable = False
    return training(hub, inputs, loss), evaluated


def _masked_loss(logits: tf.Tensor, batch: dict) -> tf.Tensor:
    return tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(
            batch["masked_lm_ids"], logits
        )
    )


def step(settings: Settings) -> list[dict]:
    """The table of a step of pre-training."""
    config = BertConfig.from_size(settings.size, VOCAB)
    pretrainer = BertPretrainer(config, dtype="mixed_bfloat16")
    arrays = _random_batch()
    batch = {name: tf.constant(value) for name, value in arrays.items()}
    outputs = pretrainer(batch, training=False)
    masked = float(
        _masked_loss(tf.cast(outputs["masked_lm_logits"], tf.float32), batch)
    )
    whole = float(pretrainer.compute_loss(batch, y_pred=outputs))
    section = Section(
        f"step of pre-training ({settings.size}, {_ROWS} x {_LENGTH}, "
        "bfloat16)",
        "ms",
        REFERENCE,
    )
    column = "loss before, to bert_tf's"
    ours, hub = "bert_tf, Keras", "KerasHub, masked LM alone"

    def make_hub() -> Callable:
        hub_step, found = _hub_step(pretrainer, batch)
        section.cells[hub] = {column: f"{found - masked:+.1e}"}
        return hub_step

    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        checkpoint = Checkpoint(
            config=config, arrays=pretrainer.to_arrays(), source="benchmark"
        )
        hugging_face.write(folder, checkpoint)
        np.savez(folder / "batch.npz", **arrays)
        section.cells[ours] = {column: f"{whole:.4f}, masked LM {masked:.4f}"}
        # Before our steps change the weights.
        section.add(hub, make_hub)
        section.add(ours, functools.partial(_our_step, pretrainer, batch))
        peer = start_peer(settings, _PEER, folder, threads())
        if peer is None:
            section.missing[REFERENCE] = "no environment of peers"
        else:
            for name, each in zip(
                (REFERENCE, "transformers, compiled"), peer.said, strict=True
            ):
                section.cells[name] = {column: f"{each['loss'] - whole:+.1e}"}
                kind = each["kind"]
                section.add(
                    name, lambda kind=kind: lambda: peer.ask(kind)["seconds"]
                )
        table = measured_with_products(
            section, settings.rounds, config, _ROWS * _LENGTH
        )
        if peer is not None:
            peer.close()
    return [table]
