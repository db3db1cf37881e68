"""Inputs made to break a reader or a planner, each in a file of its own.

`attacks(folder)` yields hand-made ones, `mutations(folder)` damaged copies of good models.
An attack says what the program may do with it: `REFUSE` is exit 2 and nothing else,
`EITHER` also allows a sound plan, `ACCEPT` is a valid model that must be planned.
"""

import gzip
import os
import random
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from onnx import AttributeProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

import random_models

ACCEPT, REFUSE, EITHER = "accept", "refuse", "either"
F32, I64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
HUGE = 1 << 62
SECRET = 1234567
"""The number in a file outside the model's folder that no output may show."""


@dataclass(frozen=True)
class Attack:
    """One bad input, the command that reads it and what may come of it."""

    name: str
    path: Path
    verdict: str
    command: str = "plan"


# --- building blocks ---------------------------------------------------------------------


def tensor(name: str, shape=(4,), kind: int = F32):
    return helper.make_tensor_value_info(name, kind, shape)


def model(nodes, inputs=None, outputs=None, constants=(), opset=18, **more) -> ModelProto:
    """A model from `x` to `y` of four floats each, unless told otherwise; never checked."""
    inputs = [tensor("x")] if inputs is None else inputs
    outputs = [tensor("y")] if outputs is None else outputs
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(constants))
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("local", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10, **more)


def node(kind: str, inputs, outputs, **attributes) -> NodeProto:
    return helper.make_node(kind, inputs, outputs, **attributes)


def ints(name: str, *numbers: int) -> TensorProto:
    return numpy_helper.from_array(np.array(numbers, np.int64), name)


def single(kind, arguments=("x",), constants=(), inputs=None, out=None, opset=18, **attributes):
    """A model of one operator whose output's shape has to be inferred."""
    outputs = [out or helper.make_tensor_value_info("y", F32, None)]
    return model([node(kind, arguments, ["y"], **attributes)], inputs, outputs, constants, opset)


def wire(number: int, payload: bytes | int) -> bytes:
    """One protobuf field, written by hand where the library would refuse to."""

    def varint(value: int) -> bytes:
        out = bytearray()
        while value >= 128:
            out.append(value & 127 | 128)
            value >>= 7
        return bytes([*out, value])

    if isinstance(payload, int):
        return varint(number << 3) + varint(payload)
    return varint(number << 3 | 2) + varint(len(payload)) + payload


# --- hand-made attacks -------------------------------------------------------------------

CATALOGUE: list[tuple[str, str, Callable[[], ModelProto | bytes]]] = []


def attack(verdict: str):
    """Adds a function that makes a model, or a file's bytes, to the catalogue."""

    def add(make):
        CATALOGUE.append((make.__name__, verdict, make))
        return make

    return add


@attack(REFUSE)
def cycle():
    return model([node("Add", ["x", "b"], ["a"]), node("Neg", ["a"], ["b"])], outputs=[tensor("b")])


@attack(REFUSE)
def cycle_of_one():
    return model([node("Add", ["x", "y"], ["y"])])


@attack(REFUSE)
def cycle_through_a_body():
    body = helper.make_graph([node("Neg", ["y"], ["z"])], "b", [], [tensor("z")])
    owner = node("If", ["c"], ["y"], then_branch=body, else_branch=body)
    return model([owner], [tensor("c", (), BOOL)])


@attack(REFUSE)
def dangling_input():
    return model([node("Relu", ["nowhere"], ["y"])])


@attack(REFUSE)
def dangling_output():
    return model([node("Relu", ["x"], ["z"])])


@attack(REFUSE)
def dangling_in_a_body():
    body = helper.make_graph([node("Neg", ["nowhere"], ["z"])], "b", [], [tensor("z")])
    owner = node("If", ["c"], ["y"], then_branch=body, else_branch=body)
    return model([owner], [tensor("c", (), BOOL)])


@attack(REFUSE)
def value_of_an_inner_scope_used_outside():
    body = helper.make_graph([node("Neg", ["x"], ["z"])], "b", [], [tensor("z")])
    owner = node("If", ["c"], ["w"], then_branch=body, else_branch=body)
    return model([owner, node("Neg", ["z"], ["y"])], [tensor("x"), tensor("c", (), BOOL)])


@attack(REFUSE)
def duplicate_value():
    return model([node("Relu", ["x"], ["y"]), node("Neg", ["x"], ["y"])])


@attack(REFUSE)
def duplicate_input():
    return model([node("Relu", ["x"], ["y"])], [tensor("x"), tensor("x")])


@attack(REFUSE)
def duplicate_initializer():
    weights = [ints("w", 1), ints("w", 2)]
    return model([node("Reshape", ["x", "w"], ["y"])], constants=weights)


