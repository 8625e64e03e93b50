"""Nothing assumes where a vocabulary has its special tokens.

SciBERT's has [UNK], [CLS], [SEP] and [MASK] a row later than BERT's; here a
model's vocabulary is put into that order, and everything gives the same.
"""

import numpy as np
import pytest
import tensorflow as tf
from model_helpers import small_config

import bert_tf
from bert_tf.checkpoints import Checkpoint, load_checkpoint, save_checkpoint
from bert_tf.conversion import convert_checkpoint
from bert_tf.records import dynamic_masking, masking
from bert_tf.records.masking import MaskingRule
from bert_tf.records.recipe import RecordsRecipe
from bert_tf.text.corpus_tokenizer import CorpusTokenizer
from bert_tf.text.packing_graph import SentencePacker
from bert_tf.text.tokenizer import BertTokenizer
from bert_tf.text.tokenizer_config import TokenizerConfig
from bert_tf.text.vocabulary import SPECIAL_TOKENS, Vocabulary

PIECES = "the cell ##s divide ##d protein of a in membrane , .".split()
PLAIN = Vocabulary([*SPECIAL_TOKENS, *PIECES])
UNUSED = [f"[unused{number}]" for number in range(1, 101)]
SCIBERT = Vocabulary(["[PAD]", *UNUSED, *SPECIAL_TOKENS[1:], *PIECES])
# The id in SciBERT's order of each of the others.
MOVED = np.array([SCIBERT.ids[token] for token in PLAIN.tokens])
TEXTS = [
    "The cells divided, in a membrane.",
    "protein of the membrane",
    "unknown [MASK] Cell",
    "",
]


def tokenizers():
    return [BertTokenizer(each, lower_case=True) for each in (PLAIN, SCIBERT)]


def test_the_special_tokens_are_where_scibert_has_them():
    assert [SCIBERT.ids[token] for token in SPECIAL_TOKENS] == [
        *(0, 101, 102, 103, 104)
    ]


def test_pieces_and_rows():
    plain, moved = tokenizers()
    ids = [each.tokenize(TEXTS).to_list() for each in (plain, moved)]
    assert [MOVED[row].tolist() for row in ids[0]] == ids[1]
    assert plain.detokenize(ids[0][0]) == moved.detokenize(ids[1][0])
    first, second = (
        SentencePacker(each, 12)(TEXTS[:2], TEXTS[2:])
        for each in (plain, moved)
    )
    np.testing.assert_array_equal(
        MOVED[first["input_ids"].numpy()], second["input_ids"]
    )
    for name in ("input_mask", "segment_ids"):
        np.testing.assert_array_equal(first[name], second[name])


def test_a_corpus():
    text = "".join(f"{text}\n" for text in TEXTS).encode()
    sizes = np.array([len(text.encode()) for text in TEXTS])
    config = TokenizerConfig.of(True)
    (first, counts), (second, moved_counts) = (
        CorpusTokenizer(each, config).tokenize(text, sizes)
        for each in (PLAIN, SCIBERT)
    )
    np.testing.assert_array_equal(MOVED[first], second)
    np.testing.assert_array_equal(counts, moved_counts)


def rows(vocabulary):
    random = np.random.default_rng(0)
    ids = random.integers(5, len(PLAIN), (64, 20)).astype("int32")
    lengths = random.integers(5, 21, 64)
    ids[:, 0] = PLAIN.cls_id
    ids[np.arange(64), lengths - 1] = PLAIN.sep_id
    ids[np.arange(20) >= lengths[:, None]] = PLAIN.pad_id
    return (ids if vocabulary is PLAIN else MOVED[ids].astype("int32")), lengths


@pytest.mark.parametrize("in_graph", [False, True])
@pytest.mark.parametrize("whole_word_mask", [False, True])
def test_masks(whole_word_mask, in_graph):
    recipe = RecordsRecipe(
        max_seq_length=20,
        max_predictions_per_seq=6,
        masked_lm_prob=0.3,
        mask_token_rate=1.0,
        random_token_rate=0.0,
        whole_word_mask=whole_word_mask,
    )
    found = []
    for vocabulary in (PLAIN, SCIBERT):
        ids, lengths = rows(vocabulary)
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
            found.append(vars(masking.mask_rows(ids, lengths, rule, rng)))
    plain, moved = found
    assert (moved["input_ids"] == 104).sum() > 100
    np.testing.assert_array_equal(MOVED[plain["input_ids"]], moved["input_ids"])
    used = plain["masked_lm_weights"] == 1
    for name in ("masked_lm_positions", "masked_lm_weights"):
        np.testing.assert_array_equal(plain[name], moved[name])
    np.testing.assert_array_equal(
        MOVED[plain["masked_lm_ids"][used]], moved["masked_lm_ids"][used]
    )


def test_a_model_fills_masks_and_embeds_as_before(tmp_path):
    config = small_config(vocab_size=len(PLAIN), initializer_range=0.5)
    arrays = bert_tf.BertPretrainer(config).to_arrays()
    save_checkpoint(
        tmp_path / "plain", Checkpoint(config, arrays, PLAIN, lower_case=True)
    )
    SCIBERT.save(tmp_path / "vocab.txt")
    convert_checkpoint(
        tmp_path / "plain",
        "bert_tf",
        tmp_path / "moved",
        vocab_file=tmp_path / "vocab.txt",
    )
    moved = load_checkpoint(tmp_path / "moved")
    assert moved.vocabulary.mask_id == 104
    words = moved.arrays["bert/embeddings/word_embeddings"]
    np.testing.assert_array_equal(
        words[MOVED], arrays["bert/embeddings/word_embeddings"]
    )
    vectors = [
        bert_tf.embed(tmp_path / name, TEXTS) for name in ("plain", "moved")
    ]
    np.testing.assert_allclose(*vectors, atol=1e-6)
    text = "the [MASK] divided"
    filled = [
        {
            candidate.token: candidate.probability
            for candidate in bert_tf.fill_mask(
                tmp_path / name, text, top_k=len(vocabulary)
            )[0]
        }
        for name, vocabulary in (("plain", PLAIN), ("moved", SCIBERT))
    ]
    # New rows take probability from all others alike.
    ratios = [filled[1][piece] / filled[0][piece] for piece in PIECES]
    np.testing.assert_allclose(ratios, ratios[0], rtol=1e-4)
