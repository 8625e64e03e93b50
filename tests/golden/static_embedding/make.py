"""Writes folders of StaticEmbedding and what sentence-transformers computes.

See README.md.
"""

import json
import pathlib
import shutil

import numpy as np
import torch
from safetensors.torch import save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import (
    Normalize,
    StaticEmbedding,
)
from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

HERE = pathlib.Path(__file__).parent
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = "the a cat dog sat ##s run ##ning . , on mat é e f".split()
TEXTS = [
    "The cats sat on the mat.",
    "",
    "a dog running [SEP] zzz",
    "[CLS] e, É",
    "dog " * 700,
    "[UNK] [PAD] a",
]


def word_pieces(special: list[str]) -> Tokenizer:
    tokens = {token: n for n, token in enumerate([*special, *WORDS])}
    made = Tokenizer(
        models.WordPiece(
            tokens, unk_token="[UNK]", max_input_chars_per_word=100
        )
    )
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.add_special_tokens(special)
    return made


def of_bert() -> Tokenizer:
    """As bert-base-uncased has it, with special tokens around texts."""
    made = word_pieces(SPECIAL)
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    made.enable_padding()
    return made


def byte_level() -> Tokenizer:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    merges = [("a", "t"), ("c", "at"), ("t", "h"), ("th", "e")]
    tokens = [*special, *letters, *(a + b for a, b in merges)]
    made = Tokenizer(models.BPE({t: n for n, t in enumerate(tokens)}, merges))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    made.add_special_tokens([AddedToken(t, normalized=False) for t in special])
    return made


def write(name: str, tokenizer: Tokenizer, *modules: torch.nn.Module) -> None:
    random = np.random.default_rng(len(name))
    shape = tokenizer.get_vocab_size(), 6
    weights = random.normal(size=shape).astype(np.float32)
    static = StaticEmbedding(tokenizer, embedding_weights=weights)
    SentenceTransformer(modules=[static, *modules]).save(str(HERE / name))


def main() -> None:
    for name, tokenizer, modules in (
        ("bert", of_bert(), [Normalize()]),
        # Its files, as those of minishlab/potion-base-8M, lack [CLS].
        ("model2vec", word_pieces(SPECIAL[:2]), []),
        ("byte_level", byte_level(), [Normalize()]),
    ):
        shutil.rmtree(HERE / name, ignore_errors=True)
        write(name, tokenizer, *modules)
        (HERE / name / "README.md").unlink()
    folder = HERE / "model2vec"
    size, random = 2 + len(WORDS), np.random.default_rng(7)
    arrays = {
        "embeddings": random.normal(size=(5, 6)).astype(np.float32),
        "mapping": random.integers(0, 5, size),
        "weights": random.random(size).astype(np.float32),
    }
    save_file(
        {name: torch.from_numpy(array) for name, array in arrays.items()},
        folder / "model.safetensors",
    )
    names = ("bert", "model2vec", "byte_level")
    vectors = {
        name: SentenceTransformer(str(HERE / name), device="cpu").encode(TEXTS)
        for name in names
    }
    np.savez(HERE / "vectors.npz", **vectors)
    text = json.dumps(TEXTS, ensure_ascii=False)
    (HERE / "texts.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
