"""Nothing but a tokenizer's own files knows how it works.

A tokenizer of another kind, see `letters_tokenizer`, takes the place of
WordPiece's: records, a training, answers, explanations and exports.
"""

import dataclasses
import json
import pickle

import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.architectures import bert
from bert_tf.checkpoints import Checkpoint, save_checkpoint
from bert_tf.encoders import BertEncoder
from bert_tf.errors import UserError
from bert_tf.families.pretrained.answers import PretrainedModel
from bert_tf.inference.saving import EXTRA, MODEL_FILE, write_saved_model
from bert_tf.inference.served_folder import served_model
from bert_tf.records.build import create_records
from bert_tf.records.dataset import training_batches
from bert_tf.records.folder import RecordFolder
from bert_tf.records.recipe import RecordsRecipe
from tests.contracts.task_cases import without_drawings
from tests.finetuning.sentence_runs import texts
from tests.letters_tokenizer import (
    END,
    MASK,
    PAD,
    Letters,
    LettersTokenizer,
    pieces,
)
from tests.model_helpers import fill, small_config
from tests.user_errors import error_of

# Eagerly run, tf.data's functions stay graphs, of which TensorFlow warns.
pytestmark = pytest.mark.filterwarnings("ignore:Even though")
TEXTS = ["It's fine, 10 of 10!", "", "so  good", "a b"]


@pytest.fixture(autouse=True, scope="module")
def letters():
    with pytest.MonkeyPatch.context() as patch:
        architecture = dataclasses.replace(bert.BERT, tokenizer=Letters)
        patch.setattr(bert, "BERT", architecture)
        yield Letters()


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    folder = tmp_path_factory.mktemp("start") / "model"
    data = Letters()
    config = small_config(
        vocab_size=len(data), max_position_embeddings=96, num_hidden_layers=1
    )
    pretrainer = fill(bert_tf.BertPretrainer(config))
    checkpoint = Checkpoint(config, pretrainer.to_arrays())
    save_checkpoint(folder, checkpoint.with_tokenizer(data))
    return folder


def test_it_keeps_its_promises(letters):
    tokenizer, worker = letters.tokenizer(), letters.worker()
    ids, begins, ends = tokenizer.tokenize_with_offsets(TEXTS)
    for row, text in enumerate(TEXTS):
        expected, places = pieces(text)
        assert ids[row].numpy().tolist() == expected
        assert begins[row].numpy().tolist() == places
        assert (ends[row] - begins[row]).numpy().tolist() == [1] * len(places)
    data = "".join(f"{text}\n" for text in TEXTS).encode()
    flat, counts = worker.tokenize(data, np.array([len(t) for t in TEXTS]))
    assert flat.tolist() == ids.flat_values.numpy().tolist()
    assert counts.tolist() == ids.row_lengths().numpy().tolist()
    assert pickle.loads(pickle.dumps(letters)) == letters


def test_a_folder_opens_with_the_tokenizer_of_its_architecture(start):
    assert {path.name for path in start.iterdir()} == {
        *("bert_config.json", "bert_model.safetensors", "letters.json")
    }
    tokenizer = bert_tf.load_tokenizer(start)
    assert isinstance(tokenizer, LettersTokenizer)
    assert bert_tf.load_checkpoint(start).tokenizer == tokenizer.data
    (start / "letters.json").rename(start / "hidden")
    line = error_of(bert_tf.load_tokenizer, start)
    assert line.startswith(f"{start}: holds no vocabulary")
    assert "letters.json" in line
    (start / "hidden").rename(start / "letters.json")


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    folder = tmp_path_factory.mktemp("records")
    Letters().save(folder)
    lines = [example.text_a for example in texts(60, 3)]
    lines[5::6] = [""] * len(lines[5::6])
    (folder / "text.txt").write_text("\n".join(lines))
    recipe = RecordsRecipe(
        max_seq_length=64,
        max_predictions_per_seq=20,
        whole_word_mask=True,
        mask_token_rate=1.0,
        random_token_rate=0.0,
        lower_case=False,
        packing=False,
    )
    arguments = [folder / "text.txt"], folder / "letters.json", folder / "out"
    create_records(*arguments, recipe, workers=1)
    said = []
    create_records(*arguments, recipe, workers=1, log=said.append)
    (line,) = said
    assert line.startswith(f"{folder / 'out'}: ")
    assert "nothing to do" in line
    with pytest.raises(UserError, match="keeps case"):
        create_records(
            *arguments[:2],
            folder / "other",
            RecordsRecipe(lower_case=True),
            workers=1,
        )
    return folder / "out"


