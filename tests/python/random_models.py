"""Random but valid ONNX models, small in bytes and mixed in shape, to test a planner with.

Every family draws from a seed alone, so a failing model can be made again:

    python random_models.py control 17 model.onnx

The models are meant to be planned, not to compute anything sensible.
"""

import math
import random
import sys
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, TensorProto, helper, numpy_helper

F32, F16, I64, BOOL = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT64, TensorProto.BOOL
U8, I8, I32 = TensorProto.UINT8, TensorProto.INT8, TensorProto.INT32


@dataclass(frozen=True)
class Value:
    """A tensor that the model under construction can use."""

    name: str
    shape: tuple[int, ...]
    kind: int = F32

    def info(self) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(self.name, self.kind, self.shape)


class Builder:
    """Collects the nodes of one graph; a body's builder can also see its parent's values."""

    def __init__(self, rng: random.Random, parent: "Builder | None" = None):
        self.rng = rng
        self.parent = parent
        self.root = parent.root if parent else self
        if parent is None:
            self.counter = 0
        self.nodes, self.inputs, self.outputs, self.constants, self.infos = [], [], [], [], []
        self.values: list[Value] = []

    def fresh(self, hint: str) -> str:
        self.root.counter += 1
        style = self.root.counter % 4
        number = self.root.counter
        return [f"{hint}_{number}", f"/{hint}/{number}:0", f"{hint} {number}", f"{number}é"][style]

    def input(self, shape, kind=F32) -> Value:
        value = Value(self.fresh("input"), tuple(shape), kind)
        self.inputs.append(value.info())
        self.values.append(value)
        return value

    def output(self, value: Value) -> None:
        if value.name not in {o.name for o in self.outputs}:
            self.outputs.append(value.info())

    def constant(self, array) -> Value:
        """An initializer, or now and then a `Constant` node."""
        array = np.asarray(array)
        name = self.fresh("weight")
        tensor = numpy_helper.from_array(array, name)
        if self.rng.random() < 0.3:
            self.nodes.append(helper.make_node("Constant", [], [name], value=tensor))
        else:
            self.constants.append(tensor)
        return Value(name, array.shape, tensor.data_type)

    def weight(self, *shape) -> Value:
        return self.constant(np.zeros(shape, np.float32))

    def ints(self, *numbers) -> Value:
        return self.constant(np.array(numbers, np.int64))

    def node(self, kind: str, inputs, shape, dtype=F32, domain="", **attributes) -> Value:
        """A node with one output of a known shape."""
        return self.nodes_out(kind, inputs, [(shape, dtype)], domain, **attributes)[0]

    def nodes_out(self, kind, inputs, outputs, domain="", **attributes) -> list[Value]:
        """A node with several outputs; an output given as None is left out."""
        made = [
            None if o is None else Value(self.fresh(kind.lower()), tuple(o[0]), o[1])
            for o in outputs
        ]
        self.nodes.append(
            helper.make_node(
                kind,
                [v.name if v else "" for v in inputs],
                [v.name if v else "" for v in made],
                name=self.fresh("node"),
                domain=domain,
                **attributes,
            )
        )
        self.values.extend(v for v in made if v)
        return made

    def visible(self) -> list[Value]:
        """The values of this graph and of the graphs around it."""
        return self.values + (self.parent.visible() if self.parent else [])

    def pick(self, kind=F32, recent=8) -> Value | None:
        """One of the latest values of an element type."""
        found = [v for v in self.visible() if v.kind == kind]
        own = [v for v in self.values if v.kind == kind][-recent:]
        pool = own if own and self.rng.random() < 0.8 else found
        return self.rng.choice(pool) if pool else None

    def graph(self, name="g") -> GraphProto:
        return helper.make_graph(
            self.nodes, name, self.inputs, self.outputs, self.constants, value_info=self.infos
        )

    def model(self, functions=(), opset=18) -> ModelProto:
        opsets = [helper.make_opsetid("", opset)]
        opsets += [helper.make_opsetid(d, 1) for d in sorted({f.domain for f in functions})]
        return helper.make_model(
            self.graph(), opset_imports=opsets, functions=functions, ir_version=10
        )


