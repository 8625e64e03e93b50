"""Says which batch fits into a device's memory, and measures it on demand.

python -m tools.plan_memory --size=base --max_seq_length=512 \\
    --precision=mixed_bfloat16 --memory=16GB --train_batch_size=256
"""

import sys

from absl import flags

from bert_tf.memory.plan import PlanSettings, plan_memory

from . import command_line
from .recipe_flags import define_fields

_SETTINGS = define_fields(PlanSettings)
_MEASURE = flags.DEFINE_bool(
    "measure",
    False,
    "Run training steps: of train_batch_size, or of more and fewer rows until "
    "the largest batch is found.",
)


def main() -> None:
    """Resolves the settings and prints the plan."""
    from bert_tf.progress import log

    settings = PlanSettings(**{n: f.value for n, f in _SETTINGS.items()})
    # The advice is on flags of the command that trains.
    command_line.name_arguments(
        {
            name: f"--set {name}"
            for name in ("rematerialize", "gradient_accumulation_steps")
        }
    )
    plan_memory(
        settings,
        _MEASURE.value,
        lambda line: log(line, sys.stdout),
    )


if __name__ == "__main__":
    # As a training would take its memory.
    command_line.use_huge_pages()
    command_line.run(main)
