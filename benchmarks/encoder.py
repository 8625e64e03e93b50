"""Speed of the encoder on this machine, against KerasHub and transformers.

    python -m benchmarks.encoder --peer_python=.venv-peers/bin/python

All encoders hold the same weights. Each round times every candidate once,
in turn, so that a slow minute of the machine falls on all of them; the
figures are medians over the rounds, and the share is that of the speed at which
products of such sizes run in the same turns. A training step is forward, a
scalar loss, gradients, and the optimizer's update, which on our side is
compiled by XLA on its own; pre-training adds both heads, of 20 masked
positions a sequence. Dropout is 0.1 in training, as in the paper. In bfloat16
weights are held so for inference; training keeps them in float32.
--batch=1 gives the latency of a single row. The last line compares steps of
the training loop: one in a call, and all of a round in one, as TPUs get them.
"""

import functools
import os
import pathlib
import statistics
import tempfile
from collections.abc import Callable, Iterator

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# As the commands have it.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")

import keras
import keras_hub
import numpy as np
import tensorflow as tf
from absl import app, flags

from benchmarks import comparison
from benchmarks.steps import inference, products, training
from bert_tf.checkpoints import Checkpoint, hugging_face
from bert_tf.config import BertConfig
from bert_tf.encoders import BertEncoder
from bert_tf.pretraining.pretrainer import BertPretrainer
from bert_tf.pretraining.recipe import PretrainingRecipe
from bert_tf.training.setup import make_step
from bert_tf.training.step import Batch, TrainingStep, read_results

_SIZE = flags.DEFINE_string("size", "base", "Size of the encoder.")
_BATCH = flags.DEFINE_integer("batch", 8, "Sequences a batch.")
_LENGTH = flags.DEFINE_integer("length", 128, "Tokens a sequence.")
_ROUNDS = flags.DEFINE_integer("rounds", 5, "Rounds, of which the median.")
_STEPS = flags.DEFINE_integer("steps", 3, "Steps timed in each round.")
_PEER_PYTHON = flags.DEFINE_string(
    "peer_python", None, "Python of the peers' environment; none without it."
)
_DTYPES = flags.DEFINE_list("dtypes", ["float32", "bfloat16"], "Of products.")

VOCAB = 30522
MASKED = 20
PEER = pathlib.Path(__file__).with_name("encoder_transformers.py")


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


def encoder_loss(model: keras.Model, inputs: dict) -> tf.Tensor:
    outputs = model(inputs, training=True)
    parts = outputs["sequence_output"], outputs["pooled_output"]
    return tf.add_n(
        [tf.reduce_mean(tf.square(tf.cast(o, tf.float32))) for o in parts]
    )


def pretraining_loss(model: BertPretrainer, inputs: dict) -> tf.Tensor:
    return model.compute_loss(inputs, y_pred=model(inputs, training=True))


def candidates(
    pretrainer: BertPretrainer, dtype: str, batch: dict[str, tf.Tensor]
) -> dict[str, dict[str, Callable]]:
    """What is timed of each kind of step, in this process."""
    config = pretrainer.config
    # Weights in half the size for inference; the trained ones in float32.
    encoder = BertEncoder(config, dtype=dtype)
    encoder.load_arrays(pretrainer.encoder.to_arrays())
    mixed = dtype if dtype == "float32" else f"mixed_{dtype}"
    hubs = [hub_backbone(config, name) for name in (dtype, mixed)]
    for hub in hubs:
        copy_to_hub(encoder, hub)
    hub_batch = {
        "token_ids": batch["input_ids"],
        "padding_mask": batch["input_mask"],
        "segment_ids": batch["segment_ids"],
    }
    trained = pretrainer.encoder
    return {
        "inference": {
            "bert_tf": inference(encoder, batch),
            "keras_hub": inference(hubs[0], hub_batch),
        },
        "training": {
            "bert_tf": training(trained, batch, encoder_loss),
            "keras_hub": training(hubs[1], hub_batch, encoder_loss),
        },
        "pretraining": {
            "bert_tf": training(pretrainer, batch, pretraining_loss),
        },
    }


def operations(config: BertConfig, rows: int, length: int, kind: str) -> int:
    """Floating-point operations of the products of a step."""
    hidden, inner = config.hidden_size, config.intermediate_size
    token = 2 * hidden * (4 * hidden + 2 * inner) + 4 * length * hidden
    total = config.num_hidden_layers * rows * length * token
    if kind == "pretraining":
        total += rows * MASKED * 2 * hidden * (hidden + config.vocab_size)
    return total if kind == "inference" else 3 * total


def median_seconds(
    functions: dict[str, Callable], peer: comparison.Peer | None, kind: str
) -> dict[str, float]:
    """Median seconds of a step, each round timing every function in turn."""

    def steps(function: Callable) -> None:
        for _ in range(_STEPS.value):
            result = function()
        if result is not None:
            result.numpy()

    works = {n: functools.partial(steps, f) for n, f in functions.items()}
    if peer is not None:
        works["transformers"] = lambda: peer.ask(kind)
    for work in works.values():
        work()
    times = comparison.seconds_in_turns(works, _ROUNDS.value)
    return {n: statistics.median(t) / _STEPS.value for n, t in times.items()}


