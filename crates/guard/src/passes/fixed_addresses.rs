//! Marks outputs whose address a reader keeps from the time the model is loaded.
//!
//! Each such output is marked (`_alloc_fixed_addr`); the first of a node also in the attributes of
//! the node, where the reference's readers look.

use tenure_graph::effects::{OpTable, Trait};
use tenure_graph::patch::{Edit, Slot};
use tenure_graph::{Attr, Graph};

use super::Pass;
use crate::Guarded;
use crate::error::GuardError;
use crate::finding::Kind;
use crate::layout::attributes::is_static;
use crate::options::Options;
use crate::storage::in_order;

const MARK: &str = "_alloc_fixed_addr";
const INDEX: &str = "_alloc_fixed_addr_index";

/// Runs the pass.
///
/// # Errors
/// When an edit does not fit.
pub fn run(graph: &Graph, table: &OpTable, _: &Options) -> Result<Guarded, GuardError> {
    let mut pass = Pass::new(graph, table, Kind::Layout, "fixed-addresses");
    for node in in_order(graph, graph.root) {
        if !is_static(graph, graph.nodes[node].subgraph) {
            continue;
        }
        let outputs = (0u32..).zip(&graph.nodes[node].outputs);
        let fixed = outputs.filter_map(|(o, &value)| Some((o, value?)));
        let fixed = fixed.filter(|&(_, value)| {
            let mut users = pass.work.users(value).iter();
            users.any(|&(n, _)| table.traits(graph, n).has(Trait::FixedAddress))
        });
        let fixed: Vec<_> = fixed.collect();
        let reason = "its reader keeps the address";
        for &(o, _) in &fixed {
            let edit = Edit::SetSlotAttr {
                node,
                slot: Slot::Out(o),
                attr: MARK.into(),
                value: Some(Attr::Bool(true)),
            };
            pass.work.edit(&edit, reason)?;
        }
        if let Some(&(o, value)) = fixed.first() {
            let name = graph.values[value].name.clone();
            for (attr, value) in [(MARK, Attr::Str(name)), (INDEX, Attr::Int(i64::from(o)))] {
                let (attr, value) = (attr.into(), Some(value));
                pass.work
                    .edit(&Edit::SetAttr { node, attr, value }, reason)?;
            }
        }
    }
    pass.done()
}
