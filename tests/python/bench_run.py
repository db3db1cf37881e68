"""Latency and memory of `tenure run` beside ONNX Runtime, rten and tract, each on one thread.

    cargo xtask bench-run [--rounds N] [--runs N] [NAME…]

Each engine is a process of its own, and they take turns: round after round, so that what else the
machine does hits all of them. The figure of an engine is the shortest of all its runs, and its
memory the most that a process of it had. Models without weights get random ones from a seed, the
same for all. What an engine answers is compared with ONNX Runtime's answer.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnx_cases import safe
from tool import BINARY, SHARED

ENGINES = ["onnxruntime", "tenure", "rten", "tract"]

ARCHITECTURES = [
    "resnet50",
    "mobilenet_v3_large",
    "squeezenet1_1",
    "densenet121",
    "efficientnet_b0",
    "yolo_like_640",
    "bert_base_128",
    "vit_b_16",
    "whisper_tiny_encoder",
]
TRAINED = ["magika_standard_v3_3", "basic_pitch_nmp", "ppocr_mobile_v2_cls"]

ORT = """
import sys, time, numpy, onnxruntime
model, runs, output, *given = sys.argv[1:]
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = options.inter_op_num_threads = 1
session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
feed = {name: numpy.load(file) for name, file in (text.rsplit("=", 1) for text in given)}
times = []
for _ in range(int(runs) + 1):
    start = time.perf_counter()
    outputs = session.run(None, feed)
    times.append(time.perf_counter() - start)
