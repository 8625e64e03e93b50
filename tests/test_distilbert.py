"""DistilBERT beside transformers and KerasHub, and what it must not be."""

import dataclasses
import json
import math
import pathlib
import shutil

import keras
import keras_hub
import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.checkpoints import (
    CLASSIFIER,
    POOLER,
    load_checkpoint,
    save_checkpoint,
)
from bert_tf.checkpoints.checkpoint import num_labels
from bert_tf.checkpoints.folder import save_adapter
from bert_tf.checkpoints.hugging_face import stored_as_theirs
from bert_tf.conversion import convert_checkpoint
from bert_tf.encoders.distilbert import DistilBertBlock
from bert_tf.errors import UserError
from bert_tf.memory.prediction import Workload
from bert_tf.pretraining.objective import PretrainingObjective
from bert_tf.text.vocabulary import SPECIAL_TOKENS, Vocabulary
from tests import commands

GOLDEN = pathlib.Path(__file__).parent / "golden" / "distilbert"
OUTPUTS = dict(np.load(GOLDEN / "outputs.npz"))
SAVED = sorted(path.name for path in (GOLDEN / "saved").iterdir())
INPUTS = {name: OUTPUTS[name] for name in ("input_ids", "input_mask")}
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


def tiny_config(**changes):
    values = {
        "vocab_size": 24,
        "hidden_size": 8,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 12,
        "max_position_embeddings": 12,
        **changes,
    }
    return bert_tf.DistilBertConfig(**values)


def batch():
    found = {name: tf.constant(array) for name, array in INPUTS.items()}
    # They are taken and not read.
    return found | {"segment_ids": tf.ones_like(found["input_ids"])}


def real(array):
    return np.asarray(array)[INPUTS["input_mask"] == 1]


def task_model(name):
    folder = GOLDEN / "saved" / name
    encoder = bert_tf.DistilBertEncoder.from_checkpoint(folder)
    model = {
        "DistilBertForSequenceClassification": lambda: bert_tf.bert_classifier(
            encoder, 3
        ),
        "DistilBertForTokenClassification": lambda: (
            bert_tf.bert_token_classifier(encoder, 5)
        ),
        "DistilBertForQuestionAnswering": lambda: bert_tf.bert_span_labeler(
            encoder
        ),
        "DistilBertForMultipleChoice": lambda: bert_tf.bert_multiple_choice(
            encoder
        ),
    }[name]()
    # Of heads on tokens no pooler is read.
    assert set(bert_tf.restore(model, folder)) <= {POOLER}
    return model


@pytest.mark.parametrize("unpadded", [False, True])
@pytest.mark.parametrize("name", SAVED)
def test_every_hidden_state_is_that_of_transformers(name, unpadded):
    folder = GOLDEN / "saved" / name
    encoder = bert_tf.DistilBertEncoder.from_checkpoint(folder)
    found = encoder(batch(), return_all_layers=True, unpadded=unpadded)
    states = [found["embedding_output"], *found["all_encoder_layers"]]
    assert len(states) == 3
    for number, state in enumerate(states):
        expected = OUTPUTS[f"{name}/hidden_{number}"]
        np.testing.assert_allclose(real(state), real(expected), **CLOSE)


def test_logits_are_those_of_transformers():
    tokens = "DistilBertForTokenClassification"
    logits = task_model(tokens)(batch())
    np.testing.assert_allclose(
        real(logits), real(OUTPUTS[f"{tokens}/logits"]), **CLOSE
    )
    spans = "DistilBertForQuestionAnswering"
    for key, logits in task_model(spans)(batch()).items():
        expected = OUTPUTS[f"{spans}/{key}"]
        np.testing.assert_allclose(real(logits), real(expected), **CLOSE)
    choices = "DistilBertForMultipleChoice"
    given = {name: tensor[None] for name, tensor in batch().items()}
    np.testing.assert_allclose(
        task_model(choices)(given), OUTPUTS[f"{choices}/logits"], **CLOSE
    )


