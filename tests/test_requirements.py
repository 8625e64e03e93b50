"""The locks, which the tests run with, are of what the package asks for."""

import pathlib
import re
import tomllib

import pytest
from packaging.requirements import Requirement

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
LOCKS = ("requirements.txt", "requirements-beam.txt")


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def locked(name: str) -> list[Requirement]:
    """The pins of a file, one or more for a package."""
    lines = re.findall(r"^\w[^\\\n]*", text(name), flags=re.M)
    return [Requirement(line) for line in lines]


def extras_of(name: str) -> list[str]:
    """The extras that the command in a lock's first lines names."""
    return re.findall(r"--extra=(\w+)", text(name).splitlines()[1])


def check(name: str, asked: list[str]) -> None:
    """Each package of the list is pinned to versions in its range."""
    for requirement in map(Requirement, asked):
        pins = [
            pin
            for pin in locked(name)
            if pin.name == requirement.name.lower().replace("_", "-")
        ]
        assert pins, f"{name} has no {requirement.name}"
        for pin in pins:
            (exact,) = pin.specifier
            assert exact.operator == "=="
            assert exact.version in requirement.specifier, f"{name}: {pin}"


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_has_what_pyproject_asks_for(name):
    asked = list(PROJECT["dependencies"])
    for extra in extras_of(name):
        asked += EXTRAS[extra]
    check(name, asked)


def test_the_locks_have_every_extra():
    """No test needs those of --check=transformers; peers' environments have."""
    extras = {extra for name in LOCKS for extra in extras_of(name)}
    assert extras == set(EXTRAS) - {"transformers"}
    check("requirements-peers.txt", EXTRAS["transformers"])


def test_every_pin_of_the_runtime_has_hashes():
    pins = re.split(r"^(?=\w)", text("requirements.txt"), flags=re.M)[1:]
    assert len(pins) == len(locked("requirements.txt"))
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}\b", pin) for pin in pins)
