"""A model as an ONNX file, which takes token ids, and int8 in it.

Operators of opset 20 (ONNX 1.15, 2023), the first with GELU; layer
normalisation is one since 17.
"""

import logging
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic

from bert_tf.checkpoints.sentence_modules import SentenceModules
from bert_tf.config import BertConfig
from bert_tf.errors import UserError
from bert_tf.families.rows import Outputs
from bert_tf.features import ENCODER_INPUTS
from bert_tf.runtimes.forward import PlainBert
from bert_tf.runtimes.operations import Operations, number

FILE = "model.onnx"
# Whether rows are of one length.
PADDED = False
_OPSET, _IR_VERSION = 20, 9
# protobuf takes no message above 2 GB.
_LARGEST_BYTES = 2**31 - 2**20


class _Onnx(Operations):
    """Adds a node for each operation; tensors are their names."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, onnx.TensorProto] = {}

    def _node(self, operator: str, *inputs: str, **attributes: Any) -> str:
        name = f"{operator}_{len(self.nodes)}"
        node = helper.make_node(operator, inputs, [name], name, **attributes)
        self.nodes.append(node)
        return name

    def _sizes(self, *sizes: int) -> str:
        """Whole numbers that an operator takes as a tensor, int64."""
        name = "sizes_" + "_".join(map(str, sizes))
        array = np.array(sizes, np.int64)
        self.constants[name] = numpy_helper.from_array(array, name)
        return name

    def constant(self, array: np.ndarray, name: str) -> str:
        if name not in self.constants:
            self.constants[name] = numpy_helper.from_array(array, name)
        return name

    def positions(self, row: str) -> str:
        length = self._node("Shape", row, start=1, end=2)
        zero, one = (
            self.constant(np.array(number, np.int64), f"whole_{number}")
            for number in (0, 1)
        )
        length = self._node("Squeeze", length, self._sizes(0))
        places = self._node("Range", zero, length, one)
        return self._node("Cast", places, to=TensorProto.INT32)

    def rows(self, table: str, ids: str) -> str:
        return self._node("Gather", table, ids, axis=0)

    def to_float(self, values: str) -> str:
        return self._node("Cast", values, to=TensorProto.FLOAT)

    def less(self, left: str, right: str) -> str:
        return self._node("Less", left, right)

    def add(self, left: str, right: str) -> str:
        return self._node("Add", left, right)

    def multiply(self, left: str, right: str) -> str:
        return self._node("Mul", left, right)

    def largest(self, values: str) -> str:
        return self._node("ReduceMax", values, self._sizes(-1), keepdims=1)

    def matmul(self, left: str, right: str) -> str:
        return self._node("MatMul", left, right)

    def reshape(self, values: str, shape: tuple[int, ...]) -> str:
        return self._node("Reshape", values, self._sizes(*shape))

    def transpose(self, values: str, order: tuple[int, ...]) -> str:
        return self._node("Transpose", values, perm=order)

    def part(self, values: str, axis: int, begin: int, end: int) -> str:
        bounds = (self._sizes(number) for number in (begin, end, axis))
        return self._node("Slice", values, *bounds)

    def normalise(
        self, values: str, gamma: str, beta: str, epsilon: float
    ) -> str:
        return self._node(
            "LayerNormalization", values, gamma, beta, epsilon=epsilon
        )

    def softmax(self, values: str) -> str:
        return self._node("Softmax", values, axis=-1)

    def activate(self, hidden_act: str, values: str) -> str:
        if hidden_act == "linear":
            return values
        if hidden_act in ("gelu", "gelu_erf"):
            form = "tanh" if hidden_act == "gelu" else "none"
            return self._node("Gelu", values, approximate=form)
        return self._node({"relu": "Relu", "tanh": "Tanh"}[hidden_act], values)

    def power(self, values: str, exponent: float) -> str:
        return self._node("Pow", values, number(self, exponent))

    def join(self, parts: Sequence[str], axis: int) -> str:
        return self._node("Concat", *parts, axis=axis)


def write_model(
    path: pathlib.Path,
    config: BertConfig,
    arrays: Mapping[str, np.ndarray],
    max_seq_length: int,
    int8: bool = False,
    modules: SentenceModules | None = None,
) -> None:
    """Writes a model that takes any number of rows of any length.

    In int8 the kernels are stored per column, tables of embeddings as a whole,
    and inputs quantized as they come; all else stays float32. Kernels have 7
    bits, since processors without VNNI add two products up in 16: the score
    that is measured here holds there too.

    Args:
      path: the file.
      config: the architecture.
      arrays: the weights by their names in Google's TF1 checkpoints.
      max_seq_length: of no meaning here.
      int8: whether to quantize it.
      modules: what makes one vector a text, or None.

    Raises:
      UserError: the model is too large for the format.
    """
    del max_seq_length
    model = _model(config, arrays, modules)
    if not int8:
        path.write_bytes(model.SerializeToString())
        return
    # It asks for what its own optimizer does, which has nothing to do here.
    logging.disable(logging.WARNING)
    try:
        quantize_dynamic(
            model,
            path,
            op_types_to_quantize=["MatMul", "Gather"],
            per_channel=True,
            reduce_range=True,
            weight_type=QuantType.QInt8,
        )
    finally:
        logging.disable(logging.NOTSET)


def _model(
    config: BertConfig,
    arrays: Mapping[str, np.ndarray],
    modules: SentenceModules | None,
) -> onnx.ModelProto:
    ops = _Onnx()
    bert = PlainBert(ops, config, arrays, modules)
    names = [feature.name for feature in ENCODER_INPUTS]
    for name, value in bert(*names).items():
        ops.nodes.append(helper.make_node("Identity", [value], [name]))
    size = sum(len(each.raw_data) for each in ops.constants.values())
    if size > _LARGEST_BYTES:
        raise UserError(
            f"`file_format`=onnx: the model has {size / 1e9:.1f} GB, and such "
            "a file takes 2; give saved_model."
        )
    graph = helper.make_graph(
        ops.nodes,
        "bert",
        [
            helper.make_tensor_value_info(
                name, TensorProto.INT32, ["batch", "length"]
            )
            for name in names
        ],
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, axes)
            for name, axes in bert.output_axes().items()
        ],
        list(ops.constants.values()),
    )
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", _OPSET)],
        ir_version=_IR_VERSION,
        producer_name="bert_tf",
    )
    onnx.checker.check_model(model, full_check=True)
    return model


class Runner:
    """Runs a file with ONNX Runtime on the processor.

    Args:
      path: the file.
    """

    def __init__(self, path: pathlib.Path):
        options = onnxruntime.SessionOptions()
        # What it says of quantized graphs is no warning for whoever exports.
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(
            path, options, providers=["CPUExecutionProvider"]
        )
        self._names = [each.name for each in self._session.get_outputs()]

    def __call__(self, inputs: Mapping[str, np.ndarray]) -> Outputs:
        """The outputs by name to int32 [B, S] inputs by name."""
        return dict(
            zip(self._names, self._session.run(None, inputs), strict=True)
        )
