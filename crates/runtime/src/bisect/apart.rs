//! Plans in which some storages are apart, or some readers have copies of their own, while all else
//! stays where it is; and what lies elsewhere than in another plan.

use std::collections::BTreeMap;

use rustc_hash::FxHashSet;
use tenure_graph::plan::{Copy, Item, Life, Member, Place, Plan, Span, Storage};
use tenure_graph::plan_file::PlanFile;
use tenure_graph::{Graph, NodeId};

use super::Set;

/// Whether a storage can be moved: memory of the caller is apart already.
pub(super) fn is_movable(storage: &Storage) -> bool {
    matches!(storage.place, Place::Arena { .. })
}

/// The end of each arena, where what is apart is laid.
struct Ends {
    ends: Vec<u64>,
    gap: u64,
}

impl Ends {
    fn new(plan: &Plan, gap: u64) -> Self {
        let ends = plan.arenas.iter().map(|a| a.size).collect();
        Ends { ends, gap }
    }

    /// Room for so many bytes, with unused ones before.
    fn take(&mut self, arena: u32, size: u64, align: u64) -> Option<Place> {
        let end = self.ends.get_mut(usize::try_from(arena).ok()?)?;
        let offset = end.checked_add(self.gap)?.checked_next_multiple_of(align)?;
        *end = offset.checked_add(size)?;
        Some(Place::Arena { arena, offset })
    }

    /// Makes the arenas as large as they have become, with unused bytes at their ends.
    fn settle(&self, plan: &mut Plan) -> Option<()> {
        for (arena, end) in plan.arenas.iter_mut().zip(&self.ends) {
            if *end > arena.size {
                arena.size = end.checked_add(self.gap)?;
                arena.proven_optimal = false;
            }
        }
        Some(())
    }
}

/// The plan with these storages behind the ends of their arenas; `None` where sizes do not fit in 64
/// bits.
pub(super) fn apart(plan: &Plan, set: &Set, gap: u64) -> Option<Plan> {
    let mut plan = plan.clone();
    let mut ends = Ends::new(&plan, gap);
    for (id, storage) in plan.storages.iter_mut() {
        if let (true, Place::Arena { arena, .. }) = (set.contains(&id), storage.place) {
            storage.place = ends.take(arena, storage.size, storage.align.max(1))?;
        }
    }
    ends.settle(&mut plan)?;
    Some(plan)
}

/// The plan with copies of its own, in memory that is apart, for each of these inputs of a node;
/// `None` where it has one already or there can be none.
pub(super) fn with_copies(
    graph: &Graph,
    plan: &Plan,
    reader: NodeId,
    slots: &[u32],
    gap: u64,
) -> Option<Plan> {
    let mut plan = plan.clone();
    let mut ends = Ends::new(&plan, gap);
    let steps = (0u32..).zip(&plan.steps);
    let mut mine = steps.filter(|(_, s)| s.node == reader).map(|(at, _)| at);
    let first = mine.next()?;
    let last = mine.last().unwrap_or(first);
    for &input in slots {
        let value = graph.nodes[reader].input(usize::try_from(input).ok()?)?;
        let is_it = |c: &Copy| c.reader == reader && c.input == input;
        if plan.copies.iter().any(is_it) {
            return None;
        }
        let bytes = plan.options.held(graph, value)?;
        let member = |m: &Member| m.item == Item::Value(value);
        let home = plan
            .storages
            .values()
            .find(|s| s.members.iter().any(member))?;
        let Place::Arena { arena, .. } = home.place else {
            return None;
        };
        let align = home.align.max(plan.options.align).max(1);
        let size = bytes.checked_next_multiple_of(plan.options.align.max(1))?;
        let number = u32::try_from(plan.copies.len()).ok()?;
        plan.copies.push(Copy {
            value,
            reader,
            input,
            reason: "to see whether its reader needs the value for longer".to_owned(),
        });
        plan.storages.push(Storage {
            place: ends.take(arena, size, align)?,
            size,
            align,
            life: Life::from_elem(Span { first, last }, 1),
            members: smallvec::smallvec![Member {
                item: Item::Copy(number),
                offset: 0,
                bytes,
            }],
        });
    }
    ends.settle(&mut plan)?;
    Some(plan)
}

/// The nodes whose outputs lie elsewhere than in another plan, or together with others.
#[must_use]
pub fn changed(graph: &Graph, plan: &PlanFile, base: &PlanFile) -> Vec<NodeId> {
    let places = |file: &PlanFile| {
        let mut places = BTreeMap::new();
        for storage in &file.storages {
            for (at, value) in storage.values.iter().enumerate() {
                let beside = at.checked_sub(1).and_then(|b| storage.values.get(b));
                let beside = beside.map(|b| b.name.clone());
                let place = (
                    storage.arena,
                    storage.offset,
                    value.offset,
                    value.bytes,
                    beside,
                );
                places.insert(value.name.clone(), place);
            }
        }
        places
    };
    let (now, before) = (places(plan), places(base));
    let moved: FxHashSet<&str> = (now.iter())
        .filter(|(name, place)| before.get(*name) != Some(place))
        .map(|(name, _)| name.as_str())
        .collect();
    let has_moved = |&id: &NodeId| {
        let mut outputs = graph.nodes[id].outputs.iter().flatten();
        outputs.any(|&v| moved.contains(graph.value_label(v).as_str()))
    };
    graph.nodes.keys().filter(has_moved).collect()
}
