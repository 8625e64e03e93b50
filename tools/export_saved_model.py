"""Exports a model as a SavedModel of text for TensorFlow Serving.

bert-tf export --model=out/stars --output_dir=served/stars

--format=onnx, litert or openvino writes a file for ONNX Runtime, LiteRT or
OpenVINO, whose inputs are token ids. With --quantize=int8 the fields of the
model's recipe.json are flags too, such as --data_dir of moved data.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags

from bert_tf.errors import UserError
from bert_tf.inference.fresh_process import FreshProcess
from bert_tf.libraries import FILE_FORMATS, INT8_FORMATS, import_tensorflow
from bert_tf.recipe import Settings, read_json_object

from . import command_line
from .shared_flags import (
    FieldFlags,
    define_usage,
    required_string,
    task_and_recipe,
    task_fields,
)

_MODEL = required_string(
    "model", "A fine-tuned or pre-trained model: a folder of any family."
)
_BESIDE = flags.DEFINE_list(
    "beside",
    [],
    "Folders of further LoRA adapters with the base of --model, "
    "comma-separated; the version has the base once and a signature per "
    "adapter, named as its folder.",
)
_OUTPUT_DIR = required_string(
    "output_dir",
    "Folder of all versions, TensorFlow Serving's base path of the model; for "
    "other formats the new folder of the file.",
)
_FORMAT = flags.DEFINE_enum(
    "format",
    "saved_model",
    ["saved_model", *FILE_FORMATS],
    "onnx writes model.onnx, litert model.tflite and openvino model.xml and "
    "model.bin, whose inputs are token ids, with tokenizer.json.",
)
_VERSION = flags.DEFINE_integer(
    "version", None, "Number of the version; by default the highest plus one."
)
_PRECISION = flags.DEFINE_enum(
    "precision",
    "float32",
    ["float32", "mixed_bfloat16"],
    "mixed_bfloat16 is faster on processors and GPUs that support it.",
)
_QUANTIZE = flags.DEFINE_enum(
    "quantize",
    "none",
    ["none", "bfloat16", "int8"],
    "bfloat16, for saved_model: --precision=mixed_bfloat16, half the size. "
    f"int8, for {' and '.join(INT8_FORMATS)}: 8-bit kernels of a fine-tuned "
    "model, within --max_score_drop; both scores on the task's dev split are "
    "printed.",
)
_MAX_SCORE_DROP = flags.DEFINE_float(
    "max_score_drop",
    0.01,
    "Maximum drop of the task's main metric on dev, as a fraction; beyond it "
    "nothing is written.",
)
_USAGE = define_usage()


def _fields(
    known: flags.FlagValues,
) -> tuple[type[Settings], Mapping[str, Any]]:
    """The fields that --quantize=int8 reads, such as data_dir of moved data."""
    try:
        # The flag --task is the use of a head, not a training's task.
        known["task"].value = ""
        return task_fields(known, f"{known.model}/recipe.json")
    except UserError:
        return Settings, {}


_RECIPE = FieldFlags(_fields)


def main() -> None:
    """Exports the model, checks the export and prints its size."""
    command_line.name_arguments({"file_format": "--format"})
    if _FORMAT.value != "saved_model":
        import_tensorflow()
        _export_file()
        return
    if _QUANTIZE.value == "int8":
        raise UserError(
            f"--quantize=int8: is for --format={' or '.join(INT8_FORMATS)}, "
            "since TensorFlow has no fast products of int8 on processors; for "
            "a smaller and faster SavedModel give --quantize=bfloat16."
        )
    _refuse_settings()
    # Both processes import TensorFlow at the same time.
    with FreshProcess() as fresh:
        import_tensorflow()
        _export_version(fresh)


def _export_version(fresh: FreshProcess) -> None:
    """Writes a version for TensorFlow Serving and prints its size."""
    from bert_tf.inference.adapters import served_adapters
    from bert_tf.inference.saving import write_saved_model
    from bert_tf.inference.served_folder import describe_training, served_model
    from bert_tf.sources import local_folder

    started = time.monotonic()
    precision = _PRECISION.value
    if _QUANTIZE.value == "bfloat16":
        _refuse((_PRECISION,), "is set by --quantize=bfloat16; leave it out.")
        precision = "mixed_bfloat16"
    folder = local_folder(_MODEL.value)
    options = _USAGE()
    if _BESIDE.value:
        for name in options.given:
            raise UserError(
                f"{options.shown(name)}: is for a model alone; leave it out, "
                "or --beside."
            )
        served = served_adapters(folder, _BESIDE.value, precision)
    else:
        served = served_model(folder, precision, options=options)
    recipe = folder / "recipe.json"
    written = write_saved_model(
        served,
        _OUTPUT_DIR.value,
        _VERSION.value,
        read_json_object(recipe, missing_ok=True) or None,
        training=describe_training(folder),
        fresh=fresh,
    )
    size = sum(f.stat().st_size for f in written.rglob("*") if f.is_file())
    print(
        f"{written}: {', '.join(served.all_signatures())}; "
        f"{size / 1e6:,.1f} MB, {time.monotonic() - started:.1f} s with the "
        "check in a fresh process"
    )


def _export_file() -> None:
    """Writes the file of another runtime and prints its size."""
    from bert_tf.inference.export_file import Quantization, export_file
    from bert_tf.sources import local_folder

    started = time.monotonic()
    _refuse(
        (_BESIDE, _VERSION, _PRECISION),
        "is for --format=saved_model; leave it out.",
    )
    folder = local_folder(_MODEL.value)
    if _QUANTIZE.value == "bfloat16":
        raise UserError(
            f"--quantize=bfloat16: is for --format=saved_model; give none or "
            f"int8 with --format={_FORMAT.value}."
        )
    int8 = None
    if _QUANTIZE.value == "none":
        _refuse_settings()
    else:
        recipe_file = folder / "recipe.json"
        if not recipe_file.is_file():
            raise UserError(
                f"--quantize=int8: {folder} has no recipe.json of a "
                "fine-tuning, so there is no dev split to measure on; "
                "fine-tune with bert-tf finetune first."
            )
        command_line.name_arguments({"task": "--set task"})
        task, recipe = task_and_recipe(_RECIPE.assignments(), str(recipe_file))
        int8 = Quantization(task, recipe, _MAX_SCORE_DROP.value)
    path = export_file(folder, _OUTPUT_DIR.value, _FORMAT.value, int8, _USAGE())
    print(
        f"{path}: {path.stat().st_size / 1e6:,.1f} MB, "
        f"{time.monotonic() - started:.1f} s with the comparison with the model"
    )


def _refuse_settings() -> None:
    """Refuses what belongs to int8."""
    reason = "is for --quantize=int8; leave it out."
    _refuse([_MAX_SCORE_DROP], reason)
    for assignment in _RECIPE.assignments():
        raise UserError(f"--{assignment}: {reason}")


def _refuse(unused: Sequence[flags.FlagHolder], reason: str) -> None:
    """Raises `UserError` if a flag without effect is given."""
    for flag in unused:
        if flags.FLAGS[flag.name].present:
            raise UserError(f"--{flag.name}: {reason}")


if __name__ == "__main__":
    command_line.run(main, tensorflow=False)