def gradients_of(named, compute):
    """The gradient of each named array, query, key and value apart."""
    variables = {id(w.variable): w.variable for w in named.values()}
    with tf.GradientTape() as tape:
        loss = compute()
    found = tape.gradient(loss, [v.value for v in variables.values()])
    by_variable = dict(zip(variables, map(np.asarray, found), strict=True))
    gradients = {}
    for name, weight in named.items():
        gradient = by_variable[id(weight.variable)]
        if weight.third is not None:
            gradient = np.split(gradient, 3, axis=-1)[weight.third]
        gradients[name] = gradient.T if weight.transposed else gradient
    return gradients


def assert_gradients(name, gradients):
    config = load_checkpoint(GOLDEN / "saved" / name).config
    table = stored_as_theirs(config, CLASSIFIER)
    recorded = [k for k in OUTPUTS if k.startswith(f"{name}/gradient/")]
    assert len(recorded) == len(gradients)
    for ours, gradient in gradients.items():
        stored = table[ours]
        expected = OUTPUTS[f"{name}/gradient/{stored.name}"]
        given = gradient.T if stored.transposed else gradient
        np.testing.assert_allclose(given, expected, err_msg=ours, **CLOSE)


def test_a_classifier_and_its_gradients_are_those_of_transformers():
    name = "DistilBertForSequenceClassification"
    model = task_model(name)
    logits = model(batch())
    np.testing.assert_allclose(logits, OUTPUTS[f"{name}/logits"], **CLOSE)
    (encoder,) = (x for x in model.layers if hasattr(x, "named_weights"))
    dense = model.get_layer(CLASSIFIER)
    named = encoder.named_weights()
    weight = type(next(iter(named.values())))
    named |= {
        "output_weights": weight(dense.kernel, transposed=True),
        "output_bias": weight(dense.bias),
    }
    gradients = gradients_of(
        named, lambda: tf.reduce_mean(tf.square(model(batch())))
    )
    assert_gradients(name, gradients)


def test_a_masked_lm_and_its_gradients_are_those_of_transformers():
    name = "DistilBertForMaskedLM"
    folder = GOLDEN / "saved" / name
    model = bert_tf.BertPretrainer.from_checkpoint(folder)
    length = INPUTS["input_ids"].shape[1]
    places = tf.repeat(tf.range(length)[None], 3, axis=0)
    given = batch() | {"masked_lm_positions": places}
    outputs = model(given)
    assert "next_sentence_logits" not in outputs
    np.testing.assert_allclose(
        real(outputs["masked_lm_logits"]),
        real(OUTPUTS[f"{name}/logits"]),
        **CLOSE,
    )
    named = {
        n: w for n, w in model.named_weights().items() if "/pooler/" not in n
    }

    def loss():
        logits = model(given)["masked_lm_logits"]
        chosen = tf.boolean_mask(logits, given["input_mask"] == 1)
        return tf.reduce_mean(tf.square(chosen))

    assert_gradients(name, gradients_of(named, loss))


def write_vocabulary(folder):
    letters = [chr(ord("a") + number) for number in range(19)]
    path = folder / "vocab.txt"
    path.write_text("\n".join([*SPECIAL_TOKENS, *letters]) + "\n")
    return path


@pytest.mark.parametrize("name", SAVED)
def test_converting_there_and_back_is_exact_and_proved(name, tmp_path):
    source = GOLDEN / "saved" / name
    vocabulary = write_vocabulary(tmp_path)
    convert_checkpoint(
        source, "bert_tf", tmp_path / "ours", vocab_file=vocabulary
    )
    convert_checkpoint(tmp_path / "ours", "hugging_face", tmp_path / "theirs")
    first, last = load_checkpoint(source), load_checkpoint(tmp_path / "theirs")
    assert first.config == last.config
    assert first.arrays.keys() == last.arrays.keys()
    for key in first.arrays:
        np.testing.assert_array_equal(first.arrays[key], last.arrays[key])


def write_preset(folder, model):
    model.save_to_preset(str(folder))
    return folder


def random_weights(model):
    random = np.random.default_rng(0)
    for weight in model.weights:
        value = random.normal(0, 0.3, weight.shape)
        norm = "norm" in weight.path and weight.path.endswith("gamma")
        weight.assign(value + norm)


