use super::*;
use crate::arbitrary_graph::{Size, any, check};
use crate::effects::OpTable;
use crate::verify::verify_bodies;
use crate::{Attr, Graph, identity};
use std::path::{Path, PathBuf};

/// A root of the given nodes.
fn root(nodes: &str) -> String {
    format!(r#"{{"format": "tenure.graph/1", "graphs": [{{"name": "root", "nodes": [{nodes}]}}]}}"#)
}

const X: &str = r#"{"name": "x", "op": "Data", "outputs": [{"dtype": "float32", "shape": [4]}]}"#;

fn round_trip(json: &str) -> Graph {
    let graph = read(json.as_bytes()).unwrap_or_else(|e| panic!("{e}\n{json}"));
    let written = write(&graph);
    let again = read(written.as_bytes()).unwrap_or_else(|e| panic!("{e}\n{written}"));
    assert!(again == graph, "{written}");
    assert_eq!(identity(&again), identity(&graph));
    assert_eq!(write(&again), written);
    graph
}

/// Folder of the shared cases: from `TENURE_SHARED`, or beside the workspace.
fn shared_cases() -> PathBuf {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared");
    let shared = std::env::var_os("TENURE_SHARED").map_or_else(|| beside.into(), PathBuf::from);
    shared.join("cases")
}

fn json_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            json_files(&path, found);
        } else if path.extension().is_some_and(|e| e == "json") {
            found.push(path);
        }
    }
}

#[test]
fn images_and_labels_are_inputs_as_data_is() {
    for op in ["Data", "AippData", "AnnData"] {
        let node = X.replace("Data", op);
        let graph = round_trip(&root(&node));
        let inputs = &graph.subgraphs[graph.root].inputs;
        assert_eq!(inputs.len(), 1, "{op}");
        assert_eq!(graph.nodes[inputs[0]].stream, None, "{op}");
    }
}

#[test]
fn shared_cases_round_trip() {
    let mut files = Vec::new();
    json_files(&shared_cases(), &mut files);
    files.sort();
    let table = OpTable::builtin(crate::Dialect::Ge);
    let mut graphs = 0;
    for path in &files {
        let text = std::fs::read(path).unwrap();
        let case: serde_json::Value = serde_json::from_slice(&text).unwrap();
        if case.get("format").and_then(|f| f.as_str()) != Some(FORMAT) {
            continue;
        }
        graphs += 1;
        let refused = case.pointer("/expect/error").is_some();
        match read(&text) {
            Ok(graph) => {
                round_trip(std::str::from_utf8(&text).unwrap());
                let bodies = verify_bodies(&graph, &table);
                assert!(refused || bodies.is_ok(), "{}: {bodies:?}", path.display());
            }
            Err(e) => assert!(refused, "{}: {e}", path.display()),
        }
    }
    if graphs == 0 {
        #[expect(clippy::print_stderr, reason = "says why nothing was tested")]
        {
            eprintln!("no shared cases found: not tested");
        }
    }
}

