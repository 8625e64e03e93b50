"""Compares a source and its conversion in transformers, on PyTorch."""

import pathlib
import tempfile
from typing import Any

import numpy as np

from bert_tf.checkpoints import (
    MULTIPLE_CHOICE,
    Checkpoint,
    recognise,
    save_checkpoint,
)
from bert_tf.checkpoints.hugging_face_files import CONFIG_FILE
from bert_tf.checkpoints.layout import names_of
from bert_tf.checkpoints.recognition import HUGGING_FACE_WEIGHTS
from bert_tf.conversion.proof import (
    Batch,
    Comparison,
    SharedInputs,
    compare,
    model_outputs,
    refuse_differences,
)
from bert_tf.errors import UserError
from bert_tf.recipe import read_json_object

# transformers' outputs with the same name in all classes, and our names.
_OUTPUTS = {
    "pooler_output": "pooled_output",
    "prediction_logits": "masked_lm_logits",
    "seq_relationship_logits": "next_sentence_logits",
}


def compare_in_transformers(
    source: Checkpoint,
    source_folder: pathlib.Path,
    written: Checkpoint,
    folder: pathlib.Path,
    seed: int,
) -> tuple[Comparison, ...]:
    """Compares hidden states and logits of two folders and of our model.

    A folder that transformers' PyTorch classes cannot load is first written in
    their layout to a temporary folder.

    Args:
      source: the loaded source.
      source_folder: its folder.
      written: the loaded conversion.
      folder: its folder.
      seed: of the random ids.

    Returns:
      For each output the larger difference of transformers' and of our model of
      the conversion from transformers' model of the source.

    Raises:
      UserError: transformers refuses a folder, or an output differs by more
        than `LIMIT`.
    """
    shared = SharedInputs.of(source, written)
    source_batch, batch = shared.random_batches(seed)
    # Not all classes of transformers take positions; the default of both is 0
    # to S - 1.
    del source_batch["position_ids"], batch["position_ids"]
    expected = _outputs(source, source_folder, source_batch)
    ours = model_outputs(written, batch, all_layers=True)
    theirs = _outputs(written, folder, batch)
    found = []
    for computed, whose in (
        ({name: theirs[name] for name in ours if name in theirs}, "its"),
        ({name: ours[name] for name in ours if name in theirs}, "our"),
    ):
        comparisons = compare(expected, computed, batch["input_mask"], shared)
        refuse_differences(
            comparisons,
            f"{source.source}, in transformers",
            f"{whose} model of the conversion",
        )
        found.append(comparisons)
    return tuple(
        Comparison(
            first.output,
            max(first.difference, second.difference),
            first.magnitude,
        )
        for first, second in zip(*found, strict=True)
    )


def _outputs(
    checkpoint: Checkpoint, folder: pathlib.Path, batch: Batch
) -> Batch:
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as temporary:
        in_torch = (
            (folder / f"{name}{end}").exists()
            for name in HUGGING_FACE_WEIGHTS[:2]
            for end in ("", ".index.json")
        )
        if recognise(folder) != "hugging_face" or not any(in_torch):
            folder = pathlib.Path(temporary, "model")
            try:
                save_checkpoint(folder, checkpoint, "hugging_face")
            except UserError as error:
                raise UserError(
                    "`check`=transformers: transformers cannot hold this "
                    f"model ({error})"
                ) from None
        form = names_of(checkpoint.config).hugging_face
        classes = read_json_object(folder / CONFIG_FILE).get("architectures")
        name = classes[0] if classes else ""
        if name not in form.classes:
            name = form.body
        try:
            model = getattr(transformers, name).from_pretrained(
                folder, dtype=torch.float32
            )
        # A damaged folder raises any of a dozen types.
        except Exception as error:
            reason = str(error).partition("\n")[0]
            raise UserError(
                f"{folder}: transformers {transformers.__version__} does not "
                f"load it as {name} ({reason})."
            ) from None
    heads = form.classes[name]
    inputs = {
        "input_ids": batch["input_ids"],
        "attention_mask": batch["input_mask"],
        "token_type_ids": batch["segment_ids"],
    }
    if not checkpoint.config.type_vocab_size:
        del inputs["token_type_ids"]
    tensors: dict[str, Any] = {
        key: torch.from_numpy(value).long() for key, value in inputs.items()
    }
    if MULTIPLE_CHOICE in heads:
        # One example, whose choices are the rows.
        tensors = {key: value[None] for key, value in tensors.items()}
    with torch.inference_mode():
        found = dict(model.eval()(**tensors, output_hidden_states=True))
    states = torch.cat(found.pop("hidden_states"), dim=-1).numpy()
    arrays = {key: value.numpy() for key, value in found.items()}
    outputs = {"hidden_states": states}
    outputs |= {
        ours: arrays[key] for key, ours in _OUTPUTS.items() if key in arrays
    }
    if "start_logits" in arrays:
        ends = arrays["start_logits"], arrays["end_logits"]
        outputs["span_logits"] = np.stack(ends, axis=-1)
    if "logits" in arrays:
        logits = arrays["logits"]
        if MULTIPLE_CHOICE in heads:
            logits = logits.T
        outputs[f"{heads[0]}_logits"] = logits
    if "masked_lm_logits" in outputs:
        positions = batch["masked_lm_positions"][..., None]
        outputs["masked_lm_logits"] = np.take_along_axis(
            outputs["masked_lm_logits"], positions, axis=1
        )
    return outputs