def test_presets_of_keras_hub(tmp_path):
    backbone = keras_hub.models.DistilBertBackbone(
        vocabulary_size=24,
        num_layers=2,
        num_heads=2,
        hidden_dim=8,
        intermediate_dim=12,
        max_sequence_length=12,
    )
    model = keras_hub.models.DistilBertTextClassifier(
        backbone, num_classes=3, preprocessor=None
    )
    random_weights(model)
    given = {
        "token_ids": INPUTS["input_ids"],
        "padding_mask": INPUTS["input_mask"],
    }
    folder = write_preset(tmp_path / "preset", model)
    encoder = bert_tf.DistilBertEncoder.from_checkpoint(folder)
    np.testing.assert_allclose(
        real(encoder(batch())["sequence_output"]),
        real(backbone(given)),
        **CLOSE,
    )
    ours = bert_tf.bert_classifier(encoder, 3)
    assert bert_tf.restore(ours, folder) == ()
    np.testing.assert_allclose(ours(batch()), model(given), **CLOSE)
    convert_checkpoint(
        folder,
        "hugging_face",
        tmp_path / "theirs",
        vocab_file=write_vocabulary(tmp_path),
    )
    assert num_labels(load_checkpoint(tmp_path / "theirs"), CLASSIFIER) == 3


def test_attention_has_no_dropout_before_its_residual():
    config = tiny_config(
        hidden_dropout_prob=0.5, attention_probs_dropout_prob=0.0
    )
    block = DistilBertBlock(config)
    block.build((None, None, 8))
    block.output_dropout.rate = 0.0
    hidden = keras.random.normal((2, 5, 8), seed=1)
    adder = np.zeros((2, 1, 1, 5), "float32")
    still, _ = block(hidden, adder, training=False)
    trained, _ = block(hidden, adder, training=True)
    np.testing.assert_array_equal(still, trained)


def test_an_adapter_is_written_as_peft_names_it_and_proved(tmp_path):
    random = np.random.default_rng(0)

    def checkpoint(**changes):
        config = tiny_config(**changes)
        arrays = {
            name: random.normal(0, 0.3, array.shape).astype("float32")
            for name, array in bert_tf.DistilBertEncoder(config)
            .to_arrays()
            .items()
        }
        return bert_tf.Checkpoint(config, arrays, lower_case=True)

    base = checkpoint()
    vocabulary = Vocabulary.from_file(write_vocabulary(tmp_path))
    base = dataclasses.replace(
        base, vocabulary=vocabulary, source=str(tmp_path / "base")
    )
    save_checkpoint(tmp_path / "base", base)
    trained = checkpoint(lora_rank=2, lora_on="all_dense")
    trained.arrays.update(
        {
            "output_weights": np.ones((3, 8), "float32"),
            "output_bias": np.zeros(3, "float32"),
        }
    )
    # What is not trained is the base's.
    for name, array in base.arrays.items():
        if "pooler" not in name:
            trained.arrays[name] = array
    folder = tmp_path / "adapter"
    save_adapter(folder, trained, base)
    config = json.loads((folder / "adapter_config.json").read_text())
    assert config["target_modules"] == [
        "q_lin",
        "k_lin",
        "v_lin",
        "out_lin",
        "lin1",
        "lin2",
    ]
    assert config["modules_to_save"] == ["classifier", "pre_classifier"]
    again = load_checkpoint(folder, merge=False)
    assert again.arrays.keys() == trained.arrays.keys()
    for name, array in trained.arrays.items():
        np.testing.assert_array_equal(again.arrays[name], array)
    report = convert_checkpoint(folder, "hugging_face", tmp_path / "merged")
    assert report.output_dir == tmp_path / "merged"


def test_segments_change_nothing_and_have_no_table():
    encoder = bert_tf.DistilBertEncoder(tiny_config())
    assert not any("token_type" in name for name in encoder.to_arrays())
    first = batch()
    second = first | {"segment_ids": tf.zeros_like(first["segment_ids"])}
    np.testing.assert_array_equal(
        encoder(first)["sequence_output"], encoder(second)["sequence_output"]
    )


def test_it_is_saved_in_keras_files(tmp_path):
    encoder = bert_tf.DistilBertEncoder(tiny_config(seq_classif_dropout=0.4))
    model = bert_tf.bert_classifier(encoder, 2)
    assert model.get_layer("dropout").rate == 0.4
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(model(batch()), again(batch()))