#[test]
fn keys_of_the_case_are_ignored_and_unknown_ones_kept() {
    let graph = round_trip(
        r#"{"format": "tenure.graph/1", "name": "n", "about": "text", "expect": {"run": "lint"},
            "options": {"alignment": 32}, "graphs": [{"name": "root", "dynamic_shape": true, "nodes": [
            {"name": "x", "op": "Data", "outputs": [{"dtype": "float32", "shape": [4], "format": "ND"}]},
            {"name": "y", "op": "Foo", "stream": 3, "merge": true, "inputs": ["x:0", null], "workspace": [8, -1],
             "attrs": {"list": [1, 2.5, "s", null, {"k": []}], "t": {"tensor": {"dtype": "int32", "shape": [2], "data": [1, -1]}},
                       "big": {"tensor": {"dtype": "int8", "shape": [4096], "data": null}},
                       "inf": {"float": "-inf"}, "raw": {"bytes": "00ff"}, "like": {"map": {"bytes": "00"}}},
             "input_attrs": [{"parent_index": 0}], "outputs": [null, {"name": "out", "dtype": "float16",
             "shape": [-1, null, "2 * n", 3], "ref_input": 0, "size": 64, "shape_range": [[1, -1]], "attrs": {"a": 1}}]}]}]}"#,
    );
    let y = &graph.nodes[crate::NodeId::from_u32(1)];
    assert_eq!(graph.options.int("alignment"), Some(32));
    assert_eq!(
        graph.subgraphs[graph.root].attrs.get("dynamic_shape"),
        Some(&Attr::Bool(true))
    );
    assert_eq!(y.extra.get("merge"), Some(&Attr::Bool(true)));
    assert_eq!(y.attrs.get("inf"), Some(&Attr::Float(f64::NEG_INFINITY)));
    assert!(matches!(y.attrs.get("like"), Some(Attr::Map(_))));
    let out = &graph.values[y.output(1).unwrap()];
    assert_eq!(out.name, "out");
    assert_eq!(out.shape.as_ref().unwrap().to_string(), "[?, ?, 2 * n, 3]");
    let x = &graph.values[y.input(0).unwrap()];
    assert_eq!(x.hints.as_ref().unwrap().extra.str("format"), Some("ND"));
}

#[test]
fn order_and_index_sort() {
    let graph = round_trip(&root(
        r#"{"name": "out", "op": "NetOutput", "inputs": ["b:0"], "order": 9},
           {"name": "b", "op": "Data", "attrs": {"index": 1}, "order": 1, "outputs": [{"dtype": "bool"}]},
           {"name": "a:0", "op": "Data", "attrs": {"index": 0}, "order": 1, "outputs": [{"dtype": "bool"}]}"#,
    ));
    let root = &graph.subgraphs[graph.root];
    let names = |ids: &[crate::NodeId]| -> Vec<String> {
        ids.iter().map(|&n| graph.nodes[n].name.clone()).collect()
    };
    assert_eq!(names(&root.nodes), ["b", "a:0", "out"]);
    assert_eq!(names(&root.inputs), ["a:0", "b"]);
    assert_eq!(graph.values[crate::ValueId::from_u32(1)].name, "a:0:0");
}

#[test]
fn captured_values_name_their_graph() {
    round_trip(
        r#"{"format": "tenure.graph/1", "dialect": "onnx", "opsets": [{"version": 17}], "graphs": [
            {"name": "inner", "nodes": []}, {"name": "body", "nodes": [
              {"name": "r", "op": "Relu", "inputs": [{"graph": "inner", "value": "x:0"}]}]}]}"#
            .replace(r#""inner", "nodes": []"#, &format!(
                r#""inner", "nodes": [{X}, {{"name": "l", "op": "Loop", "subgraphs": [{{"role": "body", "graph": "body"}}]}}]"#
            ))
            .as_str(),
    );
}

