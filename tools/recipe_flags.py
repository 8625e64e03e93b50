"""Flags derived from settings: one for every field of a recipe."""

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from absl import flags

from bert_tf.errors import UserError
from bert_tf.recipe import Settings
from bert_tf.training.cluster import Devices

from . import command_line
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


def define_fields(settings: type[S]) -> Callable[[], S]:
    """Defines a flag for every field, with its default and its help text.

    Returns:
      A function that returns the settings of the parsed flags.
    """
    defined = _define(settings, flags.FLAGS)
    return lambda: settings(**{n: flag.value for n, flag in defined.items()})


def _define(
    settings: type[Settings],
    values: flags.FlagValues,
    defaults: Mapping[str, Any] = {},
    inherited: bool = True,
) -> dict[str, flags.FlagHolder]:
    """Defines a flag for every field that is used."""
    kinds, defined = settings.kinds(), {}
    declared = settings.__dataclass_fields__
    # What is special comes before what all share.
    classes = settings.__mro__ if inherited else [settings]
    for name in dict.fromkeys(
        n for each in classes for n in vars(each).get("__annotations__", {})
    ):
        limits = declared[name].metadata["limits"]
        if limits.unused:
            continue
        text, takes = declared[name].metadata["help"], str(limits.at(None))
        named = all(choice in text for choice in limits.choices)
        if takes and takes != text and not (limits.choices and named):
            takes = f" Takes {takes}."
        else:
            takes = ""
        # Capitalised, unless it begins with a value or name.
        first = re.match("([a-z-]+)[ ,:]", text)
        if first and first[1] not in limits.choices:
            text = text[0].upper() + text[1:]
        default = defaults.get(name, declared[name].default)
        defined[name] = _DEFINE[kinds[name]](
            name, default, f"{text}.{takes}", flag_values=values
        )
    return defined


# Returns the type of a recipe, and defaults that differ from the type's, from
# --task, --recipe, --model and --set, which are read before all other flags.
Find = Callable[[flags.FlagValues], tuple[type[Settings], Mapping[str, Any]]]
Kinds = Callable[[], Mapping[str, type[Settings]]]


class FieldFlags:
    """Defines --set, and later a flag for every field of the recipe.

    Args:
      find: returns the type of the recipe.
      kinds: returns what to show in the help while the type is not known:
        headings, and types without inherited fields but for the first.
      fields: the help of fields that are defined at once, as strings.
      model: the field that --model is another name of.
    """

    def __init__(
        self,
        find: Find,
        kinds: Kinds = dict,
        fields: Mapping[str, str] = {},
        model: str = "",
    ):
        self._find, self._kinds, self._names = find, kinds, [*fields]
        for name, text in fields.items():
            flags.DEFINE_string(name, None, text)
        if model:
            command_line.name_model(model)
        self._set = flags.DEFINE_multi_string(
            "set", [], "key=value, the same as --key=value; may be repeated."
        )
        command_line.define_later(self._define_fields)

    def _define_fields(
        self, arguments: list[str], for_help: bool
    ) -> dict[str, flags.FlagValues]:
        """Defines the fields, and returns them by heading."""
        known = flags.FlagValues()
        for name in ("task", "recipe", "model"):
            flags.DEFINE_string(name, "", "", flag_values=known)
        flags.DEFINE_multi_string("set", [], "", flag_values=known)
        known(arguments, known_only=True)
        try:
            recipe, defaults = self._find(known)
        except UserError:
            if not for_help:
                raise
            shown = {}
            for number, (heading, kind) in enumerate(self._kinds().items()):
                shown[heading] = flags.FlagValues()
                _define(kind, shown[heading], inherited=not number)
            return shown
        fields = flags.FlagValues()
        _define(recipe, fields, defaults)
        for name in fields:
            if name not in flags.FLAGS:
                flags.FLAGS[name] = fields[name]
                self._names.append(name)
        return {"Fields of the recipe": fields}

    def assignments(self) -> list[str]:
        """Returns key=value of every given flag of a field, then of --set."""
        given = [flags.FLAGS[name] for name in self._names]
        return [f"{f.name}={f.value}" for f in given if f.present] + [
            *self._set.value
        ]


class RecipeFlags(FieldFlags):
    """Defines --output_dir, --recipe and the flags of devices besides.

    Args:
      See `FieldFlags`.
    """

    def __init__(
        self,
        find: Find,
        kinds: Kinds = dict,
        fields: Mapping[str, str] = {},
        model: str = "init_from",
    ):
        self._output_dir = flags.DEFINE_string(
            "output_dir", None, "Folder of the run; becomes a model folder."
        )
        start = "Model to start from: a folder, hf://organisation/name or "
        super().__init__(
            find,
            kinds,
            {**fields, "init_from": f"{start}keras_hub://preset."},
            model,
        )
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
