"""The tests that a change may affect, by what files import.

A file depends on the modules that it imports, inside functions too, and on the
modules, commands and pages that it names in strings, as lists of architectures
and tests of commands do. `import bert_tf` is no dependency on the whole
library: names such as `bert_tf.load` lead to the module that defines them.
"""

import ast
import functools
import pathlib
import re
import subprocess
from collections.abc import Iterator

import bert_tf
from tools import COMMANDS

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = (
    *("bert_tf", "tools", "tasks", "experiments"),
    *("examples", "benchmarks", "tests"),
)
# Rooms whose modules are imported from a list, by a name: whoever mentions the
# name depends on them.
MENTIONED = (
    *("bert_tf/architectures", "bert_tf/encoders", "tasks", "experiments"),
)
# Of the fixtures of tests/conftest.py, the one that uses other files.
FIXTURES = {"finish_case": "tests/contracts/task_cases.py"}


def changed_files(commit: str) -> list[str] | None:
    """Returns the files that differ from a commit; None if it is unknown."""
    done = subprocess.run(
        ["git", "diff", "--name-only", commit, "--"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    return None if done.returncode else done.stdout.splitlines()


@functools.cache
def graph() -> dict[str, set[str]]:
    """Returns the files that each Python file depends on directly."""
    return {
        path: dependencies(path)
        for folder in FOLDERS
        for path in _paths(f"{folder}/**/*.py")
    }


def affected_tests(changed: list[str]) -> set[str]:
    """Returns the files of tests that depend on a changed file.

    Args:
      changed: paths relative to the checkout. A file that is not Python counts
        as a change of the modules beside it, or of what names it.
    """
    affected = set(changed)
    for path in changed:
        if path.endswith(".py"):
            continue
        folder = str(pathlib.PurePath(path).parent)
        affected |= {
            other
            for other in graph()
            if str(pathlib.PurePath(other).parent) == folder
        }
    # Whatever depends on an affected file is affected.
    todo = list(affected)
    dependents: dict[str, set[str]] = {}
    for path, needed in graph().items():
        for other in needed:
            dependents.setdefault(other, set()).add(path)
    while todo:
        new = dependents.get(todo.pop(), set()) - affected
        affected |= new
        todo += new
    return {path for path in affected if re.search(r"/test_\w+\.py$", path)}


def dependencies(path: str) -> set[str]:
    """Returns the files that a Python file depends on directly."""
    text = (ROOT / path).read_text(encoding="utf-8")
    found = set()
    if path == "bert_tf/__init__.py":
        return found
    for name in _names(ast.parse(text), path):
        found |= _files(name)
    if re.fullmatch(r"bert_tf/families/\w+/(config|answers)\.py", path):
        # `part_of` imports them by their names.
        for part in ("checks", "explained", "report"):
            found |= _existing(str(pathlib.PurePath(path).with_stem(part)))
    if path.startswith("tests/"):
        folder = pathlib.PurePath(path).parent
        while folder.name != "tests":
            found |= _existing(f"{folder}/conftest.py")
            folder = folder.parent
        if path != "tests/conftest.py":
            for fixture, home in FIXTURES.items():
                if fixture in text:
                    found.add(home)
    return found - {path, "tests/conftest.py"}


def _names(tree: ast.Module, path: str) -> Iterator[str]:
    """Yields dotted names and paths that a file mentions."""
    for node in ast.walk(tree):
        yield from imported_names(node, path.split("/")[:-1])
        if isinstance(node, ast.Attribute):
            if isinstance(node.value, ast.Name) and node.value.id == "bert_tf":
                yield f"bert_tf.{node.attr}"
        elif isinstance(node, ast.Expr):
            # A docstring: no dependency.
            if isinstance(node.value, ast.Constant):
                node.value.value = None
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from _names_in_text(node.value, path)


def imported_names(node: ast.AST, package: list[str]) -> list[str]:
    """Returns the dotted names that a node imports.

    Args:
      node: any node of a syntax tree.
      package: the parts of the package's name, for relative imports.
    """
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    above = package[: len(package) - node.level + 1] if node.level else []
    module = ".".join(filter(None, [*above, node.module]))
    return [f"{module}.{alias.name}" for alias in node.names]


def _names_in_text(text: str, path: str) -> Iterator[str]:
    """Yields what a string mentions."""
    yield from re.findall(r"\b(?:bert_tf|tools|tasks|tests)(?:\.\w+)+", text)
    yield from re.findall(r"[\w/]+\.(?:md|csv|config)", text)
    for command in re.findall(r"bert-tf ([\w-]+)", text):
        yield f"tools.{COMMANDS.get(command, command)}"
    if not path.startswith("bert_tf/"):
        for word in set(re.findall(r"[\w-]+", text)):
            for room in MENTIONED:
                yield f"{room}/{word.replace('-', '_').lower()}.py"


def _files(name: str) -> set[str]:
    """Returns the file of a dotted name or a path, and packages above it."""
    found = set()
    for folder in ("", "docs/", "examples/", "production/"):
        found |= _existing(folder + name)
    top, _, rest = name.partition(".")
    if top not in FOLDERS:
        return found
    home = bert_tf._HOME.get(rest.split(".")[0]) if top == "bert_tf" else None
    parts = (home or name).split(".")
    for length in range(len(parts), 1, -1):
        base = "/".join(parts[:length])
        found |= _existing(f"{base}.py")
        found |= _existing(f"{base}/__init__.py")
    return found


@functools.cache
def _existing(path: str) -> frozenset[str]:
    return frozenset([path] if (ROOT / path).is_file() else [])


def _paths(pattern: str) -> Iterator[str]:
    for path in sorted(ROOT.glob(pattern)):
        yield path.relative_to(ROOT).as_posix()
