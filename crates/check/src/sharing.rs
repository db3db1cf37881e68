//! Demands on the plan as a whole: what may share memory under its options, whose lives may meet,
//! and what may be computed at load time.

use rustc_hash::FxHashSet;
use tenure_graph::effects::demands::{is_alone, is_output_kept};
use tenure_graph::effects::{OpClass, OpTable};
use tenure_graph::plan::{Item, Member, Place, Plan, Sharing};
use tenure_graph::{Graph, NodeId, StorageId, ValueId};

use crate::demands::Demands;
use crate::findings::Findings;
use crate::layout::Layout;
use crate::placements::{Placement, clashes};
use crate::violation::{Outside, Region, Violation};

/// Storages that are held at the same step have no byte in common. Gives back those that have.
pub(crate) fn lives(plan: &Plan, findings: &Findings<'_>) -> Vec<Violation> {
    let mut ids = Vec::with_capacity(plan.storages.len());
    let mut placements = Vec::with_capacity(plan.storages.len());
    for (id, s) in &plan.storages {
        if let Place::Arena { arena, offset } = s.place {
            ids.push(id);
            placements.push(Placement {
                size: s.size,
                align: s.align,
                life: &s.life,
                offset,
                arena,
            });
        }
    }
    let clashes = clashes(&placements).into_iter();
    clashes
        .map(|clash| clash.violation(|i| findings.storage(ids[i])))
        .collect()
}

/// Members of a storage are values that the options let share it.
pub(crate) fn members(plan: &Plan, demands: &mut Demands, findings: &mut Findings<'_>) {
    if plan.options.sharing == Sharing::Full && !plan.options.hands_nothing_on() {
        return;
    }
    for (storage, s) in &plan.storages {
        let mut class = |item: Item| match item {
            Item::Value(v) => Ok(demands.shared.of(v)),
            Item::Copy(k) => match demands.written_copies.get(&k) {
                Some(&v) => Ok(demands.shared.of(v)),
                None => Err(item),
            },
            Item::Workspace(..) => Err(item),
        };
        let mut members: Vec<Member> = s.members.to_vec();
        members.sort_by_key(|m| m.offset);
        // Of those that were met, the one that reaches furthest: what lies behind it shares nothing.
        let mut furthest: Option<Member> = None;
        for member in members {
            let end = |m: &Member| m.offset.saturating_add(m.bytes);
            let meets = furthest.filter(|f| member.offset < end(f) || member.bytes == 0);
            if let Some(other) = meets.filter(|f| class(f.item) != class(member.item)) {
                findings.push(Violation::ForbiddenSharing {
                    storage,
                    first: findings.item(other.item),
                    second: findings.item(member.item),
                    sharing: plan.options.sharing,
                });
                break;
            }
            if furthest.is_none_or(|f| end(&f) < end(&member)) {
                furthest = Some(member);
            }
        }
    }
}

/// Outputs that are not lent are held at every step, and so is everything where memory is never
/// handed on: since storages held together have no byte in common, nobody else is there.
pub(crate) fn kept(graph: &Graph, plan: &Plan, findings: &mut Findings<'_>) {
    let options = &plan.options;
    let results = graph.subgraphs[graph.root].output;
    let results = results.map(|o| graph.nodes[o].inputs.as_slice());
    let kept: FxHashSet<ValueId> = (results.into_iter().flatten().enumerate())
        .filter(|&(k, _)| options.keeps_output(k))
        .filter_map(|(_, value)| *value)
        .collect();
    if kept.is_empty() && !options.hands_nothing_on() {
        return;
    }
    let steps = plan.steps.len() as u64;
    for (id, storage) in &plan.storages {
        let held: u64 = (storage.life.iter())
            .map(|s| u64::from(s.last) - u64::from(s.first) + 1)
            .sum();
        let is_kept = |m: &&Member| {
            options.hands_nothing_on() || matches!(m.item, Item::Value(v) if kept.contains(&v))
        };
        let mut members = storage.members.iter();
        let item = members.find(is_kept).map(|m| m.item);
        if let Some(item) = item.filter(|_| held < steps && storage.size > 0) {
            findings.push(Violation::NotKept {
                item: findings.item(item),
                storage: findings.storage(id),
            });
        }
    }
}

