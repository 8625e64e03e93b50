"""Reads folders of TensorFlow Model Garden (tf-models-official).

bert_config.json                        the architecture in Google's keys; or
params.yaml                             the parameters of the trainer's run
bert_model.ckpt.index, .data-*-of-*     an object-based tf.train.Checkpoint;
                                        ckpt-STEP.* in the folder of a run
checkpoint                              names the newest of several

Encoders of TensorFlow Hub and Kaggle are SavedModels without a configuration,
see `saved_model.py`:

saved_model.pb, variables/              graphs, and a checkpoint of objects
assets/vocab.txt                        one WordPiece token a line

The key of a variable is one of several paths through the saved objects: it
differs between BertEncoder (`layer_with_weights-4/...`) and BertEncoderV2
(`_transformer_layers/0/...`), with the name of the saved encoder, and with the
other saved objects (the word table may be `masked_lm/embedding_table`). The
variables' full names depend on the user's names of models, and three different
heads share `predictions/transform/logits`. So the object graph is traversed, as
Model Garden does to restore: layers are identified by the attributes that hold
their parts, which are the same in both encoders. Encoders of 2020 and earlier
lack some attributes and are identified by the names of their variables.
"""

import pathlib
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from bert_tf.architectures.parts import Kind
from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.checkpoints.google_tf1 import (
    CONFIG_FILE,
    config_of_keys,
    read_google_config,
)
from bert_tf.checkpoints.layout import all_parts
from bert_tf.checkpoints.recognition import (
    OBJECT_GRAPH,
    SAVED_MODEL_FILE,
    find_prefix,
)
from bert_tf.checkpoints.saved_model import saved_model_config
from bert_tf.checkpoints.stored import Stored, read_stored
from bert_tf.checkpoints.tensorflow_reader import (
    TRAINING_STATE,
    VARIABLE_VALUE,
    ObjectGraph,
    open_checkpoint,
)
from bert_tf.config import BertConfig
from bert_tf.errors import UserError, check_choice, one_line
from bert_tf.foreign_files import read_text
from bert_tf.lazy_arrays import LazyArrays
from bert_tf.recipe import check_kind, value_of_key

PARAMS_FILE = "params.yaml"
# Far more than any run has.
_MAX_PARAMETERS = 1_000_000

# The trainer's keys and ours.
_KEYS = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "num_layers": "num_hidden_layers",
    "num_attention_heads": "num_attention_heads",
    "hidden_activation": "hidden_act",
    "intermediate_size": "intermediate_size",
    "dropout_rate": "hidden_dropout_prob",
    "attention_dropout_rate": "attention_probs_dropout_prob",
    "max_position_embeddings": "max_position_embeddings",
    "type_vocab_size": "type_vocab_size",
    "initializer_range": "initializer_range",
}
# Keys that select outputs of the encoder and do not change them.
_UNREAD_KEYS = (
    "output_range",
    "return_all_encoder_outputs",
    "return_attention_scores",
    "return_word_embeddings",
)
_ENCODERS = ("bert", "bert_v2")
_ENCODER_POOLER = r"encoder/_pooler_layer/(kernel|bias)"
_ENCODER_PARTS = {
    "_embedding_layer",
    "_position_embedding_layer",
    "_type_embedding_layer",
    "_embedding_norm_layer",
    "_transformer_layers",
    "_pooler_layer",
}
# Paths of an encoder's variables by their full names in earlier versions:
# official/nlp/modeling/networks/transformer_encoder.py and, where they differ,
# official/nlp/bert_modeling.py.
_LAYER = r"layer_(?P<layer>\d+)/"
_END = r"/(?P<end>kernel|bias|gamma|beta)"
_LAYER_PATH = "encoder/_transformer_layers/{layer}/"
_NAMES = {
    r"word_embeddings/embeddings": "encoder/_embedding_layer/embeddings",
    r"(embedding_postprocessor/type_embeddings|type_embeddings/embeddings)": (
        "encoder/_type_embedding_layer/embeddings"
    ),
    r"(embedding_postprocessor/position_embeddings"
    r"|position_embedding/embeddings)": (
        "encoder/_position_embedding_layer/embeddings"
    ),
    rf"(embeddings|embedding_postprocessor)/layer_norm{_END}": (
        "encoder/_embedding_norm_layer/{end}"
    ),
    rf"{_LAYER}self_attention/(?P<part>query|key|value){_END}": (
        f"{_LAYER_PATH}_attention_layer/_{{part}}_dense/{{end}}"
    ),
    rf"{_LAYER}(self_attention/attention_output|self_attention_output){_END}": (
        f"{_LAYER_PATH}_attention_layer/_output_dense/{{end}}"
    ),
    **{
        rf"{_LAYER}{name}{_END}": f"{_LAYER_PATH}_{attribute}/{{end}}"
        for name, attribute in (
            ("self_attention_layer_norm", "attention_layer_norm"),
            ("intermediate", "intermediate_dense"),
            ("output", "output_dense"),
            ("output_layer_norm", "output_layer_norm"),
        )
    },
    rf"pooler_transform{_END}": "encoder/_pooler_layer/{end}",
}
_MASKED_LM_PARTS = {"embedding_table", "dense", "layer_norm", "bias"}
_NEXT_SENTENCE = "next_sentence"


