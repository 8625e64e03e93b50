"""Writes small checkpoints of TensorFlow Model Garden and what they compute.

Run where tf-models-official is installed, with TF_USE_LEGACY_KERAS=1:

    python make.py FOLDER
"""

import json
import pathlib
import sys

import numpy as np
import tensorflow as tf
import tf_keras
from official.core import base_trainer, train_utils
from official.modeling import tf_utils
from official.nlp.configs import pretraining_experiments
from official.nlp.modeling import layers, models, networks
from official.nlp.tasks import masked_lm

SIZES = {
    "vocab_size": 19,
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "max_position_embeddings": 12,
    "type_vocab_size": 2,
}
ENCODERS = {"v1": networks.BertEncoder, "v2": networks.BertEncoderV2}


def make_encoder(version: str):
    encoder = ENCODERS[version](
        vocab_size=SIZES["vocab_size"],
        hidden_size=SIZES["hidden_size"],
        num_layers=SIZES["num_hidden_layers"],
        num_attention_heads=SIZES["num_attention_heads"],
        inner_dim=SIZES["intermediate_size"],
        inner_activation=tf_utils.get_activation("gelu"),
        max_sequence_length=SIZES["max_position_embeddings"],
        type_vocab_size=SIZES["type_vocab_size"],
    )
    encoder(encoder.inputs)
    return encoder


def make_pretrainer(version: str):
    head = layers.ClassificationHead(
        inner_dim=SIZES["hidden_size"], num_classes=2, name="next_sentence"
    )
    return models.BertPretrainerV2(
        make_encoder(version),
        mlm_activation=tf_utils.get_activation("gelu"),
        classification_heads=[head],
    )


def fill(model, seed: int) -> None:
    """Gives every weight distinct random values."""
    random = np.random.default_rng(seed)
    for weight in model.weights:
        values = random.normal(0.0, 0.3, weight.shape)
        weight.assign(values + ("gamma" in weight.name))


def make_inputs() -> dict[str, np.ndarray]:
    random = np.random.default_rng(7)
    ids = random.integers(0, SIZES["vocab_size"], (3, 10))
    mask = np.arange(10)[None] < np.array([[10], [7], [5]])
    segments = random.integers(0, SIZES["type_vocab_size"], (3, 10))
    places = np.stack([random.permutation(10)[:4] for _ in range(3)])
    inputs = {
        "input_word_ids": ids,
        "input_mask": mask,
        "input_type_ids": segments,
        "masked_lm_positions": places,
    }
    return {name: value.astype("int32") for name, value in inputs.items()}


INPUTS = make_inputs()


def outputs_of(model) -> dict[str, np.ndarray]:
    inputs = dict(INPUTS)
    if not isinstance(model, models.BertPretrainerV2):
        del inputs["masked_lm_positions"]
    outputs = model(inputs, training=False)
    if isinstance(model, models.BertSpanLabeler):
        outputs = {"start_logits": outputs[0], "end_logits": outputs[1]}
    elif isinstance(outputs, list):
        outputs = {"sequence_output": outputs[0], "pooled_output": outputs[1]}
    elif not isinstance(outputs, dict):
        outputs = {"logits": outputs}
    if isinstance(model, models.BertPretrainerV2):
        # The pooled vector of the model is its head's, see the README.
        head = model.classification_heads[0]
        outputs["pooled_output"] = head(
            outputs["sequence_output"], only_project=True
        )
    outputs.pop("encoder_outputs", None)
    return {name: value.numpy() for name, value in outputs.items()}


def save_outputs(folder: pathlib.Path, model) -> None:
    np.savez_compressed(folder / "outputs.npz", **outputs_of(model))


def save(folder: pathlib.Path, model, items: dict) -> None:
    folder.mkdir(parents=True)
    (folder / "bert_config.json").write_text(json.dumps(SIZES, indent=1) + "\n")
    tf.train.Checkpoint(**items).write(str(folder / "bert_model.ckpt"))
    save_outputs(folder, model)


def train_one_step(folder: pathlib.Path) -> None:
    """What the trainer leaves: optimizer, counters, every item twice."""
    tf_keras.utils.set_random_seed(11)
    config = pretraining_experiments.bert_pretraining()
    encoder = config.task.model.encoder
    encoder.type = "bert_v2"
    encoder.bert_v2.override(
        {
            "vocab_size": SIZES["vocab_size"],
            "hidden_size": SIZES["hidden_size"],
            "num_layers": SIZES["num_hidden_layers"],
            "num_attention_heads": SIZES["num_attention_heads"],
            "intermediate_size": SIZES["intermediate_size"],
            "max_position_embeddings": SIZES["max_position_embeddings"],
            "type_vocab_size": SIZES["type_vocab_size"],
        }
    )
    config.task.model.cls_heads[0].inner_dim = SIZES["hidden_size"]
    data = config.task.train_data
    data.input_path = "dummy"
    data.seq_length = 10
    data.max_predictions_per_seq = 4
    optimization = config.trainer.optimizer_config
    optimization.learning_rate.polynomial.decay_steps = 100
    optimization.warmup.polynomial.warmup_steps = 10
    task = masked_lm.MaskedLMTask(config.task)
    model = task.build_model()
    model(INPUTS)
    fill(model, 5)
    trainer = base_trainer.Trainer(
        config,
        task,
        model=model,
        optimizer=task.create_optimizer(config.trainer.optimizer_config),
        evaluate=False,
    )
    trainer.train(tf.constant(1))
    folder.mkdir(parents=True)
    train_utils.serialize_config(config, str(folder))
    manager = tf.train.CheckpointManager(
        trainer.checkpoint,
        directory=str(folder),
        max_to_keep=5,
        step_counter=trainer.global_step,
    )
    manager.save(checkpoint_number=trainer.global_step)
    save_outputs(folder, model)


def main(folder: pathlib.Path) -> None:
    np.savez_compressed(folder / "inputs.npz", **INPUTS)
    encoder = make_encoder("v1")
    fill(encoder, 1)
    save(folder / "encoder_v1", encoder, {"model": encoder})
    encoder = make_encoder("v2")
    fill(encoder, 2)
    save(folder / "encoder_v2", encoder, {"encoder": encoder})
    pretrainer = make_pretrainer("v1")
    pretrainer(INPUTS)
    fill(pretrainer, 3)
    save(folder / "pretrainer_v1", pretrainer, {"model": pretrainer})
    pretrainer = make_pretrainer("v2")
    pretrainer(INPUTS)
    fill(pretrainer, 4)
    items = pretrainer.checkpoint_items
    save(folder / "pretrainer_items_v2", pretrainer, items)
    train_one_step(folder / "trainer_v2")
    tasks = {
        "classifier_v1": models.BertClassifier(make_encoder("v1"), 3),
        "classifier_v2_own_pooler": models.BertClassifier(
            make_encoder("v2"), 3, use_encoder_pooler=False
        ),
        "token_classifier_v2": models.BertTokenClassifier(
            make_encoder("v2"), 5
        ),
        "span_labeler_v1": models.BertSpanLabeler(make_encoder("v1")),
    }
    for seed, (name, model) in enumerate(tasks.items(), start=6):
        fill(model, seed)
        save(folder / name, model, {"model": model})


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
