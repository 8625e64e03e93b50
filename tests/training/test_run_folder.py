"""What `overwrite` removes from the folder of a fine-tuning."""

import pytest

from bert_tf.errors import UserError
from bert_tf.training.run_folder import CHECKPOINTS, claim
from tests.finished_runs import NAMES, finished_run


@pytest.mark.parametrize("name", NAMES)
def test_all_files_of_a_run_and_no_others(name, tmp_path):
    run = finished_run(name, tmp_path)
    for part in ("seed_1", "last", "features", "tensorboard", CHECKPOINTS):
        (run.folder / part).mkdir()
        (run.folder / part / "history.jsonl").write_text("")
    for file in ("notes.txt", "my_predictions.tsv", "data.csv", "models"):
        (run.folder / file).write_text("mine")
    claim(run.folder, run.recipe, overwrite=True)
    kept = {path.name for path in run.folder.iterdir()}
    assert kept == {
        *("notes.txt", "my_predictions.tsv", "data.csv", "models"),
        *("recipe.json", "README.md", "seed_1"),
    }
    assert not list((run.folder / "seed_1").iterdir())


@pytest.mark.parametrize("field", ["init_from", "teacher"])
def test_nothing_that_the_new_run_reads(field, tmp_path):
    run = finished_run("classes", tmp_path)
    before = {path.name for path in run.folder.iterdir()}
    (run.folder / "last").mkdir()
    for path in (run.folder, run.folder / "last"):
        recipe = run.recipe.override([f"{field}={path}"])
        with pytest.raises(UserError, match=f"`{field}`=.* would remove it"):
            claim(run.folder, recipe, overwrite=True)
    after = {path.name for path in run.folder.iterdir()}
    assert after == {*before, "last"}
