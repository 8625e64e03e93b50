"""The import rule: a room, and a part of a room, imports only lower ones."""

import ast
import pathlib
import subprocess
import sys

import pytest

from bert_tf.libraries import RUNTIMES
from tests.import_graph import imported_names

ROOT = pathlib.Path(__file__).resolve().parent.parent
# The ground floor is one room: its files may use each other.
GROUND = (
    *("architecture_list", "errors", "family_list", "files", "compat"),
    *("keras_files", "processes", "progress", "recipe", "config", "features"),
    *("foreign_files", "libraries", "sharding", "lazy_arrays", "sources"),
    *("user_modules", "side_by_side", "system_memory"),
)
LEVELS = {
    **dict.fromkeys(GROUND, 0),
    **dict.fromkeys(("layers", "text", "tables", "optimization"), 1),
    **dict.fromkeys(("partly_trained", "teacher_settings", "report"), 1),
    **dict.fromkeys(("architectures", "corpora", "distiller"), 2),
    "runtimes": 2,
    "checkpoints": 3,
    **dict.fromkeys(("named_weights", "records", "sharing"), 4),
    "encoders": 5,
    **dict.fromkeys(("models", "training"), 6),
    "pretraining": 7,
    "families": 8,
    **dict.fromkeys(("finetuning", "server", "conversion"), 9),
    **dict.fromkeys(("memory", "inference"), 10),
    **dict.fromkeys(("distillation", "experiments"), 11),
    "finetuned": 12,
}
# The parts of the rooms that several files depend on. Families are peers.
PARTS = {
    "families": {
        **dict.fromkeys(("rows", "usage_options", "data"), 0),
        **dict.fromkeys(("token_estimates", "calibration"), 0),
        **dict.fromkeys(("requests", "sentence_vectors", "recipe"), 1),
        **dict.fromkeys(("config", "task_model"), 1),
        **dict.fromkeys(("text_model", "words", "in_memory", "checks"), 2),
        **dict.fromkeys(("explained", "task"), 3),
        **dict.fromkeys(("row_task", "model_folder"), 4),
        **dict.fromkeys(("text_classification", "multiple_choice"), 5),
        **dict.fromkeys(("token_classification", "question_answering"), 5),
        **dict.fromkeys(("pretrained", "sentence_embedding"), 5),
    },
    "finetuning": {
        "batches": 1,
        **dict.fromkeys(("importance", "head_start", "reasons"), 2),
        "measured": 2,
        "evaluation": 4,
        **dict.fromkeys(("report_files", "setup"), 5),
        **dict.fromkeys(("pruning", "training"), 7),
        "run": 9,
        "finished": 10,
    },
}
# Names of a room's __init__.py that its own files use.
LISTS = ("config_type", "part_of")
KERAS_ONLY = (
    *("layers", "optimization", "encoders", "models"),
    *("partly_trained", "distiller"),
)
FILES = sorted((ROOT / "bert_tf").rglob("*.py"))


