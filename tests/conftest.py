"""Fixtures that every room of the tests shares."""

import gc
import importlib.abc
import importlib.util
import os
import pathlib
import sys
import types
from collections.abc import Callable, Iterator

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# As tools/command_line.py has it.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
# Tests of exports open them with ONNX Runtime itself.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import hypothesis
import pytest

# Hooks of pytest.
from tests.lanes import (  # noqa: F401
    pytest_addoption,
    pytest_collection_modifyitems,
    pytest_configure,
    pytest_sessionfinish,
    pytest_terminal_summary,
    pytest_testnodedown,
)

# A shared machine may pause for longer than hypothesis' deadline; and what
# guards main tries the same examples every time. Run by hand, the tests go on
# looking for new ones.
hypothesis.settings.register_profile("by_hand", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "by_hand")

ROOT = pathlib.Path(__file__).resolve().parent.parent


class _TensorFlowFinder(importlib.abc.MetaPathFinder):
    """Prepares TensorFlow for the tests when one of them imports it."""

    def find_spec(self, name: str, path: object, target: object = None):
        """Finds the spec of TensorFlow; see `importlib.abc.MetaPathFinder`."""
        if name != "tensorflow":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module

        def exec_module(module: types.ModuleType) -> None:
            execute(module)
            _prepare(module.config)

        spec.loader.exec_module = exec_module
        return spec


def _prepare(config: types.ModuleType) -> None:
    """Sets the options of `tf.config` that hold for all tests.

    The CPU is two devices, for the tests of tf.distribute, which TensorFlow
    allows only before its devices are first used; whatever names no strategy
    runs on the first one. Graphs are not optimized: on tiny models that takes
    longer than it saves.

    `split_cpu` of the library is not used, since its module may be what imports
    TensorFlow.
    """
    (cpu,) = config.list_physical_devices("CPU")
    halves = [config.LogicalDeviceConfiguration()] * 2
    config.set_logical_device_configuration(cpu, halves)
    config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    # As the commands, which exclude TensorFlow's modules from collections.
    gc.freeze()


sys.meta_path.insert(0, _TensorFlowFinder())
# Full collections of what tests share take long and find little.
gc.set_threshold(700, 10, 100)


@pytest.fixture(scope="session")
def shared_data() -> pathlib.Path:
    """The folder of real data sets beside the repository, or a skip."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"real data sets are not at {folder}")
    return folder


@pytest.fixture(scope="session")
def finish_case(tmp_path_factory) -> Callable:
    """A case's run by its name, once a session; see `task_cases.finish`."""
    from tests.contracts.task_cases import finish

    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        # Each worker has a folder in that of the session.
        root = root.parent
    (root / "cases").mkdir(exist_ok=True)
    return lambda name: finish(name, root / "cases")


@pytest.fixture(scope="module", autouse=True)
def _models_of_a_file_go_with_it(request: pytest.FixtureRequest) -> Iterator:
    """Empties what a file of tests has cached, models and their graphs."""
    yield
    for value in vars(request.module).values():
        if hasattr(value, "cache_clear"):
            value.cache_clear()


@pytest.fixture
def eagerly() -> Iterator:
    """For what is the same without graphs, whose tracing takes long."""
    import tensorflow as tf

    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)