def load_params(path: pathlib.Path) -> Any:
    """Reads the values of a params.yaml.

    Raises:
      UserError: the file is no YAML, or its aliases expand to too many values.
    """
    import yaml

    try:
        values = yaml.safe_load(read_text(path))
        size = _expanded_size(values, {})
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise UserError(
            f"{path}: not valid YAML ({one_line(error)})."
        ) from None
    if size > _MAX_PARAMETERS:
        raise UserError(
            f"{path}: its aliases expand to {size:,} values; at most "
            f"{_MAX_PARAMETERS:,} are read."
        )
    return values


def _expanded_size(value: Any, sizes: dict[int, int]) -> int:
    """Returns the number of values with all aliases expanded."""
    if id(value) not in sizes:
        parts: Iterable[Any] = ()
        if isinstance(value, dict):
            parts = value.values()
        elif isinstance(value, list):
            parts = value
        sizes[id(value)] = 1 + sum(_expanded_size(p, sizes) for p in parts)
    return sizes[id(value)]


def read_params(path: pathlib.Path) -> BertConfig:
    """Reads the encoder's architecture in a run's parameters."""
    values = load_params(path)
    if not isinstance(values, dict):
        raise UserError(f"{path}: has no task.")
    model = _part(_part(values, "task", path), "model", path, "task.")
    encoder = _part(model, "encoder", path, "task.model.")
    where = f"{path}: task.model.encoder.type"
    kind = check_choice(where, encoder.get("type"), _ENCODERS)
    values = _part(encoder, kind, path, "task.model.encoder.")
    values = {key: v for key, v in values.items() if key not in _UNREAD_KEYS}
    if values.pop("norm_first", False):
        raise UserError(
            f"{path}: norm_first is true; a BERT normalises after each "
            "sub-layer."
        )
    config = config_of_keys(values, _KEYS, {"vocab_size": 30522}, path)
    _check_heads(model, config, path)
    return config


def _part(
    values: dict[str, Any], key: str, path: pathlib.Path, at: str = ""
) -> Any:
    return check_kind(f"{at}{key}", dict, values.get(key), str(path))


def _check_heads(
    model: dict[str, Any], config: BertConfig, path: pathlib.Path
) -> None:
    """Refuses heads with computations that we do not have."""
    activation = model.get("mlm_activation", config.hidden_act)
    if activation != config.hidden_act:
        raise UserError(
            f"{path}: mlm_activation is {activation!r} and hidden_activation "
            f"{config.hidden_act!r}; they have to be the same."
        )
    heads = value_of_key(model, "cls_heads", tuple[dict, ...], str(path))
    for head in heads or ():
        for key, only in (("activation", "tanh"), ("cls_token_idx", 0)):
            if (value := head.get(key, only)) != only:
                raise UserError(
                    f"{path}: {key} of the head {head.get('name')} is "
                    f"{value!r}; a BERT has {only!r}."
                )


def read(folder: pathlib.Path, ignore: str = "") -> Checkpoint:
    """Reads the configuration and the weights."""
    prefix = find_prefix(folder, object_based=True)
    opened = open_checkpoint(prefix)
    graph = ObjectGraph.of(opened, f"{prefix}.index")
    nodes = _nodes(graph, prefix)

    def shape_of(path: str) -> tuple[int, ...] | None:
        node = _variable(graph, nodes, path)
        return None if node is None else opened.shapes.get(graph.keys[node])

    config = _config(folder, shape_of, f"{prefix}.index")
    ignored = [*TRAINING_STATE, "do_lower_case"]
    pooler = "encoder/_pooler_layer"
    # The hidden layer of a head replaces the encoder's pooler, which then is
    # neither read nor trained; Model Garden's tasks restore it as the pooler.
    for head in (_NEXT_SENTENCE, "classifier"):
        if f"{head}/dense" in nodes:
            pooler = f"{head}/dense"
            ignored.append(_ENCODER_POOLER)
    table = _table(config, pooler)
    found = _by_path(opened, graph, nodes, table)
    arrays, left_out = read_stored(
        config, table, found, ignored, str(prefix), ignore
    )
    return Checkpoint(config, arrays, left_out=left_out)


def _config(
    folder: pathlib.Path,
    shape_of: Callable[[str], tuple[int, ...] | None],
    source: str,
) -> BertConfig:
    """Reads the configuration from a file, or derives a SavedModel's."""
    google, params = folder / CONFIG_FILE, folder / PARAMS_FILE
    if not google.exists() and params.exists():
        return read_params(params)
    if not google.exists() and (folder / SAVED_MODEL_FILE).exists():
        return saved_model_config(folder, shape_of, source)
    return read_google_config(google)


