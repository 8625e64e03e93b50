"""What a SavedModel of TensorFlow Hub or Kaggle states of its tokenizer.

An encoder keeps `do_lower_case` as a variable; a preprocessing model computes
with a tokenizer in its graphs. Both have the vocabulary as an asset.

Source: tf-models-official 2.20, official/nlp/tools/export_tfhub_lib.py.
"""

import pathlib

from bert_tf.errors import UserError
from bert_tf.foreign_files import read_bytes

_FILE = "saved_model.pb"
_KEY = "do_lower_case"


def lower_case_of_saved_model(folder: pathlib.Path) -> bool | None:
    """Whether text is lower-cased; None where no SavedModel tells."""
    if not (folder / _FILE).is_file():
        return None
    prefix = folder / "variables" / "variables"
    index = prefix.with_suffix(".index")
    if index.is_file() and _KEY.encode() in read_bytes(index):
        import tensorflow as tf

        try:
            reader = tf.train.load_checkpoint(str(prefix))
            key = f"{_KEY}/.ATTRIBUTES/VARIABLE_VALUE"
            return bool(reader.get_tensor(key))
        except (tf.errors.OpError, RuntimeError, IndexError) as error:
            reason = " ".join(str(error).split())
            raise UserError(
                f"{index}: damaged checkpoint ({reason})."
            ) from None
    # The names of the operations of tensorflow_text's BertTokenizer.
    graphs = read_bytes(folder / _FILE)
    if b"CaseFoldUTF8" in graphs:
        return True
    return False if b"WordpieceTokenize" in graphs else None
