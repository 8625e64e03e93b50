"""`bert-tf COMMAND`: runs any command."""

import ast
import pathlib
import re
import runpy
import sys

import bert_tf
from bert_tf.errors import did_you_mean

from . import COMMANDS, GROUPS, command_line, module_of

_HELP = ("--help", "-h", "help")
# Names of other programs.
_OTHER_NAMES = {
    "train": "finetune",
    "fit": "finetune",
    "run_classifier": "finetune",
    "run_squad": "finetune",
    "encode": "embed",
    "evaluate": "score",
    "classify": "predict",
    "infer": "predict",
    "quantize": "export",
    "upload": "push",
}


def main() -> None:
    """Runs the command in the first argument, or lists all commands."""
    name, *arguments = sys.argv[1:] or ["help"]
    if name in _HELP:
        command_line.show(_listing())
        return
    if name == "--version":
        print(f"bert-tf {bert_tf.__version__}")
        return
    module = module_of(name)
    if module is None:
        known = _OTHER_NAMES | {m: name for name, m in COMMANDS.items()}
        known |= {name: name for name in COMMANDS}
        hint = did_you_mean(name, known, known.__getitem__)
        sys.exit(
            f"error: {name}: no such command.{hint} bert-tf --help lists them."
        )
    sys.argv = [f"bert-tf {name}", *arguments]
    runpy.run_module(
        f"{__package__}.{module}", run_name="__main__", alter_sys=True
    )


def _listing() -> list[str]:
    lines = ["BERT on TensorFlow and Keras, from plain text to served models."]
    width = max(map(len, COMMANDS)) + 2
    for heading, commands in GROUPS.items():
        lines += ["", f"{heading}:"]
        for name, module in commands.items():
            path = pathlib.Path(__file__).with_name(f"{module}.py")
            # Parsed, because an import would define the flags of all commands.
            tree = ast.parse(path.read_text(encoding="utf-8"))
            text = ast.get_docstring(tree) or ""
            typed = rf"^bert-tf {name} (?:.*\\\n)*.*"
            (example, *_) = re.findall(typed, text, re.MULTILINE)
            lines.append(f"  {name:<{width}}{text.partition(chr(10))[0]}")
            lines += [f"      {each}" for each in example.splitlines()]
    return [*lines, "", "bert-tf NAME --help explains one and its flags."]


if __name__ == "__main__":
    main()
