"""Old names of `bert_tf.text.packing`, until everyone has moved there."""

from bert_tf.text.packing import (  # noqa: F401
    EncodedRows,
    TokenIds,
    pack_rows,
    take_ranges,
    tokenize_texts,
)
from bert_tf.text.packing import ragged_range as counted  # noqa: F401
from bert_tf.text.packing import truncate as cut_to_fit  # noqa: F401
