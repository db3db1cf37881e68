//! A smaller shape in the plan for a larger one: offsets stay, all else is that of the smaller shape.
//!
//! Each storage keeps its place, its size and its life. What lives in it has the bytes of the smaller
//! shape; where it does not begin at the storage's first byte, being a part of something or one of
//! several that lie one behind the other, its offset is worked out anew by the planner for the
//! smaller shape. Nothing is taken on trust: the result is a plan like any other, and the checker
//! proves it for the smaller graph.

use rustc_hash::FxHashMap;
use tenure_check::{CheckedPlan, check};
use tenure_graph::effects::OpTable;
use tenure_graph::plan::{Item, Member, Plan, PlanOptions, Storage};
use tenure_graph::{Graph, NodeId};
use tenure_plan::{Classes, memory};

/// Why a shape has no place in the plan for another one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoFit {
    /// The graphs differ in more than sizes.
    #[error("what is planned for it is not the same: {0}")]
    Other(String),
    /// Something is larger than it is in the plan.
    #[error("{item:?} needs {bytes} bytes, and the plan has {room}")]
    Larger {
        /// Label of what is larger.
        item: String,
        /// Bytes that it needs.
        bytes: u64,
        /// Bytes that the plan has for it.
        room: u64,
    },
    /// The plan is wrong for this shape.
    #[error("the plan does not hold for it: {0}")]
    Check(String),
}

/// The plan of `graph` with the offsets of `plan`, which is for `upper`: the same graph with other
/// sizes.
///
/// # Errors
/// [`NoFit`].
pub fn fit(
    upper: &Graph,
    plan: &Plan,
    graph: &Graph,
    table: &OpTable,
) -> Result<CheckedPlan, NoFit> {
    let other = |what: &str| NoFit::Other(what.to_owned());
    let same_nodes = upper.nodes.len() == graph.nodes.len()
        && upper.values.len() == graph.values.len()
        && (upper.nodes.values().zip(graph.nodes.values()))
            .all(|(a, b)| a.op == b.op && a.inputs == b.inputs && a.outputs == b.outputs);
    if !same_nodes {
        return Err(other("the graph has other nodes"));
    }
    let options = &plan.options;
    let found = memory(graph, table, options).map_err(|e| NoFit::Other(e.to_string()))?;
    if found.schedule.steps != plan.steps {
        return Err(other("its nodes run in another order"));
    }
    let sizes = Sizing::new(graph, table, options, &found.classes);
    let mut fitted = plan.clone();
    for storage in fitted.storages.values_mut() {
        sizes.resize(storage, plan)?;
    }
    fitted.dynamic = (plan.dynamic.iter().copied())
        .filter(|&v| graph.bytes(v).is_none())
        .collect();
    fitted.folded = found.homes.folded.iter().collect();
    check(graph, table, &fitted).map_err(|violations| {
        let first = violations.first().map(ToString::to_string);
        NoFit::Check(first.unwrap_or_default())
    })
}

/// What the planner says of the smaller shape.
struct Sizing<'a> {
    graph: &'a Graph,
    table: &'a OpTable,
    options: &'a PlanOptions,
    /// The class of each item, and its offset there.
    places: FxHashMap<Item, (usize, u64)>,
}

impl<'a> Sizing<'a> {
    fn new(
        graph: &'a Graph,
        table: &'a OpTable,
        options: &'a PlanOptions,
        classes: &Classes,
    ) -> Self {
        let all = classes.classes.iter().enumerate();
        let places = all.flat_map(|(class, c)| {
            let members = c.members.iter();
            members.map(move |m| (m.item, (class, m.offset)))
        });
        Sizing {
            graph,
            table,
            options,
            places: places.collect(),
        }
    }

    /// Gives what lives in a storage the sizes and offsets of the smaller shape.
    fn resize(&self, storage: &mut Storage, plan: &Plan) -> Result<(), NoFit> {
        let whole = storage.members.iter().find(|m| m.offset == 0);
        let base = whole.and_then(|m| self.places.get(&m.item)).copied();
        for member in &mut storage.members {
            let label = || label(self.graph, plan, member.item);
            let Some(bytes) = self.bytes(plan, member.item) else {
                let what = format!("the size of {:?} is not known", label());
                return Err(NoFit::Other(what));
            };
            let offset = if member.offset == 0 {
                0
            } else {
                // Where it stands to what begins the storage.
                let here = self.places.get(&member.item).copied();
                let offset = here.zip(base).and_then(|((class, at), (first, start))| {
                    at.checked_sub(start).filter(|_| class == first)
                });
                offset.ok_or_else(|| {
                    NoFit::Other(format!("{:?} lies beside something else", label()))
                })?
            };
            let end = offset.checked_add(bytes);
            if end.is_none_or(|end| end > storage.size) {
                return Err(NoFit::Larger {
                    item: label(),
                    bytes,
                    room: storage.size.saturating_sub(offset),
                });
            }
            *member = Member {
                offset,
                bytes,
                ..*member
            };
        }
        Ok(())
    }

    /// Bytes of an item.
    fn bytes(&self, plan: &Plan, item: Item) -> Option<u64> {
        match item {
            Item::Value(value) => self.options.held(self.graph, value),
            Item::Copy(k) => {
                let copy = plan.copies.get(usize::try_from(k).ok()?)?;
                self.options.held(self.graph, copy.value)
            }
            Item::Workspace(node, k) => self.scratch(node, k),
        }
    }

    fn scratch(&self, node: NodeId, k: u32) -> Option<u64> {
        let effects = self.table.effects(self.graph, node);
        let scratch = effects.scratch.get(usize::try_from(k).ok()?);
        scratch.map(|s| s.size)
    }
}

fn label(graph: &Graph, plan: &Plan, item: Item) -> String {
    match item {
        Item::Value(value) => graph.value_label(value),
        Item::Workspace(node, k) => format!("{}#{k}", graph.node_label(node)),
        Item::Copy(k) => match plan.copies.get(k as usize) {
            Some(copy) => format!("copy of {}", graph.value_label(copy.value)),
            None => "copy".to_owned(),
        },
    }
}
