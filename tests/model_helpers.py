"""Small models with distinct weights, and batches for them."""

import pathlib

import keras
import numpy as np

from bert_tf.config import BertConfig
from bert_tf.pretraining.objective import OBJECTIVES

# Those of a BertPretrainer.
OF_BERT = [
    name
    for name, objective in OBJECTIVES.items()
    if not objective.detects_replaced_tokens
]


def small_config(**changes) -> BertConfig:
    """Two layers of width 24 with three heads, without dropout."""
    values = {
        "vocab_size": 41,
        "hidden_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 3,
        "intermediate_size": 40,
        "max_position_embeddings": 20,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        **changes,
    }
    return BertConfig(**values)


def fill(model: keras.layers.Layer, seed: int = 0, scale: float = 0.3):
    """Gives every weight distinct random values, and returns the model."""
    random = np.random.default_rng(seed)
    for weight in model.weights:
        values = random.normal(0.0, scale, weight.shape)
        if weight.name == "gamma":
            values += 1.0
        weight.assign(values.astype("float32"))
    return model


def encoder_inputs(
    config: BertConfig, rows: int = 3, length: int = 10, seed: int = 0
) -> dict[str, np.ndarray]:
    """Random ids, segments and a mask whose first row alone is full."""
    random = np.random.default_rng(seed)
    lengths = random.integers(length // 2, length, rows)
    lengths[0] = length
    inputs = {
        "input_ids": random.integers(0, config.vocab_size, (rows, length)),
        "input_mask": np.arange(length)[None] < lengths[:, None],
        "segment_ids": random.integers(
            0, max(1, config.type_vocab_size), (rows, length)
        ),
    }
    return {name: value.astype("int32") for name, value in inputs.items()}


def pretraining_batch(
    config: BertConfig,
    rows: int = 3,
    length: int = 10,
    predictions: int = 4,
    seed: int = 0,
) -> dict[str, np.ndarray]:
    """Encoder inputs and labels; some predictions do not count."""
    random = np.random.default_rng(seed + 1)
    ids = random.integers(0, config.vocab_size, (rows, predictions))
    places = np.stack(
        [random.permutation(length)[:predictions] for _ in range(rows)]
    )
    weights = random.random((rows, predictions)) < 0.7
    weights[:, 0] = True
    return {
        **encoder_inputs(config, rows, length, seed),
        "masked_lm_positions": places.astype("int32"),
        "masked_lm_ids": ids.astype("int32"),
        "masked_lm_weights": weights.astype("float32"),
        "next_sentence_labels": random.integers(0, 2, rows).astype("int32"),
    }


def predictions_of_tokens(batch: dict[str, np.ndarray]) -> dict:
    """The batch with predictions of tokens only; unused ones are at 0."""
    positions, used = batch["masked_lm_positions"], batch["masked_lm_weights"]
    used = used * np.take_along_axis(batch["input_mask"], positions, 1)
    used = (used * (positions > 0)).astype("float32")
    positions = np.where(used > 0, positions, 0)
    return batch | {"masked_lm_positions": positions, "masked_lm_weights": used}


def numpy(tensor) -> np.ndarray:
    """A tensor as a float array that NumPy can compute with."""
    tensor = keras.ops.convert_to_tensor(tensor)
    if "float" in keras.backend.standardize_dtype(tensor.dtype):
        tensor = keras.ops.cast(tensor, "float32")
    return keras.ops.convert_to_numpy(tensor)


def assert_computes(
    folder: pathlib.Path,
    batch: dict[str, np.ndarray],
    expected: dict[str, np.ndarray],
) -> set[str]:
    """Our models of a folder compute what is recorded.

    Returns the names of all the outputs that they have.
    """
    from bert_tf.checkpoints import load_checkpoint
    from bert_tf.conversion.proof import model_outputs

    rows, length = batch["input_ids"].shape
    positions = np.tile(np.arange(length, dtype=np.int32), (rows, 1))
    batch = {"masked_lm_positions": positions, **batch}
    computed = model_outputs(load_checkpoint(folder), batch)
    for name, value in expected.items():
        assert computed[name].shape == value.shape
        assert np.abs(value).max() > 0.01
        np.testing.assert_allclose(
            computed[name], value, rtol=0, atol=1e-5, err_msg=name
        )
    return set(computed)


# Whether blocks are recomputed, and whether padding is left out.
_FORMS = ((False, False), (False, True), (True, True))


def gradients_in_every_form(config: BertConfig) -> list[np.ndarray]:
    """A classifier's gradients of its encoder: the same in each form.

    Padded, unpadded, and with blocks that are recomputed, the last in a graph.
    """
    import tensorflow as tf

    from bert_tf.encoders import BertEncoder
    from bert_tf.models import bert_classifier

    forms = []
    for rematerialize, unpadded in _FORMS:
        encoder = BertEncoder(config, rematerialize=rematerialize)
        fill(encoder, scale=0.2)
        batch = encoder_inputs(config, rows=9)
        batch = {k: tf.constant(v) for k, v in batch.items()}
        model = bert_classifier(encoder, 3, 0.0, unpadded=unpadded)
        model.layers[-1].set_weights(
            [np.linspace(-1, 1, 72).reshape(24, 3), np.zeros(3)]
        )

        def gradients(batch, model=model, encoder=encoder):
            with tf.GradientTape() as tape:
                logits = model(batch, training=True)
                loss = tf.reduce_sum(keras.ops.softmax(logits)[:, 0])
            variables = [w.value for w in encoder.trainable_weights]
            return tape.gradient(loss, variables)

        if rematerialize:
            spec = {k: tf.TensorSpec([9, None], tf.int32) for k in batch}
            gradients = tf.function(gradients, input_signature=[spec])
        forms.append([numpy(g) for g in gradients(batch)])
    largest = max(np.abs(g).max() for g in forms[0])
    assert all(np.abs(g).max() > 1e-7 for g in forms[0])
    for others in forms[1:]:
        for left, right in zip(others, forms[0], strict=True):
            np.testing.assert_allclose(left, right, atol=1e-5 * largest)
    return forms[0]


def outputs_and_gradients(encoder, inputs: dict, **arguments) -> list:
    """All outputs of a call, and the gradients of a function of them.

    The function weighs the columns of hidden states, whose sum a layer norm
    would make constant.
    """
    import tensorflow as tf

    width = encoder.config.hidden_size
    weighing = tf.constant(
        np.random.default_rng(5).normal(size=width), tf.float32
    )
    with tf.GradientTape() as tape:
        outputs = keras.tree.flatten(encoder(inputs, **arguments))
        total = 0.0
        for output in outputs:
            output = tf.cast(output, tf.float32)
            if output.shape[-1] == width:
                output *= weighing
            total += tf.reduce_sum(tf.square(output) + output)
    variables = [v.value for v in encoder.trainable_variables]
    found = tape.gradient(total, variables, unconnected_gradients="zero")
    return [*outputs, *map(tf.convert_to_tensor, found)]
