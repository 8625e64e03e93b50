"""The list of architectures."""

import collections
import importlib
from typing import Any, NamedTuple

from bert_tf.errors import UserError


class Listed(NamedTuple):
    """The modules of an architecture.

    Attributes:
      data: its `Architecture`, in `bert_tf.architectures`.
      keras: the classes in Keras' files, of the module of the same name in
        `bert_tf.encoders`.
    """

    data: str
    keras: tuple[str, ...]


# By `model_type`, from the oldest: the first with some kind of tokenizer is the
# one that is suggested for it.
ARCHITECTURES = {
    "bert": Listed("bert.BERT", ("BertEncoder",)),
    "distilbert": Listed(
        "distilbert.DISTILBERT", ("DistilBertBlock", "DistilBertEncoder")
    ),
    "electra": Listed(
        "electra.ELECTRA", ("ElectraEmbeddings", "ElectraEncoder")
    ),
    "roberta": Listed("roberta.ROBERTA", ("RobertaEncoder",)),
    "xlm-roberta": Listed("xlm_roberta.XLM_ROBERTA", ("XlmRobertaEncoder",)),
    "albert": Listed("albert.ALBERT", ("AlbertEncoder",)),
    "modernbert": Listed(
        "modernbert.MODERNBERT",
        (
            *("HeadTransform", "ModernBertBlock", "ModernBertEncoder"),
            *("ModernBertPooler", "WordEmbeddings"),
        ),
    ),
}
# Besides them a table without layers, which no training makes.
ALL_ARCHITECTURES = collections.ChainMap(
    ARCHITECTURES,
    {
        "static": Listed(
            "static.STATIC", ("MeanPooler", "StaticEncoder", "TokenVectors")
        )
    },
)


def find_architecture(model_type: object, source: str) -> Any:
    """Returns the `Architecture` of a name and imports only its module.

    Args:
      model_type: the name.
      source: the origin of the name, for the error.

    Raises:
      UserError: the name is unknown.
    """
    if not isinstance(model_type, str) or model_type not in ALL_ARCHITECTURES:
        raise UserError(
            f"{source}: model_type is {model_type!r}; it takes one of "
            f"{', '.join(ARCHITECTURES)}."
        )
    module, _, name = ALL_ARCHITECTURES[model_type].data.partition(".")
    return getattr(
        importlib.import_module(f"bert_tf.architectures.{module}"), name
    )