#[test]
fn every_error_names_its_place() {
    let node = |rest: &str| root(&format!(r#"{X}, {{"name": "n", "op": "A", {rest}}}"#));
    let graphs = |rest: &str| {
        format!(
            r#"{{"format": "tenure.graph/1", "graphs": [{{"name": "g", "nodes": [
            {{"name": "n", "op": "If", "subgraphs": [{{"role": "then", "graph": "t"}}]}}]}}, {rest}]}}"#
        )
    };
    let cases = [
        ("".to_owned(), "EOF while parsing"),
        (
            "[]".to_owned(),
            "expected an object with the keys \"format\" and \"graphs\"",
        ),
        (r#"{"format": "x"}"#.to_owned(), "missing field `graphs`"),
        (
            r#"{"format": "tenure.graph/2", "graphs": []}"#.to_owned(),
            "\"format\" is \"tenure.graph/2\"",
        ),
        (
            r#"{"format": "tenure.graph/1", "graphs": []}"#.to_owned(),
            "there is no graph",
        ),
        (
            r#"{"format": "tenure.graph/1", "dialect": "tf", "graphs": []}"#.to_owned(),
            "expected one of onnx, ge, tflite",
        ),
        (root(r#"{"op": "A"}"#), "a node has no \"name\""),
        (
            root(r#"{"name": "n"}"#),
            "node \"n\": \"op\" is missing at line",
        ),
        (root("7"), "expected a map"),
        (
            node(r#""inputs": "x:0""#),
            "node \"n\": \"inputs\": expected a list",
        ),
        (
            node(r#""inputs": [1]"#),
            "\"inputs\": [0]: expected \"NODE:OUTPUT_INDEX\" or null, found 1",
        ),
        (
            node(r#""inputs": ["x"]"#),
            "\"x\" is not \"NODE:OUTPUT_INDEX\"",
        ),
        (node(r#""inputs": ["x:-1"]"#), "names output \"-1\""),
        (
            node(r#""inputs": ["x:1"]"#),
            "graph \"root\", node \"n\", inputs[0]: node \"x\" has 1 outputs, so there is no output 1",
        ),
        (node(r#""inputs": ["y:0"]"#), "there is no node \"y\""),
        (
            node(r#""inputs": ["n:0"], "outputs": [{}]"#),
            "made by this node itself or by a later one",
        ),
        (
            node(r#""inputs": [{"graph": "h", "value": "x:0"}]"#),
            "there is no graph \"h\"",
        ),
        (
            node(r#""outputs": [null]}, {"name": "m", "op": "A", "inputs": ["n:0"]"#),
            "output 0 of node \"n\" is left out",
        ),
        (
            node(r#""control": ["n"]"#),
            "control[0]: control input \"n\" is made by",
        ),
        (
            node(r#""control": ["z"]"#),
            "control[0]: there is no node \"z\"",
        ),
        (
            node(r#""outputs": [{"dtype": "float"}]"#),
            "unknown element type \"float\"",
        ),
        (
            node(r#""outputs": [{"shape": [-2]}]"#),
            "\"shape\": expected a size, a formula, or -1 for an unknown size, found -2",
        ),
        (node(r#""outputs": [{"shape": [1.5]}]"#), "found 1.5"),
        (
            node(r#""outputs": [{"size": -1}]"#),
            "\"size\": expected a number of bytes, found -1",
        ),
        (
            node(r#""outputs": [{"dtype": "int8", "shape": [9223372036854775808]}]"#),
            "63 bits",
        ),
        (node(r#""stream": -2"#), "\"stream\" is a stream's number"),
        (
            node(r#""attrs": {"a": 9223372036854775808}"#),
            "\"a\": 9223372036854775808 does not fit",
        ),
        (
            node(r#""attrs": {"a": {"tensor": {"dtype": "int8", "shape": [2], "data": [1]}}}"#),
            "1 elements are not what the shape asks for",
        ),
        (
            node(r#""attrs": {"a": {"tensor": {"dtype": "int8", "shape": [1], "data": [128]}}}"#),
            "an element is no int8",
        ),
        (
            node(r#""attrs": {"a": {"tensor": {"dtype": "int8", "shape": [2], "data": "00"}}}"#),
            "contents of a tensor do not fit",
        ),
        (
            node(r#""attrs": {"a": {"bytes": "0"}}"#),
            "hexadecimal digits",
        ),
        (
            root(&format!("{X}, {X}")),
            "node \"x\", name: another node of the graph has this name",
        ),
        (
            root(r#"{"name": "x", "op": "Data", "attrs": {"index": -1}}"#),
            "node \"x\", index: expected a whole number",
        ),
        (
            root(r#"{"name": "o", "op": "NetOutput"}, {"name": "x", "op": "A"}"#),
            "a graph has one NetOutput and it stands last",
        ),
        (
            graphs(r#"{"name": "u", "nodes": []}"#),
            "graph \"g\", node \"n\", subgraphs[0]: there is no graph \"t\"",
        ),
        (
            graphs(r#"{"name": "t", "nodes": []}, {"name": "u", "nodes": []}"#),
            "graph \"u\": no node runs this graph",
        ),
        (
            graphs(r#"{"name": "t", "nodes": []}, {"name": "t", "nodes": []}"#),
            "another graph has this name",
        ),
        (
            graphs(
                r#"{"name": "t", "nodes": [{"name": "m", "op": "A", "subgraphs": [{"role": "b", "graph": "g"}]}]}"#,
            ),
            "is the root",
        ),
        (
            graphs(
                r#"{"name": "t", "nodes": [{"name": "m", "op": "A", "subgraphs": [{"role": "b", "graph": "t"}]}]}"#,
            ),
            "run by another node already",
        ),
        (
            graphs(
                r#"{"name": "t", "nodes": []}, {"name": "u", "nodes": [{"name": "m", "op": "A", "subgraphs": [{"role": "b", "graph": "u"}]}]}"#,
            ),
            "contains itself",
        ),
        (
            graphs(
                r#"{"name": "t", "nodes": [{"name": "r", "op": "A", "inputs": [{"graph": "g", "value": "n:0"}]}]}"#,
            ),
            "has 0 outputs",
        ),
        (
            graphs(r#"{"name": "t", "nodes": [{"name": "r", "op": "A"}]}"#).replace(
                r#""op": "If""#,
                r#""op": "If", "inputs": [{"graph": "t", "value": "r:0"}]"#,
            ),
            "cannot be seen from here",
        ),
        (
            format!(
                r#"{{"format": "tenure.graph/1", "graphs": [], "x": {}"#,
                "[".repeat(100_000)
            ),
            "EOF while parsing",
        ),
        (
            node(&format!(
                r#""attrs": {{"a": {}{}}}"#,
                "[".repeat(40),
                "]".repeat(40)
            )),
            "nest more than 32 deep",
        ),
        (
            node(&format!(r#""attrs": {{"a": {}"#, "[".repeat(100_000))),
            "recursion limit exceeded",
        ),
    ];
    for (json, expected) in cases {
        match read(json.as_bytes()) {
            Ok(_) => panic!("read, expected {expected:?}:\n{json}"),
            Err(e) => assert!(e.to_string().contains(expected), "{e}\n{expected}"),
        }
    }
}

#[test]
fn random_changes_do_no_harm() {
    arbtest::arbtest(|u| {
        let graph = any(u, Size { nodes: 6, depth: 2 })?;
        let mut bytes = write(&graph).into_bytes();
        for _ in 0..u.int_in_range(1..=4)? {
            let at = u.choose_index(bytes.len())?;
            match u.int_in_range(0..=2)? {
                0 => bytes[at] = *u.choose(b"\"{}[],:1-x \n")?,
                1 => bytes.insert(at, *u.choose(b"\"{}[],:0.e ")?),
                _ => drop(bytes.remove(at)),
            }
        }
        check::json(&bytes);
        Ok(())
    })
    .budget_ms(1000);
}

/// A chain of `n` small nodes.
fn chain(n: usize) -> Graph {
    let mut graph = Graph::new("chain", crate::Dialect::Onnx, "root");
    let shape = || Some(crate::Shape::of(&[4]));
    let mut last = graph.add_input(graph.root, "x", crate::DType::F32, shape());
    for i in 0..n {
        let node = graph.add_node(graph.root, format!("n{i}"), "Relu");
        graph.nodes[node].inputs.push(Some(last));
        last = graph.add_output(node, format!("v{i}"), crate::DType::F32, shape());
    }
    graph.add_results(graph.root, "results", [Some(last)]);
    graph
}

#[test]
fn time_grows_with_the_graph_alone() {
    let graph = chain(20_000);
    assert_eq!(crate::verify(&graph), Ok(()));
    let json = write(&graph);
    assert!(read(json.as_bytes()).unwrap() == graph);
    let text = crate::text::print(&graph);
    assert!(crate::text::parse(&text).unwrap() == graph);
}