numpy.save(output, outputs[0].astype(numpy.float32).ravel())
print(1000 * min(times))
"""

# What a process has had most counts what its parent had when it was started, which is this script
# with a model: so a small interpreter starts it.
START = """
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:], stdin=subprocess.DEVNULL).returncode
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)
sys.exit(code)
"""


def with_weights(path: Path, folder: Path) -> Path:
    """The model with weights: those that its file leaves out are random."""
    rng = np.random.default_rng(1)
    model = onnx.load(path, load_external_data=False)
    for tensor in model.graph.initializer:
        if tensor.data_location != TensorProto.EXTERNAL:
            continue
        kind, shape = helper.tensor_dtype_to_np_dtype(tensor.data_type), tuple(tensor.dims)
        if not np.issubdtype(kind, np.floating):
            # Numbers of rows and positions, and truth values of masks.
            array = np.full(shape, kind == np.bool_, kind)
        elif len(shape) < 2:
            # Biases, scales and variances.
            array = rng.uniform(0.2, 1, shape)
        else:
            # Such that the spread of what goes through stays about the same.
            terms = shape[0] if len(shape) == 2 else math.prod(shape[1:])
            array = rng.standard_normal(shape) * math.sqrt(1.5 / terms)
        tensor.CopyFrom(numpy_helper.from_array(array.astype(kind), tensor.name))
    file = folder / path.name
    onnx.save(model, file)
    return file


def random_inputs(path: Path, folder: Path) -> list[str]:
    """`NAME=FILE` for each input of a model."""
    rng = np.random.default_rng(2)
    model = onnx.load(path)
    constants = {tensor.name for tensor in model.graph.initializer}
    given = []
    for value in model.graph.input:
        if value.name in constants:
            continue
        tensor = value.type.tensor_type
        kind = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        shape = [dim.dim_value or 1 for dim in tensor.shape.dim]
        if np.issubdtype(kind, np.floating):
            array = rng.standard_normal(shape)
        elif "mask" in value.name:
            array = np.ones(shape)
        else:
            array = rng.integers(0, 2, shape)
        file = folder / f"{safe(value.name)}.npy"
        np.save(file, array.astype(kind))
        given.append(f"{value.name}={file}")
    return given


def prepare(name: str, folder: Path) -> tuple[Path, list[str]]:
    """A model and its inputs."""
    if name in TRAINED:
        io = SHARED / "data/real/io" / name
        tensors = json.loads((io / "io.json").read_text())["inputs"]
        return SHARED / f"data/real/{name}.onnx", [f"{t}={io / file}" for t, file, *_ in tensors]
    file = with_weights(SHARED / f"data/onnx/{name}.onnx", folder)
    return file, random_inputs(file, folder)


def run(engine: str, engines: Path, model: Path, given: list[str], runs: int, folder: Path):
    """Milliseconds of the shortest of some runs, the most bytes, and the first output."""
    output = folder / "output.npy"
    arguments = [str(model), str(runs), str(output), *given]
    match engine:
        case "onnxruntime":
            command = [sys.executable, "-c", ORT, *arguments]
        case "tenure":
            command = [str(BINARY), "run", str(model), "--json", "--quiet", "--repeat", str(runs)]
            command += ["--output-dir", str(folder), *(a for text in given for a in ("--input", text))]
        case _:
            command = [str(engines / f"with_{engine}"), *arguments]
    one = {"RAYON_NUM_THREADS": "1", "RTEN_NUM_THREADS": "1", "RUST_BACKTRACE": "0"}
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", START, *command],
        capture_output=True,
        text=True,
        env={**os.environ, **one},
    )
    *said, memory = done.stderr.strip().splitlines()
    if done.returncode != 0:
        return None, 0, " ".join(said)[:200]
    text = done.stdout
    if engine == "tenure":
        answer = json.loads(text)
        time, output = answer["time_ms"], folder / f"{safe(answer['outputs'][0]['name'])}.npy"
        shortest = min(time["first"], time["least"])
    else:
        shortest = float(text)
    return shortest, int(memory) * 1024, np.load(output).astype(np.float32).ravel()


def mean(ratios: list[float]) -> float:
    """The geometric mean."""
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else math.nan


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engines", type=Path, required=True, help="folder of the other engines")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--runs", type=int, default=8, help="runs of a process")
    parser.add_argument("names", nargs="*", default=ARCHITECTURES + TRAINED)
    options = parser.parse_args()
    print(f"| model | {' | '.join(f'{e} ms | MB' for e in ENGINES)} |")
    print("| --- |" + " ---: |" * 2 * len(ENGINES))
    ratios = {engine: [] for engine in ENGINES}
    wrong = 0
    for name in options.names:
        best: dict[str, float] = {}
        most: dict[str, int] = {}
        answers, notes = {}, {}
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            model, given = prepare(name, folder)
            for _ in range(options.rounds):
                for engine in ENGINES:
                    if engine in notes:
                        continue
                    ms, memory, answer = run(
                        engine, options.engines, model, given, options.runs, folder
                    )
                    if ms is None:
                        notes[engine] = answer
                        continue
                    best[engine] = min(ms, best.get(engine, ms))
                    most[engine] = max(memory, most.get(engine, 0))
                    answers[engine] = answer
        cells = []
        for engine in ENGINES:
            if engine not in best:
                cells += ["–", "–"]
                continue
            cell = f"{best[engine]:.2f}"
            if "onnxruntime" in best and engine != "onnxruntime":
                ratio = best[engine] / best["onnxruntime"]
                ratios[engine].append(ratio)
                wanted = answers["onnxruntime"]
                near = np.allclose(answers[engine], wanted, 1e-4, 1e-4 * np.abs(wanted).max())
                cell += f" ({ratio:.2f}×{'' if near else ', differs'})"
                wrong += engine == "tenure" and not near
            cells += [cell, f"{most[engine] / 1e6:.0f}"]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
        for engine, note in notes.items():
            print(f"{name}: {engine}: {note}", file=sys.stderr)
            wrong += engine == "tenure"
    for engine in ENGINES[1:]:
        times = mean(ratios[engine])
        print(f"\n{engine}: {times:.3f} × ONNX Runtime (geometric mean of {len(ratios[engine])})")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
