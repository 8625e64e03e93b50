"""Exports a model folder to a file of another runtime."""

import dataclasses
import json
import os
import pathlib

import numpy as np

from bert_tf.errors import UserError
from bert_tf.families.recipe import FinetuningRecipe
from bert_tf.families.requests import LONGEST_SAMPLE, sample_lengths
from bert_tf.families.task import TaskTemplate
from bert_tf.families.text_model import TextModel
from bert_tf.families.usage_options import NO_OPTIONS, UsageOptions
from bert_tf.files import new_folder, write_text
from bert_tf.inference.quantization import Comparison, DevSplit, Run, check_drop
from bert_tf.inference.served_folder import (
    describe_model,
    describe_training,
    served_model,
)
from bert_tf.libraries import FILE_FORMATS, INT8_FORMATS, RUNTIMES
from bert_tf.runtimes.runtime import (
    MODEL_FILE,
    file_digests,
    file_module,
    largest_differences,
    outputs_of,
    sample_rows,
    samples_of,
)
from bert_tf.runtimes.tracing import trace

# Absolute and relative tolerance between the file and the Keras model.
TOLERANCE = 1e-4


@dataclasses.dataclass(frozen=True)
class Quantization:
    """Settings of int8 quantization.

    Attributes:
      task: the task of the model.
      recipe: the task's recipe, which names the data.
      max_score_drop: largest allowed drop of the main metric on dev.
    """

    task: TaskTemplate
    recipe: FinetuningRecipe
    max_score_drop: float = 0.01


def export_file(
    folder: str | os.PathLike,
    path: str | os.PathLike,
    file_format: str,
    int8: Quantization | None = None,
    options: UsageOptions = NO_OPTIONS,
) -> pathlib.Path:
    """Writes a model folder as a file that takes token ids.

    The new folder has the file; tokenizer.json for the library tokenizers; the
    files of the model's tokenizer; and model.json, which describes the model
    and names its outputs. The outputs of the file are compared with those of
    the Keras model before the folder appears.

    Args:
      folder: a folder of `bert-tf finetune`, or a fine-tuned or pre-trained
        model of any family.
      path: the new folder.
      file_format: one of `FILE_FORMATS`.
      int8: quantizes the file if the score on the dev split allows it; scores
        and times before and after are printed.
      options: how the model is used, where its folder does not state it.

    Returns:
      The path of the file.

    Raises:
      UserError: the format does not support the model, path is not
        empty, a library is missing, the outputs differ from the Keras model's,
        or the score falls too far.
    """
    if file_format not in FILE_FORMATS:
        raise UserError(
            f"`file_format`={file_format}: takes {', '.join(FILE_FORMATS)}."
        )
    runtime = RUNTIMES[file_format]
    if int8 is not None and not runtime.int8:
        raise UserError(
            f"`file_format`={file_format}: is not quantized; "
            f"{' and '.join(INT8_FORMATS)} are, and {runtime.title} computes "
            "float32 files in bfloat16 where the processor can."
        )
    module = file_module(file_format, f"`file_format`={file_format}")
    source = f"`folder`={folder}"
    served = served_model(folder, options=options)
    modules = served.modules
    if modules is not None and modules.leaves_prompts_out:
        raise UserError(
            f"{source}: include_prompt is false, and a file that takes token "
            "ids cannot tell which are the prompt's; give `file_format` "
            "saved_model."
        )
    length = served.max_seq_length
    if module.PADDED and length > LONGEST_SAMPLE:
        raise UserError(
            f"`file_format`={file_format}: pads every row to the longest, of "
            f"{length:,} tokens here; give `max_seq_length`, such as 256."
        )
    graph = trace(
        served.row_outputs,
        (1, length) if module.PADDED else (None, None),
        source,
    )
    if int8 is not None:
        dev = DevSplit(str(folder), int8.task, int8.recipe, served.tokenizer)
    with new_folder(path, "path") as beside:
        file = beside / module.FILE
        module.write_model(file, graph, source)
        run = module.Runner(file)
        outputs = _check(run, served, length, str(path))
        scores = {}
        if int8 is not None:
            size = file.stat().st_size
            # The float32 file is still needed for the comparison.
            small = file.with_name(f"int8_{file.name}")
            module.write_model(small, graph, source, int8=True)
            run_small = module.Runner(small)
            found = dev.compare(run, run_small)
            differences = largest_differences(
                run_small, served.row_outputs, samples_of(served.network)
            )
            small.replace(file)
            print(_describe(found, size, file.stat().st_size), flush=True)
            check_drop(found, int8.max_score_drop)
            # A runtime that opens the file compares its outputs by it.
            largest = {"difference": max(differences.values())}
            scores = {"int8": dataclasses.asdict(found) | largest}
        files = file_digests(beside.iterdir())
        served.tokenizer.save(beside)
        served.tokenizer.data.save_json(
            beside, length, module.PADDED, finds_special=modules is not None
        )
        description = {
            "format": file_format,
            **describe_model(served),
            **describe_training(folder),
            **scores,
            "outputs": outputs,
            "digest": served.network.digest(),
            "files": files,
        }
        text = json.dumps(description, indent=2)
        write_text(beside / MODEL_FILE, text + "\n")
    return pathlib.Path(path) / module.FILE


def _describe(found: Comparison, before: int, after: int) -> str:
    """Formats scores, times and sizes (in bytes) before and after int8."""
    scores, times = found.scores, found.milliseconds
    return (
        f"{found.metric} on {found.split}: {scores[0]:.4f} in float32, "
        f"{scores[1]:.4f} in int8, {abs(found.drop):.4f} "
        f"{'worse' if found.drop > 0 else 'better'}; a row alone "
        f"{times[0]:.2f} ms, {times[1]:.2f} ms ({times[0] / times[1]:.2f} "
        f"times as fast); {before / 1e6:,.1f} MB, {after / 1e6:,.1f} MB"
    )


def _check(
    run: Run,
    served: TextModel,
    max_seq_length: int,
    name: str,
) -> list[str]:
    """Compares a file's outputs with the model's, and returns their names.

    Raises:
      UserError: the outputs differ.
    """
    outputs: dict[str, None] = {}
    assert served.config is not None
    lengths = sample_lengths(max_seq_length)
    samples = sample_rows(served.config, max_seq_length, lengths)
    for output, found, expected in outputs_of(run, served.row_outputs, samples):
        outputs[output] = None
        apart = np.abs(found - expected)
        if not (apart <= TOLERANCE * (1 + np.abs(expected))).all():
            raise UserError(
                f"{name}: {output} of the file is up to "
                f"{np.nanmax(apart):.3g} from the model's output; the export "
                "was not finished."
            )
    return list(outputs)
