"""The arrays of a model: our names and their shapes.

Both are those of Google's TF1 checkpoints: Dense kernels are [in, out], output
weights of heads [labels, hidden].
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
    """Returns the table of names of an architecture."""
    return find_architecture(config.model_type, "config").names


def head_parts(config: BertConfig) -> dict[str, tuple[Part, ...]]:
    """Returns the parts of each possible head, including the pooler."""
    heads = dict(names_of(config).heads)
    if config.bilstm:
        heads[BILSTM] = BILSTM_PARTS
    for head in (head for head in TASK_HEADS if head not in heads):
        # Heads that no other program has are one linear layer.
        sizes = (None, "hidden_size")
        name = f"cls/{head}/"
        heads[head] = (Part(Kind.OUTPUT, name, sizes, name.replace("/", ".")),)
    if config.lora_rank:
        heads[LORA] = tuple(
            part.low_rank()
            for part in _layer_parts(config)
            if part.kind in (Kind.DENSE, Kind.KERNEL)
            and (
                config.lora_on == ALL_DENSE
                or part.ours.endswith(("/query", "/value", "/qkv"))
            )
        )
    return heads


def encoder_parts(config: BertConfig) -> Iterator[Part]:
    """Yields the parts of the encoder without its pooler, in order."""
    names = names_of(config)
    yield from names.embeddings
    if config.embedding_size != config.hidden_size:
        yield from names.embeddings_project
    yield from _layer_parts(config)
    yield from names.final


def block_parts(config: BertConfig, layer: int) -> Iterator[Part]:
    """Yields the parts of the block of a layer, in order."""
    numbers = config.block_numbers
    place = list(dict.fromkeys(numbers)).index(numbers[layer])
    for part in names_of(config).layer:
        if layer or part.in_first:
            yield part.of_block(numbers[layer], place)


def _layer_parts(config: BertConfig) -> Iterator[Part]:
    numbers = config.block_numbers
    for layer, block in enumerate(numbers):
        # Layers may share a block.
        if block not in numbers[:layer]:
            yield from block_parts(config, layer)


def all_parts(config: BertConfig) -> Iterator[Part]:
    """Yields the parts of the encoder and of every possible head."""
    yield from encoder_parts(config)
    for parts in head_parts(config).values():
        yield from parts


def _shapes(parts: Iterable[Part], config: BertConfig) -> Shapes:
    return dict(item for part in parts for item in part.shapes(config).items())


def encoder_shapes(config: BertConfig) -> Shapes:
    """Returns the arrays of the encoder without its pooler."""
    return _shapes(encoder_parts(config), config)


def head_shapes(config: BertConfig) -> dict[str, Shapes]:
    """Returns the arrays of each possible head, including the pooler."""
    return {head: _shapes(p, config) for head, p in head_parts(config).items()}


def all_shapes(config: BertConfig) -> Shapes:
    """Returns the arrays of the encoder and of every possible head."""
    return _shapes(all_parts(config), config)
