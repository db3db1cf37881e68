//! What was done to a model's graph before it was planned, in names: nodes that were added and
//! order that was added. A plan file holds it, so that the plan alone tells how its graph comes
//! from the model's.
//!
//! ```
//! use tenure_graph::{changes::Changes, patch::{Edit, Patch}, text};
//! let graph = text::parse(r#"
//! model m
//! graph ^g {
//!   %x: float32[4] = Data()
//!   %a: float32[4] = Relu(%x)
//!   %b: float32[4] = Relu(%x)
//!   NetOutput(%a, %b) @results
//! }"#)?;
//! let node = |name: &str| graph.nodes.iter().find(|(_, n)| n.name == name).map(|(id, _)| id);
//! let (before, after) = (node("b").ok_or("b")?, node("a").ok_or("a")?);
//! let mut patch = Patch::new();
//! patch.push(Edit::AddControl { before, after }, "an example");
//! let (edited, _) = patch.apply(&graph)?;
//! let changes = Changes::between(&graph, &edited);
//! assert_eq!(changes.waits[0].before, "b");
//! assert_eq!(changes.apply(&graph)?, edited);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};

use crate::patch::{Edit, Editor, NewNode, NewOutput, Spot};
use crate::plan_file::PlanFileError;
use crate::{Graph, NodeId, OutputHints, StreamId, ValueId};

/// Nodes and order that were added to a graph.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changes {
    /// Nodes that were added, each behind those that it reads.
    pub added: Vec<Added>,
    /// Order that was added.
    pub waits: Vec<Wait>,
}

/// A node that was added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Added {
    /// Name, new in its subgraph.
    pub name: String,
    /// Type.
    pub op: String,
    /// Name of the subgraph.
    pub graph: String,
    /// Labels of what it reads.
    #[serde(default)]
    pub inputs: Vec<String>,
    /// For each output the input in whose memory it is written; type and shape are that input's.
    #[serde(default)]
    pub refs: Vec<u32>,
    /// Labels of the nodes that it waits for.
    #[serde(default)]
    pub waits: Vec<String>,
    /// The stream that it runs on.
    #[serde(default)]
    pub stream: Option<u32>,
    /// Label of the node that it stands before; behind all others if there is none.
    #[serde(default)]
    pub before: Option<String>,
}

/// A node that waits for another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    /// Label of the node that waits.
    pub node: String,
    /// Label of the node that it waits for.
    pub before: String,
}

