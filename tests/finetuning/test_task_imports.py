"""Task files import names of bert_tf.finetuning, without TensorFlow."""

import ast
import pathlib
import subprocess
import sys

import bert_tf.finetuning as finetuning

ROOT = pathlib.Path(__file__).resolve().parents[2]
TASKS = sorted((ROOT / "tasks").glob("[a-z]*.py"))


def modules_of(tree):
    return {
        alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def test_every_public_name_exists_and_is_known_to_editors():
    home = finetuning._HOME
    assert sorted(finetuning.__all__) == finetuning.__all__ == sorted(home)
    source = pathlib.Path(finetuning.__file__).read_text()
    for_editors = modules_of(ast.parse(source))
    del for_editors["TYPE_CHECKING"]
    assert for_editors == home
    for name in home:
        assert getattr(finetuning, name) is not None


def test_a_tasks_file_needs_one_import():
    for path in TASKS:
        modules = set(modules_of(ast.parse(path.read_text())).values())
        assert modules - {"conll2003"} == {"bert_tf.finetuning"}, path.name


def test_tasks_load_without_tensorflow():
    names = ", ".join(f"tasks.{path.stem}" for path in TASKS)
    code = (
        f"import sys, {names}; "
        "assert not {'tensorflow', 'keras'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_answers_and_trainings_load_no_other_subject():
    parts = (
        *("distiller", "corpora.sources", "report", "inference.explanation"),
        *("checkpoints.tensorflow_reader", "checkpoints.hugging_face"),
        *("checkpoints.sentence_files", "tables.json_rows"),
        *("families.question_answering", "families.token_classification"),
    )
    code = (
        "import sys, bert_tf.finetuning.run, bert_tf.inference.load, tasks.mrpc"
        "\nfrom bert_tf.families.text_classification import answers\n"
        f"print(*(x for x in {parts} if 'bert_tf.' + x in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == []
