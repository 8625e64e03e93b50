"""Which arrays a model has, by our names of them, and their shapes.

Our names are those of Google's TF1 checkpoints, and so are the shapes: Dense
kernels are [in, out], output weights of heads are [labels, hidden].
"""

from collections.abc import Iterable, Iterator

from bert_tf.architecture_list import find_architecture
from bert_tf.architectures.parts import (
    BILSTM,
    BILSTM_PARTS,
    LORA,
    TASK_HEADS,
    Kind,
    Names,
    Part,
    Shapes,
)
from bert_tf.config import ALL_DENSE, BertConfig


def names_of(config: BertConfig | type[BertConfig]) -> Names:
    """The table of names of an architecture."""
    return find_architecture(config.model_type, "config").names


def head_parts(config: BertConfig) -> dict[str, tuple[Part, ...]]:
    """The parts of each head that a model may have, the pooler among them."""
    heads = dict(names_of(config).heads)
    if config.bilstm:
        heads[BILSTM] = BILSTM_PARTS
    for head in (head for head in TASK_HEADS if head not in heads):
        # A head that no other program knows is one linear layer.
        sizes = (None, "hidden_size")
        name = f"cls/{head}/"
        heads[head] = (Part(Kind.OUTPUT, name, sizes, name.replace("/", ".")),)
    if config.lora_rank:
        heads[LORA] = tuple(_low_rank_parts(config))
    return heads


def encoder_parts(config: BertConfig) -> Iterator[Part]:
    """The parts of the encoder without its pooler, from the input on."""
    names = names_of(config)
    yield from names.embeddings
    if config.embedding_size != config.hidden_size:
        yield from names.embeddings_project
    yield from _layer_parts(config)


def _layer_parts(config: BertConfig) -> Iterator[Part]:
    """The parts of all layers, in order."""
    # Layers may share a block.
    for numbers in dict.fromkeys(config.block_numbers):
        for part in names_of(config).layer:
            yield part.of_block(numbers)


def _low_rank_parts(config: BertConfig) -> Iterator[Part]:
    """The updates of the layers' kernels."""
    for part in _layer_parts(config):
        attends = part.ours.endswith(("/query", "/value"))
        dense = part.kind in (Kind.DENSE, Kind.KERNEL)
        if dense and (attends or config.lora_on == ALL_DENSE):
            yield part.low_rank()


def all_parts(config: BertConfig) -> Iterator[Part]:
    """The parts of the encoder and of every head, the pooler among them."""
    yield from encoder_parts(config)
    for parts in head_parts(config).values():
        yield from parts


def _shapes(parts: Iterable[Part], config: BertConfig) -> Shapes:
    return dict(item for part in parts for item in part.shapes(config).items())


def encoder_shapes(config: BertConfig) -> Shapes:
    """The arrays of the encoder without its pooler."""
    return _shapes(encoder_parts(config), config)


def head_shapes(config: BertConfig) -> dict[str, Shapes]:
    """The arrays of each head by the head's name, the pooler among them."""
    return {head: _shapes(p, config) for head, p in head_parts(config).items()}


def all_shapes(config: BertConfig) -> Shapes:
    """The arrays of the encoder and of every head."""
    return _shapes(all_parts(config), config)
