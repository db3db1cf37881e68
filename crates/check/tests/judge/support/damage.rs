//! Ways to damage a plan. Many of them leave a right plan, and some of these share more than the
//! plan before: so a walk of such steps visits plans of every kind.

use tenure_graph::control::transfers;
use tenure_graph::effects::OpTable;
use tenure_graph::plan::{Copy, Item, Life, Member, Phase, Place, Plan, Span, Step, Storage};
use tenure_graph::{Graph, StorageId, ValueId};

use super::planner::{place, place_in_order};

/// Damages a plan in one random way, whose name is given back; `None` if there was nothing to do.
pub(crate) fn damage(
    rng: &mut fastrand::Rng,
    graph: &Graph,
    table: &OpTable,
    plan: &mut Plan,
) -> Option<&'static str> {
    match rng.u8(0..24) {
        0..=2 => move_storage(rng, plan),
        3 => shrink_storage(rng, plan),
        4..=8 => merge(rng, graph, table, plan),
        9..=11 => shorten_life(rng, plan),
        12 | 13 => swap_steps(rng, plan),
        14 => drop_member(rng, plan),
        15 => misalign(rng, plan),
        16 => leave_arena(rng, plan),
        17 => place_outside(rng, graph, plan),
        18 => drop_copy(rng, plan),
        19 => move_step(rng, plan),
        20 => shuffle(rng, plan),
        21 | 22 => add_copy(rng, graph, plan),
        _ => shift_member(rng, plan),
    }
}

fn any_storage(rng: &mut fastrand::Rng, plan: &Plan) -> Option<StorageId> {
    let ids: Vec<StorageId> = plan.storages.keys().collect();
    (!ids.is_empty()).then(|| ids[rng.usize(0..ids.len())])
}

fn in_arena(rng: &mut fastrand::Rng, plan: &Plan) -> Option<StorageId> {
    any_storage(rng, plan).filter(|&id| plan.storages[id].place != Place::Caller)
}

fn move_storage(rng: &mut fastrand::Rng, plan: &mut Plan) -> Option<&'static str> {
    let id = in_arena(rng, plan)?;
    let align = plan.options.align;
    let size = plan.storages[id].size;
    let room = plan.arenas[0].size.checked_sub(size)? / align;
    let to = rng.u64(0..=room) * align;
    let Place::Arena { offset, .. } = &mut plan.storages[id].place else {
        return None;
    };
    *offset = to;
    Some("move a storage")
}

fn shrink_storage(rng: &mut fastrand::Rng, plan: &mut Plan) -> Option<&'static str> {
    let id = any_storage(rng, plan)?;
    plan.storages[id].size = plan.storages[id].size.checked_sub(plan.options.align)?;
    Some("shrink a storage")
}

/// Puts the members of two storages into one, most often of two that might well be one.
fn merge(
    rng: &mut fastrand::Rng,
    graph: &Graph,
    table: &OpTable,
    plan: &mut Plan,
) -> Option<&'static str> {
    let pairs = if rng.u8(0..8) > 0 {
        candidates(graph, table, plan)
    } else {
        Vec::new()
    };
    let (a, b) = if pairs.is_empty() {
        (any_storage(rng, plan)?, any_storage(rng, plan)?)
    } else {
        let (from, to) = pairs[rng.usize(0..pairs.len())];
        (holder(plan, from)?, holder(plan, to)?)
    };
    if a == b {
        return None;
    }
    let mut taken = Vec::new();
    let storages: Vec<_> = plan.storages.values().cloned().collect();
    let mut kept = Vec::new();
    for (id, storage) in plan.storages.keys().zip(storages) {
        if id == b {
            taken.push(storage);
        } else {
            kept.push((id, storage));
        }
    }
    let taken = taken.pop()?;
    for (id, storage) in &mut kept {
        if *id == a {
            storage.size = storage.size.max(taken.size);
            storage.members.extend(taken.members.iter().copied());
            let spans = storage.life.iter().chain(&taken.life).copied();
            storage.life = normal(spans.collect());
            if taken.place == Place::Caller {
                storage.place = Place::Caller;
            }
        }
    }
    plan.storages = kept.into_iter().map(|(_, s)| s).collect();
    if rng.bool() {
        drop_idle_copies(plan);
    }
    if rng.u8(0..4) > 0 {
        place(plan);
    }
    Some("merge two storages")
}

