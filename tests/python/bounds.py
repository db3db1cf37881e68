"""The least memory an ONNX model can need in its own node order, worked out without tenure.

This is the independent figure that the planner is judged by: shapes come from
`onnx.shape_inference`, lifetimes and loads from the few rules below, and nothing is shared
with the Rust code. A *load* is the sum of the bytes alive at one step; the greatest load
over all steps is the least size of any arena.

Two sets of rules:

* `PLAIN`: a storage a value, alive from its producer to the last node that names it
  (`Shape` too); what `tenure plan --sharing none --fold off --align 1` must give exactly.
* `FOLD_IN_PLACE`: nodes fed by constants alone are computed at load time, Reshape-like
  views share their source's storage, element-wise nodes overwrite a dead input of their
  output's size. What tenure's defaults must not exceed.

Graph inputs are alive from the first step to their last reader, graph outputs to the end.
Initializers and `Constant` nodes take no room. The bodies of If, Loop and Scan are planned
one by one and the largest is added to its owner's step; the values that a body captures are
read by the owner's step.

    python bounds.py model.onnx --dim batch=4
"""

import argparse
import ast
import math
import operator
from dataclasses import dataclass, field

import onnx
import onnx.inliner
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, TypeProto

BITS = {
    **dict.fromkeys((TensorProto.FLOAT, TensorProto.INT32, TensorProto.UINT32), 32),
    **dict.fromkeys((TensorProto.DOUBLE, TensorProto.INT64, TensorProto.UINT64), 64),
    **dict.fromkeys((TensorProto.FLOAT16, TensorProto.BFLOAT16), 16),
    **dict.fromkeys((TensorProto.INT16, TensorProto.UINT16), 16),
    **dict.fromkeys((TensorProto.INT8, TensorProto.UINT8, TensorProto.BOOL), 8),
    **dict.fromkeys((TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E4M3FNUZ), 8),
    **dict.fromkeys((TensorProto.FLOAT8E5M2, TensorProto.FLOAT8E5M2FNUZ), 8),
    **dict.fromkeys((TensorProto.FLOAT6E2M3, TensorProto.FLOAT6E3M2), 6),
    **dict.fromkeys((TensorProto.UINT4, TensorProto.INT4, TensorProto.FLOAT4E2M1), 4),
    **dict.fromkeys((TensorProto.UINT2, TensorProto.INT2), 2),
    TensorProto.FLOAT8E8M0: 8,
    TensorProto.COMPLEX64: 64,
    TensorProto.COMPLEX128: 128,
}
"""Bits of one element. Strings are missing: their bytes are not known before the run."""

RANDOM = {
    "Bernoulli", "Dropout", "Multinomial",
    "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike",
}  # fmt: skip
"""Operators that may give another result each time, so they are never folded."""

VIEWS = {"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"}
"""Operators whose first output is another name for the bytes of the first input."""

IN_PLACE_FIRST = {
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BatchNormalization",
    "BitwiseNot", "Cast", "Ceil", "Celu", "Clip", "Cos", "Cosh", "Elu", "Erf", "Exp",
    "Floor", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Log", "LogSoftmax", "Mish",
    "Neg", "Not", "PRelu", "Reciprocal", "Relu", "Round", "Selu", "Shrink", "Sigmoid",
    "Sign", "Sin", "Sinh", "Softmax", "Softplus", "Softsign", "Sqrt", "Tan", "Tanh",
    "ThresholdedRelu",
}  # fmt: skip
"""Operators that may write their first output over their first input."""

IN_PLACE_ANY = {
    "Add", "And", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "Equal",
    "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Max", "Mean", "Min", "Mod", "Mul",
    "Or", "Pow", "Sub", "Sum", "Where", "Xor",
}  # fmt: skip
"""Operators that may write their output over any input of the same size."""


@dataclass(frozen=True)
class Rules:
    """What a planner may do to lower the load."""

    fold: bool = False
    views: bool = False
    in_place: bool = False


PLAIN = Rules()
FOLD_IN_PLACE = Rules(fold=True, views=True, in_place=True)


@dataclass
class Bounds:
    """The figures of one model, in bytes, and what could not be known.

    `nodes` and `sum_bytes` (all intermediates side by side) are of the outermost graph.
    Values of `unknown` size count as nothing.
    """

    nodes: int
    sum_bytes: int
    none: int
    none_with_inputs: int
    fold_in_place: int
    fold_in_place_with_inputs: int
    unknown: list[str]


@dataclass(eq=False)
class Storage:
    """Memory that one or more values live in, from step `first` to step `last`."""

    size: int
    first: int
    last: int
    overwritable: bool
    members: list[str] = field(default_factory=list)


@dataclass
class Step:
    """One node in the schedule, with the names that it and its bodies touch."""

    node: NodeProto
    reads: list[str]
    writes: list[str]
    inner: int


