use super::*;
use crate::arbitrary_graph::{Size, any};
use crate::text::{parse, print};
use crate::{OUTPUT_OP, canonical, identity, verify};

/// Makes edits of a graph.
type Edits<'a> = dyn Fn(&Graph) -> Vec<Edit> + 'a;

const GRAPH: &str = "\
model m ge
graph ^g {
  %x: float32[4] = Data()
  %c: bool[] = Data()
  %a: float32[4] = Neg(%x)
  %i: float32[4] = Identity(%x) after @a
  %j: float32[4] = Identity(%i)
  %b: float32[4] = Relu(%j) after @j
  %f: float32[4] = If(%c)
    then ^t {
      %d: float32[4] = Relu(%j^g)
      NetOutput(%d) @results
    }
  NetOutput(%b) @results
}
";

fn node(graph: &Graph, label: &str) -> NodeId {
    let mut nodes = graph.nodes.keys();
    nodes.find(|&n| graph.node_label(n) == label).unwrap()
}

/// Applies edits to the graph above; gives what changed: lines gone (-) and lines new (+).
fn check(edits: impl Fn(&Graph) -> Vec<Edit>) -> Result<String, PatchError> {
    let graph = parse(GRAPH).unwrap();
    let mut patch = Patch::new();
    for edit in edits(&graph) {
        patch.push(edit, "test");
    }
    let (edited, log) = patch.apply(&graph)?;
    assert_eq!(log.lines.len(), patch.edits.len());
    let new = print(&edited);
    let gone = GRAPH.lines().filter(|l| !new.lines().any(|n| n == *l));
    let come = new.lines().filter(|n| !GRAPH.lines().any(|l| l == *n));
    let gone = gone.map(|l| format!("-{}\n", l.trim()));
    let come = come.map(|l| format!("+{}\n", l.trim()));
    Ok(gone.chain(come).collect())
}

#[test]
fn nodes_taken_out_leave_values_and_order() {
    let changed = check(|g| {
        vec![
            Edit::Bypass { node: node(g, "i") },
            Edit::Bypass { node: node(g, "j") },
        ]
    });
    // What waited for `j` now waits for what `i` waited for, the reader inside the branch by its
    // owner.
    assert_eq!(
        changed.unwrap(),
        "-%i: float32[4] = Identity(%x) after @a\n\
         -%j: float32[4] = Identity(%i)\n\
         -%b: float32[4] = Relu(%j) after @j\n\
         -%f: float32[4] = If(%c)\n\
         -%d: float32[4] = Relu(%j^g)\n\
         +%b: float32[4] = Relu(%x) after @a, @x\n\
         +%f: float32[4] = If(%c) after @a\n\
         +%d: float32[4] = Relu(%x^g)\n"
    );
}

#[test]
fn other_edits() {
    let insert = |g: &Graph, reader| Edit::Insert {
        reader: node(g, reader),
        input: 0,
        op: "Identity".into(),
        name: "copy".into(),
    };
    let cases: [(&Edits, &str); 5] = [
        (
            &|g| vec![insert(g, "t/results")],
            "-NetOutput(%d) @results\n\
             +%copy:0: float32[4] = Identity(%d) @copy\n\
             +NetOutput(%copy:0) @results\n",
        ),
        (
            &|g| {
                vec![Edit::AddControl {
                    before: node(g, "a"),
                    after: node(g, "b"),
                }]
            },
            "-%b: float32[4] = Relu(%j) after @j\n+%b: float32[4] = Relu(%j) after @j, @a\n",
        ),
        (
            &|g| {
                vec![Edit::RemoveControl {
                    before: node(g, "j"),
                    after: node(g, "b"),
                }]
            },
            "-%b: float32[4] = Relu(%j) after @j\n+%b: float32[4] = Relu(%j)\n",
        ),
        (
            &|g| {
                vec![Edit::SetAttr {
                    node: node(g, "a"),
                    attr: "k".into(),
                    value: Some(Attr::Int(1)),
                }]
            },
            "-%a: float32[4] = Neg(%x)\n+%a: float32[4] = Neg(%x) {k = 1}\n",
        ),
        (
            &|g| {
                vec![Edit::Redirect {
                    reader: node(g, "t/d"),
                    input: 0,
                    value: g.nodes[node(g, "a")].output(0).unwrap(),
                }]
            },
            "-%d: float32[4] = Relu(%j^g)\n+%d: float32[4] = Relu(%a^g)\n",
        ),
    ];
    for (edits, expected) in cases {
        assert_eq!(check(edits).unwrap(), expected);
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let redirect = |g: &Graph, reader, to| Edit::Redirect {
        reader: node(g, reader),
        input: 0,
        value: g.nodes[node(g, to)].output(0).unwrap(),
    };
    let cases: [(&Edits, &str); 9] = [
        (
            &|g| vec![Edit::Bypass { node: node(g, "x") }],
            "cannot take out \"x\": an output has no input of the same number",
        ),
        (
            &|g| vec![Edit::Bypass { node: node(g, "f") }],
            "cannot take out \"f\": the node has subgraphs",
        ),
        (
            &|g| vec![Edit::Bypass { node: node(g, "i") }, redirect(g, "b", "i")],
            "cannot let input 0 of \"b\" read \"i\": there is no such value",
        ),
        (
            &|_| {
                vec![Edit::Bypass {
                    node: NodeId::from_u32(99),
                }]
            },
            "cannot take out @n99: there is no such node",
        ),
        (&|g| vec![redirect(g, "x", "a")], "there is no such input"),
        (
            &|g| {
                vec![Edit::RemoveControl {
                    before: node(g, "x"),
                    after: node(g, "b"),
                }]
            },
            "there is no such control edge",
        ),
        (
            &|g| vec![redirect(g, "a", "b")],
            "which is made later (graph rule 8)",
        ),
        (
            &|g| {
                vec![
                    redirect(g, "i", "j"),
                    Edit::Bypass { node: node(g, "i") },
                    Edit::Bypass { node: node(g, "j") },
                ]
            },
            "cannot take out \"j\": an output has no input of the same number",
        ),
        (
            &|g| {
                vec![Edit::AddControl {
                    before: node(g, "t/d"),
                    after: node(g, "f"),
                }]
            },
            "(graph rule 9)",
        ),
    ];
    for (edits, expected) in cases {
        let error = check(edits).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}\n{expected}");
    }
}

