"""docs/files.md names every file of the product, in its module's own words.

python tests/test_file_list.py writes it anew.
"""

import ast
import pathlib

ROOT = pathlib.Path(__file__).parents[1]
LIST = ROOT / "docs" / "files.md"
FOLDERS = ("bert_tf", "tasks", "tools", "benchmarks")
HEADER = """# Every file

What each file is for, as its first line says; [WORKSPACE.md](../WORKSPACE.md)
has the levels and how they work together. `python tests/test_file_list.py`
writes this list, and a test compares it with the files.
"""


def described(path: pathlib.Path) -> str:
    """A line of the list."""
    if path.suffix != ".py":
        return f"- `{path.name}`"
    text = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    return f"- `{path.name}`: {text.splitlines()[0]}"


def file_list() -> str:
    """The whole list."""
    found: dict[pathlib.Path, list[str]] = {}
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            hidden = "__pycache__" in path.parts or path.name[0] == "."
            if path.is_file() and path.name != "__init__.py" and not hidden:
                found.setdefault(path.parent, []).append(described(path))
    sections = [
        f"\n## {folder.relative_to(ROOT)}/\n\n" + "\n".join(lines) + "\n"
        for folder, lines in sorted(found.items())
    ]
    return HEADER + "".join(sections)


def test_the_list_of_files_is_that_of_the_tree() -> None:
    assert LIST.read_text("utf-8") == file_list(), (
        "docs/files.md is old: python tests/test_file_list.py"
    )


if __name__ == "__main__":
    LIST.write_text(file_list(), "utf-8")
