"""Nothing assumes where a vocabulary has its special tokens.

SciBERT's has [UNK], [CLS], [SEP] and [MASK] a row later than BERT's, another
pads with its last token, and a third calls them otherwise; here a model's
vocabulary is put into those orders, and everything gives the same.
"""

import dataclasses
import functools
import itertools

import numpy as np
import pytest
import tensorflow as tf
from model_helpers import small_config

import bert_tf
from bert_tf.checkpoints import Checkpoint, load_checkpoint, save_checkpoint
from bert_tf.conversion import convert_checkpoint
from bert_tf.corpora.sources import parse_inputs
from bert_tf.records import dynamic_masking, masking
from bert_tf.records.build import create_records
from bert_tf.records.dataset import RecordFolder, held_out_batches
from bert_tf.records.masking import MaskingRule
from bert_tf.records.recipe import RecordsRecipe
from bert_tf.text.layout import SentencePacker
from bert_tf.text.token_table import SPECIAL_TOKENS, SpecialTokens
from bert_tf.text.tokenizer import BertTokenizer
from bert_tf.text.vocabulary import Vocabulary

PIECES = "the cell ##s divide ##d protein of a in membrane , .".split()
PLAIN = Vocabulary([*SPECIAL_TOKENS, *PIECES])
UNUSED = [f"[unused{number}]" for number in range(1, 101)]
SCIBERT = Vocabulary(["[PAD]", *UNUSED, *SPECIAL_TOKENS[1:], *PIECES])
# And a piece within a word has the id that pads a BERT's rows.
PADDING_LAST = Vocabulary(
    ["##s", *SPECIAL_TOKENS[1:], *PIECES[:2], *PIECES[3:], "[PAD]"]
)
NAMED = Vocabulary(
    ["<s>", "<pad>", "</s>", "<unk>", *PIECES, "<mask>"],
    special=SpecialTokens("<pad>", "<unk>", "<s>", "</s>", "<mask>"),
)
TEXTS = [
    "The cells divided, in a membrane.",
    "protein of the membrane",
    "unknown [MASK] Cell",
    "",
]


@pytest.fixture(
    params=[SCIBERT, PADDING_LAST, NAMED], ids=["scibert", "pad_last", "named"]
)
def other(request):
    return request.param


def save(vocabulary, folder):
    """Writes a vocabulary and what says how its special tokens are called."""
    folder.mkdir(exist_ok=True)
    BertTokenizer(vocabulary, lower_case=True).save(folder)
    return folder / "vocab.txt"


@pytest.fixture
def moved_ids(other):
    """The id in the other order of each of the plain one."""
    names = dict(zip(SPECIAL_TOKENS, other.special, strict=True))
    return np.array([other.ids[names.get(t, t)] for t in PLAIN.tokens])


@functools.cache
def tokenizers(other):
    return [BertTokenizer(each, lower_case=True) for each in (PLAIN, other)]


def test_pieces_and_rows(other, moved_ids):
    plain, moved = tokenizers(other)
    ids = [each.tokenize(TEXTS).to_list() for each in (plain, moved)]
    assert [moved_ids[row].tolist() for row in ids[0]] == ids[1]
    assert plain.detokenize(ids[0][0]) == moved.detokenize(ids[1][0])
    assert_worker_agrees(moved)
    packs = SentencePacker(plain, 12), SentencePacker(moved, 12)
    first, second = (pack(TEXTS[:2], TEXTS[2:]) for pack in packs)
    rows = moved_ids[first["input_ids"].numpy()]
    np.testing.assert_array_equal(rows, second["input_ids"])
    for name in ("input_mask", "segment_ids"):
        np.testing.assert_array_equal(first[name], second[name])


def assert_worker_agrees(tokenizer):
    """Ids of texts in a worker are those in the graph."""
    text = "".join(f"{text}\n" for text in TEXTS).encode()
    sizes = np.array([len(text.encode()) for text in TEXTS])
    found, counts = tokenizer.data.worker().tokenize(text, sizes)
    expected = tokenizer.tokenize(TEXTS)
    np.testing.assert_array_equal(found, expected.flat_values)
    np.testing.assert_array_equal(counts, expected.row_lengths())


def test_blank_entries_and_repeated_tokens():
    """Blank ones are found in no text, and of repeated ones the last counts."""
    entries = ["\u2028", "the", "", "##s", "[SEP]", " cell", "\u3000", "."]
    other = Vocabulary([*entries, *PLAIN.tokens, "##"], notify=False)
    ids = [each.tokenize(TEXTS) for each in tokenizers(other)]
    assert ids[1].to_list() == (ids[0] + len(entries)).to_list()
    assert_worker_agrees(tokenizers(other)[1])


def rows():
    random = np.random.default_rng(0)
    ids = random.integers(5, len(PLAIN), (64, 20)).astype("int32")
    lengths = random.integers(5, 21, 64)
    ids[:, 0] = PLAIN.cls_id
    ids[np.arange(64), lengths - 1] = PLAIN.sep_id
    ids[np.arange(20) >= lengths[:, None]] = PLAIN.pad_id
    return ids, lengths