# --- reading -----------------------------------------------------------------------------


def read(path: str, dims: dict[str, int] | None = None) -> ModelProto:
    """The model with functions inlined, dimensions bound and all shapes that onnx can infer."""
    model = onnx.load(path, load_external_data=False)
    return prepare(model, dims or {})


def prepare(model: ModelProto, dims: dict[str, int]) -> ModelProto:
    """As `read`, for a model in memory."""
    if model.functions:
        model = onnx.inliner.inline_local_functions(model)
    for graph in all_graphs(model.graph):
        bind(graph, dims)
    return onnx.shape_inference.infer_shapes(model, data_prop=True)


def all_graphs(graph: GraphProto):
    """The graph and every graph nested in it."""
    pending = [graph]
    while pending:
        graph = pending.pop()
        yield graph
        for node in graph.node:
            pending.extend(bodies(node))


def bodies(node: NodeProto) -> list[GraphProto]:
    """The graphs that a node owns."""
    found = [a.g for a in node.attribute if a.type == AttributeProto.GRAPH]
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPHS:
            found.extend(attribute.graphs)
    return found


def bind(graph: GraphProto, dims: dict[str, int]) -> None:
    """Gives symbolic dimensions their values: `NAME`, a formula of names, or `INPUT@AXIS`."""
    for info in [*graph.input, *graph.value_info, *graph.output]:
        if not info.type.HasField("tensor_type"):
            continue
        for axis, dim in enumerate(info.type.tensor_type.shape.dim):
            place = f"{info.name}@{axis}"
            if place in dims:
                dim.dim_value = dims[place]
            elif dim.HasField("dim_param"):
                value = evaluate(dim.dim_param, dims)
                if value is not None:
                    dim.dim_value = value
            elif dim.HasField("dim_value") and dim.dim_value < 0:
                dim.Clear()


OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}


def evaluate(formula: str, dims: dict[str, int]) -> int | None:
    """The value of a dimension's name such as `batch` or `past + 1`; None when not given."""

    def value(term: ast.expr) -> int:
        if isinstance(term, ast.Constant) and isinstance(term.value, int):
            return term.value
        if isinstance(term, ast.Name):
            return dims[term.id]
        if isinstance(term, ast.BinOp):
            return OPERATORS[type(term.op)](value(term.left), value(term.right))
        raise KeyError(formula)

    if formula in dims:
        return dims[formula]
    try:
        return value(ast.parse(formula, mode="eval").body)
    except (KeyError, SyntaxError, ValueError, ZeroDivisionError):
        return None


def byte_size(kind: TypeProto) -> int | None:
    """Bytes of a dense tensor; None for strings, sequences, optionals and free dimensions."""
    if not kind.HasField("tensor_type"):
        return None
    bits = BITS.get(kind.tensor_type.elem_type)
    if bits is None or not kind.tensor_type.HasField("shape"):
        return None
    dims = kind.tensor_type.shape.dim
    if any(not d.HasField("dim_value") or d.dim_value < 0 for d in dims):
        return None
    return (math.prod(d.dim_value for d in dims) * bits + 7) // 8


def elements(kind: TypeProto) -> int:
    """Number of elements of a tensor whose size in bytes is known."""
    return math.prod(d.dim_value for d in kind.tensor_type.shape.dim)


# --- planning ----------------------------------------------------------------------------


def captured(node: NodeProto) -> list[str]:
    """The outer values that a node's bodies read, in the order of first use."""
    names: dict[str, None] = {}
    for body in bodies(node):
        own = {i.name for i in body.input} | {t.name for t in body.initializer}
        own |= {t.values.name for t in body.sparse_initializer}
        for inner in body.node:
            for name in [*inner.input, *captured(inner)]:
                if name and name not in own:
                    names[name] = None
            own.update(inner.output)
        for output in body.output:
            if output.name not in own:
                names[output.name] = None
    return list(names)