impl Changes {
    /// Whether nothing was changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.waits.is_empty()
    }

    /// What `after` has that `before` has not, of what can be said here: nodes whose outputs lie in
    /// inputs' memory, and order.
    #[must_use]
    pub fn between(before: &Graph, after: &Graph) -> Self {
        let old: FxHashMap<String, NodeId> = (before.nodes.keys())
            .map(|n| (before.node_label(n), n))
            .collect();
        let mut changes = Changes::default();
        for subgraph in crate::identity::walk(after) {
            let list = &after.subgraphs[subgraph].nodes;
            let labels: Vec<String> = list.iter().map(|&n| after.node_label(n)).collect();
            let mut next: Option<&String> = None;
            let mut added = Vec::new();
            for (&id, label) in list.iter().zip(&labels).rev() {
                let node = &after.nodes[id];
                if let Some(&same) = old.get(label) {
                    next = Some(label);
                    let known: FxHashSet<String> = (before.nodes[same].control.iter())
                        .map(|&n| before.node_label(n))
                        .collect();
                    let waits = node.control.iter().map(|&n| after.node_label(n));
                    let new = waits.filter(|n| !known.contains(n));
                    changes.waits.extend(new.map(|before| Wait {
                        node: label.clone(),
                        before,
                    }));
                    continue;
                }
                let reads = node.inputs.iter().flatten();
                let refs = node.outputs.iter().flatten().map(|&v| {
                    let hints = after.values[v].hints.as_ref();
                    hints.and_then(|h| h.ref_input).unwrap_or(0)
                });
                added.push(Added {
                    name: node.name.clone(),
                    op: node.op.to_string(),
                    graph: after.subgraphs[subgraph].name.clone(),
                    inputs: reads.map(|&v| after.value_label(v)).collect(),
                    refs: refs.collect(),
                    waits: node.control.iter().map(|&n| after.node_label(n)).collect(),
                    stream: node.stream.map(StreamId::as_u32),
                    before: next.cloned(),
                });
            }
            changes.added.extend(added.into_iter().rev());
        }
        // Each subgraph was walked from its end.
        changes.waits.reverse();
        changes
    }

    /// The graph with all changes made.
    ///
    /// # Errors
    /// A name that the graph does not have, or changes that break a rule of graphs.
    pub fn apply(&self, graph: &Graph) -> Result<Graph, PlanFileError> {
        let mut editor = Editor::new(graph);
        let mut nodes: FxHashMap<String, NodeId> = (graph.nodes.keys())
            .map(|n| (graph.node_label(n), n))
            .collect();
        let mut values: FxHashMap<String, ValueId> = (graph.values.keys())
            .map(|v| (graph.value_label(v), v))
            .collect();
        let fits = |e: crate::patch::PatchError| PlanFileError::Change(e.to_string());
        let mut late: Vec<(NodeId, String, usize)> = Vec::new();
        for (i, added) in self.added.iter().enumerate() {
            let new = new_node(editor.graph(), added, i, &values)?;
            let spot = spot(graph, added, i, &nodes)?;
            let id = editor
                .apply(
                    &Edit::Add {
                        node: Box::new(new),
                        spot,
                    },
                    "",
                )
                .map_err(fits)?;
            let Some(id) = id else {
                unreachable!("adding a node gives its id");
            };
            let label = editor.graph().node_label(id);
            if editor.graph().nodes[id].name != added.name || nodes.insert(label, id).is_some() {
                return Err(PlanFileError::Change(format!(
                    "node {:?} is there already",
                    added.name
                )));
            }
            for &value in editor.graph().nodes[id].outputs.iter().flatten() {
                values.insert(editor.graph().value_label(value), value);
            }
            late.extend(added.waits.iter().map(|before| (id, before.clone(), i)));
        }
        let wait = |editor: &mut Editor<'_>, before, after| {
            let edit = Edit::AddControl { before, after };
            editor.apply(&edit, "").map(|_| ()).map_err(fits)
        };
        for (after, before, i) in late {
            let before = node_named(&nodes, &before, || format!("added node {i}"))?;
            wait(&mut editor, before, after)?;
        }
        for (i, w) in self.waits.iter().enumerate() {
            let place = || format!("wait {i}");
            let after = node_named(&nodes, &w.node, place)?;
            let before = node_named(&nodes, &w.before, place)?;
            wait(&mut editor, before, after)?;
        }
        if editor.is_untouched() {
            return Ok(graph.clone());
        }
        editor.finish().map(|(graph, _)| graph).map_err(fits)
    }
}

fn node_named(
    nodes: &FxHashMap<String, NodeId>,
    name: &str,
    place: impl Fn() -> String,
) -> Result<NodeId, PlanFileError> {
    let unknown = || PlanFileError::UnknownName {
        place: place(),
        kind: "node",
        name: name.to_owned(),
    };
    nodes.get(name).copied().ok_or_else(unknown)
}

