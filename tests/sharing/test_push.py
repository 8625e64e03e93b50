"""A model is pushed whole, without what is nobody else's business."""

import pathlib
import tempfile

import pytest

from bert_tf.sharing.push import push_model
from tests import commands
from tests.contracts.task_cases import model_folder
from tests.sharing.fake_hub import TOKEN, Hub, running_hub
from tests.user_errors import error_of

MODEL = {
    *("bert_config.json", "bert_model.safetensors", "tokenizer_config.json"),
    *("vocab.txt", "task.json", "README.md"),
}
OTHERS = (
    *("recipe.json", "results.json", "report.html", "dev_predictions.jsonl"),
    *("checkpoints/step-00000001/state.json", "last/bert_config.json"),
    *("features/train.npz", "tensorboard/events.out"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> pathlib.Path:
    """A finished run, as far as its files go."""
    folder = model_folder(tmp_path_factory.mktemp("push") / "model")
    for name in ("task.json", *OTHERS):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text('{"task": "x"}')
    (folder / "README.md").write_text("---\nlibrary_name: bert_tf\n---\nHi.\n")
    return folder


@pytest.fixture
def hub():
    with running_hub() as hub:
        yield hub


def push(model, to, *flags, hub: Hub | None = None, token: str = TOKEN):
    """The command, whose hub is the given one, or none that answers."""
    words = (f"--model={model}", f"--to={to}", *flags)
    with tempfile.TemporaryDirectory() as cache:
        environment = {
            "HF_ENDPOINT": hub.address if hub else "http://127.0.0.1:9",
            "HF_HOME": cache,
            "HF_TOKEN": token,
            "HF_HUB_DISABLE_XET": "1",
        }
        return commands.run_as_process(
            "tools.push", *words, environment=environment
        )


def refused(*arguments, **more) -> str:
    done = push(*arguments, **more)
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    return line


def contents(folder: pathlib.Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_to_a_hub_and_back(folder, hub, tmp_path) -> None:
    done = push(folder, "hf://me/my-model", hub=hub)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"pushed to {hub.address}/me/my-model\n"
    files = hub.files["me/my-model"]
    assert files == {name: (folder / name).read_bytes() for name in MODEL}
    assert [made["visibility"] for made in hub.created] == ["private"]
    # All of it appears at once.
    assert hub.commits == 1
    # What a name of the hub stands for is a model too, without its card.
    done = push("hf://me/my-model", tmp_path / "copy", hub=hub)
    assert done.returncode == 0, done.stderr
    del files["README.md"]
    assert contents(tmp_path / "copy") == files


def test_again_and_public(folder, hub) -> None:
    for _ in range(2):
        done = push(folder, "hf://me/known", "--noprivate", hub=hub)
        assert done.returncode == 0, done.stderr
    assert hub.created[0]["visibility"] == "public"


def test_to_a_folder(folder, tmp_path) -> None:
    done = push(folder, tmp_path / "new" / "model")
    assert done.returncode == 0, done.stderr
    found = contents(tmp_path / "new" / "model")
    assert found == {name: (folder / name).read_bytes() for name in MODEL}
    line = refused(folder, tmp_path / "new" / "model")
    assert line.startswith(f"error: --to={tmp_path}/new/model: is not empty")


def test_what_is_refused_before_anything_is_asked(folder, tmp_path) -> None:
    (tmp_path / "unfinished" / "checkpoints").mkdir(parents=True)
    for model, to, line in (
        (tmp_path / "unfinished", tmp_path / "copy", "unfinished: "),
        (folder, "s3://bucket/model", "`to`=s3://bucket/model: unknown kind"),
        *(
            (folder, f"hf://{name}", "is no name of a model; write hf://org")
            for name in ("model", "a/b/c", "../b", "a/b@main", "a b/c")
        ),
    ):
        assert line in error_of(push_model, model, to)
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "adapter_model.safetensors").write_bytes(b"")
    path = tmp_path / "adapter" / "adapter_config.json"
    path.write_text('{"base_model_name_or_path": "/home/me/base"}')
    line = error_of(push_model, path.parent, tmp_path / "copy")
    assert "adapter of /home/me/base, which is not" in line
    assert not (tmp_path / "copy").exists()


def test_what_the_hub_refuses(folder, hub) -> None:
    line = refused(folder, "hf://me/model", hub=hub, token="")
    assert "no token of huggingface.co; log in" in line
    line = refused(folder, "hf://me/model", hub=hub, token="another")
    assert line.startswith("error: --to=hf://me/model: the hub refuses (")
    assert "the hub refuses (" in refused(folder, "hf://others/model", hub=hub)
    assert "cannot be reached" in refused(folder, "hf://me/model")
    assert hub.files == {}


def test_a_card_that_no_hub_takes(folder, hub, tmp_path) -> None:
    model = model_folder(tmp_path / "model")
    (model / "README.md").write_text("---\na: [\n---\n")
    line = refused(model, "hf://me/model", hub=hub)
    assert "(Invalid metadata in README.md. - bad YAML)" in line
    assert hub.commits == 0
