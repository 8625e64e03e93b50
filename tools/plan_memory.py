"""Plans the batch that fits into a device's memory, and can measure it.

bert-tf plan-memory --size=base --max_seq_length=512 \\
    --precision=mixed_bfloat16 --memory=16GB --train_batch_size=256
"""

import sys

from absl import flags

from bert_tf.memory.plan import PlanSettings, plan_memory

from . import command_line
from .shared_flags import define_fields

_SETTINGS = define_fields(PlanSettings)
command_line.name_model("init_from")
_MEASURE = flags.DEFINE_bool(
    "measure",
    False,
    "Run training steps with train_batch_size, or search for the largest "
    "batch.",
)


def main() -> None:
    """Resolves the settings and prints the plan."""
    from bert_tf.progress import log

    # The advice names flags of the command that trains.
    command_line.name_arguments(
        {
            name: f"--{name}"
            for name in ("rematerialize", "gradient_accumulation_steps")
        }
    )
    plan_memory(_SETTINGS(), _MEASURE.value, lambda line: log(line, sys.stdout))


if __name__ == "__main__":
    # As for a training.
    command_line.use_huge_pages()
    command_line.run(main)
