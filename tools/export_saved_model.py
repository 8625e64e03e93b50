"""Exports a model as a SavedModel of text for TensorFlow Serving.

bert-tf export --model=out/stars --output_dir=served/stars

--format=onnx, litert or openvino writes a file for ONNX Runtime, LiteRT or
OpenVINO, whose inputs are token ids. With --quantize=int8 the fields of the
model's recipe.json are flags too, such as --data_dir of moved data.
"""

from collections.abc import Mapping
from typing import Any

from absl import flags

from bert_tf.errors import UserError
from bert_tf.inference.export_model import (
    FORMATS,
    INT8,
    MAX_SCORE_DROP,
    NONE,
    PRECISIONS,
    QUANTIZATIONS,
    RECIPE_FILE,
    SAVED_MODEL,
    export,
)
from bert_tf.libraries import INT8_FORMATS, import_tensorflow
from bert_tf.recipe import Settings
from bert_tf.sources import local_folder

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
    SAVED_MODEL,
    FORMATS,
    "onnx writes model.onnx, litert model.tflite and openvino model.xml and "
    "model.bin, whose inputs are token ids, with tokenizer.json.",
)
_VERSION = flags.DEFINE_integer(
    "version", None, "Number of the version; by default the highest plus one."
)
_PRECISION = flags.DEFINE_enum(
    "precision",
    "float32",
    PRECISIONS,
    "mixed_bfloat16 is faster on processors and GPUs that support it.",
)
_QUANTIZE = flags.DEFINE_enum(
    "quantize",
    NONE,
    QUANTIZATIONS,
    "bfloat16, for saved_model: --precision=mixed_bfloat16, half the size. "
    f"int8, for {' and '.join(INT8_FORMATS)}: 8-bit kernels of a fine-tuned "
    "model, within --max_score_drop; both scores on the task's dev split are "
    "printed.",
)
_MAX_SCORE_DROP = flags.DEFINE_float(
    "max_score_drop",
    MAX_SCORE_DROP,
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
    command_line.name_arguments(
        {
            "folder": "--model",
            "path": "--output_dir",
            "file_format": "--format",
        }
    )
    folder = local_folder(_MODEL.value)
    recipe_file = folder / RECIPE_FILE
    trained: dict[str, Any] = {}
    if _QUANTIZE.value == INT8 and recipe_file.is_file():
        import_tensorflow()
        command_line.name_arguments({"task": "--set task"})
        task, recipe = task_and_recipe(_RECIPE.assignments(), str(recipe_file))
        trained = {"task": task, "settings": recipe.to_dict()}
    elif _QUANTIZE.value != INT8:
        for assignment in _RECIPE.assignments():
            raise UserError(
                f"--{assignment}: is for --quantize=int8; leave it out."
            )
    export(
        folder,
        _OUTPUT_DIR.value,
        _FORMAT.value,
        version=_VERSION.value,
        precision=_given(_PRECISION),
        quantize=_QUANTIZE.value,
        max_score_drop=_given(_MAX_SCORE_DROP),
        beside=_BESIDE.value,
        options=_USAGE(),
        **trained,
    )


def _given(flag: flags.FlagHolder) -> Any:
    """Returns the value of a flag; None if it is not given."""
    return flag.value if flags.FLAGS[flag.name].present else None


if __name__ == "__main__":
    command_line.run(main, tensorflow=False)
