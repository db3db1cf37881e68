//! What was done to a program, for people and for tools: one entry a repair, and the sums.
//!
//! Most repairs answer a finding, by a copy. Some are edits alone: an edge that lets a reader come
//! first, a copy that nobody needs, memory that is cleared. The sums are taken from the two
//! programs and not from the list, so they hold whatever the stages did on the way.

use rustc_hash::FxHashSet;
use std::fmt;
use tenure_graph::effects::{OpTable, Trait};
use tenure_graph::patch::Change;
use tenure_graph::{Graph, NodeId};

use crate::finding::Kind;
use crate::{Edited, Finding, Guarded};

/// Something that was done, and why.
#[derive(Clone, Copy, Debug)]
pub enum Repair<'a> {
    /// The answer to a finding.
    Found(&'a Finding),
    /// An edit that no finding speaks of.
    Edited(&'a Edited),
}

impl Repair<'_> {
    /// What kind of danger it is about.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Repair::Found(finding) => finding.kind,
            Repair::Edited(edited) => edited.kind,
        }
    }
}

impl fmt::Display for Repair<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Repair::Found(finding) => finding.fmt(f),
            Repair::Edited(Edited { kind, stage, line }) => write!(f, "{kind} ({stage}): {line}"),
        }
    }
}

/// All repairs of a program, in the order in which the stages made them: first the answers to
/// findings, then the edits that none of these speaks of. That an input reads a copy from now on
/// is part of making the copy.
#[must_use]
pub fn repairs(guarded: &Guarded) -> Vec<Repair<'_>> {
    let answered = guarded.findings.iter().filter(|f| !f.repair.is_empty());
    let copies: FxHashSet<&str> = answered.clone().filter_map(|f| f.by.as_deref()).collect();
    let all_of = |change| {
        let edits = guarded.edits.iter().map(|e| &e.line);
        let edits = edits.filter(move |line| line.change == change);
        edits.map(|line| &*line.node).collect::<FxHashSet<&str>>()
    };
    let (added, taken_out) = (all_of(Change::Added), all_of(Change::TakenOut));
    let alone = guarded.edits.iter().filter(|e| match e.line.change {
        Change::Redirected => false,
        // What was put in and taken out again was no repair.
        Change::Added => !copies.contains(&*e.line.node) && !taken_out.contains(&*e.line.node),
        Change::TakenOut => !added.contains(&*e.line.node),
        Change::Ordered | Change::Released | Change::Marked | Change::Merged => true,
    });
    answered
        .map(Repair::Found)
        .chain(alone.map(Repair::Edited))
        .collect()
}

/// How much a program was changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Nodes that copy, put in.
    pub copies: usize,
    /// Bytes that these copy, where they are known: each node once, also those of a loop's body.
    pub bytes: u64,
    /// Other nodes that were put in.
    pub nodes: usize,
    /// Nodes that were taken out.
    pub taken_out: usize,
    /// Control edges that the program before has not.
    pub control_edges: usize,
}

impl Sums {
    /// Compares a program with what it was before; nodes are told by their labels.
    #[must_use]
    pub fn of(before: &Graph, after: &Graph, table: &OpTable) -> Self {
        let labels = |graph: &Graph| -> FxHashSet<String> {
            let labels = graph.nodes.keys().map(|n| graph.node_label(n));
            labels.collect()
        };
        let (old, new) = (labels(before), labels(after));
        let mut sums = Sums {
            taken_out: old.difference(&new).count(),
            ..Sums::default()
        };
        for (id, node) in &after.nodes {
            if old.contains(&after.node_label(id)) {
                continue;
            }
            if table.traits(after, id).has(Trait::Copies) {
                sums.copies += 1;
                let bytes = node.outputs.iter().flatten();
                let bytes = bytes.filter_map(|&v| after.bytes(v));
                sums.bytes = bytes.fold(sums.bytes, u64::saturating_add);
            } else {
                sums.nodes += 1;
            }
        }
        let edges = |graph: &Graph| -> FxHashSet<(String, String)> {
            let waits = |(id, node): (NodeId, &tenure_graph::Node)| {
                let label = graph.node_label(id);
                let pair = |&n: &NodeId| (graph.node_label(n), label.clone());
                node.control.iter().map(pair).collect::<Vec<_>>()
            };
            graph.nodes.iter().flat_map(waits).collect()
        };
        let given = edges(before);
        sums.control_edges = edges(after).difference(&given).count();
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::graph;
    use crate::{Options, compile};
    use tenure_graph::Dialect;

    /// The repairs of a program line by line, and the sums.
    fn told(lines: &str) -> (Vec<String>, Sums) {
        let before = graph(lines);
        let table = OpTable::builtin(Dialect::Ge);
        let guarded = compile::run(&before, &table, &Options::default()).unwrap();
        let lines = repairs(&guarded).iter().map(ToString::to_string).collect();
        (lines, Sums::of(&before, guarded.graph(&before), &table))
    }

    /// Whatever makes the guard look at a program again.
    #[test]
    fn each_repair_is_told_once() {
        let (lines, _) = told(
            "%x: float32[4] = Relu()\n%i: int32[1] = Relu()\n\
             %w: float32[4] <ref_input = 0> = AddInplace(%x)\n%r: float32[4] = Mul(%x, %w)\n\
             LabelSwitchByIndex(%i) @s\nNetOutput(%r) @results",
        );
        let told_once: FxHashSet<&String> = lines.iter().collect();
        assert_eq!(told_once.len(), lines.len(), "{lines:#?}");
        let marks = lines.iter().filter(|l| l.contains("_alloc_fixed_addr\""));
        assert_eq!(marks.count(), 2, "{lines:#?}");
    }

    #[test]
    fn an_edge_is_a_repair() {
        let (lines, sums) = told(
            "%x: float32[4] = Relu()\n%w: float32[4] <ref_input = 0> = AddInplace(%x)\n%r: float32[4] = Relu(%x)",
        );
        let line = "read-write (values): let \"w\" wait for \"r\": it reads what the other writes";
        assert_eq!(lines, [line]);
        let expected = Sums {
            control_edges: 1,
            ..Sums::default()
        };
        assert_eq!(sums, expected);
    }

    #[test]
    fn a_copy_is_told_once_with_its_bytes() {
        let (lines, sums) = told(
            "%x: float32[4] = Relu()\n%w: float32[4] <ref_input = 0> = AddInplace(%x)\n%r: float32[4] = Mul(%x, %w)",
        );
        let line = "read-write (values, value-overwritten): input 0 of \"w\": it would write what \
                    others read; copied by \"w_value_copy\" (16 bytes)";
        assert_eq!(lines, [line]);
        let expected = Sums {
            copies: 1,
            bytes: 16,
            ..Sums::default()
        };
        assert_eq!(sums, expected);
    }

    #[test]
    fn what_is_cleared_and_what_is_taken_out() {
        let (lines, sums) = told(
            "%x: float32[4] = Relu()\n%c: float32[4] = Identity(%x)\n%a: float32[4] = ScatterAdd(%c) {atomic_output_index = [0]}\n%r: float32[4] = Relu(%a)",
        );
        assert!(
            lines.iter().any(|l| l.contains("take out \"c\"")),
            "{lines:?}"
        );
        let cleaner = lines.iter().any(|l| l.contains("add AtomicAddrClean"));
        assert!(cleaner, "{lines:?}");
        assert_eq!((sums.nodes, sums.taken_out, sums.copies), (1, 1, 0));
    }
}
