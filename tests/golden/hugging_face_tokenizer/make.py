"""Writes the folders here with transformers' own BertTokenizer.

Usage: .venv-peers/bin/python tests/golden/hugging_face_tokenizer/make.py
"""

import json
import pathlib
import shutil

from transformers import AutoTokenizer, BertTokenizer

HERE = pathlib.Path(__file__).resolve().parent
TOKENS = (
    "[PAD] [UNK] [CLS] [SEP] [MASK] the fox ##es quick . cafe ich \u4eba"
).split()
TEXTS = ("The quick Foxes.", "Caf\u00e9 ich", "\u4ebafox", "the thefox")


def main() -> None:
    """Writes each folder and the ids that its tokenizer gives."""
    ids = {token: number for number, token in enumerate(TOKENS)}
    tokenizers = {
        "uncased": BertTokenizer(vocab=ids),
        "cased": BertTokenizer(vocab=ids, do_lower_case=False),
        "strip_accents": BertTokenizer(vocab=ids, strip_accents=False),
        "chinese_chars": BertTokenizer(vocab=ids, tokenize_chinese_chars=False),
        "added": BertTokenizer(vocab=ids),
    }
    tokenizers["added"].add_tokens(["newword", "two words"])
    tokenizers["added"].add_special_tokens({"extra_special_tokens": ["[E1]"]})
    for name, tokenizer in tokenizers.items():
        folder = HERE / name
        shutil.rmtree(folder, ignore_errors=True)
        tokenizer.save_pretrained(folder)
        again = AutoTokenizer.from_pretrained(folder)
        encoded = {
            text: again(text, add_special_tokens=False)["input_ids"]
            for text in TEXTS
        }
        (folder / "ids.json").write_text(json.dumps(encoded, indent=2) + "\n")


if __name__ == "__main__":
    main()