def _variable(
    graph: ObjectGraph, nodes: dict[str, int], path: str
) -> int | None:
    for start, node in nodes.items():
        if path == start or path.startswith(f"{start}/"):
            found = graph.at(node, path.removeprefix(start).lstrip("/"))
            if found in graph.keys:
                return found
    return None


def _nodes(graph: ObjectGraph, prefix: pathlib.Path) -> dict[str, int]:
    """Returns the nodes of the encoder and of parts of heads, by name."""
    nodes: dict[str, int] = {}
    for path, node in _candidates(graph):
        if nodes.setdefault(path, node) != node:
            raise UserError(
                f"{prefix}: holds two models, each with {path}; save only "
                "one of them."
            )
    if "encoder" not in nodes:
        for node, name in graph.names.items():
            for pattern, path in _NAMES.items():
                if match := re.fullmatch(rf"(.+/)?{pattern}", name):
                    nodes[path.format(**match.groupdict())] = node
    if "encoder" not in {path.partition("/")[0] for path in nodes}:
        raise UserError(
            f"{prefix}: holds no BertEncoder of TensorFlow Model Garden; for "
            "weights of transformers, put its config.json beside it."
        )
    return nodes


def _candidates(graph: ObjectGraph) -> Iterator[tuple[str, int]]:
    for node, parts in enumerate(graph.parts):
        if parts.keys() >= _ENCODER_PARTS:
            yield "encoder", node
        if parts.keys() >= _MASKED_LM_PARTS:
            yield "masked_lm", node
        # The hidden layer in BertPretrainerV2.checkpoint_items, which lack the
        # output layer.
        if (pooler := f"{_NEXT_SENTENCE}.pooler_dense") in parts:
            yield f"{_NEXT_SENTENCE}/dense", parts[pooler]
        if "classification_heads" in parts:
            for head in graph.parts[parts["classification_heads"]].values():
                if _is_next_sentence(graph, head):
                    yield from _head_layers(graph, head, _NEXT_SENTENCE)
        # BertClassifier and BertTokenClassifier both have a `classifier`.
        if parts.keys() >= {"classifier", "_network"}:
            head = parts["classifier"]
            yield from _head_layers(graph, head, "classifier")
            if "kernel" in graph.parts[head]:
                yield "token_classifier", head
        if "span_labeling" in parts:
            dense = graph.at(parts["span_labeling"], "layer_with_weights-0")
            if dense is not None:
                yield "span_labeling", dense


def _is_next_sentence(graph: ObjectGraph, head: int) -> bool:
    """Identifies a head of BertPretrainerV2 by the names of its variables."""
    kernel = graph.at(head, "out_proj/kernel")
    name = graph.names.get(kernel, "") if kernel is not None else ""
    return re.fullmatch(rf"(.+/)?{_NEXT_SENTENCE}/.+/kernel", name) is not None


def _head_layers(
    graph: ObjectGraph, head: int, path: str
) -> Iterator[tuple[str, int]]:
    """Yields the hidden layer, if any, and the output layer of a head."""
    for part in ("dense", "out_proj"):
        if part in graph.parts[head]:
            yield f"{path}/{part}", graph.parts[head][part]


def _table(config: BertConfig, pooler: str) -> dict[str, Stored]:
    """Returns how each array is stored, with the pooler at `pooler`."""
    table = {}
    for part in all_parts(config):
        path = pooler if part.ours == "bert/pooler/dense" else part.model_garden
        if not path:
            continue
        for name, shape in part.shapes(config).items():
            end = name.removeprefix(part.ours)
            if part.kind is Kind.OUTPUT:
                end = "/kernel" if len(shape) > 1 else "/bias"
                shape = shape[::-1]
            table[name] = Stored(
                path + end,
                part.by_attention_head(shape, config),
                transposed=part.kind is Kind.OUTPUT and len(shape) > 1,
            )
    return table


def _by_path(
    opened: LazyArrays,
    graph: ObjectGraph,
    nodes: dict[str, int],
    table: dict[str, Stored],
) -> LazyArrays:
    """Names variables by their paths, and all others by their keys."""
    paths = {stored.name for stored in table.values()}
    paths |= {f"encoder/_pooler_layer/{end}" for end in ("kernel", "bias")}
    keys: dict[str, str] = {}
    for path in paths:
        variable = _variable(graph, nodes, path)
        if variable is not None:
            keys[path] = graph.keys[variable]
    placed = set(keys.values())
    for key in opened:
        if key not in placed and key != OBJECT_GRAPH:
            keys[key.removesuffix(VARIABLE_VALUE)] = key
    return opened.renamed(dict(sorted(keys.items())))