#[test]
fn a_copy_on_every_edge_and_away_again() {
    arbtest::arbtest(|u| {
        let graph = any(u, Size::default())?;
        let mut patch = Patch::new();
        for (id, node) in &graph.nodes {
            for (i, input) in (0u32..).zip(&node.inputs) {
                if input.is_some() && u.ratio(1, 2)? {
                    patch.insert(id, i, "Identity", format!("copy {id} {i}"), "test");
                }
            }
        }
        let (copied, log) = patch.apply(&graph).unwrap();
        assert_eq!(log.lines.len(), copied.nodes.len() - graph.nodes.len());
        let mut undo = Patch::new();
        for (id, node) in &copied.nodes {
            if node.name.starts_with("copy @n") {
                undo.push(Edit::Bypass { node: id }, "test");
            }
        }
        let (again, _) = undo.apply(&copied).unwrap();
        assert_eq!(identity(&again), identity(&graph));
        Ok(())
    })
    .budget_ms(500);
}

#[test]
fn random_edits_give_a_valid_graph_or_an_error() {
    arbtest::arbtest(|u| {
        let graph = any(
            u,
            Size {
                nodes: 12,
                depth: 2,
            },
        )?;
        let nodes: Vec<NodeId> = graph.nodes.keys().collect();
        let values: Vec<ValueId> = graph.values.keys().collect();
        let mut patch = Patch::new();
        for i in 0..u.int_in_range(1..=5)? {
            let (node, other) = (*u.choose(&nodes)?, *u.choose(&nodes)?);
            let input = u.int_in_range(0..=2)?;
            let edit = match u.int_in_range(0..=4)? {
                0 => Edit::Bypass { node },
                1 => Edit::AddControl {
                    before: node,
                    after: other,
                },
                2 => Edit::RemoveControl {
                    before: node,
                    after: other,
                },
                3 => Edit::Redirect {
                    reader: node,
                    input,
                    value: *u.choose(&values)?,
                },
                _ => Edit::Insert {
                    reader: node,
                    input,
                    op: OUTPUT_OP.into(),
                    name: format!("new{i}"),
                },
            };
            patch.push(edit, "test");
        }
        if let Ok((edited, _)) = patch.apply(&graph) {
            assert_eq!(verify(&edited), Ok(()));
            assert_eq!(canonical(&edited), edited);
        }
        Ok(())
    })
    .budget_ms(500);
}

/// An editor at work on the graph above.
fn new_copy(of: ValueId, reader: NodeId, graph: &Graph, name: &str) -> Edit {
    let value = &graph.values[of];
    let node = NewNode {
        name: name.to_owned(),
        op: "Identity".into(),
        inputs: vec![of],
        outputs: vec![NewOutput {
            dtype: value.dtype,
            shape: value.shape.clone(),
            hints: None,
        }],
        ..NewNode::default()
    };
    Edit::Add {
        node: Box::new(node),
        spot: Spot::Before(reader),
    }
}

#[test]
fn an_editor_sees_its_own_edits_and_sorts_at_the_end() {
    let graph = parse(GRAPH).unwrap();
    let mut editor = Editor::new(&graph);
    let (a, i) = (node(&graph, "a"), node(&graph, "i"));
    let x = graph.nodes[a].input(0).unwrap();
    let copies = [a, a].map(|reader| {
        let edit = new_copy(x, reader, editor.graph(), "j");
        editor.apply(&edit, "test").unwrap().unwrap()
    });
    // `j` is taken, and so is the first number after the first copy.
    let names = copies.map(|c| editor.graph().nodes[c].name.clone());
    assert_eq!(names, ["j_1", "j_2"]);
    let value = editor.graph().nodes[copies[1]].output(0).unwrap();
    let redirect = Edit::Redirect {
        reader: a,
        input: 0,
        value,
    };
    editor.apply(&redirect, "test").unwrap();
    assert_eq!(editor.graph().nodes[a].input(0), Some(value));
    let control = Edit::AddControl {
        before: i,
        after: copies[0],
    };
    editor.apply(&control, "test").unwrap();
    let bad = Edit::RemoveControl {
        before: a,
        after: i,
    };
    editor.apply(&bad, "test").unwrap();
    let (edited, log) = editor.finish().unwrap();
    assert_eq!(log.lines.len(), 5);
    let order = &edited.subgraphs[edited.root].nodes;
    let place = |name| order.iter().position(|&n| edited.nodes[n].name == name);
    assert!(place("i") < place("j_1") && place("j_2") < place("a"));
    assert!(place("a") < place("b"), "{}", print(&edited));
}
