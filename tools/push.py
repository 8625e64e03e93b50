"""Uploads a finished model with its card to a hub, or copies it.

bert-tf push --model=out/stars --to=hf://organisation/name

Only the model's files and README.md are pushed, no training states,
predictions or reports. bert-tf convert writes Hugging Face's layout.
"""

from absl import flags

from . import command_line
from .shared_flags import required_string

_MODEL = required_string("model", "A finished model: a folder of any family.")
_TO = required_string(
    "to",
    "hf://organisation/name, created if missing; or a folder, missing or "
    "empty.",
)
_PRIVATE = flags.DEFINE_bool(
    "private",
    True,
    "Whether a new model on the hub is private; an existing one is not "
    "changed.",
)


def main() -> None:
    """Uploads or copies the model, and prints where to."""
    from bert_tf.sharing.push import push_model

    place = push_model(_MODEL.value, _TO.value, _PRIVATE.value)
    print(f"pushed to {place}")


if __name__ == "__main__":
    command_line.run(main, tensorflow=False)
