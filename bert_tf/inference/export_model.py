"""Exports a model folder for TensorFlow Serving or another runtime.

It imports TensorFlow at the same time as the process that checks the export.
"""

import os
import pathlib
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bert_tf.errors import UserError, check_choice
from bert_tf.families.usage_options import NO_OPTIONS, UsageOptions
from bert_tf.inference.fresh_process import FreshProcess
from bert_tf.libraries import FILE_FORMATS, INT8_FORMATS, import_tensorflow
from bert_tf.progress import log
from bert_tf.recipe import (
    join_settings,
    read_json_object,
    refuse_unknown,
)
from bert_tf.sources import local_folder

if TYPE_CHECKING:
    from bert_tf.families.task import TaskTemplate

RECIPE_FILE = "recipe.json"
SAVED_MODEL = "saved_model"
FORMATS = (SAVED_MODEL, *FILE_FORMATS)
FLOAT32, MIXED_BFLOAT16 = PRECISIONS = ("float32", "mixed_bfloat16")
NONE, BFLOAT16, INT8 = QUANTIZATIONS = ("none", "bfloat16", "int8")
MAX_SCORE_DROP = 0.01


def export(
    model: str | os.PathLike,
    path: str | os.PathLike,
    file_format: str = SAVED_MODEL,
    *,
    version: int | None = None,
    precision: str | None = None,
    quantize: str = NONE,
    max_score_drop: float | None = None,
    beside: Sequence[str | os.PathLike] = (),
    options: UsageOptions = NO_OPTIONS,
    task: "TaskTemplate | None" = None,
    settings: Mapping[str, Any] | None = None,
    **others: Any,
) -> pathlib.Path:
    """Writes a model for programs without bert_tf, as `bert-tf export` does.

        bert_tf.export("out/stars", "served/stars")
        bert_tf.export("out/stars", "small/stars", "onnx")

    The export appears when its outputs have been compared with the model's.

    Args:
      model: a folder of a fine-tuned or pre-trained model of any family.
      path: the folder of all versions, TensorFlow Serving's base path of the
        model; for other formats the new folder of the file.
      file_format: saved_model; or onnx, litert or openvino, a file whose inputs
        are token ids, with tokenizer.json.
      version: number of the version; None is the highest plus one.
      precision: of a SavedModel: float32, the default, or mixed_bfloat16.
      quantize: none; bfloat16, a SavedModel of half the size; or int8, 8-bit
        kernels in onnx and litert of a fine-tuned model. The scores before and
        after, on the first dev split of its training, are printed.
      max_score_drop: maximum drop of the task's main metric by int8, as a
        fraction; None is 0.01.
      beside: folders of further LoRA adapters of the same base, which a version
        has once.
      options: how the model is used, where its folder does not state it.
      task, settings, **others: of the data that int8 is measured on; see
        `LoadedModel.evaluate`.

    Returns:
      The folder of the version, or the file.

    Raises:
      UserError: arguments do not fit each other or the model, the export
        computes other outputs than the model, or int8 costs too much.
    """
    check_choice("`file_format`", file_format, FORMATS)
    check_choice("`quantize`", quantize, QUANTIZATIONS)
    check_choice("`precision`", precision or FLOAT32, PRECISIONS)
    if file_format != SAVED_MODEL:
        _refuse(
            "is for `file_format`=saved_model",
            beside=tuple(beside) or None,
            version=version,
            precision=precision,
        )
        if quantize == BFLOAT16:
            raise UserError(
                "`quantize`=bfloat16: is for `file_format`=saved_model; give "
                f"none or int8 with `file_format`={file_format}."
            )
    elif quantize == INT8:
        raise UserError(
            f"`quantize`=int8: is for `file_format`="
            f"{' or '.join(INT8_FORMATS)}, since TensorFlow "
            "has no fast products of int8 on processors; for a "
            "smaller and faster SavedModel give `quantize`=bfloat16."
        )
    if quantize == BFLOAT16:
        _refuse("is set by `quantize`=bfloat16", precision=precision)
        precision = MIXED_BFLOAT16
    for name in options.given if beside else ():
        raise UserError(
            f"{options.shown(name)}: is for a model alone; leave it out, or "
            "`beside`."
        )
    of_data = join_settings(others, settings)
    folder, started = local_folder(model), time.monotonic()
    recipe_file = folder / RECIPE_FILE
    recipe = read_json_object(recipe_file, missing_ok=True)
    if quantize != INT8:
        for name in of_data:
            refuse_unknown(name, recipe, f"the recipe of {folder}", export)
        _refuse(
            "is for `quantize`=int8", max_score_drop=max_score_drop, **of_data
        )
    facts, check = "", "comparison with the model"
    if file_format == SAVED_MODEL:
        # Both processes import TensorFlow at the same time.
        with FreshProcess() as fresh:
            import_tensorflow()
            from bert_tf.inference.adapters import served_adapters
            from bert_tf.inference.saving import write_saved_model
            from bert_tf.inference.served_folder import (
                describe_training,
                served_model,
            )

            precision = precision or FLOAT32
            if beside:
                served = served_adapters(folder, beside, precision)
            else:
                served = served_model(folder, precision, options=options)
            training = describe_training(folder)
            written = write_saved_model(
                served, path, version, recipe or None, training, fresh
            )
        facts = f"{', '.join(served.all_signatures())}; "
        check = "check in a fresh process"
    else:
        import_tensorflow()
        from bert_tf.inference.export_file import Quantization, export_file

        int8 = None
        if quantize == INT8:
            from bert_tf.finetuning.finished import finished_task

            if not recipe_file.is_file():
                raise UserError(
                    f"`quantize`=int8: {folder} has no {RECIPE_FILE} of a "
                    "fine-tuning, so there is no dev split to measure on; "
                    "fine-tune with bert-tf finetune first."
                )
            if max_score_drop is None:
                max_score_drop = MAX_SCORE_DROP
            trained = finished_task(folder, task, of_data)
            int8 = Quantization(*trained, max_score_drop)
        written = export_file(folder, path, file_format, int8, options)
    files = written.rglob("*") if written.is_dir() else [written]
    size = sum(each.stat().st_size for each in files if each.is_file())
    seconds = time.monotonic() - started
    line = f"{written}: {facts}{size / 1e6:,.1f} MB, {seconds:.1f} s with the "
    log(f"{line}{check}", sys.stdout)
    return written


def _refuse(reason: str, **arguments: Any) -> None:
    """Raises `UserError` if an argument without effect is given."""
    for name, value in arguments.items():
        if value is not None:
            raise UserError(f"`{name}`: {reason}; leave it out.")
