use super::*;
use crate::arbitrary_graph::{Size, any, check};
use crate::{Graph, json};
use std::fmt::Write;

fn error_of(text: &str) -> String {
    match parse(text) {
        Ok(_) => panic!("parsed:\n{text}"),
        Err(e) => e.to_string(),
    }
}

#[test]
fn random_changes_do_no_harm() {
    arbtest::arbtest(|u| {
        let mut text: Vec<char> = print(&any(u, Size { nodes: 6, depth: 2 })?)
            .chars()
            .collect();
        for _ in 0..u.int_in_range(1..=4)? {
            let at = u.choose_index(text.len())?;
            let pieces = ['"', '%', '{', '}', '[', ',', '1', '-', 'x', '\n', '^', '='];
            match u.int_in_range(0..=2)? {
                0 => text[at] = *u.choose(&pieces)?,
                1 => text.insert(at, *u.choose(&pieces)?),
                _ => drop(text.remove(at)),
            }
        }
        check::text(&text.into_iter().collect::<String>());
        Ok(())
    })
    .budget_ms(1000);
}

#[test]
fn errors_say_where() {
    let cases = [
        (
            "",
            "line 1, column 1: expected \"model\" and the model's name, found the end",
        ),
        (
            "model m\ngraph ^g {\n  Relu(%x) @r\n}",
            "line 3, column 3: graph \"g\", node \"r\", inputs[0]: there is no value x",
        ),
        (
            "model m\ngraph ^g {\n  %x: int = Data()\n}",
            "line 3, column 7: unknown element type \"int\"; known types are float32, float16, bfloat16, int64, uint8, bool …",
        ),
        (
            "model m graph ^g { NetOutput() }",
            "line 1, column 20: a node without outputs needs a name: write @NAME behind it",
        ),
        (
            "model m graph ^g { A() @a {k = \"b }",
            "line 1, column 32: the text has no closing quote",
        ),
        (
            "model m graph ^g { A() @a {k = 99999999999999999999} }",
            "line 1, column 32: expected a number of 64 bits, found \"99999999999999999999\"",
        ),
        (
            "model m graph ^g { A() @a A() @a }",
            "line 1, column 27: graph \"g\", node \"a\", name: another node of the graph has this name already; rename one of them",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(error_of(text), expected, "{text}");
    }
}

#[test]
fn depth_is_limited() {
    let lists = format!("model m graph ^g {{ A() @a {{k = {}}}", "[".repeat(100_000));
    assert!(error_of(&lists).contains("nest more than 32 deep"));
    let mut bodies = "model m graph ^g0 { ".to_owned();
    for i in 1..10_000 {
        write!(bodies, "A() @a b ^g{i} {{ ").unwrap();
    }
    assert!(error_of(&bodies).contains("nested more than 64 deep"));
}

#[test]
fn deepest_allowed_graph_round_trips() {
    let mut graph = Graph::new("deep", crate::Dialect::Ge, "g0");
    let mut at = graph.root;
    for i in 1..=crate::verify::MAX_DEPTH {
        let node = graph.add_node(at, format!("n{i}"), "PartitionedCall");
        at = graph.add_subgraph(node, "partition", format!("g{i}"));
    }
    assert_eq!(crate::verify(&graph), Ok(()));
    assert_eq!(parse(&print(&graph)), Ok(graph.clone()));
    assert_eq!(json::read(json::write(&graph).as_bytes()).unwrap(), graph);
    let node = graph.add_node(at, "more", "PartitionedCall");
    graph.add_subgraph(node, "partition", "more");
    let broken = crate::verify(&graph).unwrap_err();
    assert_eq!(broken[0].rule, 5);
    assert!(json::read(json::write(&graph).as_bytes()).is_err());
}
