"""Flags derived from settings: one per field, or --recipe and --set."""

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import TypeVar

from absl import flags

from bert_tf.recipe import Settings
from bert_tf.training.cluster import Devices

from .command_line import required

# Flags belong to the command that defines them with this module.
flags.disclaim_key_flags()

S = TypeVar("S", bound=Settings)
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


def define_fields(settings: type[S]) -> Callable[[], S]:
    """Defines a flag for every field, with its default and its help text.

    Returns:
      A function that returns the settings of the parsed flags.
    """
    kinds, defined = settings.kinds(), {}
    for field in dataclasses.fields(settings):
        text = f"{field.metadata['help']}."
        # Capitalised, unless it begins with a name.
        if re.match("[a-z]+[ ,]", text):
            text = text[0].upper() + text[1:]
        define = _DEFINE[kinds[field.name]]
        defined[field.name] = define(field.name, field.default, text)
    return lambda: settings(**{n: flag.value for n, flag in defined.items()})


class RecipeFlags:
    """Defines --output_dir, --recipe, --set and the flags of devices.

    Args:
      recipe: the type of the recipe, which has the defaults of its fields.
      settings: the help of --set.
      fields: the help of fields with a flag, in addition to init_from, strategy
        and precision.
    """

    def __init__(
        self, recipe: type[Settings], settings: str, fields: Mapping[str, str]
    ):
        default_of = {
            f.name: f" Default: {f.default}."
            for f in dataclasses.fields(recipe)
            if f.default != ""
        }
        self._output_dir = flags.DEFINE_string(
            "output_dir", None, "Folder of the run; becomes a model folder."
        )
        # Without defaults, because given flags override the recipe's file.
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
            "file in it is executed only if another flag names it too.",
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
        """The recipe's file; empty for none."""
        return self._recipe.value

    @property
    def devices(self) -> Devices:
        """The devices of the recipe's strategy."""
        return Devices(
            self._logical_cpus.value,
            self._tpu.value,
            self._worker_timeout.value,
        )

    def field(self, name: str) -> str | None:
        """Returns the value of a field's flag; None if it is not given."""
        return self._fields[name].value

    def assignments(self) -> list[str]:
        """Returns key=value of every given flag of a field, then of --set."""
        from_flags = [
            f"{name}={flag.value}"
            for name, flag in self._fields.items()
            if flag.value is not None
        ]
        return [*from_flags, *self._set.value]
