"""Writes a model as a SavedModel that takes text, for TensorFlow Serving.

python -m tools.export_saved_model --model=out/stars --output_dir=served/stars

With --format=onnx it is a file for ONNX Runtime, which takes token ids.
"""

import pathlib
import time

from absl import flags

from bert_tf.quiet_tensorflow import import_tensorflow
from bert_tf.serving.fresh_process import FreshProcess

from . import command_line

_MODEL = flags.DEFINE_string(
    "model",
    None,
    "A folder that tools.run_finetuning left, or a pre-trained model: a "
    "folder of any family.",
)
_BESIDE = flags.DEFINE_list(
    "beside",
    [],
    "Further adapters (LoRA) of the base of --model, folders, comma-separated: "
    "the version holds the base once, and a signature for each of them, called "
    "as its folder.",
)
_OUTPUT_DIR = flags.DEFINE_string(
    "output_dir",
    None,
    "Folder of all versions, TensorFlow Serving's base path of the model; of "
    "--format=onnx the new folder of the file.",
)
_FORMAT = flags.DEFINE_enum(
    "format",
    "saved_model",
    ["saved_model", "onnx"],
    "onnx writes model.onnx, which takes token ids, and tokenizer.json.",
)
_VERSION = flags.DEFINE_integer(
    "version", None, "Number of the version; one more than the highest if none."
)
_PRECISION = flags.DEFINE_enum(
    "precision",
    "float32",
    ["float32", "mixed_bfloat16"],
    "mixed_bfloat16 is faster on processors and GPUs that have it.",
)


def main() -> None:
    """Exports, checks and tells the size."""
    command_line.name_arguments(
        {"folder": "--model", "file_format": "--format"}
    )
    if _FORMAT.value != "saved_model":
        import_tensorflow()
        _export_file()
        return
    # It imports TensorFlow while this process does.
    with FreshProcess() as fresh:
        import_tensorflow()
        _export_version(fresh)


def _export_version(fresh: FreshProcess) -> None:
    """Writes a version for TensorFlow Serving and tells its size."""
    from bert_tf.serving.adapters import served_adapters
    from bert_tf.serving.model_folder import describe_training, served_model
    from bert_tf.serving.saving import write_saved_model
    from bert_tf.sources import local_folder

    started = time.monotonic()
    folder = pathlib.Path(local_folder(command_line.required(_MODEL)))
    if _BESIDE.value:
        served = served_adapters(folder, _BESIDE.value, _PRECISION.value)
    else:
        served = served_model(folder, _PRECISION.value)
    recipe = folder / "recipe.json"
    written = write_saved_model(
        served,
        command_line.required(_OUTPUT_DIR),
        _VERSION.value,
        recipe.read_text(encoding="utf-8") if recipe.is_file() else None,
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
    """Writes the file of another runtime and tells the size."""
    from bert_tf.errors import UserError
    from bert_tf.runtimes.export import export_file
    from bert_tf.sources import local_folder

    started = time.monotonic()
    for flag in (_BESIDE, _VERSION, _PRECISION):
        if flags.FLAGS[flag.name].present:
            raise UserError(
                f"--{flag.name}: is for --format=saved_model; leave it out."
            )
    path = export_file(
        pathlib.Path(local_folder(command_line.required(_MODEL))),
        command_line.required(_OUTPUT_DIR),
        _FORMAT.value,
    )
    print(
        f"{path}: {path.stat().st_size / 1e6:,.1f} MB, "
        f"{time.monotonic() - started:.1f} s with the comparison with the model"
    )


if __name__ == "__main__":
    command_line.require("model", "output_dir")
    command_line.run(main, tensorflow=False)
