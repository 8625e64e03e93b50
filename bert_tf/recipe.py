"""Frozen dataclasses of settings with limits: strict JSON, typed overrides."""

import dataclasses
import inspect
import json
import math
import numbers
import pathlib
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self

from bert_tf.errors import UserError, did_you_mean, excerpt, first_few
from bert_tf.files import write_text
from bert_tf.foreign_files import read_text

_TRUE, _FALSE = ("true", "1", "yes"), ("false", "0", "no")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """The valid values of a field; without arguments every value is valid.

    Attributes:
      at_least: the smallest number, or a function of the settings.
      above: exclusive lower bound of a number.
      at_most: the largest number, or a function of the settings.
      below: exclusive upper bound of a number.
      or_exactly: a valid number outside these bounds.
      choices: the valid values; an empty one is not listed in errors.
      not_empty: whether a string needs at least one character.
      unused: whether the field must keep its default.
      requires: a field that must differ from its default if this one does, or
        `field=value`, its required value; ignored by settings without the
        field.
      excludes: a field that must keep its default unless this one does.
      why: the reason for a bound that is a function or for `excludes`, a
        format string with the names of fields.
    """

    at_least: Any = None
    above: float | None = None
    at_most: Any = None
    below: float | None = None
    or_exactly: float | None = None
    choices: tuple[str, ...] = ()
    not_empty: bool = False
    unused: bool = False
    requires: str = ""
    excludes: str = ""
    why: str = ""

    def allow(self, value: Any) -> bool:
        """Returns whether a value is valid; a bounded number must be finite."""
        if self.choices:
            return value in self.choices
        if self.not_empty:
            return value != ""
        return value == self.or_exactly or (
            (self.at_least is None or self.at_least <= value < math.inf)
            and (self.above is None or self.above < value < math.inf)
            and (self.at_most is None or value <= self.at_most)
            and (self.below is None or value < self.below)
        )

    def __str__(self) -> str:
        if self.choices:
            return f"one of {', '.join(filter(None, self.choices))}"
        if self.not_empty:
            return "at least one character"
        if self.at_least is not None and self.at_most is not None:
            ranges = [f"{self.at_least} to {self.at_most}"]
            if self.at_least == self.at_most:
                ranges = [str(self.at_least)]
        else:
            bounds = {
                "{} or more": self.at_least,
                "more than {}": self.above,
                "at most {}": self.at_most,
                "below {}": self.below,
            }
            ranges = [
                text.format(bound)
                for text, bound in bounds.items()
                if bound is not None
            ]
        if self.or_exactly is not None:
            ranges.append(f"or {self.or_exactly}")
        return ", ".join(ranges)

    def at(self, settings: "Settings | None") -> "Limits":
        """Returns the limits with functions evaluated, or dropped for None."""
        bounds: dict[str, Any] = {
            name: None if settings is None else bound(settings)
            for name in ("at_least", "at_most")
            if callable(bound := getattr(self, name))
        }
        return dataclasses.replace(self, **bounds)

    def check(self, name: str, value: Any, why: str = "") -> None:
        """Raises `UserError` if a value is outside these limits."""
        if not self.allow(value):
            raise UserError(f"{name} is {value!r}; it takes {self}{why}.")

    def check_beside(self, name: str, settings: "Settings") -> None:
        """Raises `UserError` if a field's value conflicts with other fields."""
        value = getattr(settings, name)
        default = getattr(type(settings), name, value)
        why = f" ({self.why})".format(**vars(settings)) if self.why else ""
        self.at(settings).check(name, value, why)
        if value == default:
            return
        if self.unused:
            raise UserError(
                f"{name}={value}: does not apply to this task; leave it out."
            )
        other, _, required = self.requires.partition("=")
        if hasattr(settings, other):
            actual = getattr(settings, other)
            missing = actual == getattr(type(settings), other)
            if str(actual) != required if required else missing:
                raise UserError(
                    f"{name}={value}: requires {self.requires}; give {other} "
                    f"too, or leave {name} out."
                )
        if self.excludes:
            actual = getattr(settings, self.excludes)
            if actual != getattr(type(settings), self.excludes):
                raise UserError(
                    f"`{name}`={value} and `{self.excludes}`={actual}: give "
                    f"one of the two, not both{why}."
                )