def room_of(module: str) -> str:
    """The room of a dotted module name: bert_tf.text.layout -> text."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def imports(path: pathlib.Path, for_types: bool = True) -> list[str]:
    """Every module a file imports, inside functions too.

    Args:
      path: the file.
      for_types: whether those for type checkers alone count.
    """
    names = []
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and not for_types:
            if ast.unparse(node.test) == "TYPE_CHECKING":
                node.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
        names += imported_names(node, [])
    return names


def public_names() -> list[str]:
    """What an editor takes for public: bert_tf/__init__.py, TYPE_CHECKING."""
    text = (ROOT / "bert_tf" / "__init__.py").read_text(encoding="utf-8")
    (block,) = (
        node
        for node in ast.parse(text).body
        if isinstance(node, ast.If)
        and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    return [
        f"{each.module}.{alias.name}"
        for each in block.body
        for alias in each.names
    ]


def breaches(path: pathlib.Path) -> list[str]:
    """The imports of a file that the rule forbids."""
    room = room_of(".".join(path.relative_to(ROOT).with_suffix("").parts))
    found = []
    for name in imports(path):
        top, target = name.split(".")[0], room_of(name)
        if top in ("experiments", "tasks", "tools") or name.startswith(
            "absl.flags"
        ):
            found.append(name)
        if room in KERAS_ONLY and top == "tensorflow":
            found.append(name)
        if top == "bert_tf" and room and target != room:
            assert target in LEVELS, f"{path} imports unknown room {target}"
            on_ground = room in GROUND and target in GROUND
            if LEVELS[target] >= LEVELS[room] and not on_ground:
                found.append(name)
    return found


def inner_breaches(path: pathlib.Path) -> list[str]:
    """The imports of a file from no lower part of its own room."""
    room, *inside = path.relative_to(ROOT / "bert_tf").with_suffix("").parts
    parts, part = PARTS[room], inside[0]
    found = []
    for name in imports(path, for_types=False):
        if room_of(name) == room and part != "__init__":
            target = name.split(".")[2]
            if target in LISTS:
                continue
            assert target in parts, f"{path} imports unknown part {target}"
            if target != part and parts[target] >= parts[part]:
                found.append(name)
    return found


def test_imports_only_lower_rooms() -> None:
    first = ROOT / "bert_tf" / "__init__.py"
    # Those for type checkers are compared with the table below.
    own = [name for name in imports(first) if name not in public_names()]
    assert own == [
        "typing.TYPE_CHECKING",
        "importlib",
        "bert_tf.keras_files",
        "bert_tf.libraries.quiet_start",
    ]
    found = {str(path): breaches(path) for path in FILES if path != first}
    assert {path: names for path, names in found.items() if names} == {}


def test_only_the_list_names_runtimes() -> None:
    """A new one is a file of its own and a line."""
    for path in (*FILES, *(ROOT / "tools").glob("*.py")):
        text = path.read_text("utf-8")
        # Most files need not be parsed.
        code = text if any(f'"{name}"' in text for name in RUNTIMES) else ""
        nodes = ast.walk(ast.parse(code))
        values = {n.value for n in nodes if isinstance(n, ast.Constant)}
        named = RUNTIMES.keys() & values
        assert not named or path.stem == "libraries", (path, named)


def test_a_breach_is_found(tmp_path: pathlib.Path, monkeypatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    bad = tmp_path / "bert_tf" / "layers" / "bad.py"
    bad.parent.mkdir(parents=True)
    bad.write_text(
        "import tensorflow as tf\n"
        "from absl import flags\n"
        "def f():\n    from bert_tf.encoders import BertEncoder\n"
        "    from bert_tf.text import layout\n"
        "    import tools.demo\n"
    )
    assert breaches(bad) == [
        "tensorflow",
        "absl.flags",
        "bert_tf.encoders.BertEncoder",
        "bert_tf.text.layout",
        "tools.demo",
    ]


@pytest.mark.parametrize("room", PARTS)
def test_parts_of_a_room_import_only_lower_parts(room: str) -> None:
    folder = ROOT / "bert_tf" / room
    parts = {path.stem for path in folder.iterdir() if path.stem[0] != "_"}
    assert parts == set(PARTS[room])
    files = [path for path in FILES if folder in path.parents]
    found = {str(path): inner_breaches(path) for path in files}
    assert {path: names for path, names in found.items() if names} == {}


def test_a_breach_inside_a_room_is_found(
    tmp_path: pathlib.Path, monkeypatch
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    bad = tmp_path / "bert_tf" / "families" / "multiple_choice" / "bad.py"
    bad.parent.mkdir(parents=True)
    bad.write_text(
        "from typing import TYPE_CHECKING\n"
        "from bert_tf.families import pretrained, rows\n"
        "from bert_tf.families.multiple_choice.files import SwagFiles\n"
        "if TYPE_CHECKING:\n"
        "    from bert_tf.families.pretrained.settings import Settings\n"
        "def f():\n"
        "    from bert_tf.families.text_classification.kinds import Kind\n"
        "    import bert_tf.families.pretrained\n"
    )
    assert inner_breaches(bad) == [
        "bert_tf.families.pretrained",
        "bert_tf.families.text_classification.kinds.Kind",
        "bert_tf.families.pretrained",
    ]


def test_the_library_and_its_workers_import_no_tensorflow() -> None:
    vocabulary = ROOT / "tests" / "golden" / "tokenizer" / "vocab.txt"
    code = (
        "import sys, numpy as np, bert_tf\n"
        "assert not {'tensorflow', 'keras'} & set(sys.modules)\n"
        "import bert_tf.corpora.reading, bert_tf.records.shards\n"
        "import bert_tf.records.tokenized_corpus\n"
        "assert not {'tensorflow', 'keras'} & set(sys.modules)\n"
        "from bert_tf.checkpoints.tokenizers import read_vocabulary_file\n"
        f"worker = read_vocabulary_file({str(vocabulary)!r}).worker()\n"
        "others = 'text.unigram', 'text.byte_bpe', 'architectures.bert'\n"
        "assert not {f'bert_tf.{x}' for x in others} & set(sys.modules)\n"
        "text = '这 中文 ΑΣ हिन्दी \\U00016ff0'.encode()\n"
        "ids, _ = worker.tokenize(text + b'\\n', np.array([len(text)]))\n"
        "assert len(ids) > 5\n"
        "assert 'tensorflow' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_every_public_name_exists_and_is_known_to_editors() -> None:
    import bert_tf

    home = bert_tf._HOME
    assert sorted(bert_tf.__all__) == bert_tf.__all__ == sorted(home)
    found = sorted(f"{module}.{name}" for name, module in home.items())
    assert sorted(public_names()) == found
    assert (ROOT / "bert_tf" / "py.typed").exists()
    for name in bert_tf.__all__:
        assert getattr(bert_tf, name) is not None


def test_what_the_tests_import_of_tools_defines_no_flag_twice() -> None:
    """A process of the tests imports them all, in any order."""
    found = set()
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for name in imports(path):
            parts = name.split(".")
            if (
                parts[0] == "tools"
                and (ROOT / "tools" / f"{parts[1]}.py").exists()
            ):
                found.add(f"tools.{parts[1]}")
    assert found >= {"tools.create_pretraining_data", "tools.serve"}
    code = f"import {', '.join(sorted(found))}"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