class Planner:
    """The load of one model under one set of rules."""

    def __init__(self, rules: Rules):
        self.rules = rules
        self.unknown: list[str] = []
        self.sum_bytes = 0

    def root(self, graph: GraphProto, with_inputs: bool) -> int:
        """The greatest load of a whole model."""
        return self.load(graph, set(), is_root=True, with_inputs=with_inputs)

    def load(self, graph: GraphProto, outer: set[str], is_root: bool, with_inputs: bool) -> int:
        """The greatest load inside one graph; `outer` names the constants around it."""
        constants = outer | {t.name for t in graph.initializer}
        constants |= {t.values.name for t in graph.sparse_initializer}
        inputs = [i.name for i in graph.input if i.name not in constants]
        constants -= set(inputs)
        steps = self.steps(graph, constants)

        types = {i.name: i.type for i in [*graph.value_info, *graph.output, *graph.input]}
        sizes = {name: byte_size(kind) for name, kind in types.items()}

        # A body first takes its inputs over, in a step of its own; a model's inputs are
        # there when its first node runs.
        start = 0 if is_root else 1
        end = start + len(steps)
        last_read = {}
        for at, step in enumerate(steps, start):
            last_read.update(dict.fromkeys(step.reads, at))
        last_read.update({output.name: end for output in graph.output})

        home: dict[str, Storage] = {}
        storages: list[Storage] = []

        def place(name: str, at: int, overwritable: bool) -> None:
            size = sizes.get(name)
            if size is None:
                self.unknown.append(name)
            storage = Storage(size or 0, at, last_read.get(name, at), overwritable, [name])
            home[name] = storage
            storages.append(storage)

        if not is_root or with_inputs:
            for name in inputs:
                place(name, 0, overwritable=is_root)
        for at, step in enumerate(steps, start):
            for position, name in enumerate(step.writes):
                if not name:
                    continue
                if is_root:
                    self.sum_bytes += sizes.get(name) or 0
                host = self.host(step, position, name, at, types, home, last_read)
                if host is None:
                    place(name, at, overwritable=True)
                else:
                    host.last = max(host.last, last_read.get(name, at))
                    host.members.append(name)
                    home[name] = host

        change = [0] * (end + 2)
        for storage in storages:
            change[storage.first] += storage.size
            change[storage.last + 1] -= storage.size
        peak = alive = 0
        for at in range(end + 1):
            alive += change[at]
            inner = steps[at - start].inner if start <= at < end else 0
            peak = max(peak, alive + inner)
        return peak

    def steps(self, graph: GraphProto, constants: set[str]) -> list[Step]:
        """The nodes that run, each with the load of its largest body; grows `constants`."""
        steps = []
        for node in graph.node:
            reads = [name for name in [*node.input, *captured(node)] if name]
            folds = self.rules.fold and node.op_type not in RANDOM
            if node.op_type == "Constant" or (folds and all(r in constants for r in reads)):
                constants.update(node.output)
                continue
            inner = [self.load(b, constants, is_root=False, with_inputs=True) for b in bodies(node)]
            reads = [name for name in reads if name not in constants]
            steps.append(Step(node, reads, list(node.output), max(inner, default=0)))
        return steps

    def host(self, step, position, name, at, types, home, last_read) -> Storage | None:
        """The storage of an input that an output may live in, if there is one."""
        size = byte_size(types[name]) if name in types else None
        if position != 0 or size is None:
            return None
        node = step.node
        if self.rules.views and node.op_type in VIEWS:
            source = types.get(node.input[0])
            known = source is not None and byte_size(source) is not None
            return home.get(node.input[0]) if known else None
        if not self.rules.in_place:
            return None
        if node.op_type in IN_PLACE_FIRST and sum(map(bool, step.writes)) == 1:
            # Normalisation in training has more outputs, and reads its input twice.
            candidates = node.input[:1]
        elif node.op_type in IN_PLACE_ANY:
            candidates = node.input
        else:
            return None
        for candidate in candidates:
            storage = home.get(candidate)
            if (
                storage is not None
                and storage.overwritable
                and candidate in types
                and byte_size(types[candidate]) == size
                # Eight bytes may be one number that is broadcast into eight flags.
                and elements(types[candidate]) == elements(types[name])
                and all(last_read.get(member, 0) <= at for member in storage.members)
            ):
                return storage
        return None


def bounds(model: ModelProto) -> Bounds:
    """All figures of a model that `read` or `prepare` made."""

    def load(rules: Rules, with_inputs: bool) -> tuple[int, Planner]:
        planner = Planner(rules)
        return planner.root(model.graph, with_inputs), planner

    none, planner = load(PLAIN, with_inputs=False)
    none_with_inputs, with_inputs = load(PLAIN, with_inputs=True)
    return Bounds(
        nodes=len(model.graph.node),
        sum_bytes=planner.sum_bytes,
        none=none,
        none_with_inputs=none_with_inputs,
        fold_in_place=load(FOLD_IN_PLACE, with_inputs=False)[0],
        fold_in_place_with_inputs=load(FOLD_IN_PLACE, with_inputs=True)[0],
        unknown=with_inputs.unknown,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="least memory of an ONNX model, in bytes")
    parser.add_argument("model")
    parser.add_argument("--dim", action="append", default=[], metavar="NAME=N")
    arguments = parser.parse_args()
    dims = {}
    for text in arguments.dim:
        name, _, value = text.rpartition("=")
        dims[name] = int(value)
    for key, value in vars(bounds(read(arguments.model, dims))).items():
        print(f"{key:26} {value}")


if __name__ == "__main__":
    main()
