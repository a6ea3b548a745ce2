"""An ONNX graph written operation by operation, in double precision."""

from typing import Any

import numpy as np

from ghofl.errors import MissingExtraError

try:
    import onnx
    from onnx import TensorProto, helper, numpy_helper
except ImportError:
    raise MissingExtraError("writing ONNX files needs onnx: pip install 'ghofl[export]'") from None

OPSET = 18
IR_VERSION = 9  # read by every ONNX Runtime since 1.15
INT64 = TensorProto.INT64


class Graph:
    """Nodes and constants in the order they are added; every operation returns the name of its result."""

    def __init__(self) -> None:
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._count = 0

    def constant(self, value: Any, dtype: Any = np.float64) -> str:
        """A constant tensor; texts become a tensor of strings."""
        name = self._name("constant")
        if isinstance(value, (list, tuple)) and value and isinstance(value[0], str):
            texts = [text.encode() for text in value]
            self._constants.append(helper.make_tensor(name, TensorProto.STRING, [len(value)], texts))
        else:
            self._constants.append(numpy_helper.from_array(np.ascontiguousarray(value, dtype=dtype), name))
        return name

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """The result of one ONNX operation."""
        name = self._name(kind.lower())
        self._nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def name(self, value: str, name: str) -> None:
        """Give a result the name that users of the file see."""
        self._nodes.append(helper.make_node("Identity", [value], [name]))

    def total(self, x: str, axis: int = 1) -> str:
        """Sums over an axis, which is kept with length 1."""
        return self.op("ReduceSum", x, self.constant([axis], np.int64), keepdims=1)

    def model(self, inputs: list[Any], outputs: list[Any], metadata: dict[str, str]) -> Any:
        """The finished model, checked."""
        graph = helper.make_graph(self._nodes, "ghofl", inputs, outputs, self._constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="ghofl")
        model.ir_version = IR_VERSION
        helper.set_model_props(model, metadata)
        onnx.checker.check_model(model)
        return model

    def _name(self, kind: str) -> str:
        self._count += 1
        return f"{kind}_{self._count}"
