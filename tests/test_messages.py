"""Errors name arguments in the library and flags in the commands.

The library writes names in backticks; `tools/command_line.py` replaces them by
flags.
"""

import ast
import importlib
import pathlib
import re

import pytest

from bert_tf.conversion import convert_checkpoint
from bert_tf.corpora.recipe import CorpusRecipe
from bert_tf.corpora.sources import parse_inputs
from bert_tf.corpora.vocabulary import train_vocab
from bert_tf.families.pretrained.settings import Settings, parse_layers
from bert_tf.finetuning.run import run_finetuning
from bert_tf.inference.features import extract_features
from bert_tf.memory.plan import PlanSettings, plan_memory
from bert_tf.pretraining.recipe import PretrainingRecipe
from bert_tf.pretraining.run import run_pretraining
from tests import commands
from tests.user_errors import error_of

ROOT = pathlib.Path(__file__).resolve().parent.parent
# A flag, where it does not stand behind the command that takes it.
FLAG = re.compile(r"(?<![\w-])--[a-z]\w+")
COMMAND = re.compile(r"bert-tf [a-z-]+( +--?\w[^ ]*| and [\w ]+| \\)*")


def texts(path: pathlib.Path) -> list[str]:
    """Returns the strings of a source file; an f-string is one."""
    found, parts = [], set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.JoinedStr):
            parts.update(map(id, node.values))
            found.append(
                "".join(
                    v.value if isinstance(v, ast.Constant) else "{}"
                    for v in node.values
                )
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) not in parts:
                found.append(node.value)
    return found


def test_no_string_of_the_library_names_a_flag():
    named = [
        (path, text)
        for path in (ROOT / "bert_tf").rglob("*.py")
        for text in texts(path)
        # Custom properties of style sheets have the same form.
        if FLAG.search(COMMAND.sub("", re.sub(r"(var\()?--\w+[:)]", "", text)))
        # Options of Apache Beam.
        and not re.search("--(runner|direct_num_workers)=", text)
    ]
    assert not named


def finetune(name, modes=("train",), **settings):
    task = importlib.import_module(f"tasks.{name}").TASK
    recipe = task.recipe_type.from_dict({**task.defaults, **settings}, name)
    run_finetuning(task, recipe, "out", list(modes))


CASES = [
    (
        lambda: train_vocab("none.txt", 100),
        "`input_files`=none.txt: no such file",
        "train_vocab --input=none.txt --vocab_size=100 --output=v.txt",
        "--input=none.txt: no such file",
    ),
    (
        lambda: train_vocab(__file__, 5),
        "`vocab_size` is 5; it takes more",
        f"train_vocab --input={__file__} --vocab_size=5 --output=v.txt",
        "--vocab_size is 5; it takes more",
    ),
    (
        lambda: parse_inputs("a.json", CorpusRecipe(), lambda p: [p]),
        "`inputs`=a.json: the name does not tell what it holds; pass "
        "`input_format`=jsonl",
        "train_vocab --input={folder}/a.json --vocab_size=9 --output=v.txt",
        "--input={folder}/a.json: the name does not tell what it holds; pass "
        "--input_format=jsonl",
    ),
    (
        lambda: convert_checkpoint("in", "onnx", "out"),
        "`to`='onnx': takes one of",
        "convert_checkpoint --input=in --to=onnx --output_dir=out",
        "--to='onnx': takes one of",
    ),
    (
        lambda: parse_layers("a", "none"),
        "`layers`=a: give whole numbers",
        "extract_features --model=m --input=- --output=o.npz --layers=a",
        "--layers=a: give whole numbers",
    ),
    (
        lambda: extract_features("m", ["-"], "o.txt", Settings()),
        "`output`=o.txt: the name tells the format",
        "extract_features --model=m --input=- --output=o.txt",
        "--output=o.txt: the name tells the format",
    ),
    (
        lambda: plan_memory(PlanSettings(size="huge"), False),
        "`size`=huge: unknown size",
        "plan_memory --size=huge",
        "--size=huge: unknown size",
    ),
    (
        lambda: run_pretraining(PretrainingRecipe(), "out"),
        "`data_dir`=: give one folder",
        "run_pretraining --output_dir=out",
        "--data_dir=: give one folder",
    ),
    (
        lambda: PretrainingRecipe().override(["seed=x"]),
        "`seed`=x: takes a whole number",
        "run_pretraining --output_dir=out --set seed=x",
        "--seed=x: takes a whole number",
    ),
    (
        lambda: finetune("mrpc", modes=["fly"]),
        "`modes`=fly: takes one or more of",
        "run_finetuning --task=mrpc --output_dir=out --mode=fly",
        "--mode=fly: takes one or more of",
    ),
    (
        lambda: finetune("mrpc"),
        "`init_from`: name the model",
        "run_finetuning --task=mrpc --output_dir=out --data_dir=none",
        "--model: name the model",
    ),
    (
        lambda: finetune("sentence", text_columns="a,", init_from="m"),
        "`text_columns`=a,: name the column",
        "run_finetuning --task=sentence --output_dir=out --init_from=m "
        "--text_columns=a,",
        "--text_columns=a,: name the column",
    ),
]


@pytest.mark.parametrize(("call", "argument", "command", "flag"), CASES)
def test_an_error_names_the_argument_or_the_flag(
    call, argument, command, flag, tmp_path, monkeypatch
):
    (tmp_path / "a.json").write_text("{}")
    module, *words = command.format(folder=tmp_path).split()
    done = commands.run(f"tools.{module}", *words)
    line = done.stderr.splitlines()[-1]
    assert line.startswith(f"error: {flag.format(folder=tmp_path)}")
    assert done.returncode == 1
    monkeypatch.chdir(tmp_path)
    line = error_of(call)
    assert line.startswith(argument)
    assert "--" not in line
