"""Libraries that only a part of the package needs, and how to install them."""

import importlib.util

from bert_tf.errors import UserError

# As pyproject.toml has them, by the names that they are imported by. Apache
# Beam is tried in records/beam/options.py.
EXTRAS = {
    "serve": ("aiohttp", "grpc", "grpc_health", "prometheus_client"),
    "hub": ("huggingface_hub", "kagglehub", "keras_hub"),
    "report": ("jinja2", "matplotlib"),
    "onnx": ("onnx", "onnxruntime"),
}


def require_extra(extra: str, what: str) -> None:
    """Checks that the libraries of an extra are installed.

    Args:
      extra: of EXTRAS.
      what: needs them, for the error line.

    Raises:
      UserError: one is missing.
    """
    missing = [n for n in EXTRAS[extra] if importlib.util.find_spec(n) is None]
    if missing:
        raise UserError(
            f"{what} needs {', '.join(missing)}, which this environment does "
            f'not have; run pip install "bert_tf[{extra}]"'
        )
