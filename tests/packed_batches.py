"""Packed batches and the same sequences one a row."""

import numpy as np

Batch = dict[str, np.ndarray]


def alone(batch: Batch) -> Batch:
    """The sequences of a packed batch one a row, in order.

    Padding of the sequences is as wide as that of the rows, and so are unused
    predictions.
    """
    width = batch["input_ids"].shape[1]
    predictions = batch["masked_lm_ids"].shape[1]
    rows = []
    for row, labels in enumerate(batch["next_sentence_labels"]):
        for number in range(batch["sequence_ids"][row].max()):
            start = batch["cls_positions"][row, number]
            here = batch["sequence_ids"][row] == number + 1
            assert here[start:][: here.sum()].all()
            one = {"next_sentence_labels": labels[number]}
            for name in ("input_ids", "input_mask", "segment_ids"):
                values = batch[name][row][here]
                one[name] = np.pad(values, (0, width - len(values)))
            places = batch["masked_lm_positions"][row]
            mine = here[places] & (batch["masked_lm_weights"][row] > 0)
            one["masked_lm_positions"] = places - start
            for name in (
                "masked_lm_positions",
                "masked_lm_ids",
                "masked_lm_weights",
            ):
                values = one.get(name, batch[name][row])[mine]
                one[name] = np.pad(values, (0, predictions - len(values)))
            rows.append(one)
    return {name: np.stack([r[name] for r in rows]) for name in rows[0]}


def packed(sequences: Batch, rows: list[list[int]], width: int) -> Batch:
    """The inverse of `alone`.

    Args:
      sequences: a batch of sequences, one a row.
      rows: the numbers of those of each row.
      width: of the rows.
    """
    most = max(map(len, rows))
    predictions = sequences["masked_lm_ids"].shape[1] * most
    batch = {
        **{
            name: np.zeros((len(rows), width), "int32")
            for name in (
                "input_ids",
                "input_mask",
                "segment_ids",
                "position_ids",
                "sequence_ids",
            )
        },
        "cls_positions": np.zeros((len(rows), most), "int32"),
        "masked_lm_positions": np.zeros((len(rows), predictions), "int32"),
        "masked_lm_ids": np.zeros((len(rows), predictions), "int32"),
        "masked_lm_weights": np.zeros((len(rows), predictions), "float32"),
        "next_sentence_labels": np.full((len(rows), most), -1, "int32"),
    }
    for row, numbers in enumerate(rows):
        start = used = 0
        for place, number in enumerate(numbers):
            one = {name: value[number] for name, value in sequences.items()}
            size = int(one["input_mask"].sum())
            here = slice(start, start + size)
            for name in ("input_ids", "input_mask", "segment_ids"):
                batch[name][row, here] = one[name][:size]
            batch["position_ids"][row, here] = np.arange(size)
            batch["sequence_ids"][row, here] = place + 1
            batch["cls_positions"][row, place] = start
            batch["next_sentence_labels"][row, place] = one[
                "next_sentence_labels"
            ]
            count = len(one["masked_lm_ids"])
            slots = slice(used, used + count)
            batch["masked_lm_positions"][row, slots] = (
                one["masked_lm_positions"] + start
            )
            for name in ("masked_lm_ids", "masked_lm_weights"):
                batch[name][row, slots] = one[name]
            start, used = start + size, used + count
    return batch
