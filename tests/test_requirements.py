"""What the tests run with is what the package asks for."""

import pathlib
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def requirements(name: str) -> list[Requirement]:
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    return [Requirement(x) for x in lines if x and x[0] not in "#-"]


def bounds(specifiers: SpecifierSet) -> tuple[Version, Version]:
    """The lowest version and the one that all are below, or at."""
    given = {s.operator: Version(s.version) for s in specifiers}
    if "==" in given:
        return given["=="], given["=="]
    return given[">="], given["<"]


def within(pin: SpecifierSet, allowed: SpecifierSet) -> bool:
    lowest, end = bounds(pin)
    first, past = bounds(allowed)
    return first <= lowest and (end < past or lowest != end == past)


ASKED = {
    requirement.name: requirement
    for lines in (
        PROJECT["dependencies"],
        *PROJECT["optional-dependencies"].values(),
    )
    for requirement in map(Requirement, lines)
}
PINS = {
    requirement.name: requirement
    for name in ("requirements.txt", "requirements-beam.txt")
    for requirement in requirements(name)
}
# No test needs the libraries of --check=transformers; a peer's environment has
# them.
PINS |= {
    requirement.name: requirement
    for requirement in requirements("requirements-peers.txt")
    if requirement.name in ("torch", "transformers")
}


def test_they_are_the_same_libraries():
    assert set(PINS) == set(ASKED)


@pytest.mark.parametrize("name", PINS)
def test_each_is_within_the_range(name):
    pin, asked = PINS[name].specifier, ASKED[name].specifier
    assert within(pin, asked), f"{name}: {pin} is not within {asked}"