fn new_node(
    graph: &Graph,
    added: &Added,
    i: usize,
    values: &FxHashMap<String, ValueId>,
) -> Result<NewNode, PlanFileError> {
    let unknown = |name: &String| PlanFileError::UnknownName {
        place: format!("added node {i}"),
        kind: "value",
        name: name.clone(),
    };
    let find = |name: &String| values.get(name).copied().ok_or_else(|| unknown(name));
    let inputs: Vec<ValueId> = added.inputs.iter().map(find).collect::<Result<_, _>>()?;
    let output = |&input: &u32| {
        let like = inputs.get(input as usize).map(|&v| &graph.values[v]);
        let malformed = || PlanFileError::Malformed {
            place: format!("added node {i}"),
            text: format!("refs {input}"),
        };
        let like = like.ok_or_else(malformed)?;
        Ok(NewOutput {
            dtype: like.dtype,
            shape: like.shape.clone(),
            hints: Some(Box::new(OutputHints {
                ref_input: Some(input),
                ..OutputHints::default()
            })),
        })
    };
    let outputs = added.refs.iter().map(output);
    let outputs = outputs.collect::<Result<_, PlanFileError>>()?;
    let stream = added.stream.filter(|&s| s != u32::MAX);
    Ok(NewNode {
        name: added.name.clone(),
        op: added.op.as_str().into(),
        outputs,
        inputs,
        stream: stream.map(StreamId::from_u32),
        ..NewNode::default()
    })
}

fn spot(
    graph: &Graph,
    added: &Added,
    i: usize,
    nodes: &FxHashMap<String, NodeId>,
) -> Result<Spot, PlanFileError> {
    if let Some(before) = &added.before {
        let next = node_named(nodes, before, || format!("added node {i}"))?;
        return Ok(Spot::Before(next));
    }
    let mut subgraphs = graph.subgraphs.iter();
    let found = subgraphs.find(|(_, s)| s.name == added.graph);
    let Some((id, subgraph)) = found else {
        return Err(PlanFileError::UnknownName {
            place: format!("added node {i}"),
            kind: "graph",
            name: added.graph.clone(),
        });
    };
    Ok(subgraph
        .nodes
        .last()
        .map_or(Spot::First(id), |&n| Spot::After(n)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text;

    fn graph() -> Graph {
        let text = "model m\ngraph ^g {\n  %v: float32[4] = Variable()\n  %a: float32[4] = Relu(%v)\n  \
                    %b: float32[4] = Relu(%a)\n  NetOutput(%b) @results\n}\n";
        text::parse(text).unwrap()
    }

    fn changes() -> Changes {
        Changes {
            added: vec![
                Added {
                    name: "clean".to_owned(),
                    op: "AtomicAddrClean".to_owned(),
                    graph: "g".to_owned(),
                    inputs: vec![],
                    refs: vec![],
                    waits: vec![],
                    stream: Some(0),
                    before: Some("a".to_owned()),
                },
                Added {
                    name: "store".to_owned(),
                    op: "Assign".to_owned(),
                    graph: "g".to_owned(),
                    inputs: vec!["v".to_owned(), "a".to_owned()],
                    refs: vec![0],
                    waits: vec!["clean".to_owned()],
                    stream: Some(0),
                    before: Some("b".to_owned()),
                },
            ],
            waits: vec![Wait {
                node: "b".to_owned(),
                before: "store".to_owned(),
            }],
        }
    }

    #[test]
    fn what_was_changed_can_be_made_again() {
        let graph = graph();
        let edited = changes().apply(&graph).unwrap();
        assert_eq!(Changes::between(&graph, &edited), changes());
        assert_eq!(Changes::between(&graph, &graph), Changes::default());
        let json = serde_json::to_string(&changes()).unwrap();
        let again: Changes = serde_json::from_str(&json).unwrap();
        assert_eq!(again.apply(&graph).unwrap(), edited);
    }

    #[test]
    fn changes_that_do_not_fit_are_refused() {
        let graph = graph();
        let broken: [fn(&mut Changes); 6] = [
            |c| c.added[0].name = "a".to_owned(),
            |c| c.added[0].before = Some("nobody".to_owned()),
            |c| c.added[1].inputs[0] = "nothing".to_owned(),
            |c| c.added[1].refs = vec![7],
            |c| c.waits[0].before = "nobody".to_owned(),
            |c| {
                let back = Wait {
                    node: "a".to_owned(),
                    before: "b".to_owned(),
                };
                c.waits.push(back);
            },
        ];
        for (i, breaks) in broken.iter().enumerate() {
            let mut changes = changes();
            breaks(&mut changes);
            assert!(changes.apply(&graph).is_err(), "{i}");
        }
    }
}
