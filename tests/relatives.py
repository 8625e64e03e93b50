"""What the tests of BERT's relatives share."""

import json
import pathlib

import numpy as np
import tensorflow as tf

import bert_tf
from bert_tf.checkpoints import TASK_HEADS, load_checkpoint, save_checkpoint
from bert_tf.checkpoints.hugging_face import stored_as_theirs
from bert_tf.config import BertConfig
from bert_tf.conversion import convert_checkpoint
from bert_tf.encoders import encoder_class
from bert_tf.layers.part_weights import Weight
from bert_tf.named_weights import NamedWeights
from bert_tf.text.vocabulary import SPECIAL_TOKENS, Vocabulary
from tests import commands

CLOSE = {"rtol": 1e-5, "atol": 1e-5}
_MODELS = {
    "ForSequenceClassification": lambda e: bert_tf.bert_classifier(e, 3),
    "ForTokenClassification": lambda e: bert_tf.bert_token_classifier(e, 5),
    "ForQuestionAnswering": bert_tf.bert_span_labeler,
    "ForMultipleChoice": bert_tf.bert_multiple_choice,
    "ForPreTraining": bert_tf.replaced_token_detector,
}


def tiny(config_class: type[BertConfig], **changes) -> BertConfig:
    """A configuration of the sizes of those models."""
    values = {
        "vocab_size": 24,
        "hidden_size": 8,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 12,
        "max_position_embeddings": 12,
        **changes,
    }
    return config_class(**values)


class Golden:
    """Small models of transformers, and what was recorded of them.

    Args:
      name: the folder's, in tests/golden/.
    """

    def __init__(self, name: str):
        folder = pathlib.Path(__file__).parent / "golden" / name
        self.saved = folder / "saved"
        self.classes = sorted(path.name for path in self.saved.iterdir())
        self.outputs = dict(np.load(folder / "outputs.npz"))
        self.inputs = {k: v for k, v in self.outputs.items() if "/" not in k}

    def batch(self):
        """The inputs; where none are recorded segment_ids are 1."""
        found = {name: tf.constant(a) for name, a in self.inputs.items()}
        return {"segment_ids": tf.ones_like(found["input_ids"]), **found}

    def real(self, array):
        """What is computed at tokens, without padding."""
        return np.asarray(array)[self.inputs["input_mask"] == 1]

    def encoder(self, name: str):
        """The encoder of a class of transformers'."""
        folder = self.saved / name
        config = load_checkpoint(folder).config
        return encoder_class(config).from_checkpoint(folder)

    def model(self, name: str):
        """Our model of a class of transformers' with a head."""
        folder = self.saved / name
        if name.endswith("ForMaskedLM"):
            return bert_tf.BertPretrainer.from_checkpoint(folder)
        model = _MODELS["For" + name.partition("For")[2]](self.encoder(name))
        # Of heads on tokens no pooler is read.
        assert set(bert_tf.restore(model, folder)) <= {"pooler"}
        return model

    def assert_hidden_states(self, name: str, unpadded: bool) -> None:
        """Every hidden state of a class's encoder is transformers'."""
        encoder = self.encoder(name)
        found = encoder(self.batch(), return_all_layers=True, unpadded=unpadded)
        states = [found["embedding_output"], *found["all_encoder_layers"]]
        assert len(states) == 3
        for number, state in enumerate(states):
            expected = self.outputs[f"{name}/hidden_{number}"]
            np.testing.assert_allclose(
                self.real(state), self.real(expected), **CLOSE
            )

    def logits(self, name: str, model, batch):
        """All logits of a class's model, where they are of tokens alone."""
        if name.endswith("ForMultipleChoice"):
            return {"logits": model({k: v[None] for k, v in batch.items()})}
        if name.endswith("ForMaskedLM"):
            rows, length = self.inputs["input_ids"].shape
            places = tf.repeat(tf.range(length)[None], rows, axis=0)
            outputs = model(batch | {"masked_lm_positions": places})
            assert "next_sentence_logits" not in outputs
            logits = outputs["masked_lm_logits"]
        else:
            logits = model(batch)
        logits = logits if isinstance(logits, dict) else {"logits": logits}
        tokens = batch["input_mask"] == 1
        if name.endswith("ForSequenceClassification"):
            return logits
        return {k: tf.boolean_mask(v, tokens) for k, v in logits.items()}

    def assert_logits(self, name: str) -> None:
        """The logits of a class are transformers'."""
        model = self.model(name)
        found = self.logits(name, model, self.batch())
        for key, logits in found.items():
            expected = self.outputs[f"{name}/{key}"]
            if expected.shape[:2] == self.inputs["input_ids"].shape:
                expected = self.real(expected)
            np.testing.assert_allclose(logits, expected, **CLOSE)

    def assert_gradients(self, name: str, named: NamedWeights, model) -> None:
        """The gradients of the loss that is recorded are transformers'.

        Args:
          name: the class.
          named: the weights that it has.
          model: what `model` made of it.
        """

        def loss():
            (logits,) = self.logits(name, model, self.batch()).values()
            return tf.reduce_mean(tf.square(logits))

        checkpoint = load_checkpoint(self.saved / name)
        head = next((h for h in checkpoint.heads if h in TASK_HEADS), None)
        table = stored_as_theirs(checkpoint.config, head)
        recorded = [k for k in self.outputs if k.startswith(f"{name}/grad")]
        gradients = gradients_of(named, loss)
        assert len(recorded) == len(gradients) > 0
        for ours, gradient in gradients.items():
            stored = table[ours]
            expected = self.outputs[f"{name}/gradient/{stored.name}"]
            given = gradient.T if stored.transposed else gradient
            np.testing.assert_allclose(given, expected, err_msg=ours, **CLOSE)

    def assert_round_trip(self, name: str, folder: pathlib.Path) -> None:
        """A class is converted to ours and back, exactly and with proof."""
        source = self.saved / name
        vocabulary = write_vocabulary(folder)
        ours, theirs = folder / "ours", folder / "theirs"
        convert_checkpoint(source, "bert_tf", ours, vocab_file=vocabulary)
        convert_checkpoint(ours, "hugging_face", theirs)
        assert_same(load_checkpoint(source), load_checkpoint(theirs))


def assert_same(first, last) -> None:
    """Two checkpoints hold the same."""
    assert first.config == last.config
    assert first.arrays.keys() == last.arrays.keys()
    for key in first.arrays:
        np.testing.assert_array_equal(first.arrays[key], last.arrays[key])


def gradients_of(named: NamedWeights, compute) -> dict[str, np.ndarray]:
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


def classifier_weights(model) -> NamedWeights:
    """The weights of what `bert_classifier` made, by name."""
    (encoder,) = (x for x in model.layers if hasattr(x, "named_weights"))
    dense = model.get_layer("classifier")
    return encoder.named_weights() | {
        "output_weights": Weight(dense.kernel, transposed=True),
        "output_bias": Weight(dense.bias),
    }


def write_vocabulary(folder: pathlib.Path) -> pathlib.Path:
    """A vocabulary of 24 tokens."""
    letters = [chr(ord("a") + number) for number in range(19)]
    path = folder / "vocab.txt"
    path.write_text("\n".join([*SPECIAL_TOKENS, *letters]) + "\n")
    return path


def random_weights(model) -> None:
    """Gives a Keras model weights away from 0, and scales away from 1."""
    random = np.random.default_rng(0)
    for weight in model.weights:
        value = random.normal(0, 0.3, weight.shape)
        norm = "norm" in weight.path and weight.path.endswith("gamma")
        weight.assign(value + norm)


def assert_the_whole_way_by_commands(config, folder: pathlib.Path) -> None:
    """Converted, fine-tuned, scored, exported with its check, and asked."""
    theirs, ours = folder / "theirs", folder / "ours"
    vocabulary = Vocabulary.from_file(write_vocabulary(folder))
    arrays = {
        name: array
        for name, array in encoder_class(config)(config).to_arrays().items()
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
    data = folder / "rows.tsv"
    data.write_text(f"text\tlabel\n{rows}")

    def run(tool, *flags):
        done = commands.run(f"tools.{tool}", *flags)
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    tuned, exported = folder / "tuned", folder / "exported"
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
    written = json.loads((tuned / "bert_config.json").read_text())
    assert written["model_type"] == config.model_type
    run("export_saved_model", f"--model={tuned}", f"--output_dir={exported}")
    served = tf.saved_model.load(str(exported / "1"))
    answer = served.signatures["serving_default"](text=tf.constant(["a b"]))
    expected = bert_tf.load(tuned)("a b")["probabilities"]
    np.testing.assert_allclose(
        answer["probabilities"][0], list(expected.values()), **CLOSE
    )