/// What a node makes that shares memory with nobody has bytes that nothing else ever has.
pub(crate) fn no_reuse(graph: &Graph, table: &OpTable, plan: &Plan, findings: &mut Findings<'_>) {
    let named: FxHashSet<&str> = plan.options.no_reuse.iter().map(String::as_str).collect();
    let is_alone = |id: NodeId| {
        let node = &graph.nodes[id];
        named.contains(node.name.as_str()) || named.contains(&*node.op) || is_alone(node)
    };
    let alone = |item: Item| match item {
        Item::Value(v) => {
            let made = &graph.values[v];
            let node = &graph.nodes[made.producer];
            is_alone(made.producer) || is_output_kept(node, made.output)
        }
        Item::Workspace(n, k) => {
            let scratch = || table.effects(graph, n).scratch.get(k as usize).copied();
            is_alone(n) || scratch().is_some_and(|s| s.alone)
        }
        Item::Copy(_) => false,
    };
    let mut members = plan.storages.values().flat_map(|s| &s.members);
    if !members.any(|m| alone(m.item)) {
        return;
    }
    // (place, whether something in it wants to be alone, storage)
    let mut places: Vec<(Region, bool, StorageId)> = Vec::new();
    for (id, s) in &plan.storages {
        let mine = s.members.iter().find(|m| alone(m.item));
        let memory = match s.place {
            Place::Arena { arena, .. } => crate::Memory::Arena(arena),
            Place::Caller => crate::Memory::Caller(id),
        };
        let start = match s.place {
            Place::Arena { offset, .. } => offset,
            Place::Caller => 0,
        };
        let end = start.saturating_add(s.size);
        let region = Region { memory, start, end };
        let meets = |a: &Member, b: &Member| {
            a.offset < b.offset.saturating_add(b.bytes)
                && b.offset < a.offset.saturating_add(a.bytes)
        };
        let other = |mine: &Member| {
            let mut others = s.members.iter().filter(|m| m.item != mine.item);
            others.find(|m| meets(m, mine)).copied()
        };
        if let Some((mine, other)) = mine.and_then(|mine| Some((mine, other(mine)?))) {
            findings.push(Violation::Reused {
                item: findings.item(mine.item),
                other: findings.item(other.item),
                region,
            });
        }
        if start < end {
            places.push((region, mine.is_some(), id));
        }
    }
    places.sort_unstable();
    // The places met so far that reach furthest: of all, and of those that want to be alone.
    let mut furthest: Option<(Region, StorageId)> = None;
    let mut furthest_alone: Option<(Region, StorageId)> = None;
    for (region, alone, id) in places {
        let other = if alone { furthest } else { furthest_alone };
        if let Some((at, other)) = other
            && at.meets(&region)
        {
            let (mine, other) = if alone { (id, other) } else { (other, id) };
            let first = |s: StorageId| plan.storages[s].members.first().map(|m| m.item);
            if let (Some(mine), Some(other)) = (first(mine), first(other)) {
                findings.push(Violation::Reused {
                    item: findings.item(mine),
                    other: findings.item(other),
                    region: Region {
                        end: at.end.min(region.end),
                        ..region
                    },
                });
            }
        }
        let further = |f: Option<(Region, StorageId)>| {
            f.is_none_or(|(r, _)| (r.memory, r.end) < (region.memory, region.end))
        };
        if further(furthest) {
            furthest = Some((region, id));
        }
        if alone && further(furthest_alone) {
            furthest_alone = Some((region, id));
        }
    }
}

/// Values that the plan lists as dynamic have no known size.
pub(crate) fn dynamic(graph: &Graph, plan: &Plan, findings: &mut Findings<'_>) {
    for &value in &plan.dynamic {
        if graph.bytes(value).is_some() {
            findings.push(Violation::DynamicList {
                value: findings.value(value),
                listed: true,
            });
        }
    }
}

/// What is computed at load time depends on nothing but constants and the shapes of values.
///
/// That the inputs are constants is asked of each folded node alone; since a graph has no cycles,
/// this holds for all that is before them as well.
pub(crate) fn folded(
    graph: &Graph,
    table: &OpTable,
    plan: &Plan,
    layout: &Layout,
    findings: &mut Findings<'_>,
) {
    let constant = |v: ValueId| layout.outside[v] == Some(Outside::Constant);
    for &node in &plan.folded {
        let n = &graph.nodes[node];
        let effects = table.effects(graph, node);
        let static_shape = |v: ValueId| {
            let shape = graph.values[v].shape.as_ref();
            shape.is_some_and(|s| s.known().is_some())
        };
        let fixed = |(k, input): (u32, &Option<ValueId>)| {
            input.is_none_or(|v| constant(v) || effects.shape_only.contains(&k) && static_shape(v))
        };
        let reason = if !plan.options.fold {
            "the options do not allow it"
        } else if effects.class != OpClass::Compute || !n.bodies.is_empty() {
            "its class of operator is not computed"
        } else if !effects.pure || !effects.refs.is_empty() {
            "it may give another result in each run, or does more than compute"
        } else if !(0u32..).zip(&n.inputs).all(fixed) {
            "one of its inputs is no constant"
        } else {
            continue;
        };
        findings.push(Violation::NotFoldable {
            node: findings.node(node),
            reason,
        });
    }
}