def random_batch(rows: int, length: int) -> dict[str, np.ndarray]:
    """Tokens of rows that are filled by half at least, with labels."""
    random = np.random.default_rng(0)
    lengths = random.integers(length // 2, length + 1, rows)
    places = [random.choice(length // 2, MASKED, False) for _ in range(rows)]
    batch = {
        "input_ids": random.integers(0, VOCAB, (rows, length)),
        "input_mask": np.arange(length)[None] < lengths[:, None],
        "segment_ids": random.integers(0, 2, (rows, length)),
        "masked_lm_positions": np.sort(places),
        "masked_lm_ids": random.integers(0, VOCAB, (rows, MASKED)),
        "next_sentence_labels": random.integers(0, 2, (rows, 1)),
    }
    found = {name: value.astype("int32") for name, value in batch.items()}
    return found | {"masked_lm_weights": np.ones((rows, MASKED), "float32")}


def measure(dtype: str, folder: pathlib.Path) -> None:
    """Prints a line for each kind of step."""
    size, rows, length = _SIZE.value, _BATCH.value, _LENGTH.value
    config = BertConfig.from_size(size, VOCAB)
    mixed = dtype if dtype == "float32" else f"mixed_{dtype}"
    pretrainer = BertPretrainer(config, dtype=mixed)
    arrays = random_batch(rows, length)
    batch = {name: tf.constant(value) for name, value in arrays.items()}
    kinds = candidates(pretrainer, dtype, batch)
    product, product_operations = products(config, rows * length, dtype)
    peer = None
    if _PEER_PYTHON.value:
        checkpoint = Checkpoint(
            config=config, arrays=pretrainer.to_arrays(), source="benchmark"
        )
        hugging_face.write(folder, checkpoint)
        np.savez(folder / "batch.npz", **arrays)
        peer = comparison.Peer(
            _PEER_PYTHON.value, str(PEER), str(folder), str(_STEPS.value), dtype
        )
        print("peer:", peer.said)
    for kind, functions in kinds.items():
        differences = []
        if kind == "inference":
            ours = functions["bert_tf"]()
            others = {"keras_hub": functions["keras_hub"]().numpy()}
            if peer is not None:
                peer.ask(kind)
                others["transformers"] = np.load(folder / "transformers.npy")
            real = arrays["input_mask"].astype(bool)
            for name, other in others.items():
                apart = ours.numpy().astype("f4") - other.astype("f4")
                differences.append(f"{name} {np.abs(apart[real]).max():.1e}")
        timed = {**functions, "products": product}
        seconds = median_seconds(timed, peer, kind)
        speed = product_operations / seconds.pop("products")
        share = operations(config, rows, length, kind) / seconds["bert_tf"]
        print(
            f"{size} {rows}x{length} {dtype} {kind}: "
            + ", ".join(
                f"{name} {rows / each:.2f} seq/s ({1e3 * each:.1f} ms)"
                for name, each in seconds.items()
            )
            + "; bert_tf over "
            + ", ".join(
                f"{name} {each / seconds['bert_tf']:.2f}"
                for name, each in seconds.items()
                if name != "bert_tf"
            )
            + f"; {share / speed:.0%} of products' {speed / 1e9:.0f} GFLOP/s"
            + ("; largest differences: " if differences else "")
            + ", ".join(differences),
            flush=True,
        )
    if peer is not None:
        peer.close()


def take_steps(
    step: TrainingStep,
    batches: Iterator[Batch],
    in_one_call: bool,
    losses: list[np.ndarray],
) -> None:
    """A round of optimizer steps, whose losses are added to those before."""
    count = _STEPS.value
    if in_one_call:
        results = step.several(batches, count)
    else:
        results = read_results([step(next(batches)) for _ in range(count)])
    losses += [np.stack(list(result.losses.values())) for result in results]


def measure_calls(dtype: str) -> None:
    """Prints a line on several optimizer steps in a call."""
    size, rows, length = _SIZE.value, _BATCH.value, _LENGTH.value
    config = BertConfig.from_size(size, VOCAB)
    precision = dtype if dtype == "float32" else f"mixed_{dtype}"
    batch = random_batch(rows, length)
    data = tf.data.Dataset.from_tensors(batch).repeat()
    strategy = tf.distribute.get_strategy()
    losses: dict[bool, list[np.ndarray]] = {False: [], True: []}
    works = {}
    for in_one_call, found in losses.items():
        keras.utils.set_random_seed(1)
        model = BertPretrainer(config, dtype=precision)
        recipe = PretrainingRecipe(precision=precision)
        step = make_step(recipe, model, model.objective, strategy, 10_000)
        step.expect(data.element_spec)
        works[in_one_call] = functools.partial(
            take_steps, step, iter(data), in_one_call, found
        )
        works[in_one_call]()
    seconds = comparison.seconds_in_turns(works, _ROUNDS.value)
    one, several = (
        rows * _STEPS.value / statistics.median(seconds[key]) for key in works
    )
    ratios = [
        alone / together
        for alone, together in zip(seconds[False], seconds[True], strict=True)
    ]
    apart = np.abs(np.subtract(losses[False], losses[True])).max()
    print(
        f"{size} {rows}x{length} {dtype} optimizer steps: one a call "
        f"{one:.2f} seq/s, {_STEPS.value} a call {several:.2f}; ratio "
        f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to "
        f"{max(ratios):.2f}); losses of {len(losses[True])} steps "
        + (f"differ by {apart:.1e}" if apart else "are equal to the bit"),
        flush=True,
    )


def main(_: list[str]) -> None:
    comparison.show_machine(
        "benchmarks.encoder", "tensorflow", "keras", "keras_hub"
    )
    for dtype in _DTYPES.value:
        with tempfile.TemporaryDirectory() as temporary:
            measure(dtype, pathlib.Path(temporary))
        measure_calls(dtype)


if __name__ == "__main__":
    app.run(main)
