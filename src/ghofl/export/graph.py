"""An ONNX graph written operation by operation; its constants are doubles unless said otherwise."""

from collections.abc import Mapping
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
        self._imports: list[Any] = [helper.make_opsetid("", OPSET)]
        self._ir_version = IR_VERSION

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

    def inline(self, network: Any, *inputs: str) -> str:
        """The first output of another model; inlined again, it computes with the same constants.

        The operations that this class writes mean the same in every later operator set, so the network's is used.
        """
        own, prefix = network.graph, self._name("network") + "/"
        names = {value.name: f"network/{value.name}" for value in own.initializer}
        if self._imports is not network.opset_import:
            self._imports, self._ir_version = network.opset_import, max(IR_VERSION, network.ir_version)
            for value in own.initializer:
                self._constants.append(_copy(value))
                self._constants[-1].name = names[value.name]
        names |= dict(zip((value.name for value in own.input), inputs, strict=True))
        names |= {name: prefix + name for node in own.node for name in node.output if name}
        self._nodes += [_renamed(node, names) for node in own.node]
        return names[own.output[0].name]

    def model(self, inputs: list[Any], outputs: list[Any], metadata: dict[str, str]) -> Any:
        """The finished model, checked."""
        graph = helper.make_graph(self._nodes, "ghofl", inputs, outputs, self._constants)
        model = helper.make_model(graph, opset_imports=self._imports, producer_name="ghofl")
        model.ir_version = self._ir_version
        helper.set_model_props(model, metadata)
        onnx.checker.check_model(model)
        return model

    def _name(self, kind: str) -> str:
        self._count += 1
        return f"{kind}_{self._count}"


def _copy(message: Any) -> Any:
    copied = type(message)()
    copied.CopyFrom(message)
    return copied


def _renamed(node: Any, names: Mapping[str, str]) -> Any:
    """A node with other names for its values, also where its subgraphs use them; names inside those stay."""
    node = _copy(node)
    node.name = ""
    for values in (node.input, node.output):
        values[:] = [names.get(name, name) for name in values]
    for attribute in node.attribute:
        for graph in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
            nodes = [_renamed(inner, names) for inner in graph.node]
            del graph.node[:]
            graph.node.extend(nodes)
            for output in graph.output:
                output.name = names.get(output.name, output.name)
    return node
