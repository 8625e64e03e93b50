"""Computes a table or figure of the paper, or your own experiment.

bert-tf experiment --experiment=table5 --scale=tiny --data_dir=DATA \\
    --output_dir=out/table5

Every run of a cell is a command with its own folder: finished runs are skipped,
interrupted ones resume. Machines that share the folders may run the same
command at the same time.
"""

import pathlib
import shlex
import sys

from absl import flags

from bert_tf.errors import UserError

from . import command_line
from .shared_flags import EXPERIMENTS, load_task, required_string

_EXPERIMENT = required_string(
    "experiment",
    "A name in experiments/ (table1 to table8, figure5), or the path of your "
    "own experiment file.",
)
_SCALE = required_string(
    "scale",
    "tiny (two cores, a table in about two hours), small (one GPU, about a "
    "day) or paper (the published sizes and steps).",
)
_OUTPUT_DIR = required_string(
    "output_dir", "Folder of the table, the report and its figures."
)
_RUNS_DIR = flags.DEFINE_string(
    "runs_dir",
    "",
    "Folder of the runs; experiments with the same folder share common runs. "
    "Default: runs/ in --output_dir.",
)
_DATA_DIR = flags.DEFINE_string(
    "data_dir",
    "data",
    "Folder of glue/, squad/, swag/ and conll2003/, and of corpus/*.txt.",
)
_CORPUS = flags.DEFINE_string(
    "corpus",
    "",
    "Text to pre-train on, as bert-tf create-pretraining-data --input takes "
    "it. Default: corpus/*.txt in --data_dir.",
)
_INIT_FROM = flags.DEFINE_string(
    "init_from",
    "",
    "The model that tables 1 to 4 and 7 fine-tune: a folder, "
    "hf://organisation/name or keras_hub://preset.",
)
command_line.name_model("init_from")
_STAND_IN = flags.DEFINE_multi_string(
    "stand_in",
    [],
    "TASK:OTHER, to run another task instead of one without data; may be "
    "repeated.",
)
_ONLY = flags.DEFINE_multi_string(
    "only", [], "A row to compute instead of all; may be repeated."
)
_WORKERS = flags.DEFINE_integer(
    "workers", 1, "Runs at a time on this machine.", lower_bound=1
)
_DRY_RUN = flags.DEFINE_bool(
    "dry_run",
    False,
    "Only print the runs, the hours estimated from trial steps, and the disk "
    "space.",
)
_PRECISION = flags.DEFINE_string(
    "precision", "float32", "Of all runs; see bert-tf pretrain."
)
_STRATEGY = flags.DEFINE_string(
    "strategy", "one_device", "Of all runs; see bert-tf pretrain."
)


def main() -> None:
    """Loads the experiment and computes it."""
    from bert_tf.experiments.plan import Sources
    from bert_tf.experiments.run import run_experiment
    from bert_tf.experiments.running import Commands

    command_line.name_arguments({"inputs": "--corpus"})
    name = _EXPERIMENT.value
    output_dir = pathlib.Path(_OUTPUT_DIR.value)
    data_dir = _DATA_DIR.value
    stand_ins = {}
    for text in _STAND_IN.value:
        task, _, other = text.partition(":")
        if not (task and other):
            raise UserError(f"--stand_in={text}: write TASK:OTHER.")
        load_task(task)
        load_task(other)
        stand_ins[task] = other
    sources = Sources(
        corpus=_CORPUS.value or f"{data_dir}/corpus/*.txt",
        data_dir=data_dir,
        init_from=_INIT_FROM.value,
        stand_ins=stand_ins,
        precision=_PRECISION.value,
        strategy=_STRATEGY.value,
    )

    run_experiment(
        EXPERIMENTS.load(name),
        name,
        _SCALE.value,
        sources,
        output_dir,
        pathlib.Path(_RUNS_DIR.value or output_dir / "runs"),
        load_task,
        Commands(
            program=[sys.executable, "-m", str(__package__)],
            this=f"bert-tf experiment {shlex.join(sys.argv[1:])}",
        ),
        _ONLY.value,
        _WORKERS.value,
        _DRY_RUN.value,
    )


if __name__ == "__main__":
    command_line.run(main)
