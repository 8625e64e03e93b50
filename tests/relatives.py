"""What the tests of architectures share."""

import json
import pathlib

import keras
import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401, the operations of SavedModels
from sentencepiece.sentencepiece_model_pb2 import ModelProto

import bert_tf
from bert_tf import models
from bert_tf.architecture_list import find_architecture
from bert_tf.checkpoints import TASK_HEADS, load_checkpoint, save_checkpoint
from bert_tf.checkpoints.hugging_face import stored_as_theirs, word_tables
from bert_tf.checkpoints.layout import names_of
from bert_tf.conversion import convert_checkpoint
from bert_tf.encoders import encoder_class
from bert_tf.named_weights import NamedWeights
from bert_tf.text.byte_bpe import ByteLevelBpe, byte_letters
from bert_tf.text.token_table import SPECIAL_TOKENS, SpecialTokens
from bert_tf.text.tokenizer_config import TokenizerConfig
from bert_tf.text.tokenizer_protocol import TokenizerData
from bert_tf.text.unigram import AlbertUnigram, Unigram
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.text.wordpiece import WordPiece
from tests import commands

CLOSE = {"rtol": 1e-5, "atol": 1e-5}
# transformers' names of outputs where they are not ours.
_OUTPUTS = {
    "masked_lm_logits": "prediction_logits",
    "next_sentence_logits": "seq_relationship_logits",
}
# Of an ALBERT, whose sentences are in order or not.
_ORDER = "sop_logits"
_PRETRAINED = (
    *("BertForPreTraining", "BertForMaskedLM", "DistilBertForMaskedLM"),
    *("ElectraForMaskedLM", "RobertaForMaskedLM", "XLMRobertaForMaskedLM"),
    *("AlbertForPreTraining", "AlbertForMaskedLM", "ModernBertForMaskedLM"),
)
_MODELS = {
    "ForSequenceClassification": lambda e: bert_tf.bert_classifier(e, 3),
    "ForTokenClassification": lambda e: bert_tf.bert_token_classifier(e, 5),
    "ForQuestionAnswering": bert_tf.bert_span_labeler,
    "ForMultipleChoice": bert_tf.bert_multiple_choice,
    "ForPreTraining": bert_tf.replaced_token_detector,
}


