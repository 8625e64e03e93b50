"""Frozen dataclasses of settings: strict to read, typed to override."""

import dataclasses
import json
import math
import numbers
import pathlib
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Self

from bert_tf.errors import UserError, did_you_mean
from bert_tf.files import write_text
from bert_tf.foreign_files import read_text
from bert_tf.user_modules import refuse_user_module

_TRUE, _FALSE = ("true", "1", "yes"), ("false", "0", "no")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """What a field takes; nothing is checked where nothing is given.

    Attributes:
      at_least: the smallest number.
      above: what a number must be above.
      at_most: the largest number.
      below: what a number must be below.
      choices: the values; an empty one among them is not listed in errors.
    """

    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None
    choices: tuple[str, ...] = ()

    def allow(self, value: Any) -> bool:
        """Whether a value will do; a number is finite where one is limited."""
        if self.choices:
            return value in self.choices
        return (
            (self.at_least is None or self.at_least <= value < math.inf)
            and (self.above is None or self.above < value < math.inf)
            and (self.at_most is None or value <= self.at_most)
            and (self.below is None or value < self.below)
        )

    def __str__(self) -> str:
        if self.choices:
            return f"one of {', '.join(filter(None, self.choices))}"
        if self.at_least is None:
            if self.below is not None:
                return f"above {self.above}, below {self.below}"
            if self.at_most is not None:
                return f"above {self.above} and up to {self.at_most}"
            return f"more than {self.above}"
        if self.below is not None:
            return f"{self.at_least} up to below {self.below}"
        if self.at_most is not None:
            return f"{self.at_least} to {self.at_most}"
        return f"{self.at_least} or more"


_NO_LIMITS = Limits()


def setting(
    default: Any,
    help_text: str,
    *,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    below: float | None = None,
    choices: Sequence[str] = (),
    may_be_code: bool = False,
) -> Any:
    """A dataclass field: its default, its help text and its `Limits`.

    A field that `may_be_code` takes the path of a Python file, which is run
    only where the user gives it, not where a recipe's file does.
    """
    limits = Limits(
        at_least=at_least,
        above=above,
        at_most=at_most,
        below=below,
        choices=tuple(choices),
    )
    metadata = {
        "help": help_text,
        "limits": limits,
        "may_be_code": may_be_code,
    }
    return dataclasses.field(default=default, metadata=metadata)


def _parse(source: str, name: str, kind: type, text: str) -> Any:
    try:
        if kind is bool:
            if text.lower() in _TRUE + _FALSE:
                return text.lower() in _TRUE
            raise ValueError(text)
        return kind(text)
    except ValueError:
        words = {int: "a whole number", float: "a number"}
        takes = words.get(kind, "true or false")
        raise UserError(f"{source} {name}={text}: takes {takes}.") from None


def check_kind(name: str, kind: type, value: Any, source: str) -> Any:
    """Returns a value of a field's type, of one that NumPy has for it too.

    A whole number will do for a float.

    Raises:
      UserError: the value is of another type.
    """
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
            f"{source}: {name} is {value!r}; it takes a value of type "
            f"{kind.__name__}."
        )
    return value