_NO_LIMITS = Limits()


def setting(
    default: Any,
    help_text: str = "",
    *,
    may_be_code: bool = False,
    may_change: bool = False,
    chosen_by_run: bool = False,
    **limits: Any,
) -> Any:
    """Declares a dataclass field with help text and `Limits`.

    Args:
      default: the default value.
      help_text: the line in the help; the limits if empty.
      may_be_code: whether the value may be the path of a Python file, which is
        only run if the user names it, never because a recipe's file does.
      may_change: whether a run may be resumed with another value.
      chosen_by_run: whether the default is no value, but leaves the choice to
        the run, which records it.
      **limits: the attributes of `Limits`.
    """
    declared = Limits(**limits)
    metadata = {
        "help": help_text or str(declared),
        "limits": declared,
        "may_be_code": may_be_code,
        "may_change": may_change,
        "chosen_by_run": chosen_by_run,
    }
    return dataclasses.field(default=default, metadata=metadata)


def like(recipe: "type[Settings]", name: str, **changes: Any) -> Any:
    """Declares a dataclass field like that of other settings.

    Args:
      recipe: the settings that declare the field.
      name: the name of the field.
      **changes: a different `default`, `help_text`, `chosen_by_run` or limits.
    """
    field = recipe.__dataclass_fields__[name]
    metadata = dict(field.metadata)
    default = changes.pop("default", field.default)
    metadata["help"] = changes.pop("help_text", metadata["help"])
    metadata["chosen_by_run"] = changes.pop("chosen_by_run", False)
    metadata["limits"] = dataclasses.replace(metadata["limits"], **changes)
    return dataclasses.field(default=default, metadata=metadata)


def _parse(name: str, kind: type, text: str) -> Any:
    if typing.get_origin(kind) is tuple:
        inner, _ = typing.get_args(kind)
        parts = text.split(",")
        return tuple(_parse(name, inner, part) for part in parts)
    try:
        if kind is bool:
            if text.lower() in _TRUE + _FALSE:
                return text.lower() in _TRUE
            raise ValueError(text)
        return kind(text)
    except ValueError:
        raise UserError(
            f"`{name}`={text}: takes {_KIND_WORDS[kind]}."
        ) from None


def _without_none(kind: Any) -> type:
    """Returns `kind` for `kind | None`."""
    if isinstance(kind, types.UnionType):
        (kind,) = set(typing.get_args(kind)) - {types.NoneType}
    return typing.cast(type, kind)


_KIND_WORDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    list: "a list",
    dict: "an object",
}


def check_kind(name: str, kind: type, value: Any, source: str) -> Any:
    """Converts a value to a field's type, also from NumPy's scalar types.

    An integer is valid for a float, and a list for a tuple.

    Raises:
      UserError: the value is of another type.
    """
    if typing.get_origin(kind) is tuple:
        inner, _ = typing.get_args(kind)
        if not isinstance(value, list | tuple):
            raise UserError(
                f"{source}: {name} is {excerpt(value)}; it takes a list."
            )
        return tuple(check_kind(name, inner, each, source) for each in value)
    is_number = not isinstance(value, bool)
    if kind is int and is_number and isinstance(value, numbers.Integral):
        return int(value)
    if kind is float and is_number and isinstance(value, numbers.Real):
        try:
            return float(value)
        except OverflowError:
            raise UserError(
                f"{source}: {name} is too large a number."
            ) from None
    if not isinstance(value, kind) or kind is int:
        raise UserError(
            f"{source}: {name} is {excerpt(value)}; it takes "
            f"{_KIND_WORDS.get(kind, f'a value of type {kind}')}."
        )
    return value


