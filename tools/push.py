"""Gives a finished model to a hub or to a folder, with its card.

python -m tools.push --model=out/stars --to=hf://organisation/name

What is pushed is what a model needs, and README.md; states, predictions and
reports stay. A model in Hugging Face's layout is what tools.convert_checkpoint
writes.
"""

from absl import flags

from . import command_line

_MODEL = flags.DEFINE_string(
    "model", None, "A finished model: a folder of any family."
)
_TO = flags.DEFINE_string(
    "to",
    None,
    "hf://organisation/name, made if it is not there; or a folder, new or "
    "empty.",
)
_PRIVATE = flags.DEFINE_bool(
    "private",
    True,
    "Whether a new model on the hub is seen by its owners alone; one that is "
    "there stays as it is.",
)


def main() -> None:
    """Copies or uploads, and says where to."""
    from bert_tf.sharing.push import push_model

    command_line.name_arguments({"folder": "--model"})
    place = push_model(
        command_line.required(_MODEL),
        command_line.required(_TO),
        _PRIVATE.value,
    )
    print(f"pushed to {place}")


if __name__ == "__main__":
    command_line.require("model", "to")
    command_line.run(main, tensorflow=False)
