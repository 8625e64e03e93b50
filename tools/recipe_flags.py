"""Flags made of recipes: one a field, or --set and --recipe to train by."""

import dataclasses
import re
from collections.abc import Callable, Mapping

from absl import flags

from bert_tf.recipe import Settings
from bert_tf.training.cluster import Devices

from .command_line import required

# The flags are those of the command that defines them here.
flags.disclaim_key_flags()

_DEFINE: dict[type, Callable[..., flags.FlagHolder]] = {
    bool: flags.DEFINE_bool,
    int: flags.DEFINE_integer,
    float: flags.DEFINE_float,
    str: flags.DEFINE_string,
}
_FIELDS = {
    "init_from": "Model to start from: a folder, hf://organisation/name or "
    "keras_hub://preset.",
    "strategy": "one_device, mirrored, multi_worker (TF_CONFIG names the "
    "workers) or tpu.",
    "precision": "float32, mixed_bfloat16 or mixed_float16.",
}


def define_fields(settings: type[Settings]) -> dict[str, flags.FlagHolder]:
    """Defines a flag for every field, with its default and its help text."""
    kinds = settings.kinds()
    return {
        field.name: _DEFINE[kinds[field.name]](
            field.name, field.default, _sentence(field.metadata["help"])
        )
        for field in dataclasses.fields(settings)
    }


def _sentence(text: str) -> str:
    """A help text as the help of a flag; a name at its start stays."""
    if re.match("[a-z]+[ ,]", text):
        text = text[0].upper() + text[1:]
    return f"{text}."


class RecipeFlags:
    """Defines --output_dir, --recipe, --set and how to reach devices.

    Args:
      recipe: what is run; says the defaults of the fields.
      settings: what --set takes, for the help.
      fields: fields of the recipe that have a flag of their own, besides
        init_from, strategy and precision, and the help of each.
    """

    def __init__(
        self,
        recipe: type[Settings],
        settings: str,
        fields: Mapping[str, str],
    ):
        default_of = {
            f.name: f" Default: {f.default}."
            for f in dataclasses.fields(recipe)
            if f.default != ""
        }
        self._output_dir = flags.DEFINE_string(
            "output_dir", None, "Folder of the run; becomes a model folder."
        )
        # Without a default, since what is given goes before a recipe's file.
        self._fields = {
            name: flags.DEFINE_string(
                name, None, text + default_of.get(name, "")
            )
            for name, text in {**fields, **_FIELDS}.items()
        }
        self._recipe = flags.DEFINE_string(
            "recipe",
            "",
            "recipe.json of a run to repeat; other flags override it. A Python "
            "file that it names is run only where another flag names it too.",
        )
        self._logical_cpus = flags.DEFINE_integer(
            "logical_cpus",
            0,
            "Split the CPU into this many devices, to try --strategy=mirrored.",
        )
        self._tpu = flags.DEFINE_string(
            "tpu",
            "",
            "Name or address of the TPU for --strategy=tpu; local on a TPU VM.",
        )
        self._worker_timeout = flags.DEFINE_float(
            "worker_timeout",
            600.0,
            "Seconds to wait for the other workers of --strategy=multi_worker.",
            lower_bound=0.0,
        )
        self._set = flags.DEFINE_multi_string(
            "set",
            [],
            "key=value for a field of the recipe; may be repeated. " + settings,
        )

    @property
    def output_dir(self) -> str:
        """The folder of the run."""
        return required(self._output_dir)

    @property
    def recipe_file(self) -> str:
        """The recipe to begin with; empty for none."""
        return self._recipe.value

    @property
    def devices(self) -> Devices:
        """How to reach the devices of the recipe's strategy."""
        return Devices(
            self._logical_cpus.value,
            self._tpu.value,
            self._worker_timeout.value,
        )

    def field(self, name: str) -> str | None:
        """What the flag of a field says; None where it is not given."""
        return self._fields[name].value

    def assignments(self) -> list[str]:
        """key=value of every flag of a field that is given, then --set's."""
        given = [
            f"{name}={flag.value}"
            for name, flag in self._fields.items()
            if flag.value is not None
        ]
        return [*given, *self._set.value]