@attack(REFUSE)
def value_is_also_an_initializer():
    return model([node("Relu", ["x"], ["y"])], constants=[ints("y", 1)])


@attack(REFUSE)
def output_twice_from_one_node():
    return model([node("Split", ["x"], ["y", "y"], num_outputs=2)])


@attack(EITHER)
def duplicate_node_names():
    return model([node("Relu", ["x"], ["t"], name="n"), node("Relu", ["t"], ["y"], name="n")])


@attack(EITHER)
def negative_dimension():
    return model([node("Relu", ["x"], ["y"])], [tensor("x", (4, -5))], [tensor("y", (4, -5))])


@attack(REFUSE)
def overflowing_dimensions():
    return model([node("Relu", ["x"], ["y"])], [tensor("x", (HUGE, HUGE))], [tensor("y", None)])


@attack(EITHER)
def largest_dimension():
    shape = ((1 << 63) - 1,)
    return model([node("Relu", ["x"], ["y"])], [tensor("x", shape)], [tensor("y", shape)])


@attack(EITHER)
def sum_of_sizes_overflows():
    shape = (1 << 60,)
    nodes = [node("Relu", ["x"], [f"t{i}"]) for i in range(40)]
    nodes.append(node("Sum", [f"t{i}" for i in range(40)], ["y"]))
    return model(nodes, [tensor("x", shape)], [tensor("y", shape)])


@attack(EITHER)
def million_dimensions():
    shape = [1] * 1_000_000
    return model([node("Relu", ["x"], ["y"])], [tensor("x", shape)], [tensor("y", shape)])


@attack(EITHER)
def million_large_dimensions():
    return model([node("Relu", ["x"], ["y"])], [tensor("x", [3] * 1_000_000)], [tensor("y", None)])


@attack(ACCEPT)
def zero_dimensions():
    return model([node("Relu", ["x"], ["y"])], [tensor("x", (0, 4))], [tensor("y", (0, 4))])


@attack(EITHER)
def zero_times_overflow():
    shape = (0, HUGE, HUGE)
    return model([node("Relu", ["x"], ["y"])], [tensor("x", shape)], [tensor("y", shape)])


@attack(EITHER)
def no_nodes():
    return model([], [tensor("x")], [tensor("x")])


@attack(EITHER)
def no_outputs():
    return model([node("Relu", ["x"], ["y"])], outputs=[])


@attack(EITHER)
def no_graph():
    return ModelProto(ir_version=10)


@attack(EITHER)
def no_opset():
    made = model([node("Relu", ["x"], ["y"])])
    del made.opset_import[:]
    return made


@attack(EITHER)
def opset_of_the_future():
    return model([node("Relu", ["x"], ["y"])], opset=999_999_999_999)


@attack(EITHER)
def opset_below_zero():
    return model([node("Relu", ["x"], ["y"])], opset=-1)


@attack(EITHER)
def unknown_operator():
    return model([node("Frobnicate", ["x"], ["y"])])


@attack(EITHER)
def unknown_element_type():
    return model([node("Relu", ["x"], ["y"])], [tensor("x", (4,), 9999)], [tensor("y", (4,), -7)])


@attack(EITHER)
def shapes_that_disagree():
    return model([node("Relu", ["x"], ["y"])], outputs=[tensor("y", (400,))])


@attack(EITHER)
def node_without_an_operator():
    return model([NodeProto(input=["x"], output=["y"])])


@attack(EITHER)
def names_of_every_kind():
    names = ["", " ", "\n", "\t\r", "a\0b", "é", "日本語", "🦀" * 50, "\u202e", "e\u0301", "../x"]
    nodes, last = [], "x"
    for name in names[1:]:
        nodes.append(node("Relu", [last], [name], name=name))
        last = name
    return model([*nodes, node("Relu", [last], ["y"])])


@attack(ACCEPT)
def names_in_other_scripts():
    names = [
        "é",
        "e\u0301",
        "日本語",
        "🦀",
        "\u202eabc",
        'quote"',
        "back\\slash",
        "a,b",
        "</script>",
    ]
    nodes, last = [], "x"
    for name in names:
        nodes.append(node("Relu", [last], [name], name=name))
        last = name
    return model([*nodes, node("Relu", [last], ["y"])])


@attack(REFUSE)
def terminal_codes_in_a_dangling_name():
    return model([node("Relu", ["\x1b[2J\x1b]0;owned\x07\nerror: fake"], ["y"])])


@attack(EITHER)
def name_of_ten_megabytes():
    name = "n" * 10_000_000
    return model([node("Relu", ["x"], [name], name=name), node("Relu", [name], ["y"])])