@pytest.mark.parametrize("other", [PADDING_LAST], indirect=True)
@pytest.mark.parametrize("in_graph", [False, True])
@pytest.mark.parametrize("whole_word_mask", [False, True])
def test_masks(whole_word_mask, in_graph, other, moved_ids):
    recipe = RecordsRecipe(
        max_seq_length=20,
        max_predictions_per_seq=6,
        masked_lm_prob=0.3,
        mask_token_rate=1.0,
        random_token_rate=0.0,
        whole_word_mask=whole_word_mask,
    )
    found = []
    for vocabulary in (PLAIN, other):
        ids, lengths = rows()
        if vocabulary is other:
            ids = moved_ids[ids].astype("int32")
        rule = MaskingRule.from_recipe(recipe, vocabulary)
        if in_graph:
            seed = tf.constant([1, 2], tf.int64)
            noise = dynamic_masking.draw_noise(*ids.shape, seed, rule)
            masked = dynamic_masking.mask_rows(
                tf.constant(ids), tf.constant(lengths, tf.int32), noise, rule
            )
            found.append({name: x.numpy() for name, x in masked.items()})
        else:
            rng = np.random.default_rng(3)
            found.append(masking.mask_rows(ids, lengths, rule, rng))
    plain, moved = found
    assert (moved["input_ids"] == other.mask_id).sum() > 100
    rows_in_order = moved_ids[plain["input_ids"]]
    np.testing.assert_array_equal(rows_in_order, moved["input_ids"])
    used = plain["masked_lm_weights"] == 1
    for name in ("masked_lm_positions", "masked_lm_weights"):
        np.testing.assert_array_equal(plain[name], moved[name])
    np.testing.assert_array_equal(
        moved_ids[plain["masked_lm_ids"][used]], moved["masked_lm_ids"][used]
    )


@pytest.mark.parametrize(
    ("other", "form", "whole_word_mask"),
    [
        (SCIBERT, "plain", False),
        (PADDING_LAST, "packing", True),
        (NAMED, "static_masking", True),
    ],
    indirect=["other"],
)
def test_records(form, whole_word_mask, other, moved_ids, tmp_path):
    text = tmp_path / "text.txt"
    random = np.random.default_rng(0)
    sentences = [" ".join(random.choice(PIECES[:1] + PIECES[4:], 6))] * 3
    text.write_text("\n\n".join(["\n".join(sentences)] * 40) + "\n")
    # Random tokens are drawn by id.
    recipe = RecordsRecipe(
        max_seq_length=32,
        held_out=0.2,
        mask_token_rate=0.8,
        random_token_rate=0.0,
        whole_word_mask=whole_word_mask,
    )
    if form != "plain":
        recipe = dataclasses.replace(recipe, **{form: True})
    found = []
    for name, vocabulary in (("plain", PLAIN), ("moved", other)):
        create_records(
            parse_inputs(str(text), recipe),
            save(vocabulary, tmp_path / f"{name}_vocabulary"),
            tmp_path / name,
            recipe,
            workers=1,
        )
        batches = held_out_batches(RecordFolder.open(tmp_path / name), 4)
        found.append(list(batches.as_numpy_iterator()))
    assert (found[0][0]["input_mask"] == 0).any()
    for plain, moved in zip(*found, strict=True):
        # Rows that fill the last batch up are of no token.
        real = plain["input_mask"].any(axis=1)
        used = plain["masked_lm_weights"] == 1
        for name, values in plain.items():
            rows, own = values[real], moved[name][real]
            if name == "input_ids":
                rows = moved_ids[rows]
            if name == "masked_lm_ids":
                rows, own = moved_ids[values[used]], moved[name][used]
            np.testing.assert_array_equal(rows, own, name)


@pytest.mark.parametrize("other", [NAMED], indirect=True)
def test_a_model_fills_masks_and_embeds_as_before(other, moved_ids, tmp_path):
    config = small_config(vocab_size=len(PLAIN), initializer_range=0.5)
    arrays = bert_tf.BertPretrainer(config).to_arrays()
    save_checkpoint(
        tmp_path / "plain", Checkpoint(config, arrays, PLAIN, lower_case=True)
    )
    convert_checkpoint(
        tmp_path / "plain",
        "bert_tf",
        tmp_path / "moved",
        vocab_file=save(other, tmp_path / "vocabulary"),
    )
    moved = load_checkpoint(tmp_path / "moved")
    assert moved.vocabulary.mask_id == other.mask_id
    words = moved.arrays["bert/embeddings/word_embeddings"]
    before = arrays["bert/embeddings/word_embeddings"]
    np.testing.assert_array_equal(words[moved_ids], before)
    names = ("plain", "moved")
    vectors = [bert_tf.embed(tmp_path / name, TEXTS) for name in names]
    np.testing.assert_allclose(*vectors, atol=1e-6)
    filled = [
        {
            candidate.token: candidate.probability
            for candidate in bert_tf.fill_mask(
                tmp_path / name,
                f"the {vocabulary.special.mask} divided",
                top_k=len(vocabulary),
            )[0]
        }
        for name, vocabulary in (("plain", PLAIN), ("moved", other))
    ]
    # New rows take probability from all others alike.
    ratios = [filled[1][piece] / filled[0][piece] for piece in PIECES]
    np.testing.assert_allclose(ratios, ratios[0], rtol=1e-4)


def test_folders_of_every_family_keep_the_names(tmp_path):
    config = small_config(vocab_size=len(NAMED), num_hidden_layers=1)
    arrays = bert_tf.BertPretrainer(config).to_arrays()
    families = ("bert_tf", "hugging_face", "google_tf1")
    for family, lower_case in itertools.product(families, (True, None)):
        checkpoint = Checkpoint(config, arrays, NAMED, lower_case)
        folder = tmp_path / f"{family}_{lower_case}"
        save_checkpoint(folder, checkpoint, family)
        read = BertTokenizer.from_checkpoint(folder)
        assert read.vocabulary == NAMED
        assert read.vocabulary.special == NAMED.special
