"""How the planner's time and memory grow: prints a table, asserts nothing.

    python big.py                        # 10 000 nodes, then up to 1 000 000 values
    python big.py --values 100000 --width 1000

Goals to compare with: 10 000 nodes in a second of CPU time; a million values in near-linear
time and at most 1 KiB of memory a value.
"""

import argparse
import random
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from tool import Result, peak, tenure

F32, I64 = TensorProto.FLOAT, TensorProto.INT64


def model(nodes, inputs, outputs, constants) -> ModelProto:
    infos = [helper.make_tensor_value_info(name, F32, shape) for name, shape in inputs]
    results = [helper.make_tensor_value_info(name, F32, shape) for name, shape in outputs]
    graph = helper.make_graph(nodes, "big", infos, results, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def weight(name: str, *shape: int) -> TensorProto:
    """A weight whose bytes are in a file that does not exist: planning needs none."""
    tensor = TensorProto(name=name, data_type=F32, dims=shape)
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="absent.bin")
    return tensor


def transformer(least: int) -> ModelProto:
    """Attention blocks as exporters write them, until there are `least` nodes."""
    batch, length, heads, depth = 1, 128, 8, 32
    width = heads * depth
    nodes: list[NodeProto] = []
    constants = [
        numpy_helper.from_array(np.array([batch, length, heads, depth], np.int64), "split"),
        numpy_helper.from_array(np.array([batch, length, width], np.int64), "join"),
        numpy_helper.from_array(np.float32(0.5), "half"),
        weight("gain", width),
        weight("square", width, width),
        weight("up", width, 4 * width),
        weight("down", 4 * width, width),
    ]

    def add(kind: str, *inputs: str, **attributes) -> str:
        name = f"{kind}_{len(nodes)}"
        nodes.append(helper.make_node(kind, inputs, [name], name=name, **attributes))
        return name

    x = "x"
    while len(nodes) < least:
        y = add("LayerNormalization", x, "gain", "gain")
        q, k, v = (
            add("Transpose", add("Reshape", add("MatMul", y, "square"), "split"), perm=order)
            for order in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
        )
        score = add("Softmax", add("Mul", add("MatMul", q, k), "half"))
        y = add("Transpose", add("MatMul", score, v), perm=[0, 2, 1, 3])
        x = add("Add", x, add("MatMul", add("Reshape", y, "join"), "square"))
        y = add("MatMul", add("LayerNormalization", x, "gain", "gain"), "up")
        y = add("Mul", add("Mul", y, "half"), add("Erf", y))
        x = add("Add", x, add("MatMul", y, "down"))
    shape = (batch, length, width)
    return model(nodes, [("x", shape)], [(x, shape)], constants)


def layers(values: int, width: int) -> ModelProto:
    """Small operators over a pool of `width` live values, `values` results in all."""
    rng = random.Random(f"{values}/{width}")
    shapes = [(64,), (16, 16), (8, 32, 4), (1024,), (3, 5)]
    inputs = [(f"x{at}", shapes[at % len(shapes)]) for at in range(width)]
    pool = list(inputs)
    by_shape = {shape: [at for at, (_, s) in enumerate(pool) if s == shape] for shape in shapes}
    constants = [weight("square", 16, 16), weight("bias", 1)]
    constants += [
        numpy_helper.from_array(np.array(shape, np.int64), f"to{at}")
        for at, shape in enumerate(shapes)
    ]
    nodes: list[NodeProto] = []
    made = 0
    unary = ["Relu", "Sigmoid", "Tanh", "Identity", "Neg"]
    while made < values:
        at = rng.randrange(width)
        name, shape = pool[at]
        out = f"v{made}"
        draw = rng.random()
        if draw < 0.35:
            nodes.append(helper.make_node(rng.choice(unary), [name], [out]))
        elif draw < 0.65:
            other = pool[rng.choice(by_shape[shape])][0]
            nodes.append(helper.make_node(rng.choice(["Add", "Mul"]), [name, other], [out]))
        elif draw < 0.75 and len(shape) == 2 and shape[1] == 16:
            nodes.append(helper.make_node("MatMul", [name, "square"], [out]))
        elif draw < 0.85:
            # Two views in a row: flat, and back.
            nodes.append(helper.make_node("Flatten", [name], [f"v{made}"]))
            made += 1
            out = f"v{made}"
            to = f"to{shapes.index(shape)}"
            nodes.append(helper.make_node("Reshape", [f"v{made - 1}", to], [out]))
        elif draw < 0.9:
            nodes.append(helper.make_node("Softmax", [name], [out], axis=-1))
        else:
            nodes.append(helper.make_node("Add", [name, "bias"], [out]))
        made += 1
        # The new value takes the place of one of its shape, so the pool keeps its mix.
        pool[rng.choice(by_shape[shape])] = (out, shape)
    return model(nodes, inputs, pool[:16], constants)


def row(label: str, made: ModelProto, folder: Path) -> str:
    path = folder / "big.onnx"
    onnx.save(made, path)
    limits = {"seconds": 600, "address_space": 16 << 30}
    result: Result = tenure("plan", path, "--json", **limits)
    count = sum(len(n.output) for n in made.graph.node) + len(made.graph.input)
    if result.code != 0:
        return f"{label:34} exit {result.code}: {result.err.strip()[:200]}"
    summary = result.json()
    arena, times = summary["arena"], summary["time_ms"]
    # With the summary for people a plan is written out in names.
    most, named = peak("plan", path, "--json"), peak("plan", path)
    phases = " ".join(f"{name} {time:.0f}" for name, time in times.items())
    return (
        f"{label:34} {path.stat().st_size / 1e6:7.1f} {result.cpu:7.2f} {result.wall:7.2f} "
        f"{most / 2**20:8.0f} {result.cpu / count * 1e6:8.2f} {most / count:8.0f} "
        f"{named / count:8.0f} "
        f"{arena['size'] / arena['lower_bound']:7.4f}  {phases}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="time and memory of tenure plan")
    parser.add_argument("--values", type=int, action="append")
    parser.add_argument("--width", type=int, action="append")
    arguments = parser.parse_args()
    print(
        f"{'model':34} {'MB':>7} {'CPU s':>7} {'wall s':>7} {'peak MiB':>8} {'us/value':>8} "
        f"{'B/value':>8} {'shown':>8} {'/bound':>7}  phases in ms"
    )
    with tempfile.TemporaryDirectory() as folder:
        if not arguments.values:
            label = "transformer, 10 000 nodes"
            print(row(label, transformer(10_000), Path(folder)), flush=True)
        for values in arguments.values or [10_000, 100_000, 300_000, 1_000_000]:
            for width in arguments.width or [32, 1000]:
                label = f"layers, {values} values, width {width}"
                print(row(label, layers(values, width), Path(folder)), flush=True)


if __name__ == "__main__":
    main()