@attack(REFUSE)
def dangling_name_of_ten_megabytes():
    return model([node("Relu", ["n" * 10_000_000], ["y"])])


@attack(EITHER)
def names_that_are_not_utf8():
    good = model([node("Relu", ["x"], ["abcdefgh"]), node("Relu", ["abcdefgh"], ["y"])])
    return good.SerializeToString().replace(b"abcdefgh", b"ab\xff\xfe\xc0\x80gh")


@attack(EITHER)
def names_made_equal_by_replacement():
    nodes = [node("Relu", ["x"], ["abcdefgh"]), node("Relu", ["x"], ["abcdefgi"])]
    nodes.append(node("Add", ["abcdefgh", "abcdefgi"], ["y"]))
    data = model(nodes).SerializeToString()
    return data.replace(b"abcdefgh", b"abcdefg\xff").replace(b"abcdefgi", b"abcdefg\xfe")


@attack(EITHER)
def huge_attribute_list():
    return model([node("Relu", ["x"], ["y"], extra=[1] * 5_000_000)])


@attack(EITHER)
def many_attributes():
    made = model([node("Relu", ["x"], ["y"])])
    for at in range(200_000):
        made.graph.node[0].attribute.append(helper.make_attribute(f"a{at}", at))
    return made


@attack(EITHER)
def many_inputs():
    return model([node("Sum", ["x"] * 1_000_000, ["y"])])


@attack(EITHER)
def many_outputs():
    outputs = [f"o{at}" for at in range(200_000)]
    made = node("Split", ["x"], outputs, num_outputs=200_000)
    return model([made], outputs=[tensor("o0", None)])


@attack(EITHER)
def same_output_listed_many_times():
    return model([node("Relu", ["x"], ["y"])], outputs=[tensor("y")] * 10_000)


def nested_ifs(depth: int) -> bytes:
    """A model of `depth` If nodes inside each other, written from the inside out."""
    result = wire(12, wire(1, b"t"))
    graph = wire(1, wire(1, b"x") + wire(2, b"t") + wire(4, b"Neg")) + result
    kind = wire(20, AttributeProto.GRAPH)
    for _ in range(depth):
        # Both branches would double the size at each level, so the other one is small.
        small = wire(1, wire(1, b"x") + wire(2, b"t") + wire(4, b"Neg")) + result
        branches = wire(5, wire(1, b"then_branch") + wire(6, graph) + kind)
        branches += wire(5, wire(1, b"else_branch") + wire(6, small) + kind)
        graph = wire(1, wire(1, b"c") + wire(2, b"t") + wire(4, b"If") + branches) + result
    inputs = b"".join(
        wire(11, info.SerializeToString()) for info in (tensor("x"), tensor("c", (), BOOL))
    )
    return wire(1, 10) + wire(7, graph + inputs) + wire(8, wire(2, 18))


@attack(EITHER)
def nested_subgraphs_50():
    return nested_ifs(50)


@attack(EITHER)
def nested_subgraphs_1000():
    return nested_ifs(1000)


@attack(REFUSE)
def nested_subgraphs_10000():
    return nested_ifs(10_000)


@attack(EITHER)
def nested_types():
    kind = helper.make_tensor_type_proto(F32, [4]).SerializeToString()
    for _ in range(20_000):
        kind = wire(4, wire(1, kind))
    graph = wire(11, wire(1, b"x") + wire(2, kind)) + wire(12, wire(1, b"x"))
    return wire(1, 10) + wire(7, graph) + wire(8, wire(2, 18))


def function(name: str, calls: list[str], nodes=()):
    """A local function that calls others one after the other."""
    inner, last = list(nodes), "a"
    for at, call in enumerate(calls):
        inner.append(helper.make_node(call, [last], [f"v{at}"], domain="local"))
        last = f"v{at}"
    inner.append(node("Neg", [last], ["b"]))
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("local", 1)]
    return helper.make_function("local", name, ["a"], ["b"], inner, opsets)


def call(name: str, functions) -> ModelProto:
    made = helper.make_node(name, ["x"], ["y"], domain="local")
    return model([made], functions=functions)


@attack(REFUSE)
def function_calls_itself():
    return call("F", [function("F", ["F"])])


@attack(REFUSE)
def functions_call_each_other():
    return call("F", [function("F", ["G"]), function("G", ["H"]), function("H", ["F"])])


@attack(REFUSE)
def function_calls_itself_in_a_body():
    body = helper.make_graph(
        [helper.make_node("F", ["a"], ["t"], domain="local")], "b", [], [tensor("t", None)]
    )
    owner = node("If", ["c"], ["d"], then_branch=body, else_branch=body)
    condition = node("Constant", [], ["c"], value=numpy_helper.from_array(np.array(True)))
    return call("F", [function("F", [], [condition, owner])])