def join_settings(
    arguments: Mapping[str, Any],
    settings: Mapping[str, Any] | None,
    derived: Sequence[str] = (),
) -> dict[str, Any]:
    """Joins the two ways in which a function takes settings.

    Args:
      arguments: the arguments by name; None is one that is not given.
      settings: the function's argument `settings`.
      derived: names of settings that the function derives.

    Raises:
      UserError: a setting is given twice, or one is derived.
    """
    given = {name: v for name, v in arguments.items() if v is not None}
    for name in settings or {}:
        if name in given or name in derived:
            raise UserError(
                f"`settings`: {name} is what an argument says; leave it out."
            )
    for name in given.keys() & set(derived):
        raise UserError(f"`{name}`: is what an argument says; leave it out.")
    return given | dict(settings or {})


def refuse_unknown(
    name: str,
    known: Iterable[str],
    source: str,
    function: Callable[..., Any] | None = None,
) -> None:
    """Raises `UserError` with the nearest valid name if one is unknown.

    Args:
      name: the name of a setting.
      known: the names of all settings.
      source: the origin of the name, for the error.
      function: takes the settings as arguments, besides others.
    """
    names = list(known)
    if name in names:
        return
    others = inspect.signature(function).parameters if function else ()
    hint = did_you_mean(name, [*names, *(o for o in others if o != name)])
    if names and not hint:
        hint = f" Valid keys: {first_few(names)}."
    raise UserError(f"{source}: unknown key {name!r}.{hint}")


def value_of_key(
    values: Mapping[str, Any], key: str, kind: type, source: str
) -> Any:
    """Returns the value of a JSON object's key; None if missing or null.

    Raises:
      UserError: the value is of another type; see `check_kind`.
    """
    value = values.get(key)
    return None if value is None else check_kind(key, kind, value, source)


@dataclasses.dataclass(frozen=True)
class Settings:
    """Base of every recipe: a flat set of fields with limits.

    A subclass is a frozen dataclass whose fields are an int, float, bool or
    str, or a tuple of these, declared by `setting`; the default may be None,
    which `override` cannot set. Recipes are composed by inheritance from parts,
    each with the settings of one subject.

    Args of a subclass's class statement:
      defaults: name to default of inherited settings.
      unused: names of inherited settings that do not apply.
    """

    def __init_subclass__(
        cls, defaults: Mapping[str, Any] = {}, unused: Sequence[str] = ()
    ) -> None:
        super().__init_subclass__()
        inherited: dict[str, dataclasses.Field] = {}
        for base in reversed(cls.__mro__[1:]):
            inherited |= getattr(base, "__dataclass_fields__", {})
        for name in (*defaults, *unused):
            field = inherited[name]
            metadata = dict(field.metadata)
            if name in unused:
                metadata["limits"] = Limits(unused=True)
            default = defaults.get(name, field.default)
            cls.__annotations__[name] = field.type
            changed = dataclasses.field(default=default, metadata=metadata)
            setattr(cls, name, changed)

    def __post_init__(self) -> None:
        """Raises `UserError` on a value outside the limits of its field."""
        limits = {
            field.name: field.metadata.get("limits", _NO_LIMITS)
            for field in dataclasses.fields(self)
        }
        for name, each in limits.items():
            each.at(None).check(name, getattr(self, name))
        for name, each in limits.items():
            each.check_beside(name, self)

    def _check(self, name: str, good: bool, takes: str) -> None:
        if not good:
            raise UserError(
                f"{name} is {getattr(self, name)!r}; it takes {takes}."
            )

    @classmethod
    def kinds(cls) -> dict[str, type]:
        """Returns field name to type, in the order of declaration."""
        hints = typing.get_type_hints(cls)
        return {
            f.name: _without_none(hints[f.name])
            for f in dataclasses.fields(cls)
        }

    @classmethod
    def from_arguments(
        cls,
        values: Mapping[str, Any],
        source: str,
        function: Callable[..., Any],
    ) -> Self:
        """As `from_dict`, of arguments of a function that has others too."""
        for name in values:
            refuse_unknown(name, cls.kinds(), source, function)
        return cls.from_dict(values, source)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], source: str) -> Self:
        """Builds the settings from a mapping, rejecting unknown keys.

        Args:
          values: field name to value; missing fields take their default.
          source: the origin of the values, for errors.

        Raises:
          UserError: an unknown key, a missing one or a value of a wrong type.
        """
        checked, kinds = {}, cls.kinds()
        for name, value in values.items():
            refuse_unknown(name, kinds, source)
            if value is not None or getattr(cls, name, value) is not None:
                value = check_kind(name, kinds[name], value, source)
            checked[name] = value
        missing = [
            f.name
            for f in dataclasses.fields(cls)
            if f.default is dataclasses.MISSING and f.name not in checked
        ]
        if missing:
            raise UserError(f"{source}: missing key {', '.join(missing)}.")
        try:
            return cls(**checked)
        except UserError as error:
            raise UserError(f"{source}: {error}") from None

    @classmethod
    def from_json(
        cls,
        path: str | pathlib.Path,
        assignments: Sequence[str] = (),
        source: str = "`assignments`",
    ) -> Self:
        """Reads the settings from a JSON file and applies `key=value` texts.

        Args:
          path: the JSON file, see `from_dict`.
          assignments: see `override`.
          source: the origin of the assignments, for errors.

        Raises:
          UserError: see `from_dict` and `override`, or the file names a Python
            file to run.
        """
        stored = cls.from_dict(read_json_object(path), str(path))
        settings = stored.override(assignments, source)
        assigned = {each.partition("=")[0].strip() for each in assignments}
        for field in dataclasses.fields(cls):
            if field.metadata.get("may_be_code") and field.name not in assigned:
                from bert_tf.user_modules import refuse_user_module

                value = getattr(settings, field.name)
                refuse_user_module(field.name, value, str(path))
        return settings

    def override(
        self, assignments: Sequence[str], source: str = "`assignments`"
    ) -> Self:
        """Returns a copy with `key=value` assignments applied, typed.

        Args:
          assignments: texts of the form `key=value`.
          source: the origin of the assignments, for errors.

        Raises:
          UserError: no "=", an unknown key, or a value of a wrong type.
        """
        changes, kinds = {}, self.kinds()
        for assignment in assignments:
            name, equals, text = assignment.partition("=")
            if not equals:
                raise UserError(f"{source} {assignment!r}: write key=value.")
            name = name.strip()
            refuse_unknown(name, kinds, source)
            changes[name] = _parse(name, kinds[name], text.strip())
        return dataclasses.replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Returns field name to value, tuples as lists, as JSON stores them."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in dataclasses.asdict(self).items()
        }

    def changed(self) -> dict[str, Any]:
        """Returns the values that differ from their defaults, as `to_dict`."""
        defaults = type(self)().to_dict()
        return {
            name: value
            for name, value in self.to_dict().items()
            if value != defaults[name]
        }

    def save(self, path: str | pathlib.Path) -> None:
        """Writes the settings as JSON, atomically."""
        write_text(path, json.dumps(self.to_dict(), indent=2) + "\n")


def read_json_object(
    path: str | pathlib.Path, missing_ok: bool = False
) -> dict[str, Any]:
    """Reads a JSON file that holds one object.

    Args:
      path: the file.
      missing_ok: whether to read a missing file as an empty object.

    Raises:
      UserError: the file is missing, not JSON, or not an object.
    """
    if missing_ok and not pathlib.Path(path).exists():
        return {}
    values = read_json(path)
    if not isinstance(values, dict):
        raise UserError(f"{path}: holds {type(values).__name__}, not an object")
    return values


def read_json_list(path: str | pathlib.Path) -> list[Any]:
    """Reads a JSON file that holds one list.

    Raises:
      UserError: the file is missing, not JSON, or not a list.
    """
    values = read_json(path)
    if not isinstance(values, list):
        raise UserError(f"{path}: holds {type(values).__name__}, not a list")
    return values


def read_json(path: str | pathlib.Path) -> Any:
    """Reads a JSON file.

    Raises:
      UserError: the file is missing or not JSON.
    """
    try:
        return json.loads(read_text(path))
    except UserError:
        raise
    except FileNotFoundError:
        raise UserError(f"{path}: no such file.") from None
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}.") from None
    # A plain ValueError: invalid UTF-8, or a number of thousands of digits.
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not valid JSON ({error}).") from None