/// A copy whose reader could as well read the value, since both are now in one place.
fn drop_idle_copies(plan: &mut Plan) {
    for k in (0..plan.copies.len()).rev() {
        let number = u32::try_from(k).unwrap();
        let (copy, value) = (Item::Copy(number), Item::Value(plan.copies[k].value));
        let both = |s: &tenure_graph::plan::Storage| {
            let has = |item| s.members.iter().any(|m| m.item == item);
            has(copy) && has(value)
        };
        if plan.storages.values().any(both) {
            remove_copy(plan, k);
        }
    }
}

fn remove_copy(plan: &mut Plan, k: usize) {
    let number = u32::try_from(k).unwrap();
    plan.copies.remove(k);
    for storage in plan.storages.values_mut() {
        storage.members.retain(|m| m.item != Item::Copy(number));
        for m in &mut storage.members {
            if let Item::Copy(other) = &mut m.item
                && *other > number
            {
                *other -= 1;
            }
        }
    }
}

fn holder(plan: &Plan, item: Item) -> Option<StorageId> {
    let holds = |s: &tenure_graph::plan::Storage| s.members.iter().any(|m| m.item == item);
    plan.storages
        .iter()
        .find(|(_, s)| holds(s))
        .map(|(id, _)| id)
}

/// Pairs that might share memory: views, updates in place, what passes borders, copies.
fn candidates(graph: &Graph, table: &OpTable, plan: &Plan) -> Vec<(Item, Item)> {
    let mut pairs = Vec::new();
    let mut add = |from: Option<ValueId>, to: Option<ValueId>| {
        if let (Some(from), Some(to)) = (from, to) {
            pairs.push((Item::Value(from), Item::Value(to)));
        }
    };
    for step in &plan.steps {
        let node = &graph.nodes[step.node];
        if step.phase == Phase::Run {
            let effects = table.effects(graph, step.node);
            for a in effects
                .views
                .iter()
                .chain(&effects.refs)
                .chain(&effects.in_place)
            {
                add(node.input(a.input as usize), node.output(a.output as usize));
            }
        } else if step.phase == Phase::End {
            for t in transfers(graph, step.node, table.class(graph, step.node)) {
                add(t.from, t.to);
            }
        }
    }
    for (k, copy) in (0u32..).zip(&plan.copies) {
        pairs.push((Item::Value(copy.value), Item::Copy(k)));
    }
    pairs.retain(|&(a, b)| {
        let (a, b) = (holder(plan, a), holder(plan, b));
        a.is_some() && b.is_some() && a != b
    });
    pairs
}

fn normal(mut spans: Vec<Span>) -> Life {
    spans.sort_unstable();
    let mut life = Life::new();
    for span in spans {
        match life.last_mut() {
            Some(last) if span.first <= last.last.saturating_add(1) => {
                last.last = last.last.max(span.last);
            }
            _ => life.push(span),
        }
    }
    life
}

/// Takes steps out of a life, and puts everything anew where there is room.
fn shorten_life(rng: &mut fastrand::Rng, plan: &mut Plan) -> Option<&'static str> {
    for _ in 0..rng.u8(1..6) {
        let id = any_storage(rng, plan)?;
        let life = &mut plan.storages[id].life;
        let (first, last) = (life.first()?.first, life.last()?.last);
        let cut = rng.u32(first..=last)..=rng.u32(first..=last);
        let spans = life.iter().flat_map(|s| {
            let before = (s.first < *cut.start()).then(|| Span {
                first: s.first,
                last: s.last.min(cut.start() - 1),
            });
            let after = (s.last > *cut.end()).then(|| Span {
                first: s.first.max(cut.end() + 1),
                last: s.last,
            });
            before.into_iter().chain(after)
        });
        *life = normal(spans.collect());
    }
    if rng.u8(0..4) > 0 {
        place(plan);
    }
    Some("shorten a life")
}

/// How many steps there are, if there are any.
fn some_steps(plan: &Plan) -> Option<usize> {
    Some(plan.steps.len()).filter(|&n| n > 0)
}

fn swap_steps(rng: &mut fastrand::Rng, plan: &mut Plan) -> Option<&'static str> {
    let n = some_steps(plan)?;
    let (a, b) = (rng.usize(0..n), rng.usize(0..n));
    let b = if rng.bool() { (a + 1) % n } else { b };
    plan.steps.swap(a, b);
    Some("swap two steps")
}

