"""Every architecture on Keras' JAX backend, without TensorFlow."""

import json
import os
import pathlib
import subprocess

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.jax


@pytest.fixture(scope="module")
def computed(tmp_path_factory) -> tuple[dict, dict]:
    """The arrays of TensorFlow, and those of JAX in its environment."""
    from tests.backends.computed import outputs_and_gradients
    from tests.contracts.architecture_cases import CASES
    from tests.contracts.made_up_architecture import NAME

    folder = tmp_path_factory.mktemp("backends")
    configs = {
        name: case.config().to_dict()
        for name, case in CASES.items()
        # Only tests know it.
        if name != NAME
    }
    (folder / "configs.json").write_text(json.dumps(configs))
    subprocess.run(
        [
            *(ROOT / ".venv-jax" / "bin" / "python", "-m"),
            *("tests.backends.computed", folder / "configs.json"),
            folder / "jax.npz",
        ],
        cwd=ROOT,
        env=os.environ | {"KERAS_BACKEND": "jax"},
        check=True,
    )
    with np.load(folder / "jax.npz") as arrays:
        return outputs_and_gradients(configs), dict(arrays)


def test_outputs_loss_and_gradients_are_those_of_tensorflow(computed):
    of_tensorflow, of_jax = computed
    assert list(of_jax) == list(of_tensorflow)
    for name, array in of_tensorflow.items():
        np.testing.assert_allclose(
            of_jax[name], array, rtol=1e-5, atol=1e-5, err_msg=name
        )


def test_the_comparison_sees_every_weight(computed):
    """Nearly all gradients differ from zero."""
    of_tensorflow, _ = computed
    zero = [name for name, array in of_tensorflow.items() if not array.any()]
    assert len(zero) < len(of_tensorflow) / 20, zero