UNARY = ["Relu", "Sigmoid", "Tanh", "Exp", "Neg", "Sqrt", "Erf", "HardSwish", "LeakyRelu", "Abs"]
BINARY = ["Add", "Sub", "Mul", "Div", "Max", "Min"]


def elementwise(b: Builder, x: Value) -> Value:
    """One element-wise node over `x`, sometimes with a second operand of its shape."""
    others = [v for v in b.visible() if v.shape == x.shape and v.kind == x.kind]
    if others and b.rng.random() < 0.4:
        operands = [x, b.rng.choice(others[-6:])]
        b.rng.shuffle(operands)
        return b.node(b.rng.choice(BINARY), operands, x.shape, x.kind)
    return b.node(b.rng.choice(UNARY), [x], x.shape, x.kind)


# --- families ----------------------------------------------------------------------------


def cnn(rng: random.Random) -> ModelProto:
    """Convolutions with residuals, dense concatenations, squeeze-and-excite and pooling."""
    b = Builder(rng)
    n, c, s = rng.choice([1, 2, 4]), rng.choice([3, 4]), rng.choice([8, 16, 24])
    x = b.input([n, c, s, s])

    def conv(x, channels, kernel=3):
        weights = [b.weight(channels, x.shape[1], kernel, kernel)]
        if rng.random() < 0.7:
            weights.append(b.weight(channels))
        pad = kernel // 2
        out = (n, channels, *x.shape[2:])
        return b.node("Conv", [x, *weights], out, pads=[pad] * 4, kernel_shape=[kernel] * 2)

    for _ in range(rng.randint(3, 12)):
        c, s = x.shape[1], x.shape[2]
        match rng.choice("conv norm residual dense squeeze pool resize split".split()):
            case "conv":
                x = conv(x, rng.choice([4, 8, 12]), rng.choice([1, 3]))
            case "norm":
                x = b.node("BatchNormalization", [x, *(b.weight(c) for _ in range(4))], x.shape)
                x = b.node("Relu", [x], x.shape)
            case "residual":
                y = elementwise(b, conv(x, c))
                x = b.node("Relu", [b.node("Add", [conv(y, c), x], x.shape)], x.shape)
            case "dense":
                y = conv(x, 4)
                x = b.node("Concat", [x, y], (n, c + 4, s, s), axis=1)
            case "squeeze":
                y = b.node("GlobalAveragePool", [x], (n, c, 1, 1))
                x = b.node("Mul", [x, b.node("Sigmoid", [conv(y, c, 1)], y.shape)], x.shape)
            case "pool" if s >= 4 and s % 2 == 0:
                pool = {"kernel_shape": [2, 2], "strides": [2, 2]}
                x = b.node("MaxPool", [x], (n, c, s // 2, s // 2), **pool)
            case "resize" if s <= 16:
                scales = b.constant(np.array([1, 1, 2, 2], np.float32))
                x = b.node("Resize", [x, None, scales], (n, c, 2 * s, 2 * s))
            case "split" if c % 2 == 0:
                half = (n, c // 2, s, s)
                left, right = b.nodes_out("Split", [x], [(half, F32)] * 2, axis=1, num_outputs=2)
                x = b.node("Concat", [elementwise(b, left), right], x.shape, axis=1)
    flat = b.node("Flatten", [x], (n, math.prod(x.shape[1:])))
    y = b.node("Gemm", [flat, b.weight(flat.shape[1], 10), b.weight(10)], (n, 10))
    b.output(b.node("Softmax", [y], y.shape))
    if rng.random() < 0.3:
        b.output(x)
    return b.model()


def transformer(rng: random.Random) -> ModelProto:
    """Attention blocks with shape arithmetic, masks and a key/value cache."""
    b = Builder(rng)
    n, s, h, d = rng.choice([1, 2]), rng.choice([4, 16]), rng.choice([1, 2, 4]), 8
    e = h * d
    ids = b.input([n, s], I64)
    mask = b.input([n, 1, 1, s], BOOL)
    x = b.node("Gather", [b.weight(32, e), ids], (n, s, e))
    for _ in range(rng.randint(1, 4)):
        y = b.node("LayerNormalization", [x, b.weight(e), b.weight(e)], x.shape)
        if rng.random() < 0.5:
            shape = b.node("Shape", [y], (3,), I64)
            lead = b.node("Slice", [shape, b.ints(0), b.ints(2)], (2,), I64)
            heads = b.node("Concat", [lead, b.ints(h, d)], (4,), I64, axis=0)
        else:
            heads = b.ints(n, s, h, d)
        parts = []
        for _ in range(3):
            p = b.node("MatMul", [y, b.weight(e, e)], x.shape)
            p = b.node("Reshape", [p, heads], (n, s, h, d))
            parts.append(b.node("Transpose", [p], (n, h, s, d), perm=[0, 2, 1, 3]))
        q, k, v = parts
        length = s
        if rng.random() < 0.5:
            length = s + 4
            k = b.node("Concat", [b.input([n, h, 4, d]), k], (n, h, length, d), axis=2)
            b.output(k)
        k = b.node("Transpose", [k], (n, h, d, length), perm=[0, 1, 3, 2])
        score = b.node("MatMul", [q, k], (n, h, s, length))
        if length == s:
            low = b.constant(np.float32(-1e9))
            score = b.node("Where", [mask, score, low], score.shape)
        else:
            v = b.node("Concat", [b.input([n, h, 4, d]), v], (n, h, length, d), axis=2)
        score = b.node("Softmax", [score], score.shape)
        y = b.node("MatMul", [score, v], q.shape)
        y = b.node("Transpose", [y], (n, s, h, d), perm=[0, 2, 1, 3])
        y = b.node("Reshape", [y, b.ints(0, 0, -1)], x.shape)
        x = b.node("Add", [x, y], x.shape)
        y = b.node("MatMul", [x, b.weight(e, 4 * e)], (n, s, 4 * e))
        half = b.node("Mul", [y, b.constant(np.float32(0.5))], y.shape)
        y = b.node("Mul", [half, b.node("Erf", [y], y.shape)], y.shape)
        x = b.node("Add", [x, b.node("MatMul", [y, b.weight(4 * e, e)], x.shape)], x.shape)
    b.output(x)
    return b.model()


def body_step(b: Builder, depth: int) -> None:
    """One random node, or one owner of bodies, in a graph with control flow."""
    x = b.pick() or b.input([4])
    choice = b.rng.random()
    if depth > 0 and choice < 0.15:
        branch(b, depth - 1)
    elif depth > 0 and choice < 0.3:
        loop(b, depth - 1)
    elif depth > 0 and choice < 0.4:
        scan(b, depth - 1)
    elif choice < 0.5 and x.shape:
        y = b.node("Concat", [x, x], (2 * x.shape[0], *x.shape[1:]), axis=0)
        if math.prod(y.shape) > 4096:
            b.node("ReduceMax", [y], (1,) * len(y.shape))
    else:
        elementwise(b, x)


def fill(b: Builder, depth: int, most: int = 5) -> None:
    for _ in range(b.rng.randint(1, most)):
        body_step(b, depth)


def condition(b: Builder) -> Value:
    return b.pick(BOOL) or b.constant(np.array(True))


def settle(b: Builder, shape) -> Value:
    """A value of this body with exactly this shape."""
    found = [v for v in b.values if v.kind == F32 and v.shape == tuple(shape)]
    if found and b.rng.random() < 0.8:
        return b.rng.choice(found)
    # The sum of something live, broadcast, so that the body depends on what is around it.
    x = b.pick()
    if x is None or not b.parent or b.rng.random() < 0.3:
        return b.node("Expand", [b.weight(), b.ints(*shape)], shape)
    total = b.node("ReduceSum", [x], (), keepdims=0)
    return b.node("Expand", [total, b.ints(*shape)], shape)


def declare(b: Builder, values: list[Value]) -> list[Value]:
    """Writes the shapes of an owner's outputs into the file, as exporters do."""
    b.infos.extend(v.info() for v in values)
    return values


def branch(b: Builder, depth: int) -> None:
    shapes = [b.rng.choice([(4,), (2, 8), (16, 16), (64,)]) for _ in range(b.rng.randint(1, 3))]
    graphs = {}
    test = condition(b)
    for side in ("then_branch", "else_branch"):
        body = Builder(b.rng, b)
        if b.rng.random() < 0.8:
            fill(body, depth)
        for shape in shapes:
            value = settle(body, shape)
            while value.name in {o.name for o in body.outputs}:
                value = body.node("Neg", [value], shape)
            body.output(value)
        graphs[side] = body.graph(side)
    b.nodes_out("If", [test], [(s, F32) for s in shapes], **graphs)


def loop(b: Builder, depth: int) -> None:
    trips = b.rng.randint(1, 4)
    states = [b.pick() or b.weight(4) for _ in range(b.rng.randint(1, 3))]
    test = condition(b) if b.rng.random() < 0.5 else None
    body = Builder(b.rng, b)
    body.input([], I64)
    go = body.input([], BOOL)
    for state in states:
        body.input(state.shape)
    fill(body, depth)
    results = [settle(body, state.shape) for state in states]
    scans = [body.pick() for _ in range(b.rng.randint(0, 2))]
    if b.rng.random() < 0.5:
        go = body.node("Not", [go], (), BOOL)
    # A body may not name one value twice among its outputs.
    taken = {go.name}
    body.output(go)
    for value in [*results, *scans]:
        if value.name in taken or value not in body.values:
            value = body.node("Neg", [value], value.shape)
        taken.add(value.name)
        body.output(value)
    count = b.constant(np.array(trips, np.int64))
    outputs = [(v.shape, F32) for v in states] + [((trips, *v.shape), F32) for v in scans]
    declare(b, b.nodes_out("Loop", [count, test, *states], outputs, body=body.graph("body")))


def scan(b: Builder, depth: int) -> None:
    x = b.pick()
    if x is None or not x.shape or x.shape[0] == 0:
        return
    state = b.pick()
    body = Builder(b.rng, b)
    body.input(state.shape)
    body.input(x.shape[1:])
    fill(body, depth, most=3)
    result, piece = settle(body, state.shape), settle(body, x.shape[1:] or (1,))
    if piece.name == result.name:
        piece = body.node("Neg", [piece], piece.shape)
    body.output(result)
    body.output(piece)
    outputs = [(state.shape, F32), ((x.shape[0], *piece.shape), F32)]
    made = b.nodes_out("Scan", [state, x], outputs, num_scan_inputs=1, body=body.graph("body"))
    declare(b, made)


def control(rng: random.Random) -> ModelProto:
    """If, Loop and Scan, up to three deep, with captured values and carried states."""
    b = Builder(rng)
    b.input([rng.choice([4, 64])])
    b.input([2, 8])
    b.input([], BOOL)
    fill(b, 3, most=8)
    rng.choice([branch, loop, scan])(b, 2)
    fill(b, 1, most=3)
    for value in b.values[-rng.randint(1, 3) :]:
        b.output(value)
    return b.model()


def quantised(rng: random.Random) -> ModelProto:
    """Quantise/dequantise pairs, integer convolutions and dynamic quantisation."""
    b = Builder(rng)
    n, c, s = rng.choice([1, 2]), 4, 8
    x = b.input([n, c, s, s])

    def scale():
        return [b.constant(np.float32(0.1)), b.constant(np.uint8(128))]

    for _ in range(rng.randint(2, 8)):
        match rng.randrange(4):
            case 0:
                q = b.node("QuantizeLinear", [x, *scale()], x.shape, U8)
                x = b.node("DequantizeLinear", [q, *scale()], x.shape)
            case 1:
                q = b.node("QuantizeLinear", [x, *scale()], x.shape, U8)
                w = b.constant(np.zeros((c, c, 3, 3), np.uint8))
                q = b.node("QLinearConv", [q, *scale(), w, *scale(), *scale()], x.shape, U8,
                           pads=[1] * 4)  # fmt: skip
                x = b.node("DequantizeLinear", [q, *scale()], x.shape)
            case 2:
                kinds = [(x.shape, U8), ((), F32), ((), U8)]
                q, factor, zero = b.nodes_out("DynamicQuantizeLinear", [x], kinds)
                w = b.constant(np.zeros((c, c, 1, 1), np.uint8))
                y = b.node("ConvInteger", [q, w, zero], x.shape, I32)
                y = b.node("Cast", [y], x.shape, to=F32)
                x = b.node("Mul", [y, factor], x.shape)
            case 3:
                w = b.constant(np.zeros((c, c, 1, 1), np.int8))
                w = b.node("DequantizeLinear", [w, b.constant(np.float32(0.1))], w.shape)
                x = b.node("Conv", [x, w], x.shape)
    b.output(x)
    return b.model()


def training(rng: random.Random) -> ModelProto:
    """Forward, backward and update: weights and optimiser states in, new ones out."""
    b = Builder(rng)
    n = rng.choice([4, 16])
    widths = [rng.choice([4, 8, 32]) for _ in range(rng.randint(2, 5))]
    x = b.input([n, widths[0]])
    layers = []
    for before, after in zip(widths, widths[1:], strict=False):
        w, m = b.input([before, after]), b.input([before, after])
        z = b.node("MatMul", [x, w], (n, after))
        layers.append((x, w, m, z))
        x = b.node("Relu", [z], z.shape)
    loss = b.node("ReduceMean", [b.node("Mul", [x, x], x.shape)], (), keepdims=0)
    b.output(loss)
    gradient = b.node("Add", [x, x], x.shape)
    rate = b.constant(np.float32(0.1))
    for x, w, m, z in reversed(layers):
        mask = b.node("Greater", [z, b.constant(np.float32(0))], z.shape, BOOL)
        mask = b.node("Cast", [mask], z.shape, to=F32)
        gradient = b.node("Mul", [gradient, mask], z.shape)
        turned = b.node("Transpose", [x], x.shape[::-1], perm=[1, 0])
        dw = b.node("MatMul", [turned, gradient], w.shape)
        turned = b.node("Transpose", [w], w.shape[::-1], perm=[1, 0])
        gradient = b.node("MatMul", [gradient, turned], x.shape)
        m2 = b.node("Add", [b.node("Mul", [m, rate], m.shape), dw], m.shape)
        b.output(b.node("Sub", [w, b.node("Mul", [m2, rate], w.shape)], w.shape))
        b.output(m2)
    return b.model()


def views(rng: random.Random) -> ModelProto:
    """Chains of views over inputs, constants and each other, with results at every depth."""
    b = Builder(rng)
    for _ in range(rng.randint(1, 3)):
        b.input([2, 3, 4])
    b.input([24])  # read by nobody, most of the time
    if rng.random() < 0.5:
        b.values.append(b.weight(2, 3, 4))
    for _ in range(rng.randint(3, 20)):
        x = b.pick(recent=4)
        size = math.prod(x.shape)
        match rng.randrange(10):
            case 0:
                shape = rng.choice([(size,), (1, size), (size, 1), (2, size // 2)])
                if math.prod(shape) == size:
                    b.node("Reshape", [x, b.ints(*shape)], shape)
            case 1:
                b.node("Flatten", [x], (1, size), axis=0)
            case 2:
                b.node("Unsqueeze", [x, b.ints(0)], (1, *x.shape))
            case 3:
                b.node("Squeeze", [x], tuple(d for d in x.shape if d != 1))
            case 4:
                b.node("Identity", [x], x.shape)
            case 5:
                b.node("Transpose", [x], x.shape[::-1])
            case 6 if x.shape and x.shape[0] % 2 == 0:
                half = (x.shape[0] // 2, *x.shape[1:])
                parts = [(half, F32), (half, F32)]
                b.nodes_out("Split", [x], parts, axis=0, num_outputs=2)
            case 7 if x.shape and x.shape[0] > 1:
                b.node("Slice", [x, b.ints(1), b.ints(9999), b.ints(0)],
                       (x.shape[0] - 1, *x.shape[1:]))  # fmt: skip
            case 8:
                b.nodes_out("Dropout", [x], [(x.shape, F32), (x.shape, BOOL)][: rng.randint(1, 2)])
            case _:
                elementwise(b, x)
    results = [v for v in b.values if v.kind == F32]
    for value in rng.sample(results, min(len(results), 3)):
        b.output(value)
    return b.model()


def odd_types(rng: random.Random) -> ModelProto:
    """Four-bit, eight-bit, half and string values, and empty tensors."""
    b = Builder(rng)
    kinds = [
        TensorProto.DOUBLE, F16, TensorProto.BFLOAT16, TensorProto.FLOAT8E4M3FN,
        TensorProto.FLOAT8E5M2, TensorProto.INT4, TensorProto.UINT4, I8, U8, BOOL, I64,
        TensorProto.UINT16,
    ]  # fmt: skip
    shapes = [(3,), (5, 7), (0, 4), (), (1, 1, 1), (33,)]
    x = b.input(rng.choice(shapes))
    for _ in range(rng.randint(2, 12)):
        x = b.pick(recent=3)
        kind = rng.choice(kinds)
        y = b.node("Cast", [x], x.shape, kind, to=kind)
        if rng.random() < 0.5:
            y = b.node("Reshape", [y, b.ints(math.prod(y.shape))], (math.prod(y.shape),), kind)
        if rng.random() < 0.8:
            x = b.node("Cast", [y], y.shape, F32, to=F32)
        if rng.random() < 0.04:
            text = b.node("Cast", [x], x.shape, TensorProto.STRING, to=TensorProto.STRING)
            b.node("Cast", [text], x.shape, F32, to=F32)
        if x.shape and rng.random() < 0.3:
            b.node("Concat", [x, x], (2 * x.shape[0], *x.shape[1:]), axis=0)
    b.output(b.values[-1])
    return b.model(opset=21)


def functions(rng: random.Random) -> ModelProto:
    """Local functions that call each other, with attributes and unused results."""
    domain = "local"
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid(domain, 1)]
    made = []
    for level in range(rng.randint(1, 4)):
        nodes, last = [], "x"
        for at in range(rng.randint(1, 3)):
            nodes.append(helper.make_node(rng.choice(UNARY), [last], [f"t{at}"]))
            last = f"t{at}"
        for at in range(rng.randint(0, 2) if made else 0):
            inner = rng.choice(made).name
            nodes.append(helper.make_node(inner, [last], [f"c{at}", f"d{at}"], domain=domain))
            last = f"c{at}"
        nodes.append(helper.make_node("Add", [last, "x"], ["y"]))
        nodes.append(helper.make_node("Neg", [last], ["z"]))
        made.append(helper.make_function(domain, f"F{level}", ["x"], ["y", "z"], nodes, opsets))
    b = Builder(rng)
    b.input([8, 4])
    for _ in range(rng.randint(1, 5)):
        x = b.pick()
        results = [(x.shape, F32), (x.shape, F32) if rng.random() < 0.6 else None]
        b.nodes_out(rng.choice(made).name, [x], results, domain)
        elementwise(b, b.pick())
    b.output(b.values[-1])
    return b.model(made)


FAMILIES = {
    "cnn": cnn,
    "transformer": transformer,
    "control": control,
    "quantised": quantised,
    "training": training,
    "views": views,
    "odd_types": odd_types,
    "functions": functions,
}


def make(family: str, seed: int) -> ModelProto:
    """The checked model of a family and a seed."""
    model = FAMILIES[family](random.Random(f"{family}/{seed}"))
    onnx.checker.check_model(model, full_check=True)
    return model


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[1] not in FAMILIES:
        sys.exit(f"usage: random_models.py {{{','.join(FAMILIES)}}} SEED FILE")
    onnx.save(make(sys.argv[1], int(sys.argv[2])), sys.argv[3])
