"""Reads and writes folders of StaticEmbedding of sentence-transformers.

modules.json        StaticEmbedding, then perhaps Dense and Normalize
model.safetensors   embedding.weight, float [V, D]; in folders of model2vec
                    embeddings, with perhaps the row (mapping) and the weight
                    (weights) of each token
tokenizer.json      of the library tokenizers; its special tokens around texts
                    are not used
"""

import json
import pathlib

import numpy as np

from bert_tf.architectures.static import StaticConfig
from bert_tf.checkpoints.array_file import write_arrays
from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.checkpoints.hugging_face_files import WEIGHTS_FILE, open_weights
from bert_tf.checkpoints.stored import Stored, read_stored
from bert_tf.errors import UserError, first_few
from bert_tf.files import write_text
from bert_tf.lazy_arrays import LazyArrays, shapes_of_arrays
from bert_tf.sources import MODULES_FILE, STATIC_EMBEDDING

TABLE = "bert/embeddings/word_embeddings"
_NAME, _MODEL2VEC, _MAPPING, _WEIGHTS = (
    *("embedding.weight", "embeddings"),
    *("mapping", "weights"),
)


def read(folder: pathlib.Path, ignore: str = "") -> Checkpoint:
    """Reads the table.

    Raises:
      UserError: there is no table of vectors, or it is damaged.
    """
    found = open_weights(folder)
    if _MODEL2VEC in found.shapes and _NAME not in found.shapes:
        table = np.asarray(found[_MODEL2VEC])
        if _MAPPING in found.shapes:
            table = table[found[_MAPPING]]
        if _WEIGHTS in found.shapes:
            table = table * found[_WEIGHTS][:, np.newaxis]
        arrays = {_NAME: table}
        found = LazyArrays(shapes_of_arrays(arrays), arrays.__getitem__)
    shape = found.shapes.get(_NAME, ())
    if len(shape) != 2:
        described = [f"{n} {list(s)}" for n, s in sorted(found.shapes.items())]
        raise UserError(
            f"{folder}: its weights are {first_few(described) or 'none'}; a "
            f"StaticEmbedding has {_NAME} or {_MODEL2VEC} [tokens, numbers]."
        )
    config = StaticConfig(vocab_size=shape[0], hidden_size=shape[1])
    stored = {TABLE: Stored(_NAME, shape)}
    ours, left_out = read_stored(config, stored, found, (), str(folder), ignore)
    return Checkpoint(config, ours, left_out=left_out)


def write(folder: pathlib.Path, checkpoint: Checkpoint) -> None:
    """Writes the table, normalisation of texts, and the tokenizer.

    sentence-transformers reads tokenizer.json, bert_tf the other files too.
    """
    table = np.asarray(checkpoint.arrays[TABLE])
    write_arrays(folder / WEIGHTS_FILE, {_NAME: table}, {"format": "pt"})
    (folder / "1_Normalize").mkdir()
    write_text(folder / "1_Normalize" / "config.json", "{}\n")
    entries = [
        {
            "idx": number,
            "name": str(number),
            "path": inner,
            "type": f"sentence_transformers.models.{kind}",
        }
        for number, (kind, inner) in enumerate(
            ((STATIC_EMBEDDING, ""), ("Normalize", "1_Normalize"))
        )
    ]
    write_text(folder / MODULES_FILE, json.dumps(entries, indent=2) + "\n")
    tokenizer = checkpoint.require_tokenizer(str(folder))
    tokenizer.save(folder)
    tokenizer.save_json(folder, None, padded=False, finds_special=True)
