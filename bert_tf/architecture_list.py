"""The one list of architectures."""

import importlib
from typing import Any

from bert_tf.errors import UserError

# What files call each (`model_type`), and where in `bert_tf.architectures` its
# data are; see `architectures/parts.py`.
ARCHITECTURES = {
    "bert": "bert.BERT",
    "distilbert": "distilbert.DISTILBERT",
    "electra": "electra.ELECTRA",
}


def find_architecture(model_type: object, source: str) -> Any:
    """The `Architecture` of a name, whose module alone is imported.

    Args:
      model_type: the name.
      source: what names it, for the error.

    Raises:
      UserError: it is not known.
    """
    if not isinstance(model_type, str) or model_type not in ARCHITECTURES:
        raise UserError(
            f"{source}: model_type is {model_type!r}; it takes one of "
            f"{', '.join(ARCHITECTURES)}."
        )
    module, _, name = ARCHITECTURES[model_type].partition(".")
    return getattr(
        importlib.import_module(f"bert_tf.architectures.{module}"), name
    )
