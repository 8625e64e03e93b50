"""Checkpoints of google-research/electra: a discriminator and its generator."""

import numpy as np
import tensorflow as tf

from bert_tf.checkpoints import (
    MASKED_LM,
    REPLACED_TOKENS,
    load_checkpoint,
    save_checkpoint,
)
from bert_tf.config import BertConfig
from bert_tf.conversion import convert_checkpoint
from tests import commands
from tests.checkpoints.arrays import write_variables
from tests.contracts.architecture_cases import CASES
from tests.relatives import Golden, assert_same, write_vocabulary
from tests.user_errors import error_of

GOLDEN = Golden("electra")
GENERATOR = "ElectraForMaskedLM"
CLASSES = "ElectraForSequenceClassification"
tiny_config = CASES["electra"].config


def write_google(folder, arrays):
    """A checkpoint as google-research/electra's estimators leave it."""
    folder.mkdir()
    write_variables(folder / "model.ckpt-7", arrays)
    write_vocabulary(folder)
    return folder


def google_arrays(width=6, hidden=64, generator=16):
    """Google's names and shapes of a discriminator and a generator."""

    def dense(name, rows, columns):
        return {f"{name}/kernel": (rows, columns), f"{name}/bias": (columns,)}

    def norm(name, size):
        return {f"{name}/gamma": (size,), f"{name}/beta": (size,)}

    at = "electra/embeddings"
    shapes = {
        f"{at}/word_embeddings": (24, width),
        f"{at}/token_type_embeddings": (2, width),
        f"{at}/position_embeddings": (12, width),
        **norm(f"{at}/LayerNorm", width),
        "generator_predictions/output_bias": (24,),
        **dense("generator_predictions/dense", generator, width),
        **norm("generator_predictions/LayerNorm", width),
        **dense("discriminator_predictions/dense", hidden, hidden),
        **dense("discriminator_predictions/dense_1", hidden, 1),
    }
    for body, size in (("electra", hidden), ("generator", generator)):
        shapes |= dense(f"{body}/embeddings_project", width, size)
        for number in range(2):
            layer = f"{body}/encoder/layer_{number}"
            for part in "self/query self/key self/value output/dense".split():
                shapes |= dense(f"{layer}/attention/{part}", size, size)
            shapes |= dense(f"{layer}/intermediate/dense", size, 4 * size)
            shapes |= dense(f"{layer}/output/dense", 4 * size, size)
            shapes |= norm(f"{layer}/attention/output/LayerNorm", size)
            shapes |= norm(f"{layer}/output/LayerNorm", size)
    random = np.random.default_rng(0)
    return {
        name: random.normal(name.endswith("gamma"), 0.2, shape).astype(
            "float32"
        )
        for name, shape in shapes.items()
    }


def test_a_tf1_checkpoint_holds_a_discriminator_and_a_generator(tmp_path):
    arrays = google_arrays()
    step = {"global_step": np.int64(7)}
    slots = {f"{name}/adam_m": array for name, array in arrays.items()}
    folder = write_google(tmp_path / "google", arrays | slots | step)
    words = arrays["electra/embeddings/word_embeddings"]
    for generator, head, size, body in (
        (False, REPLACED_TOKENS, 64, "electra"),
        (True, MASKED_LM, 16, "generator"),
    ):
        checkpoint = load_checkpoint(folder, generator=generator)
        config = tiny_config(
            hidden_size=size, num_attention_heads=1, intermediate_size=4 * size
        )
        assert checkpoint.config == config
        assert checkpoint.heads == (head,)
        found = checkpoint.arrays
        np.testing.assert_array_equal(
            found["bert/embeddings/word_embeddings"], words
        )
        for part in ("embeddings_project", "encoder/layer_1/output/dense"):
            name = f"{part}/bias"
            np.testing.assert_array_equal(
                found[f"bert/{name}"], arrays[f"{body}/{name}"]
            )
        # It is proved, and comes back from each family.
        ours, theirs, googles = (
            tmp_path / f"{body}_{family}" for family in ("ours", "hf", "tf1")
        )
        convert_checkpoint(folder, "bert_tf", ours, generator=generator)
        save_checkpoint(theirs, load_checkpoint(ours), "hugging_face")
        save_checkpoint(googles, load_checkpoint(theirs), "google_tf1")
        for target in (ours, theirs, googles):
            assert_same(load_checkpoint(target), checkpoint)
        stored = tf.train.list_variables(str(googles / "bert_model.ckpt"))
        names = {name for name, _ in stored}
        own = {"electra", "discriminator_predictions"}
        if generator:
            own = {"electra/embeddings", "generator", "generator_predictions"}
        own = tuple(f"{name}/" for name in own)
        assert names == {name for name in arrays if name.startswith(own)}


def test_a_generator_alone_is_read_and_one_encoder_may_be_both(tmp_path):
    arrays = google_arrays()
    alone = {
        name: array
        for name, array in arrays.items()
        if "discriminator" not in name
        and "electra/enc" not in name
        and "electra/embeddings_project" not in name
    }
    folder = write_google(tmp_path / "alone", alone)
    assert load_checkpoint(folder).heads == (MASKED_LM,)
    both = google_arrays(generator=64)
    both = {n: a for n, a in both.items() if not n.startswith("generator/")}
    folder = write_google(tmp_path / "both", both)
    checkpoint = load_checkpoint(folder)
    assert checkpoint.heads == (MASKED_LM, REPLACED_TOKENS)
    assert_same(load_checkpoint(folder, generator=True), checkpoint)
    convert_checkpoint(folder, "google_tf1", tmp_path / "again")
    assert_same(load_checkpoint(tmp_path / "again"), checkpoint)


def test_what_is_refused_of_tf1(tmp_path):
    arrays = google_arrays()
    discriminator = {n: a for n, a in arrays.items() if "generator" not in n}
    folder = write_google(tmp_path / "google", discriminator)
    line = error_of(load_checkpoint, folder, generator=True)
    assert line.startswith(f"`generator`=True: {folder}")
    assert "holds no generator" in line
    source = GOLDEN.saved / GENERATOR
    line = error_of(load_checkpoint, source, generator=True)
    assert "`generator`=True" in line
    assert "a folder of hugging_face" in line
    tuned = load_checkpoint(GOLDEN.saved / CLASSES)
    line = error_of(save_checkpoint, tmp_path / "no", tuned, "google_tf1")
    assert "no names for pooler and classifier" in line
    # A configuration that is not of these arrays.
    config = folder / "bert_config.json"
    tiny_config(hidden_size=64).save(config)
    assert "do not fit the configuration" in error_of(load_checkpoint, folder)
    BertConfig(24).save(config)
    assert "model_type is bert" in error_of(load_checkpoint, folder)
    config.unlink()
    del discriminator["electra/embeddings/position_embeddings"]
    folder = write_google(tmp_path / "part", discriminator)
    assert "put its bert_config.json beside" in error_of(
        load_checkpoint, folder
    )
    assert not (tmp_path / "no").exists()


def test_the_command_converts_a_generator(tmp_path):
    done = commands.run(
        "tools.convert_checkpoint",
        f"--input={write_google(tmp_path / 'google', google_arrays())}",
        *("--to=bert_tf", "--generator", f"--output_dir={tmp_path / 'ours'}"),
    )
    assert done.returncode == 0, done.stderr
    assert "masked_lm_logits" in done.stdout
    assert "heads are taken to be 16 wide" in done.stderr