fn move_step(rng: &mut fastrand::Rng, plan: &mut Plan) -> Option<&'static str> {
    let n = some_steps(plan)?;
    let step = plan.steps.remove(rng.usize(0..n));
    match rng.u8(0..4) {
        0 => {}
        1 => {
            plan.steps.insert(rng.usize(0..n), step);
            plan.steps.insert(rng.usize(0..n), step);
        }
        _ => plan.steps.insert(rng.usize(0..n), step),
    }
    Some("move, drop or double a step")
}

fn drop_member(rng: &mut fastrand::Rng, plan: &mut Plan) -> Option<&'static str> {
    let id = any_storage(rng, plan)?;
    plan.storages[id].members.pop()?;
    Some("drop a member")
}

fn misalign(rng: &mut fastrand::Rng, plan: &mut Plan) -> Option<&'static str> {
    let id = in_arena(rng, plan)?;
    plan.arenas[0].size += plan.options.align;
    let Place::Arena { offset, .. } = &mut plan.storages[id].place else {
        return None;
    };
    *offset += 1;
    Some("misalign a storage")
}

fn leave_arena(rng: &mut fastrand::Rng, plan: &mut Plan) -> Option<&'static str> {
    let id = in_arena(rng, plan)?;
    let size = plan.arenas[0].size;
    let Place::Arena { arena, offset } = &mut plan.storages[id].place else {
        return None;
    };
    match rng.u8(0..3) {
        0 => *arena += 1,
        1 => *offset = size,
        _ => *offset = u64::MAX - plan.options.align + 1,
    }
    Some("leave the arena")
}

fn place_outside(rng: &mut fastrand::Rng, graph: &Graph, plan: &mut Plan) -> Option<&'static str> {
    let id = any_storage(rng, plan)?;
    let values: Vec<ValueId> = graph
        .values
        .keys()
        .filter(|&v| holder(plan, Item::Value(v)).is_none())
        .collect();
    let value = *values.get(rng.usize(0..values.len().max(1)))?;
    plan.storages[id].members.push(Member {
        item: Item::Value(value),
        offset: 0,
        bytes: graph.bytes(value).unwrap_or(0),
    });
    Some("place what lies outside")
}

fn drop_copy(rng: &mut fastrand::Rng, plan: &mut Plan) -> Option<&'static str> {
    let k = rng.usize(0..plan.copies.len().max(1));
    plan.copies.get(k)?;
    remove_copy(plan, k);
    Some("drop a copy")
}

/// One more input reads a copy, which is held while its reader runs.
fn add_copy(rng: &mut fastrand::Rng, graph: &Graph, plan: &mut Plan) -> Option<&'static str> {
    let reader = plan.steps[rng.usize(0..some_steps(plan)?)].node;
    let inputs = &graph.nodes[reader].inputs;
    let input = rng.usize(0..inputs.len().max(1));
    let value = (*inputs.get(input)?)?;
    let bytes = graph.bytes(value)?;
    let input = u32::try_from(input).unwrap();
    let copied = |c: &Copy| (c.reader, c.input) == (reader, input);
    if plan.copies.iter().any(copied) {
        return None;
    }
    let at = |s: &Step| s.node == reader;
    let first = u32::try_from(plan.steps.iter().position(at)?).unwrap();
    let last = u32::try_from(plan.steps.iter().rposition(at)?).unwrap();
    let k = u32::try_from(plan.copies.len()).unwrap();
    plan.copies.push(Copy {
        value,
        reader,
        input,
        reason: "is damage".to_owned(),
    });
    plan.storages.push(Storage {
        place: Place::Arena {
            arena: 0,
            offset: 0,
        },
        size: bytes.next_multiple_of(plan.options.align),
        align: plan.options.align,
        life: normal(vec![Span { first, last }]),
        members: [Member {
            item: Item::Copy(k),
            offset: 0,
            bytes,
        }]
        .into_iter()
        .collect(),
    });
    place(plan);
    Some("add a copy")
}

fn shuffle(rng: &mut fastrand::Rng, plan: &mut Plan) -> Option<&'static str> {
    let mut order: Vec<StorageId> = plan.storages.keys().collect();
    rng.shuffle(&mut order);
    place_in_order(plan, &order);
    Some("place in another order")
}

fn shift_member(rng: &mut fastrand::Rng, plan: &mut Plan) -> Option<&'static str> {
    let id = any_storage(rng, plan)?;
    let align = plan.options.align;
    let storage = &mut plan.storages[id];
    let n = storage.members.len();
    let member = storage.members.get_mut(rng.usize(0..n.max(1)))?;
    member.offset = rng.u64(0..=storage.size / align) * align;
    Some("shift a member")
}