@attack(EITHER)
def functions_chained_deep():
    depth = 10_000
    made = [function(f"F{i}", [f"F{i + 1}"]) for i in range(depth)]
    return call("F0", [*made, function(f"F{depth}", [])])


@attack(REFUSE)
def functions_that_double():
    made = [function(f"F{i}", [f"F{i + 1}"] * 2) for i in range(64)]
    return call("F0", [*made, function("F64", [])])


@attack(REFUSE)
def functions_that_multiply():
    made = [function(f"F{i}", [f"F{i + 1}"] * 1000) for i in range(8)]
    return call("F0", [*made, function("F8", [])])


@attack(EITHER)
def function_defined_twice():
    return call("F", [function("F", []), function("F", [])])


@attack(EITHER)
def function_of_too_few_inputs():
    made = helper.make_node("F", [], ["y"], domain="local")
    return model([made], functions=[function("F", [])])


@attack(EITHER)
def function_of_too_many_results():
    made = helper.make_node("F", ["x"], ["y", "z", "w"], domain="local")
    return model([made], functions=[function("F", [])])


def external(location: str) -> ModelProto:
    """A shape that only a file outside the model's folder would tell."""
    shape = TensorProto(name="s", data_type=I64, dims=[1], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", location), ("offset", "0"), ("length", "8")):
        shape.external_data.add(key=key, value=value)
    return single("Expand", ("x", "s"), [shape], [tensor("x", (1,))])


@attack(EITHER)
def external_data_above_the_folder():
    return external("../secret.bin")


@attack(EITHER)
def external_data_behind_a_detour():
    return external("a/../../secret.bin")


@attack(EITHER)
def external_data_at_a_device():
    return external("/dev/zero")


@attack(EITHER)
def external_data_with_wild_numbers():
    made = external("x.bin")
    made.graph.initializer[0].external_data[1].value = "-1"
    made.graph.initializer[0].external_data[2].value = "99999999999999999999999"
    return made


@attack(EITHER)
def external_data_without_a_location():
    made = external("x.bin")
    del made.graph.initializer[0].external_data[0]
    return made


def raw(dims, data: bytes, kind=I64) -> TensorProto:
    return TensorProto(name="w", data_type=kind, dims=dims, raw_data=data)


@attack(EITHER)
def initializer_too_short():
    return single("Reshape", ("x", "w"), [raw([100], b"\1\0\0")])


@attack(EITHER)
def initializer_too_long():
    return single("Reshape", ("x", "w"), [raw([1], b"\4" * 800)])


@attack(EITHER)
def initializer_without_data():
    return single("Reshape", ("x", "w"), [raw([1 << 40], b"")])


@attack(EITHER)
def initializer_of_overflowing_shape():
    return single("Add", ("x", "w"), [raw([HUGE, HUGE], b"", F32)])


@attack(EITHER)
def initializer_of_negative_shape():
    return single("Add", ("x", "w"), [raw([-4], b"", F32)])


@attack(EITHER)
def initializer_of_unknown_type():
    return single("Add", ("x", "w"), [raw([4], b"1234", 4242)])


@attack(EITHER)
def sparse_initializer_out_of_range():
    made = single("Add", ("x", "w"))
    sparse = made.graph.sparse_initializer.add(dims=[-4, HUGE])
    sparse.values.CopyFrom(raw([2], b"12345678", F32))
    sparse.indices.CopyFrom(raw([2], struct.pack("<qq", -9, HUGE)))
    return made


# Operators with arguments that nobody sane writes; onnx allows to say them, so a plan may
# be possible, but none may crash, hang or allocate what it describes.
WILD = {
    "conv_kernel_of_text": lambda: single("Conv", ("x", "x"), kernel_shape="3x3"),
    "conv_stride_zero": lambda: single(
        "MaxPool", inputs=[tensor("x", (1, 1, 8, 8))], kernel_shape=[2, 2], strides=[0, 0]
    ),
    "conv_pads_smallest": lambda: single(
        "MaxPool", inputs=[tensor("x", (1, 1, 8, 8))], kernel_shape=[2, 2], pads=[-(1 << 63)] * 4
    ),
    "conv_dilation_largest": lambda: single(
        "MaxPool",
        inputs=[tensor("x", (1, 1, 8, 8))],
        kernel_shape=[(1 << 63) - 1] * 2,
        dilations=[(1 << 63) - 1] * 2,
    ),
    "conv_group_zero": lambda: single(
        "Conv", ("x", "w"), inputs=[tensor("x", (1, 2, 8, 8)), tensor("w", (2, 2, 1, 1))], group=0
    ),
    "conv_of_rank_zero": lambda: single("Conv", ("x", "x"), inputs=[tensor("x", ())]),
    "conv_transpose_huge": lambda: single(
        "ConvTranspose",
        ("x", "w"),
        inputs=[tensor("x", (1, 1, 8, 8)), tensor("w", (1, 1, 2, 2))],
        strides=[HUGE, HUGE],
        output_padding=[HUGE, -HUGE],
    ),
    "transpose_out_of_range": lambda: single("Transpose", perm=[5]),
    "transpose_twice_the_same": lambda: single(
        "Transpose", inputs=[tensor("x", (2, 3))], perm=[0, 0]
    ),
    "transpose_negative": lambda: single("Transpose", perm=[-(1 << 63)]),
    "concat_axis_far": lambda: single("Concat", ("x", "x"), axis=1 << 40),
    "concat_of_nothing": lambda: single("Concat", (), axis=0),
    "concat_overflows": lambda: single("Concat", ("x",) * 4, inputs=[tensor("x", (HUGE,))], axis=0),
    "split_negative": lambda: single("Split", ("x", "s"), [ints("s", -4, 8)]),
    "split_wrong_sum": lambda: single("Split", ("x", "s"), [ints("s", 400)]),
    "split_into_zero": lambda: single("Split", num_outputs=0),
    "reshape_two_unknowns": lambda: single("Reshape", ("x", "s"), [ints("s", -1, -1)]),
    "reshape_negative": lambda: single("Reshape", ("x", "s"), [ints("s", -7, 4)]),
    "reshape_huge": lambda: single("Reshape", ("x", "s"), [ints("s", HUGE, HUGE)]),
    "reshape_wrong_count": lambda: single("Reshape", ("x", "s"), [ints("s", 5)]),
    "reshape_unknown_with_zero": lambda: single("Reshape", ("x", "s"), [ints("s", 0, -1, 0)]),
    "squeeze_far": lambda: single("Squeeze", ("x", "s"), [ints("s", 99)]),
    "unsqueeze_far": lambda: single("Unsqueeze", ("x", "s"), [ints("s", HUGE, -HUGE)]),
    "unsqueeze_twice": lambda: single("Unsqueeze", ("x", "s"), [ints("s", 0, 0)]),
    "flatten_far": lambda: single("Flatten", axis=-(1 << 63)),
    "slice_step_zero": lambda: single(
        "Slice", ("x", "a", "b", "c", "d"), [ints("a", 0), ints("b", 4), ints("c", 0), ints("d", 0)]
    ),
    "slice_smallest_step": lambda: single(
        "Slice",
        ("x", "a", "b", "c", "d"),
        [ints("a", (1 << 63) - 1), ints("b", -(1 << 63)), ints("c", 0), ints("d", -(1 << 63))],
    ),
    "slice_attributes_short": lambda: single("Slice", starts=[0, 0], ends=[1], opset=9),
    "expand_huge": lambda: single(
        "Expand", ("x", "s"), [ints("s", HUGE, HUGE)], [tensor("x", (1,))]
    ),
    "expand_negative": lambda: single("Expand", ("x", "s"), [ints("s", -3)]),
    "tile_huge": lambda: single("Tile", ("x", "s"), [ints("s", HUGE)]),
    "tile_negative": lambda: single("Tile", ("x", "s"), [ints("s", -1)]),
    "pad_huge": lambda: single("Pad", ("x", "s"), [ints("s", HUGE, HUGE)]),
    "pad_to_below_zero": lambda: single("Pad", ("x", "s"), [ints("s", -4, -4)]),
    "constant_of_shape_huge": lambda: single("ConstantOfShape", ("s",), [ints("s", 1 << 40)]),
    "constant_of_shape_overflows": lambda: single(
        "ConstantOfShape", ("s",), [ints("s", *[HUGE] * 3)]
    ),
    "range_step_zero": lambda: single(
        "Range", ("a", "b", "c"), [raw_scalar("a", 0), raw_scalar("b", 9), raw_scalar("c", 0)]
    ),
    "range_huge": lambda: single(
        "Range",
        ("a", "b", "c"),
        [raw_scalar("a", -(1 << 63)), raw_scalar("b", (1 << 63) - 1), raw_scalar("c", 1)],
    ),
    "constants_grow_by_doubling": lambda: doubling(60),
    "shape_arithmetic_overflows": lambda: shape_arithmetic(),
    "shape_divides_by_zero": lambda: shape_division(),
    "onehot_negative": lambda: single(
        "OneHot", ("x", "d", "v"), [raw_scalar("d", -5), ints("v", 0, 1)]
    ),
    "gather_far": lambda: single("Gather", ("x", "i"), [ints("i", HUGE)], axis=77),
    "gather_shape_far": lambda: gather_shape(99),
    "topk_huge": lambda: single("TopK", ("x", "k"), [ints("k", HUGE)]),
    "resize_by_nan": lambda: resize(float("nan")),
    "resize_by_infinity": lambda: resize(float("inf")),
    "resize_by_minus_one": lambda: resize(-1.0),
    "einsum_garbage": lambda: single("Einsum", ("x",), equation="...->->,,€z"),
    "einsum_empty": lambda: single("Einsum", ("x",), equation=""),
    "matmul_of_scalars": lambda: single("MatMul", ("x", "x"), inputs=[tensor("x", ())]),
    "broadcast_mismatch": lambda: single(
        "Add", ("x", "z"), inputs=[tensor("x"), tensor("z", (5,))]
    ),
    "depth_to_space_zero": lambda: single(
        "DepthToSpace", inputs=[tensor("x", (1, 4, 2, 2))], blocksize=0
    ),
    "space_to_depth_negative": lambda: single(
        "SpaceToDepth", inputs=[tensor("x", (1, 4, 2, 2))], blocksize=-2
    ),
    "lstm_hidden_huge": lambda: single(
        "LSTM", ("x", "x", "x"), inputs=[tensor("x", (2, 2, 2))], hidden_size=HUGE
    ),
    "eye_of_text": lambda: single("EyeLike", dtype=-1, k=HUGE),
    "cast_to_nothing": lambda: single("Cast", to=-1),
    "random_huge": lambda: single("RandomNormal", (), shape=[HUGE, HUGE]),
    "constant_empty": lambda: single("Constant", ()),
    "constant_of_two_values": lambda: single("Constant", (), value_int=1, value_float=2.0),
    "window_huge": lambda: single("HannWindow", ("n",), [raw_scalar("n", HUGE)]),
    "reduce_axis_far": lambda: single("ReduceSum", ("x", "a"), [ints("a", 1 << 50)]),
    "if_without_branches": lambda: single("If", ("c",), inputs=[tensor("c", (), BOOL)]),
    "if_with_uneven_branches": lambda: uneven_if(),
    "loop_without_a_body": lambda: single("Loop", ("", "", "x")),
    "loop_with_a_poor_body": lambda: single("Loop", ("", "", "x"), body=poor_body()),
    "loop_trips_huge": lambda: loop_trips(HUGE),
    "loop_trips_negative": lambda: loop_trips(-HUGE),
    "scan_inputs_huge": lambda: single("Scan", ("x",), body=poor_body(), num_scan_inputs=HUGE),
    "scan_inputs_negative": lambda: single("Scan", ("x",), body=poor_body(), num_scan_inputs=-1),
    "scan_axis_far": lambda: single(
        "Scan", ("x",), body=poor_body(), num_scan_inputs=1, scan_input_axes=[99]
    ),
    "sequence_at_far": lambda: sequence_far(),
}


def raw_scalar(name: str, number: int) -> TensorProto:
    return numpy_helper.from_array(np.array(number, np.int64), name)


def doubling(steps: int) -> ModelProto:
    """Constants that fold into more memory than there is."""
    nodes = [node("Concat", [f"t{i}", f"t{i}"], [f"t{i + 1}"], axis=0) for i in range(steps)]
    nodes.append(node("Shape", [f"t{steps}"], ["y"]))
    return model(nodes, [], [tensor("y", (1,), I64)], [ints("t0", *range(64))])


def shape_arithmetic() -> ModelProto:
    nodes = [node("Shape", ["x"], ["t0"])]
    nodes += [node("Mul", [f"t{i}", f"t{i}"], [f"t{i + 1}"]) for i in range(8)]
    return model([*nodes, node("Expand", ["x", "t8"], ["y"])], outputs=[tensor("y", None)])


def shape_division() -> ModelProto:
    nodes = [node("Shape", ["x"], ["t"]), node("Div", ["t", "z"], ["u"])]
    nodes += [node("Mod", ["t", "z"], ["v"]), node("Add", ["u", "v"], ["w"])]
    nodes += [node("Reshape", ["x", "w"], ["y"])]
    return model(nodes, outputs=[tensor("y", None)], constants=[ints("z", 0)])


def gather_shape(index: int) -> ModelProto:
    nodes = [node("Shape", ["x"], ["t"]), node("Gather", ["t", "i"], ["u"])]
    nodes += [node("Reshape", ["x", "u"], ["y"])]
    return model(nodes, outputs=[tensor("y", None)], constants=[ints("i", index)])


def resize(scale: float) -> ModelProto:
    scales = numpy_helper.from_array(np.array([scale] * 4, np.float32), "s")
    return single("Resize", ("x", "", "s"), [scales], [tensor("x", (1, 1, 4, 4))])


def poor_body():
    """A body without the inputs and outputs that its owner needs."""
    return helper.make_graph([node("Neg", ["q"], ["z"])], "b", [tensor("q")], [tensor("z")])


def uneven_if() -> ModelProto:
    outputs = [tensor("z"), tensor("z2")]
    two = [node("Neg", ["x"], ["z"]), node("Neg", ["x"], ["z2"])]
    left = helper.make_graph(two, "l", [], outputs)
    right = helper.make_graph(two[:1], "r", [], outputs[:1])
    owner = node("If", ["c"], ["y", "y2"], then_branch=left, else_branch=right)
    return model([owner], [tensor("x"), tensor("c", (), BOOL)])


def loop_trips(count: int) -> ModelProto:
    inputs = [tensor("i", (), I64), tensor("c", (), BOOL), tensor("s")]
    body = helper.make_graph(
        [node("Identity", ["c"], ["d"]), node("Neg", ["s"], ["t"]), node("Neg", ["s"], ["u"])],
        "b",
        inputs,
        [tensor("d", (), BOOL), tensor("t"), tensor("u")],
    )
    owner = node("Loop", ["n", "", "x"], ["y", "all"], body=body)
    outputs = [tensor("y"), tensor("all", None)]
    return model([owner], outputs=outputs, constants=[raw_scalar("n", count)])


def sequence_far() -> ModelProto:
    nodes = [node("SequenceConstruct", ["x"], ["s"]), node("SequenceAt", ["s", "i"], ["y"])]
    return model(nodes, outputs=[tensor("y", None)], constants=[raw_scalar("i", HUGE)])


def attacks(folder: Path) -> Iterator[Attack]:
    """All hand-made attacks, written below `folder`."""
    inner = folder / "models"
    inner.mkdir()
    (folder / "secret.bin").write_bytes(struct.pack("<q", SECRET))

    wild = [(f"wild_{name}", EITHER, make) for name, make in WILD.items()]
    for name, verdict, make in [*CATALOGUE, *wild]:
        made = make()
        path = inner / f"{name}.onnx"
        path.write_bytes(made if isinstance(made, bytes) else made.SerializeToString())
        yield Attack(name, path, verdict)

    path = inner / "external_data_absolute.onnx"
    path.write_bytes(external(str(folder / "secret.bin")).SerializeToString())
    yield Attack(path.stem, path, EITHER)
    os.symlink(folder / "secret.bin", inner / "link.bin")
    path = inner / "external_data_through_a_link.onnx"
    path.write_bytes(external("link.bin").SerializeToString())
    yield Attack(path.stem, path, EITHER)

    yield from other_files(inner)


def other_files(folder: Path) -> Iterator[Attack]:
    """Files that are no model at all, and paths that are no file."""
    picture = bytes.fromhex("ffd8ffe000104a46494600010100000100010000ffdb004300") + bytes(
        range(256)
    )
    contents = {
        "empty.onnx": b"",
        "one_byte.onnx": b"\x08",
        "zeros.onnx": bytes(1 << 20),
        "text.onnx": b"this is not a model\n" * 100,
        "picture.jpg": picture * 20,
        "endless_varint.onnx": b"\xff" * 4096,
        "length_of_everything.onnx": b"\x3a\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
        "group_start_tags.onnx": b"\x0b" * 100_000,
        "flatbuffer_header_alone.tflite": b"\x18\0\0\0TFL3",
        "flatbuffer_of_wild_offsets.tflite": b"\xff\xff\xff\x7fTFL3" + b"\xff" * 4096,
        "json_open_brackets.json": b"[" * 5_000_000,
        "json_open_objects.json": b'{"a":' * 1_000_000,
        "json_deep_in_a_graph.json": b'{"nodes": ' + b"[" * 1_000_000 + b"]" * 1_000_000 + b"}",
        "json_huge_number.json": b'{"version": 1' + b"0" * 1_000_000 + b"}",
        "json_of_nothing.json": b"{}",
        "json_null.json": b"null",
        "text_dump_open.txt": b"graph {\n" * 100_000,
    }
    for name, content in contents.items():
        path = folder / name
        path.write_bytes(content)
        yield Attack(name, path, REFUSE)

    yield Attack("a folder", folder, REFUSE)
    yield Attack("a missing file", folder / "missing.onnx", REFUSE)
    yield Attack("an endless device", Path("/dev/zero"), REFUSE)
    yield Attack("an empty device", Path("/dev/null"), REFUSE)
    fifo = folder / "fifo.onnx"
    os.mkfifo(fifo)
    yield Attack("a pipe without a writer", fifo, REFUSE)
    loop = folder / "loop.onnx"
    loop.symlink_to(loop)
    yield Attack("a link to itself", loop, REFUSE)
    yield from tables(folder)


def tables(folder: Path) -> Iterator[Attack]:
    """Bad allocation CSVs for `tenure solve`."""
    largest = (1 << 64) - 1
    contents = {
        "no_rows_no_header.csv": b"",
        "no_header.csv": b"0,0,1,4\n",
        "missing_column.csv": b"id,lower,size\n0,0,4\n",
        "short_row.csv": b"id,lower,upper,size\n0,0,1\n",
        "negative.csv": b"id,lower,upper,size\n0,-3,1,4\n",
        "backwards.csv": b"id,lower,upper,size\n0,5,5,4\n",
        "twice.csv": b"id,lower,upper,size\n0,0,1,4\n0,0,1,4\n",
        "overflow.csv": b"id,lower,upper,size\n0,0,1,99999999999999999999999\n",
        "sum_overflows.csv": b"id,lower,upper,size\n"
        + f"0,0,2,{largest}\n1,0,2,{largest}\n".encode(),
        "alignment_zero.csv": b"id,lower,upper,size,alignment\n0,0,1,4,0\n",
        "alignment_three.csv": b"id,lower,upper,size,alignment\n0,0,1,4,3\n",
        "gap_outside.csv": b"id,lower,upper,size,gaps\n0,2,5,4,0-9\n",
        "gap_garbage.csv": b"id,lower,upper,size,gaps\n0,2,5,4,3-\n",
        "not_utf8.csv": b"id,lower,upper,size\n\xff\xfe,0,1,4\n\xff\xfe,0,1,4\n",
        "nul_bytes.csv": b"\0" * 100_000,
        "open_quote.csv": b'id,lower,upper,size\n"0,0,1,4\n' + b"1,0,1,4\n" * 100_000,
    }
    either = {"sum_overflows.csv", "alignment_three.csv"}
    for name, content in contents.items():
        path = folder / name
        path.write_bytes(content)
        yield Attack(name, path, EITHER if name in either else REFUSE, "solve")
    bomb = folder / "bomb.csv.gz"
    with gzip.open(bomb, "wb", compresslevel=9) as file:
        for _ in range(6 * 1024):
            file.write(bytes(1 << 20))
    yield Attack("six gigabytes of nothing in a small file", bomb, REFUSE, "solve")
    torn = folder / "torn.csv.gz"
    torn.write_bytes(gzip.compress(b"id,lower,upper,size\n0,0,1,4\n" * 1000)[:40])
    yield Attack("a torn gzip file", torn, REFUSE, "solve")


# --- damaged copies ----------------------------------------------------------------------


def mutations(folder: Path, count: int) -> Iterator[Attack]:
    """Good models with bits flipped, ends cut off and parts moved about."""
    rng = random.Random("mutations")
    originals = [
        random_models.make(family, seed).SerializeToString()
        for family in random_models.FAMILIES
        for seed in range(3)
    ]
    for at in range(count):
        data = bytearray(rng.choice(originals))
        kind = rng.choice(["cut", "flip", "flip", "flips", "move", "insert", "erase"])
        match kind:
            case "cut":
                del data[rng.randrange(1, len(data)) :]
            case "flip":
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            case "flips":
                for _ in range(rng.randint(2, 50)):
                    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            case "move":
                start, size, to = (rng.randrange(len(data)) for _ in range(3))
                data[to:to] = data[start : start + size % 200]
            case "insert":
                to = rng.randrange(len(data))
                data[to:to] = rng.randbytes(rng.randint(1, 12))
            case "erase":
                start = rng.randrange(len(data))
                del data[start : start + rng.randint(1, 40)]
        path = folder / f"mutation_{at}_{kind}.onnx"
        path.write_bytes(data)
        yield Attack(path.stem, path, EITHER)


def plans(folder: Path, good: str) -> Iterator[tuple[str, Path]]:
    """Damaged copies of a saved plan, for `tenure check`."""
    rng = random.Random("plans")
    for at in range(100):
        data = bytearray(good.encode())
        if at % 3 == 0:
            del data[rng.randrange(len(data)) :]
        else:
            for _ in range(rng.randint(1, 6)):
                data[rng.randrange(len(data))] = rng.choice(b'0123456789-"{}[],:ae')
        path = folder / f"plan_{at}.json"
        path.write_bytes(data)
        yield path.stem, path