def test_records_mask_whole_words(records, letters):
    folder = RecordFolder.open(records)
    assert (records / "letters.json").exists()
    assert not (records / "vocab.txt").exists()
    assert folder.tokenizer == letters
    batch = next(iter(training_batches(folder, 16, seed=1)))
    rows = {name: np.array(values) for name, values in batch.items()}
    starts = letters.starts_word
    masked = 0
    for row in range(16):
        ids = rows["input_ids"][row]
        length = rows["input_mask"][row].sum()
        assert (ids[length:] == PAD).all()
        assert ids[length - 1] == END
        is_masked = ids[:length] == MASK
        count = int(rows["masked_lm_weights"][row].sum())
        assert is_masked.sum() == count > 0
        places = rows["masked_lm_positions"][row][:count]
        original = ids[:length].copy()
        original[places] = rows["masked_lm_ids"][row][:count]
        assert not is_masked[original == END].any()
        # Letters of a word are masked together.
        word = np.cumsum(starts[original])
        word[original == END] = -1
        for number in range(word.max() + 1):
            assert len(set(is_masked[word == number])) <= 1
        masked += count
    assert masked > 100


@pytest.fixture(scope="module")
def run(start, tmp_path_factory):
    train, dev = (
        ([e.text_a[:80] for e in rows], [e.label for e in rows])
        for rows in (texts(40, 1), texts(9, 2))
    )
    tf.config.run_functions_eagerly(True)
    try:
        with without_drawings():
            return bert_tf.finetune(
                start,
                train,
                dev=dev,
                output_dir=tmp_path_factory.mktemp("runs") / "run",
                max_seq_length=96,
                train_batch_size=8,
                num_train_epochs=0.4,
                settings={"eval_batch_size": 4},
            )
    finally:
        tf.config.run_functions_eagerly(False)


def test_a_fine_tuned_model_answers_and_explains(run, eagerly):
    model = bert_tf.load(run.folder)
    assert isinstance(model.tokenizer, LettersTokenizer)
    text = "It's a  fine plot, so good."
    answer = model(text)
    assert answer == run.model(text)
    why = model.explain(text, steps=4)
    assert [word.text for word in why.words] == (
        "It 's a fine plot , so good .".split()
    )
    assert [text[word.start : word.end] for word in why.words] == [
        word.text for word in why.words
    ]
    assert len(why.rows[0].tokens) == len(pieces(text)[0]) + 1
    assert any(word.share for word in why.words)


def test_a_saved_model_takes_text(run, tmp_path):
    folder = write_saved_model(served_model(run.folder), tmp_path)
    assets = [path.name for path in (folder / "assets").iterdir()]
    assert assets == ["letters.json"]
    described = json.loads((folder / EXTRA / MODEL_FILE).read_text())
    assert described["mask_token"] == "<mask>"
    served = tf.saved_model.load(str(folder))
    given = TEXTS[:1] + TEXTS[2:]
    found = served.signatures["serving_default"](text=tf.constant(given))
    for text, label in zip(given, found["label"].numpy(), strict=True):
        assert run.model(text)["label"] == label.decode()


def test_masks_and_vectors(start, eagerly):
    (filled,) = bert_tf.fill_mask(start, "so g<mask>od", top_k=3)
    assert {best.token for best in filled} < set(Letters().tokens)
    vectors = bert_tf.embed(start, ["so good", "dull"], pooling="mean")
    assert vectors.shape == (2, 24)
    assert np.isfinite(vectors).all()


def test_a_model_in_keras_file(start, tmp_path):
    model = bert_tf.TextClassifier.from_checkpoint(start, ["no", "yes"], 32)
    model.save(tmp_path / "model.keras")
    again = tf.keras.models.load_model(tmp_path / "model.keras")
    assert isinstance(again.tokenizer, LettersTokenizer)
    given = np.array(TEXTS, object)
    np.testing.assert_array_equal(again.predict(given), model.predict(given))


def test_without_a_mask_there_is_nothing_to_fill():
    class NoMask(Letters):
        special = Letters.special._replace(mask=None)

    data = NoMask()
    assert (data.mask_id, data.cls_id, data.unk_id) == (-1, -1, -1)
    assert data.blank_id == PAD
    config = small_config(vocab_size=len(data))
    pretrainer = bert_tf.BertPretrainer(config)
    model = PretrainedModel(pretrainer, data.tokenizer())
    line = error_of(bert_tf.fill_mask, model, "so")
    assert "no mask token" in line
    encoder = BertEncoder(config)
    assert bert_tf.embed((encoder, data.tokenizer()), ["so"]).shape == (1, 24)
