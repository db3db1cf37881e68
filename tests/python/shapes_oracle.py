"""Compares the shapes that tenure infers with those of `onnx.shape_inference`.

All intermediate shapes and the shapes of outputs are taken out of each model first. Then both
tools infer, and every tensor is compared. `wrong` counts tensors for which a number, the rank or
the type differs; `missing` those of which onnx knows a number that tenure does not.

    cargo build --release -p tenure-tests --example dump_shapes
    python tests/python/shapes_oracle.py --shipped --nodes MODEL_OR_FOLDER...

Exit code 1 when something is wrong.
"""

import argparse
import collections
import json
import pathlib
import subprocess
import sys
import tempfile

import onnx
import onnx.backend.test
import onnx.shape_inference

ROOT = pathlib.Path(__file__).resolve().parents[2]
DTYPES = {
    "FLOAT": "float32",
    "DOUBLE": "float64",
    "COMPLEX64": "complex64",
    "COMPLEX128": "complex128",
    "UNDEFINED": "undefined",
}


def strip(graph):
    """Takes out every shape that inference can find, in subgraphs too."""
    del graph.value_info[:]
    for output in graph.output:
        if output.type.HasField("tensor_type"):
            output.type.tensor_type.ClearField("shape")
        else:
            output.ClearField("type")
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                strip(attribute.g)
            for sub in attribute.graphs:
                strip(sub)


def declared(graph, into, is_root=True):
    """Type and dimensions by name of all values that a graph lists."""
    for value in list(graph.value_info) + list(graph.output):
        if not value.type.HasField("tensor_type"):
            continue
        tensor = value.type.tensor_type
        number = onnx.TensorProto.DataType.Name(tensor.elem_type)
        dtype = DTYPES.get(number, number.lower())
        dims = None
        if tensor.HasField("shape"):
            dims = [
                d.dim_value
                if d.HasField("dim_value") and d.dim_value >= 0
                else (d.dim_param or None)
                for d in tensor.shape.dim
            ]
        into.setdefault((value.name, is_root), []).append((dtype, dims))
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                declared(attribute.g, into, False)


class Tally(collections.Counter):
    def line(self, name):
        return (
            f"{name:28} {self['models']:6} {self['tensors']:8} {self['onnx_ranked']:8} "
            f"{self['ours_ranked']:8} {self['onnx_static']:8} {self['ours_static']:8} "
            f"{self['missing']:8} {self['wrong']:6} {self['errors']:6}"
        )


HEADER = (
    f"{'set':28} {'models':>6} {'tensors':>8} {'onnx':>8} {'tenure':>8} {'onnx':>8} "
    f"{'tenure':>8} {'missing':>8} {'wrong':>6} {'errors':>6}\n"
    f"{'':28} {'':>6} {'':>8} {'rank':>8} {'rank':>8} {'static':>8} {'static':>8}"
)


def is_static(dims):
    return dims is not None and all(isinstance(d, int) for d in dims)


def compare(theirs, ours, tally, report):
    for key, entries in sorted(theirs.items()):
        mine = ours.get(key, [])
        if len(entries) != 1 or len(mine) != 1:
            continue  # the same name in several subgraphs
        (dtype, dims), (my_dtype, my_dims) = entries[0], mine[0]
        tally["tensors"] += 1
        tally["onnx_ranked"] += dims is not None
        tally["ours_ranked"] += my_dims is not None
        tally["onnx_static"] += is_static(dims)
        tally["ours_static"] += is_static(my_dims)
        if dtype != "undefined" and my_dtype not in (dtype, "undefined"):
            tally["wrong"] += 1
            report("wrong type", key[0], dtype, my_dtype)
        if dims is None:
            continue
        if my_dims is None:
            tally["missing"] += 1
            report("missing", key[0], dims, my_dims)
        elif len(dims) != len(my_dims):
            tally["wrong"] += 1
            report("wrong rank", key[0], dims, my_dims)
        else:
            pairs = list(zip(dims, my_dims))
            if any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in pairs):
                tally["wrong"] += 1
                report("wrong", key[0], dims, my_dims)
            elif any(isinstance(a, int) and not isinstance(b, int) for a, b in pairs):
                tally["missing"] += 1
                report("missing", key[0], dims, my_dims)


def dump(binary, paths):
    found = {}
    for start in range(0, len(paths), 500):
        part = [str(p) for p in paths[start : start + 500]]
        out = subprocess.run([binary, *part], check=True, capture_output=True, text=True)
        if out.stderr:
            sys.exit(f"unexpected output on standard error: {out.stderr[:2000]}")
        for line in out.stdout.splitlines():
            model = json.loads(line)
            found[model["path"]] = model
    return found


def run(name, models, binary, verbose):
    """`models` is a list of (label, ModelProto)."""
    tally = Tally()
    by_op = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        paths, theirs = [], []
        for i, (label, model) in enumerate(models):
            strip(model.graph)
            path = pathlib.Path(folder) / f"{i}.onnx"
            path.write_bytes(model.SerializeToString())
            into = {}
            try:
                declared(onnx.shape_inference.infer_shapes(model, data_prop=True).graph, into)
            except Exception as error:  # what onnx refuses is no reference
                if verbose:
                    print(f"  {label}: onnx: {str(error)[:100]}")
            paths.append(path)
            theirs.append(into)
        found = dump(binary, paths)
    for (label, _), path, into in zip(models, paths, theirs):
        model = found[str(path)]
        tally["models"] += 1
        if "error" in model:
            tally["errors"] += 1
            print(f"  {label}: {model['error']}")
            continue
        ours = {}
        for value, in_root, dtype, dims in model["values"]:
            ours.setdefault((value, in_root), []).append((dtype, dims))

        def report(kind, tensor, want, have):
            by_op[(kind, label)] += 1
            if verbose or kind.startswith("wrong"):
                print(f"  {kind}: {label} {tensor}: onnx {want}, tenure {have}")

        compare(into, ours, tally, report)
    print(tally.line(name))
    return tally


def node_cases():
    from onnx.backend.test.case.node import collect_testcases

    return [(case.name, case.model) for case in collect_testcases(None) if case.model]


def shipped():
    data = pathlib.Path(onnx.backend.test.__file__).parent / "data"
    for folder in sorted(p for p in data.iterdir() if p.is_dir() and p.name != "node"):
        models = sorted(folder.rglob("*.onnx"))
        if models:
            yield folder.name, [(str(m.relative_to(data)), load(m)) for m in models]


def load(path):
    return onnx.load(path, load_external_data=False)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dump", default=str(ROOT / "target/release/examples/dump_shapes"))
    parser.add_argument("--nodes", action="store_true", help="the node cases of the onnx package")
    parser.add_argument("--shipped", action="store_true", help="the models of the onnx package")
    parser.add_argument("-v", "--verbose", action="store_true", help="list what is missing")
    parser.add_argument("models", nargs="*", type=pathlib.Path)
    args = parser.parse_args()

    sets = []
    for path in args.models:
        files = sorted(path.glob("*.onnx")) if path.is_dir() else [path]
        sets.append((path.name, [(f.name, load(f)) for f in files]))
    if args.shipped:
        sets.extend(shipped())
    if args.nodes:
        sets.append(("node cases", node_cases()))
    print(HEADER)
    tallies = [run(name, models, args.dump, args.verbose) for name, models in sets]
    total = sum(tallies, Tally())
    print(Tally(total).line("all"))
    sys.exit(1 if total["wrong"] or total["errors"] else 0)


if __name__ == "__main__":
    main()
