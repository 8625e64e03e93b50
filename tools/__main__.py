"""`bert-tf COMMAND`: runs any command."""

import ast
import difflib
import pathlib
import runpy
import sys

import bert_tf

from . import COMMANDS, GROUPS, module_of

_HELP = ("--help", "-h", "help")


def main() -> None:
    """Runs the command in the first argument, or lists all commands."""
    words = sys.argv[1:]
    if not words:
        sys.exit(_listing())
    if words[0] in _HELP:
        print(_listing())
        return
    name, *arguments = words
    if name == "--version":
        print(f"bert-tf {bert_tf.__version__}")
        return
    module = module_of(name)
    if module is None:
        known = {module: name for name, module in COMMANDS.items()}
        known |= {name: name for name in COMMANDS}
        near = difflib.get_close_matches(name, known, n=1)
        hint = f" Did you mean {known[near[0]]}?" if near else ""
        sys.exit(
            f"error: {name}: no such command.{hint} bert-tf --help lists them."
        )
    sys.argv = [f"bert-tf {name}", *arguments]
    runpy.run_module(
        f"{__package__}.{module}", run_name="__main__", alter_sys=True
    )


def _listing() -> str:
    lines = ["BERT on TensorFlow and Keras, from plain text to served models."]
    lines += ["", "usage: bert-tf COMMAND --flag=value ..."]
    width = max(map(len, COMMANDS)) + 2
    for heading, commands in GROUPS.items():
        lines += ["", f"{heading}:"]
        for name, module in commands.items():
            path = pathlib.Path(__file__).with_name(f"{module}.py")
            # Parsed, because an import would define the flags of all commands.
            tree = ast.parse(path.read_text(encoding="utf-8"))
            summary = (ast.get_docstring(tree) or "").partition("\n")[0]
            lines.append(f"  {name:<{width}}{summary}")
    lines += ["", "bert-tf COMMAND --help explains one and its flags."]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
