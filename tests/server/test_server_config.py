"""TF Serving's text files."""

import pathlib

import pytest

from bert_tf.errors import UserError
from bert_tf.server.batching import BatchingParameters
from bert_tf.server.config import (
    METRICS_PATH,
    ModelConfig,
    read_batching,
    read_metrics_path,
    read_models,
)

MODELS = """
# Two models.
model_config_list {
  config {
    name: "sst2"
    base_path: "/models/sst2"
    model_platform: "tensorflow"
    model_version_policy { specific { versions: 3 versions: 5 } }
    version_labels { key: "stable" value: 3 }
    version_labels { key: "canary" value: 5 }
  }
  config {
    name: "squad"
    base_path: "models/squad"
    model_version_policy { latest { num_versions: 2 } }
  }
  config { name: "ner" base_path: "ner" model_version_policy { all { } } }
}
"""


def written(folder: pathlib.Path, text: str) -> pathlib.Path:
    path = folder / "file.config"
    path.write_text(text)
    return path


def test_models(tmp_path):
    assert read_models(written(tmp_path, MODELS)) == (
        ModelConfig(
            "sst2",
            pathlib.Path("/models/sst2"),
            "specific",
            versions=(3, 5),
            labels=(("canary", 5), ("stable", 3)),
        ),
        ModelConfig("squad", pathlib.Path("models/squad"), num_versions=2),
        ModelConfig("ner", pathlib.Path("ner"), "all"),
    )


def test_the_versions_that_a_policy_chooses():
    one = pathlib.Path("m")
    for model, chosen in (
        (ModelConfig("m", one), {10}),
        (ModelConfig("m", one, num_versions=2), {2, 10}),
        (ModelConfig("m", one, "all"), {1, 2, 10}),
        (ModelConfig("m", one, "specific", versions=(1, 2, 7)), {1, 2}),
    ):
        assert model.chosen({10, 1, 2}) == chosen


NO_VERSIONS = "model_version_policy { specific {} }"


def config(inside: str) -> str:
    return f'model_config_list {{ config {{ name: "m" {inside} }} }}'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nonsense", "file.config: 1:1 : "),
        ("", "no model; write model_config_list"),
        (config(""), "needs a name and a base_path"),
        (config('base_path: "x" model_platform: "y"'), "model_platform 'y'"),
        (config(f'base_path: "x" {NO_VERSIONS}'), "no versions"),
        (config('base_path: "x" logging_config { }'), "logging_config"),
        (
            'model_config_list { config { name: "m" base_path: "a" } '
            'config { name: "m" base_path: "b" } }',
            "two models are called 'm'",
        ),
    ],
)
def test_wrong_models(tmp_path, text, message):
    with pytest.raises(UserError, match="file.config") as caught:
        read_models(written(tmp_path, text))
    assert message in str(caught.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(UserError, match="none.config: No such file"):
        read_models(tmp_path / "none.config")


def test_batching(tmp_path):
    text = """
    max_batch_size { value: 64 }
    batch_timeout_micros { value: 2500 }
    max_enqueued_batches { value: 7 }
    num_batch_threads { value: 3 }
    thread_pool_name { value: "any" }
    allowed_batch_sizes: 8
    allowed_batch_sizes: 64
    """
    found = read_batching(written(tmp_path, text))
    assert found == BatchingParameters(64, 2500, 7, 3, (8, 64))
    assert read_batching(written(tmp_path, "")) == BatchingParameters()
    text = "enable_large_batch_splitting { value: true }"
    splitting = read_batching(written(tmp_path, text))
    assert splitting.enable_large_batch_splitting


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("max_batch_size: 3", "file.config: 1:"),
        ("max_batch_size { value: 0 }", "`max_batch_size`=0: give a"),
        ("pad_variable_length_inputs: true", "is not supported"),
        ("max_execution_batch_size { value: 8 }", "is not supported"),
    ],
)
def test_wrong_batching(tmp_path, text, message):
    with pytest.raises(UserError, match="file.config") as caught:
        read_batching(written(tmp_path, text))
    assert message in str(caught.value)


def test_monitoring(tmp_path):
    for text, expected in (
        ("prometheus_config { enable: true }", METRICS_PATH),
        ('prometheus_config { enable: true path: "/m" }', "/m"),
        ("prometheus_config { }", None),
        ("", None),
    ):
        assert read_metrics_path(written(tmp_path, text)) == expected
    text = 'prometheus_config { enable: true path: "m" }'
    with pytest.raises(UserError, match="must start with /"):
        read_metrics_path(written(tmp_path, text))