@pytest.mark.parametrize("predictions", [0, 4])
def test_its_parameters_are_counted(predictions):
    config = tiny_config()
    encoder = bert_tf.DistilBertEncoder(config)
    if predictions:
        trained = bert_tf.BertPretrainer(encoder).trainable_weights
    else:
        trained = bert_tf.bert_classifier(encoder, 2).weights
    work = Workload(config, 8, 2, predictions, "float32")
    assert work.num_parameters == sum(math.prod(w.shape) for w in trained)


def refused(function, *parts):
    with pytest.raises(UserError) as caught:
        function()
    assert "\n" not in str(caught.value)
    for part in parts:
        assert part in str(caught.value)


def test_what_is_refused(tmp_path):
    config = tiny_config()
    refused(
        lambda: bert_tf.BertPretrainer(
            config, objective=PretrainingObjective()
        ),
        "next_sentence",
        "distilbert has no pooler",
        "masked_lm",
    )
    refused(
        lambda: bert_tf.BertEncoder(config), "DistilBertConfig", "BertConfig"
    )
    refused(
        lambda: bert_tf.BertConfig.from_dict({"model_type": "xlnet"}, "here"),
        "here: model_type is 'xlnet'; it takes one of bert, distilbert",
    )
    refused(lambda: tiny_config(type_vocab_size=2), "type_vocab_size is 2")
    source = GOLDEN / "saved" / "DistilBertModel"
    refused(
        lambda: save_checkpoint(
            tmp_path / "google", load_checkpoint(source), "google_tf1"
        ),
        "distilbert",
        "bert_tf or hugging_face",
    )
    assert list(tmp_path.iterdir()) == []
    folder = tmp_path / "folder"
    shutil.copytree(source, folder)
    text = (folder / "config.json").read_text()
    for other, part in (
        (text.replace('"distilbert"', '"xlnet"'), "model_type is 'xlnet'"),
        (text.replace('"distilbert"', '"bert"'), "do not fit"),
        (text.replace('"n_layers": 2', '"n_layers": 3'), "do not fit"),
        (text.replace('"gelu"', '"silu"'), "activation is 'silu'"),
    ):
        (folder / "config.json").write_text(other)
        refused(lambda: load_checkpoint(folder), str(folder), part)


@pytest.mark.slow
def test_the_whole_way_by_commands(tmp_path):
    """Converted, fine-tuned, scored, exported with its check, and asked."""
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    config = tiny_config(
        hidden_size=16, vocab_size=24, max_position_embeddings=32
    )
    vocabulary = Vocabulary.from_file(write_vocabulary(tmp_path))
    arrays = {
        name: array
        for name, array in bert_tf.DistilBertEncoder(config).to_arrays().items()
        if "pooler" not in name
    }
    save_checkpoint(
        theirs,
        bert_tf.Checkpoint(config, arrays, vocabulary, lower_case=True),
        "hugging_face",
    )
    rows = "".join(
        f"{' '.join(text)}\t{label}\n"
        for text, label in [("ab", "x"), ("cd", "y"), ("ba", "x"), ("dc", "y")]
    )
    data = tmp_path / "rows.tsv"
    data.write_text(f"text\tlabel\n{rows}")

    def run(tool, *flags):
        done = commands.run(f"tools.{tool}", *flags)
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    tuned, exported = tmp_path / "tuned", tmp_path / "exported"
    run(
        "convert_checkpoint",
        f"--input={theirs}",
        "--to=bert_tf",
        f"--output_dir={ours}",
    )
    run(
        "run_finetuning",
        "--task=sentence",
        "--mode=train,eval",
        f"--init_from={ours}",
        f"--output_dir={tuned}",
        f"--set=train_file={data}",
        f"--set=dev_file={data}",
        "--set=text_columns=text",
        "--set=label_column=label",
        "--set=train_batch_size=4",
        "--set=num_train_epochs=1",
        "--set=max_seq_length=8",
    )
    config = json.loads((tuned / "bert_config.json").read_text())
    assert config["model_type"] == "distilbert"
    run("export_saved_model", f"--model={tuned}", f"--output_dir={exported}")
    written = tf.saved_model.load(str(exported / "1"))
    answer = written.signatures["serving_default"](text=tf.constant(["a b"]))
    expected = bert_tf.load(tuned)("a b")["probabilities"]
    np.testing.assert_allclose(
        answer["probabilities"][0], list(expected.values()), **CLOSE
    )