class Golden:
    """Small models of transformers, and what was recorded of them.

    Args:
      name: the folder's, in tests/golden/.
    """

    def __init__(self, name: str):
        folder = pathlib.Path(__file__).parent / "golden" / name
        self.config_class = find_architecture(name, "tests").config
        self.saved = folder / "saved"
        self.classes = sorted(path.name for path in self.saved.iterdir())
        self.outputs = dict(np.load(folder / "outputs.npz"))
        self.inputs = {k: v for k, v in self.outputs.items() if "/" not in k}

    def batch(self):
        """The inputs; segment_ids that nothing reads are 1."""
        found = {name: tf.constant(a) for name, a in self.inputs.items()}
        unread = int(not self.config_class.type_vocab_size)
        segments = tf.fill(found["input_ids"].shape, unread)
        return {"segment_ids": segments, **found}

    def real(self, array):
        """What is computed at tokens, without padding."""
        return np.asarray(array)[self.inputs["input_mask"] == 1]

    def encoder(self, name: str):
        """The encoder of a class of transformers'."""
        folder = self.saved / name
        return bert_tf.load_encoder(folder)

    def model(self, name: str):
        """Our model of a class of transformers' with a head."""
        folder = self.saved / name
        if name in _PRETRAINED:
            return bert_tf.BertPretrainer.from_checkpoint(folder)
        model = _MODELS["For" + name.partition("For")[2]](self.encoder(name))
        # Of heads on tokens no pooler is read.
        assert set(bert_tf.restore(model, folder)) <= {"pooler"}
        return model

    def assert_hidden_states(self, name: str) -> None:
        """Every hidden state of a class's encoder is transformers'."""
        encoder, batch = self.encoder(name), self.batch()
        for unpadded in (False, True):
            found = encoder(batch, return_all_layers=True, unpadded=unpadded)
            states = [found["embedding_output"], *found["all_encoder_layers"]]
            assert f"{name}/hidden_{len(states)}" not in self.outputs
            for number, state in enumerate(states):
                expected = self.outputs[f"{name}/hidden_{number}"]
                np.testing.assert_allclose(
                    self.real(state), self.real(expected), **CLOSE
                )

    def logits(self, name: str, model, batch):
        """All logits of a class's model, where they are of tokens alone."""
        if name.endswith("ForMultipleChoice"):
            return {"logits": model({k: v[None] for k, v in batch.items()})}
        if name in _PRETRAINED:
            rows, length = self.inputs["input_ids"].shape
            places = tf.repeat(tf.range(length)[None], rows, axis=0)
            outputs = model(batch | {"masked_lm_positions": places})
            logits = {
                theirs: outputs[ours]
                for ours, theirs in _OUTPUTS.items()
                if ours in outputs
            }
            if f"{name}/{_ORDER}" in self.outputs:
                logits[_ORDER] = logits.pop("seq_relationship_logits")
            if name.endswith("ForMaskedLM"):
                logits = {"logits": logits["prediction_logits"]}
        else:
            logits = model(batch)
        logits = logits if isinstance(logits, dict) else {"logits": logits}
        tokens = batch["input_mask"] == 1
        return {
            key: tf.boolean_mask(value, tokens)
            if value.shape[:2] == tokens.shape
            else value
            for key, value in logits.items()
        }

    def assert_logits(self, name: str, model: keras.Model) -> None:
        """The logits of a class are transformers'."""
        found = self.logits(name, model, self.batch())
        for key, logits in found.items():
            expected = self.outputs[f"{name}/{key}"]
            if expected.shape[:2] == self.inputs["input_ids"].shape:
                expected = self.real(expected)
            np.testing.assert_allclose(logits, expected, **CLOSE)

    def assert_gradients(self, name: str, model: keras.Model) -> None:
        """The gradients of the loss that is recorded are transformers'."""
        recorded = {
            key.removeprefix(f"{name}/gradient/"): value
            for key, value in self.outputs.items()
            if key.startswith(f"{name}/gradient/")
        }
        names = names_of(self.config_class).hugging_face
        if names.words_copy in recorded:
            # One array of two names.
            words, _ = word_tables(self.config_class)
            recorded[words] = recorded.pop(names.words_copy)
        if not recorded:
            # There is none of several kinds of logits.
            kinds = len(self.logits(name, model, self.batch()))
            assert kinds > 1 or name == "DistilBertForTokenClassification"
            return

        def loss():
            (logits,) = self.logits(name, model, self.batch()).values()
            return tf.reduce_mean(tf.square(logits))

        checkpoint = load_checkpoint(self.saved / name)
        head = next((h for h in checkpoint.heads if h in TASK_HEADS), None)
        table = stored_as_theirs(checkpoint.config, head)
        named = {
            ours: weight
            for ours, weight in weights_of(model).items()
            if ours in table and table[ours].name in recorded
        }
        assert len(recorded) == len(named)
        for ours, gradient in gradients_of(named, loss).items():
            stored = table[ours]
            given = gradient.T if stored.transposed else gradient
            np.testing.assert_allclose(
                given, recorded[stored.name], err_msg=ours, **CLOSE
            )

    def assert_round_trip(
        self, name: str, data: TokenizerData, folder: pathlib.Path
    ) -> None:
        """A class is converted to ours and back, exactly and with proof."""
        source = self.saved / name
        data.save(folder)
        vocabulary = folder / data.FILES[0]
        ours, theirs = folder / "ours", folder / "theirs"
        convert_checkpoint(source, "bert_tf", ours, vocab_file=vocabulary)
        convert_checkpoint(ours, "hugging_face", theirs)
        assert_same(load_checkpoint(source), load_checkpoint(theirs))
        assert bert_tf.load_tokenizer(theirs).data == data


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


def weights_of(model) -> NamedWeights:
    """The weights of a model on an encoder, by name."""
    return models._parts(model)[1]


