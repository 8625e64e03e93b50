"""The one list of architectures."""

import importlib
from typing import Any, NamedTuple

from bert_tf.errors import UserError


class Listed(NamedTuple):
    """Where an architecture is.

    Attributes:
      data: its `Architecture`, in `bert_tf.architectures`.
      keras: the classes of the module of the same name in `bert_tf.encoders`
        that Keras' files name.
    """

    data: str
    keras: tuple[str, ...]


# By what files call each (`model_type`).
ARCHITECTURES = {
    "bert": Listed("bert.BERT", ("BertEncoder",)),
    "distilbert": Listed(
        "distilbert.DISTILBERT", ("DistilBertBlock", "DistilBertEncoder")
    ),
    "electra": Listed(
        "electra.ELECTRA", ("ElectraEmbeddings", "ElectraEncoder")
    ),
    "roberta": Listed("roberta.ROBERTA", ("RobertaEncoder",)),
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
    module, _, name = ARCHITECTURES[model_type].data.partition(".")
    return getattr(
        importlib.import_module(f"bert_tf.architectures.{module}"), name
    )
