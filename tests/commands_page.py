"""Makes docs/commands.md from the help of all commands.

python -m tests.commands_page
"""

import functools
import re

from tests import commands
from tests.documents import ROOT
from tools import GROUPS, module_of

PAGE = ROOT / "docs" / "commands.md"
START = """# Commands

<!-- Made from the code by `make commands-page`; a test compares them. -->

Every command is `bert-tf NAME --flag=value ...`. `bert-tf` alone lists them,
with an example each. `bert-tf NAME --help` shows what stands here, and
`bert-tf finetune --task=NAME --help` the flags of that task.

- The long form is `python -m tools.MODULE`, such as
  `python -m tools.run_finetuning` (`bert_tf.tools.MODULE` of the installed
  package). Names of these files are names of commands too, with dashes or
  underscores: `bert-tf run-finetuning`.
- A flag is written `--name=value` or `--name value`, and a switch `--name` or
  `--noname`. `--model` names the model wherever one goes in: a folder of any
  family, `hf://organisation/name` or `keras_hub://preset`.
- A run stores its recipe in `recipe.json`. Each field is a flag, and
  `--recipe=recipe.json` repeats the run. In Python each is a keyword.
- A mistake is one line on standard error and exit code 1. Ctrl-C ends with exit
  code 130, a training that SIGTERM stopped with 75; the same command resumes.
- `bert-tf completion bash`, `zsh` or `fish` prints what completes commands,
  flags and values in a shell.
"""
# What gives a command other flags.
VARIANTS = {"distill": "--to=static"}
FLAG = re.compile(r"^  (--[^(\n]*?)(?: \((.*)\))?\n((?:      .*\n)*)", re.M)


@functools.cache
def page() -> str:
    """Returns the text of the page."""
    parts = [START]
    for heading, names in GROUPS.items():
        parts.append(f"## {heading}\n")
        parts += [section(name) for name in names]
    return "\n".join(parts)


def section(name: str) -> str:
    """Returns the section of a command: its docstring and its flags."""
    module = module_of(name)
    printed = commands.run(f"tools.{module}", "--help").stdout
    text, *groups = re.split(r"\n\n(?=[A-Z][^\n]*:\n  --)", printed.rstrip())
    parts = [f"### {name}\n"]
    for block in text.split("\n\n"):
        typed = block.startswith(("bert-tf ", "--")) and block[-1] != "."
        parts.append(f"```sh\n{block}\n```\n" if typed else f"{prose(block)}\n")
    for group in groups:
        heading, _, lines = group.partition(":\n")
        parts.append(f"**{heading}**\n")
        parts += [item(*each) for each in FLAG.findall(f"{lines}\n")]
        parts.append("")
    if variant := VARIANTS.get(name):
        known = {names for names, _, _ in FLAG.findall(f"{printed}\n")}
        other = commands.run(f"tools.{module}", variant, "--help").stdout
        found = FLAG.findall(f"{other.rstrip()}\n")
        parts.append(f"**Only with `{variant}`**\n")
        parts += [item(*each) for each in found if each[0] not in known]
        parts.append("")
    return "\n".join(parts)


def item(names: str, facts: str, text: str) -> str:
    """Returns the line of a list for a flag."""
    names = names.replace(", ", "`, `")
    text = prose(" ".join(text.split()))
    return f"- `{names}`{f' ({facts})' if facts else ''}: {text}"


def prose(text: str) -> str:
    """Marks flags, commands and pages, and escapes what Markdown reads."""
    text = re.sub(r"[*<\[]", r"\\\g<0>", text).replace("\\<", "&lt;")
    text = re.sub(r"docs/(\w+\.md)", r"[\1](\1)", text)
    flag = r"--\w+(?:=[^\s,;)]*[^\s,;).:])?"
    code = rf"(?<![`\w-])(?:bert-tf [a-z-]+|{flag})(?: {flag})*"
    return re.sub(code, r"`\g<0>`", text)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
