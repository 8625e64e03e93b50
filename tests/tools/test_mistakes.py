"""Mistakes at the commands: one line, exit code 1, and nothing is written."""

import pytest

from tests import commands

FINETUNE = "run_finetuning --output_dir={new}"
PRETRAIN = "run_pretraining --output_dir={new}"
EXPORT = "export_saved_model --model=. --output_dir={new}"
ONNX = f"{EXPORT} --format=onnx"
TRAIN_VOCAB = "train_vocab --input={old}/none.txt --vocab_size=100"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (
            f"{FINETUNE} --task=mrcp",
            "=mrcp: no such task. Did you mean mrpc?",
        ),
        (FINETUNE, "--task: give one of choice, cola, "),
        (f"{FINETUNE} --task=mrpc --set=epochs=3", "unknown key 'epochs'"),
        (
            f"{FINETUNE} --set=task=mrpc --set=label_kind=regression",
            "--task=mrpc, --set: unknown key 'label_kind'. Did you mean label",
        ),
        (f"{FINETUNE} --task=sentence --threshold=0.3", "threshold=0.3: r"),
        (
            f"{FINETUNE} --task=sentence --learnin_rate=1",
            "--learnin_rate: no such flag. Did you mean --learning_rate?",
        ),
        # A flag that no task has is named before one that is missing.
        (
            "run_finetuning --lr=1",
            "--lr: no such flag. Did you mean --learning_rate?",
        ),
        (
            "run_finetuning --epochs=1 --with_null",
            "--epochs: no such flag. Did you mean --num_train_epochs?",
        ),
        ("score --batch_size=1", "--batch_size: no such flag. Did you mean"),
        ("run_finetuning --with_null", "error: --output_dir is needed; --h"),
        (f"{FINETUNE} --with_null", "--task: give one of choice, cola, "),
        (f"{FINETUNE} --task=sentence --seed=x", "--seed=x: takes an integer;"),
        (
            f"{FINETUNE} --task=mrpc --model=a --init_from=b",
            "error: --model and --init_from: give one of the two.",
        ),
        (f"{FINETUNE} --task=mrpc --model=/none --data_dir=/x", "error: /none"),
        (f"{FINETUNE} --task=mrpc --mode=tune", "--mode=tune: takes one or mo"),
        (f"{PRETRAIN} --data_dir=/nowhere --size=tiny", "error: /nowhere"),
        (
            f"{PRETRAIN} --set=learning_rat=1",
            "--set: unknown key 'learning_rat'. Did you mean learning_rate?",
        ),
        (f"{PRETRAIN} --batch=3", "error: --batch: no such fl"),
        ("fill_mask --model=/nowhere [MASK]", "error: /nowhere"),
        ("embed --model=/nowhere --input=no --output_dir=o", "error: --input="),
        ("search --model=m --vectors=/nowhere a", "error: --vectors=/nowhere:"),
        ("fill_mask --model=/nowhere", "error: give a text"),
        ("fill_mask a", "error: --model is needed; --help"),
        ("plan_memory --size=base --memory=lots", "--memory=lots: give a numb"),
        ("export_saved_model --output_dir={new}", "--model"),
        ("export_saved_model --model=nowhere --output_dir={new}", "nowhere"),
        (
            "export_saved_model --model=none --output_dir={new} --format=onnx",
            "none: no such model folder",
        ),
        (
            "predict --model=a --input={old}/file --output={new} "
            "--text_columns=a --text_column=b",
            "error: --text_columns and --text_column: give one of the two.",
        ),
        (
            "predict --model=a --input={old}/file --output={new} "
            "--text_columns=a,b,c",
            "--text_columns=a,b,c: name 2 of them at most, as text_column and",
        ),
        (f"{EXPORT} --beside=a --labels=b", "--labels=b: is for a model alone"),
        (f"{ONNX} --version=3", "--version: is for --format=saved_model"),
        (f"{ONNX} --precision=mixed_bfloat16", "--precision: is for --format="),
        (f"{EXPORT} --quantize=int8", "--quantize=int8: is for --format=onnx"),
        (f"{EXPORT} --max_score_drop=0.5", "--max_score_drop: is for --quanti"),
        (f"{ONNX} --set=data_dir=x", "--data_dir=x: is for --quantize=int8"),
        (f"{ONNX} --quantize=int8", ". has no recipe.json of a fine-tuning"),
        (f"{TRAIN_VOCAB} --output={{old}}", "is a directory; name a file"),
        (f"{TRAIN_VOCAB} --output={{old}}/file/vocab.txt", "/file is a file,"),
    ],
)
def test_a_mistake(command, message, tmp_path):
    old = tmp_path / "old"
    old.mkdir()
    (old / "file").write_text("")
    tool, *words = command.format(old=old, new=tmp_path / "new").split()
    done = commands.run(f"tools.{tool}", *words)
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert message in line
    assert [path.name for path in tmp_path.iterdir()] == ["old"]
    assert [path.name for path in old.iterdir()] == ["file"]