# A tokenizer of 24 tokens.
LETTERS = WordPiece(
    Vocabulary([*SPECIAL_TOKENS, *"abcdefghijklmnopqrs"]),
    TokenizerConfig.of(True),
)


# A tokenizer without merges, its special tokens where RoBERTa's are.
BYTES = ByteLevelBpe(
    ["<s>", "<pad>", "</s>", "<unk>", *byte_letters(), "<mask>"],
    [],
    SpecialTokens("<pad>", "<unk>", "<s>", "</s>", "<mask>"),
)


def unigram_model(*special: str) -> bytes:
    """A unigram model of 24 pieces, of which the first and last are special."""
    model = ModelProto()
    letters = ["\u2581", *"etaoinshrdlucm", "\u2581t", "\u2581a", "th"]
    for piece in special[:-1]:
        kind = "UNKNOWN" if piece == "<unk>" else "CONTROL"
        model.pieces.add(piece=piece, type=getattr(model.SentencePiece, kind))
    for number, piece in enumerate(letters[: 24 - len(special)]):
        model.pieces.add(piece=piece, score=-2.0 - number / 10)
    model.pieces.add(piece=special[-1], type=model.SentencePiece.CONTROL)
    model.trainer_spec.model_type = model.trainer_spec.UNIGRAM
    model.trainer_spec.unk_id = special.index("<unk>")
    for name in ("bos_id", "eos_id", "pad_id"):
        setattr(model.trainer_spec, name, -1)
    serialized: bytes = model.SerializeToString()
    return serialized


UNIGRAM = Unigram(
    unigram_model("<s>", "<pad>", "</s>", "<unk>", "<mask>"),
    SpecialTokens("<pad>", "<unk>", "<s>", "</s>", "<mask>"),
)
ALBERT_UNIGRAM = AlbertUnigram(
    unigram_model("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"),
    SpecialTokens("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"),
)


def write_vocabulary(folder: pathlib.Path) -> pathlib.Path:
    """A vocabulary of 24 tokens."""
    LETTERS.vocabulary.save(folder / "vocab.txt")
    return folder / "vocab.txt"


def random_weights(model) -> None:
    """Gives a Keras model weights away from 0, and scales away from 1."""
    random = np.random.default_rng(0)
    for weight in model.weights:
        value = random.normal(0, 0.3, weight.shape)
        norm = "norm" in weight.path and weight.path.endswith("gamma")
        weight.assign(value + norm)


def assert_the_whole_way_by_commands(
    config, data: TokenizerData, folder: pathlib.Path
) -> None:
    """Converted, fine-tuned, scored, exported with its check, and asked."""
    theirs, ours = folder / "theirs", folder / "ours"
    arrays = {
        name: array
        for name, array in encoder_class(config)(config).to_arrays().items()
        if "pooler" not in name
    }
    save_checkpoint(
        theirs,
        bert_tf.Checkpoint(config, arrays).with_tokenizer(data),
        "hugging_face",
    )
    rows = "".join(
        f"{' '.join(text)}\t{label}\n"
        for text, label in [("ab", "x"), ("cd", "y"), ("ba", "x"), ("dc", "y")]
    )
    table = folder / "rows.tsv"
    table.write_text(f"text\tlabel\n{rows}")

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
        f"--train_file={table}",
        f"--dev_file={table}",
        "--text_columns=text",
        "--label_column=label",
        "--train_batch_size=4",
        "--num_train_epochs=1",
        "--max_seq_length=8",
    )
    written = json.loads((tuned / "bert_config.json").read_text())
    # A BERT's file does not name it.
    assert written.get("model_type", "bert") == config.model_type
    run("export_saved_model", f"--model={tuned}", f"--output_dir={exported}")
    served = tf.saved_model.load(str(exported / "1"))
    answer = served.signatures["serving_default"](text=tf.constant(["a b"]))
    expected = bert_tf.load(tuned)("a b")["probabilities"]
    np.testing.assert_allclose(
        answer["probabilities"][0], list(expected.values()), **CLOSE
    )
