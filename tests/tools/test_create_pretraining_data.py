import importlib.util
import pathlib
import sys
import types

import pytest
from absl import flags
from absl.testing import flagsaver
from records_corpus import text, write_vocabulary

from bert_tf.errors import UserError
from bert_tf.records.folder import RecordFolder
from bert_tf.records.recipe import RecordsRecipe
from tools import command_line, create_pretraining_data


@pytest.fixture(autouse=True)
def parsed_flags() -> None:
    if not flags.FLAGS.is_parsed():
        flags.FLAGS.mark_as_parsed()


@pytest.fixture
def arguments(tmp_path: pathlib.Path) -> dict[str, object]:
    (tmp_path / "a.txt").write_text(text(20))
    return {
        "input": f"{tmp_path}/*.txt",
        "vocab_file": str(write_vocabulary(tmp_path / "vocab")),
        "output_dir": str(tmp_path / "out"),
        "max_seq_length": 32,
        "max_predictions_per_seq": 5,
        "workers": 1,
    }


def run(arguments: dict[str, object], **changes: object) -> None:
    with flagsaver.flagsaver(**(arguments | changes)):
        try:
            create_pretraining_data.main()
        except UserError as error:
            # As the command prints it.
            raise UserError(command_line.with_flags(str(error))) from None


def test_every_field_of_the_recipe_is_a_flag_of_the_same_name() -> None:
    for name, kind in RecordsRecipe.kinds().items():
        flag = flags.FLAGS[name]
        assert flag.default == getattr(RecordsRecipe(), name)
        assert type(flag.default) in (kind, types.NoneType)
        assert flag.help


def test_flags_become_records(arguments, capsys) -> None:
    changes = {"static_masking": True, "dupe_factor": 4, "seed": 3}
    changes["max_predictions_per_seq"] = 1
    run(arguments, **changes)
    folder = RecordFolder.open(arguments["output_dir"])
    changes |= {"max_seq_length": 32, "lower_case": True}
    assert folder.recipe == RecordsRecipe(**changes)
    printed = capsys.readouterr()
    assert "max_predictions_per_seq=1 masks only 3.1%" in printed.err
    assert "warning:" not in printed.out
    assert f"{folder.num_records:,} training records" in printed.out
    given = f"--data_dir={arguments['output_dir']} --output_dir=DIR"
    assert f"bert-tf pretrain {given} --size=mini\n" in printed.out
    run(arguments, **changes)
    assert "are there already" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"input": "/nowhere/*.txt"}, "--input=/nowhere.*no such file"),
        ({"input": ""}, "--input: give one or more"),
        ({"vocab_file": "/nowhere"}, "/nowhere: no such vocabulary file"),
        ({"max_seq_length": 3}, "max_seq_length is 3"),
        ({"workers": -1}, "workers`?=-1"),
        ({"beam_options": "--x"}, "--beam_options=--x: is for --runner=beam"),
        (
            {"runner": "beam", "workers": 2},
            "--workers=2: is for --runner=local; .*--direct_num_workers=2",
        ),
    ],
)
def test_mistakes_are_told(arguments, changes, message) -> None:
    with pytest.raises(UserError, match=message):
        run(arguments, **changes)
    assert not pathlib.Path(arguments["output_dir"]).exists()


def test_without_beam_one_line_says_what_to_install(arguments, monkeypatch):
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    with pytest.raises(UserError, match=r'"bert_tf\[beam\]"$'):
        run(arguments, runner="beam", workers=0)
    assert not pathlib.Path(arguments["output_dir"]).exists()


@pytest.mark.skipif(
    importlib.util.find_spec("apache_beam") is None,
    reason="apache-beam is not installed: pip install -r requirements-beam.txt",
)
def test_beam_makes_the_same_records(arguments, tmp_path, capsys) -> None:
    run(arguments)
    here = capsys.readouterr().out.splitlines()
    out = str(tmp_path / "beam")
    run(arguments, output_dir=out, runner="beam", workers=0)
    printed = capsys.readouterr()
    assert "the pipeline runs on FnApiRunner" in printed.err
    # All but the time and the name of the folder.
    assert printed.out.splitlines()[:-2] == here[:-2]
    for path in pathlib.Path(arguments["output_dir"]).iterdir():
        assert path.read_bytes() == pathlib.Path(out, path.name).read_bytes()