@dataclasses.dataclass(frozen=True)
class Settings:
    """Base of every recipe: a flat set of int, float, bool and str fields.

    A subclass is a frozen dataclass whose fields are made with `setting`,
    which says what each takes. What depends on several fields it checks in
    `__post_init__`, after its base class.
    """

    def __post_init__(self) -> None:
        """Raises `UserError` on a value that a field does not take."""
        for field in dataclasses.fields(self):
            limits = field.metadata.get("limits", _NO_LIMITS)
            good = limits.allow(getattr(self, field.name))
            self._check(field.name, good, str(limits))

    def _check(self, name: str, good: bool, takes: str) -> None:
        """Raises `UserError` if a field's value is not good."""
        if not good:
            raise UserError(
                f"{name} is {getattr(self, name)!r}; it takes {takes}."
            )

    @classmethod
    def kinds(cls) -> dict[str, type]:
        """The type of each field, by name, in the order of declaration."""
        hints = typing.get_type_hints(cls)
        return {f.name: hints[f.name] for f in dataclasses.fields(cls)}

    @classmethod
    def _known(cls, name: str, source: str) -> type:
        kinds = cls.kinds()
        if name not in kinds:
            hint = did_you_mean(name, kinds)
            raise UserError(
                f"{source}: unknown key {name!r}.{hint} Valid keys: "
                f"{', '.join(kinds)}."
            )
        return kinds[name]

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], source: str) -> Self:
        """Builds the settings from a mapping, refusing unknown keys.

        Args:
          values: field name to value; fields left out take their default.
          source: what the values come from, for the error line.

        Raises:
          UserError: an unknown key, a missing one or a value of a wrong type.
        """
        checked = {
            name: check_kind(name, cls._known(name, source), value, source)
            for name, value in values.items()
        }
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
        """Reads the settings from a JSON file, under what is assigned.

        See `from_dict` and `override`.

        Raises:
          UserError: the same, or the file names a Python file to run.
        """
        stored = cls.from_dict(read_json_object(path), str(path))
        settings = stored.override(assignments, source)
        given = {each.partition("=")[0].strip() for each in assignments}
        for field in dataclasses.fields(cls):
            if field.metadata.get("may_be_code") and field.name not in given:
                value = getattr(settings, field.name)
                refuse_user_module(field.name, value, str(path))
        return settings

    def override(
        self, assignments: Sequence[str], source: str = "`assignments`"
    ) -> Self:
        """Returns a copy with `key=value` assignments applied, typed.

        Args:
          assignments: what to change.
          source: what gives them, for errors.

        Raises:
          UserError: no "=", an unknown key, or a value of a wrong type.
        """
        changes = {}
        for assignment in assignments:
            name, equals, text = assignment.partition("=")
            if not equals:
                raise UserError(f"{source} {assignment!r}: write key=value.")
            kind = self._known(name.strip(), source)
            changes[name.strip()] = _parse(source, name, kind, text.strip())
        return dataclasses.replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, in the order of declaration."""
        return dataclasses.asdict(self)

    def save(self, path: str | pathlib.Path) -> None:
        """Writes the settings as JSON, beside and then renamed."""
        write_text(path, json.dumps(self.to_dict(), indent=2) + "\n")

    @classmethod
    def describe(cls, inherited: bool = True) -> str:
        """One line a field, inherited ones too: name, default, help text."""
        return "\n".join(
            f"  {f.name}={f.default}: {f.metadata.get('help', '')}"
            for f in dataclasses.fields(cls)
            if inherited or f.name in cls.__annotations__
        )


def read_json_object(path: str | pathlib.Path) -> dict[str, Any]:
    """Reads a JSON file that holds one object.

    Raises:
      UserError: the file is missing, not JSON, or not an object.
    """
    values = _read_json(path)
    if not isinstance(values, dict):
        raise UserError(f"{path}: holds {type(values).__name__}, not an object")
    return values


def read_json_list(path: str | pathlib.Path) -> list[Any]:
    """Reads a JSON file that holds one list.

    Raises:
      UserError: the file is missing, not JSON, or not a list.
    """
    values = _read_json(path)
    if not isinstance(values, list):
        raise UserError(f"{path}: holds {type(values).__name__}, not a list")
    return values


def _read_json(path: str | pathlib.Path) -> Any:
    try:
        return json.loads(read_text(path))
    except UserError:
        raise
    except FileNotFoundError:
        raise UserError(f"{path}: no such file.") from None
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}.") from None
    # A ValueError that is no JSONDecodeError: bytes that are not UTF-8, or a
    # number of thousands of digits.
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not valid JSON ({error}).") from None
