"""Converts transformers' names in TensorFlow's and Flax' files to PyTorch's.

TensorFlow  tf_bert_model/bert/encoder/layer_._0/output/dense/kernel:0
Keras       layers/tf_bert_main_layer/encoder/layer/tf_bert_layer/bert_output/
            dense/vars/0 (files called *.weights.h5)
Flax        bert/encoder/layer/0/output/dense/kernel
PyTorch     bert.encoder.layer.0.output.dense.weight

Kernels are [in, out], in PyTorch's files [out, in]. Sources: transformers
4.51.3, modeling_tf_pytorch_utils.py (convert_tf_weight_name_to_pt_weight_name)
and modeling_flax_pytorch_utils.py; names in Keras' files consist of the
attributes and classes in modeling_tf_bert.py and its relatives.
"""

import re
from collections.abc import Sequence

import numpy as np

from bert_tf.architectures.parts import HEADS_ON_POOLER, POOLER, Names
from bert_tf.checkpoints.layout import names_of
from bert_tf.checkpoints.tensorflow_reader import TRAINING_STATE
from bert_tf.config import BertConfig
from bert_tf.errors import UserError, excerpt
from bert_tf.lazy_arrays import LazyArrays

_ENDS = {
    "kernel": "weight",
    "embeddings": "weight",
    "embedding": "weight",
    "gamma": "weight",
    "scale": "weight",
    "beta": "bias",
}
# Keras names layers that are attributes of a model by their class where the
# attribute sorts before "layers".
_KERAS_DENSE = re.compile(r"dense(?:_(\d+))?")
# Attributes of masked LM heads.
_EMBEDDINGS = ("input_embeddings", "decoder")


def saved_class(found: LazyArrays, config: type[BertConfig]) -> str | None:
    """Returns the class with a head, without TF, in the names of arrays.

    Keras names a model by its class and a number: tf_bert_for_masked_lm_1.
    """
    form = names_of(config).hugging_face
    classes = {
        f"tf{name}".lower(): name for name in form.classes if name != form.body
    }
    for name in found:
        for level in name.split("/")[:-1]:
            plain = re.sub(r"_\d+$", "", level).replace("_", "")
            if plain in classes:
                return classes[plain]
    return None


def as_pytorch(
    found: LazyArrays, config: type[BertConfig], classes: object, source: str
) -> LazyArrays:
    """Returns arrays under the names and in the orientation of PyTorch's files.

    PyTorch's own names and those of `TRAINING_STATE` are unchanged. `classes`
    is `architectures` of config.json, which determines Keras' numbered layers.

    Raises:
      UserError: the arrays belong to another model, or two copies of one
        differ.
    """
    if not any("/" in name for name in found):
        return found
    names = names_of(config)
    denses = [
        stem
        for stem in _plain_denses(names, classes)
        if f"{stem}/vars/0" not in found
    ]
    stems = _stems(names)
    origin: dict[str, str] = {}
    kernels = set()
    for name in found:
        new, kernel = name, False
        if not any(re.fullmatch(p, name) for p in TRAINING_STATE):
            new, kernel = _pytorch_name(name, names, denses, stems)
        # The masked LM heads of TensorFlow's classes save the shared embeddings
        # again.
        first = origin.setdefault(new, name)
        if first != name and not np.array_equal(found[first], found[name]):
            raise UserError(f"{source}: {first} and {name} differ.")
        if kernel:
            kernels.add(new)
    if names.hugging_face.bias_copy in origin:
        # modeling_tf_albert.py, TFAlbertMLMHead: only the copy is added.
        origin.pop(names.hugging_face.bias, None)
    words = f"{names.embeddings[0].hugging_face}.weight"
    prefix = names.hugging_face.prefix
    if not {words, words.removeprefix(prefix)} & origin.keys():
        raise UserError(
            f"{source}: holds no weights of transformers' "
            f"TF{names.hugging_face.body} or of a class with a head on it, but "
            f"{excerpt(next(iter(found)))} and others."
        )
    renamed = found.renamed(origin)
    shapes = {
        name: shape[::-1] if name in kernels else shape
        for name, shape in renamed.shapes.items()
    }

    def read(name: str) -> np.ndarray:
        array = renamed[name]
        return array.T if name in kernels else array

    return LazyArrays(shapes, read)


def _pytorch_name(
    name: str, names: Names, denses: Sequence[str], stems: frozenset[str]
) -> tuple[str, bool]:
    """Returns PyTorch's name, and whether the array is a kernel."""
    # ".S" is a "/" in the name of an attribute of TensorFlow's checkpoints.
    plain = name.removesuffix(":0").replace("_._", "/").replace(".S", "/")
    levels = plain.split("/")
    if re.fullmatch(r".+/vars/\d+", name):
        return _keras_name(levels, names, denses)
    levels = [level.rpartition("___")[2] for level in levels]
    roots = {stem.partition(".")[0] for stem in stems}
    begins = [
        i
        for i, level in enumerate(levels[:-1])
        if level in roots and f"{levels[i - 1]}.{level}" not in stems
    ]
    levels = levels[begins[-1] if begins else 0 :]
    end = _ENDS.get(levels[-1], levels[-1])
    return ".".join((*levels[:-1], end)), levels[-1] == "kernel"


def _stems(names: Names) -> frozenset[str]:
    """Returns PyTorch's names of the parts."""
    heads = (part for parts in names.heads.values() for part in parts)
    parts = (*names.embeddings, *names.layer, *heads)
    return frozenset(
        (
            *(part.hugging_face for part in parts),
            *names.hugging_face.poolers.values(),
        )
    )


def _plain_denses(names: Names, classes: object) -> list[str]:
    """Returns the layers that are attributes of a class, in order."""
    heads = [
        head
        for name, held in names.hugging_face.classes.items()
        if isinstance(classes, list) and name in classes
        for head in held
    ]
    if set(heads) & set(HEADS_ON_POOLER):
        heads.insert(0, POOLER)
    stems = [part.hugging_face for head in heads for part in names.heads[head]]
    return [stem for stem in stems if "." not in stem]


def _keras_name(
    levels: Sequence[str], names: Names, denses: Sequence[str]
) -> tuple[str, bool]:
    """`_pytorch_name` for names of attributes and numbers."""
    *path, _, number = levels
    layers = [layer for layer in path if layer != "layers"] or path
    found: list[str] = []
    for layer in layers:
        stem, _, digits = layer.rpartition("_")
        if not digits.isdecimal():
            stem, digits = layer, "0"
        if layer in _EMBEDDINGS:
            found = [names.hugging_face.prefix.rstrip("."), "embeddings"]
        elif stem in names.hugging_face.keras_layers:
            theirs = names.hugging_face.keras_layers[stem]
            found.append(theirs.format(digits))
        else:
            found.append(layer)
    dense = _KERAS_DENSE.fullmatch(found[0])
    if dense and int(dense[1] or 0) < len(denses):
        found[0] = denses[int(dense[1] or 0)]
    stem, index = ".".join(found), int(number)
    tables = [part.hugging_face for part in names.embeddings[:-1]]
    if stem == f"{names.hugging_face.prefix}embeddings" and index < len(tables):
        return f"{tables[index]}.weight", False
    if f"{stem}.bias" == names.hugging_face.bias:
        form = names.hugging_face
        return (form.bias_copy if index else form.bias), False
    norm = found[-1].lower().endswith("norm")
    return f"{stem}.{('weight', 'bias')[index % 2]}", not (norm or index)
