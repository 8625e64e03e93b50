"""Names, axes and dtypes of tensors, from records to signatures.

Axes: B batch, S sequence, P predictions, K sequences of a packed row.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Feature:
    """A named tensor: its axes in letters and its dtype."""

    name: str
    axes: str
    dtype: str
    meaning: str


INPUT_IDS = Feature(
    "input_ids", "BS", "int32", "WordPiece ids, padded by [PAD]"
)
INPUT_MASK = Feature("input_mask", "BS", "int32", "1 = token, 0 = padding")
SEGMENT_IDS = Feature("segment_ids", "BS", "int32", "0 = text A, 1 = text B")
POSITION_IDS = Feature(
    "position_ids", "BS", "int32", "position within the token's own sequence"
)
SEQUENCE_IDS = Feature(
    "sequence_ids", "BS", "int32", "0 = padding, 1..k = sequence of the row"
)
MASKED_LM_POSITIONS = Feature(
    "masked_lm_positions", "BP", "int32", "positions to predict, 0 = unused"
)
MASKED_LM_IDS = Feature(
    "masked_lm_ids", "BP", "int32", "true ids at those positions"
)
MASKED_LM_WEIGHTS = Feature(
    "masked_lm_weights", "BP", "float32", "1 = counts, 0 = unused"
)
NEXT_SENTENCE_LABELS = Feature(
    "next_sentence_labels", "B", "int32", "0 = B follows A, 1 = not, -1 = no B"
)
CLS_POSITIONS = Feature(
    "cls_positions", "BK", "int32", "where each sequence begins, 0 = unused"
)
PACKED_NEXT_SENTENCE_LABELS = Feature(
    "next_sentence_labels", "BK", "int32", "of each sequence, -1 = unused"
)

ENCODER_INPUTS = (INPUT_IDS, INPUT_MASK, SEGMENT_IDS)
PACKED_INPUTS = (POSITION_IDS, SEQUENCE_IDS, CLS_POSITIONS)
MASKED_LM_FEATURES = (MASKED_LM_POSITIONS, MASKED_LM_IDS, MASKED_LM_WEIGHTS)
PRETRAINING_FEATURES = (
    *ENCODER_INPUTS,
    *MASKED_LM_FEATURES,
    NEXT_SENTENCE_LABELS,
)
PACKED_PRETRAINING_FEATURES = (
    *ENCODER_INPUTS,
    *PACKED_INPUTS,
    *MASKED_LM_FEATURES,
    PACKED_NEXT_SENTENCE_LABELS,
)
