//! Where everything lies, and the demands on that which need no knowledge of time: ids are
//! known, storages lie inside their arenas and members inside their storages, sizes suffice,
//! alignments hold.

use rustc_hash::{FxHashMap, FxHashSet};
use tenure_graph::effects::{OpClass, OpTable};
use tenure_graph::entity::{EntityRef, EntitySet, PrimaryMap, SecondaryMap};
use tenure_graph::plan::{Item, Member, Place, Placement, Plan, Storage};
use tenure_graph::{Graph, NodeId, StorageId, ValueId};

use crate::findings::Findings;
use crate::placements::is_life;
use crate::violation::{Memory, Outside, Region, Violation};

/// Where one item lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spot {
    /// Its bytes, as many as the graph says that it has.
    pub(crate) region: Region,
    /// The storage that it is a member of.
    pub(crate) storage: StorageId,
}

/// Where all items lie, and which values lie outside because of what their producers are.
pub(crate) struct Layout {
    /// Class of each node.
    pub(crate) class: PrimaryMap<NodeId, OpClass>,
    /// Nodes that the plan computes at load time.
    pub(crate) folded: EntitySet<NodeId>,
    /// Values that the plan lists as dynamic.
    pub(crate) dynamic: EntitySet<ValueId>,
    /// Values outside every arena by their producer's class; views of these are not marked.
    pub(crate) outside: SecondaryMap<ValueId, Option<Outside>>,
    /// Copies by the node that reads them, in the order of the plan.
    pub(crate) copies_of: FxHashMap<NodeId, Vec<u32>>,
    /// Copies by the input that reads them.
    pub(crate) copy_at: FxHashMap<(NodeId, u32), u32>,
    values: SecondaryMap<ValueId, Option<Spot>>,
    workspaces: FxHashMap<(NodeId, u32), Spot>,
    copies: Vec<Option<Spot>>,
}

impl Layout {
    /// Where an item lies; `None` if it has no storage.
    pub(crate) fn spot(&self, item: Item) -> Option<Spot> {
        match item {
            Item::Value(v) => self.values[v],
            Item::Workspace(n, k) => self.workspaces.get(&(n, k)).copied(),
            Item::Copy(k) => *self.copies.get(k as usize)?,
        }
    }

    /// Whether a node stands in the schedule.
    pub(crate) fn has_step(&self, node: NodeId) -> bool {
        !self.folded.contains(node)
            && !matches!(
                self.class[node],
                OpClass::Input | OpClass::Constant | OpClass::Variable
            )
    }

    /// Reads the plan's storages; what is wrong with them goes to `findings`.
    pub(crate) fn read(
        graph: &Graph,
        table: &OpTable,
        plan: &Plan,
        findings: &mut Findings<'_>,
    ) -> Layout {
        let mut layout = Layout {
            class: graph.nodes.keys().map(|n| table.class(graph, n)).collect(),
            folded: EntitySet::with_capacity(graph.nodes.len()),
            dynamic: EntitySet::with_capacity(graph.values.len()),
            outside: SecondaryMap::with_capacity(graph.values.len()),
            copies_of: FxHashMap::default(),
            copy_at: FxHashMap::default(),
            values: SecondaryMap::with_capacity(graph.values.len()),
            workspaces: FxHashMap::default(),
            copies: vec![None; plan.copies.len()],
        };
        check_arenas(plan, findings);
        layout.read_lists(graph, plan, findings);
        layout.mark_outside(graph, plan);
        let mut reader = Reader {
            graph,
            table,
            plan,
            findings,
            layout,
            packed: None,
            last_packed: None,
        };
        for (id, storage) in &plan.storages {
            reader.storage(id, storage);
        }
        reader.layout
    }

    /// The plan's lists of nodes, values and copies.
    fn read_lists(&mut self, graph: &Graph, plan: &Plan, findings: &mut Findings<'_>) {
        for &node in &plan.folded {
            if findings.known("node", node.index(), graph.nodes.len()) && !self.folded.insert(node)
            {
                let what = findings.node(node).name;
                findings.push(Violation::ListedTwice { what });
            }
        }
        for &value in &plan.dynamic {
            if findings.known("value", value.index(), graph.values.len())
                && !self.dynamic.insert(value)
            {
                let what = findings.value(value).name;
                findings.push(Violation::ListedTwice { what });
            }
        }
        for (k, copy) in (0u32..).zip(&plan.copies) {
            if !findings.known("value", copy.value.index(), graph.values.len())
                || !findings.known("node", copy.reader.index(), graph.nodes.len())
            {
                continue;
            }
            let input = graph.nodes[copy.reader].input(copy.input as usize);
            let wrong = if input != Some(copy.value) {
                Some("that input does not name the value that is copied")
            } else if !self.has_step(copy.reader) {
                Some("that node does not run")
            } else if graph.bytes(copy.value).is_none() {
                Some("the size of the value is not known")
            } else if self.copy_at.contains_key(&(copy.reader, copy.input)) {
                Some("that input has a copy already")
            } else {
                None
            };
            match wrong {
                Some(reason) => findings.push(Violation::WrongCopy {
                    copy: k,
                    reader: copy.reader,
                    input: copy.input,
                    reason,
                }),
                None => {
                    self.copies_of.entry(copy.reader).or_default().push(k);
                    self.copy_at.insert((copy.reader, copy.input), k);
                }
            }
        }
    }

    fn mark_outside(&mut self, graph: &Graph, plan: &Plan) {
        for (id, node) in &graph.nodes {
            let outside = match self.class[id] {
                _ if self.folded.contains(id) => Some(Outside::Constant),
                OpClass::Constant => Some(Outside::Constant),
                OpClass::Variable => Some(Outside::Variable),
                OpClass::Input
                    if node.subgraph == graph.root && plan.options.inputs == Placement::User =>
                {
                    Some(Outside::CallerInput)
                }
                _ => None,
            };
            if outside.is_some() {
                for &value in node.outputs.iter().flatten() {
                    self.outside[value] = outside;
                }
            }
        }
    }
}

fn check_arenas(plan: &Plan, findings: &mut Findings<'_>) {
    let align = plan.options.align;
    if !align.is_power_of_two() {
        findings.push(Violation::Alignment {
            what: "the plan".to_owned(),
            align,
            least: 1,
        });
    }
    for (k, arena) in (0u32..).zip(&plan.arenas) {
        if !arena.align.is_power_of_two() {
            findings.push(Violation::Alignment {
                what: format!("arena {k}"),
                align: arena.align,
                least: 1,
            });
        }
        if arena.lower_bound > arena.size {
            findings.push(Violation::LowerBound {
                arena: k,
                size: arena.size,
                lower_bound: arena.lower_bound,
            });
        }
    }
}

struct Reader<'r, 'a> {
    graph: &'r Graph,
    table: &'r OpTable,
    plan: &'r Plan,
    findings: &'r mut Findings<'a>,
    layout: Layout,
    /// Values in runs without gaps; made when first needed.
    packed: Option<FxHashSet<ValueId>>,
    /// The storage that was looked at last, and whether one of these is in it.
    last_packed: Option<(StorageId, bool)>,
}

impl Reader<'_, '_> {
    fn storage(&mut self, id: StorageId, storage: &Storage) {
        let least = self.plan.options.align;
        if !storage.align.is_power_of_two() || storage.align < least {
            self.findings.push(Violation::Alignment {
                what: self.findings.storage(id).name,
                align: storage.align,
                least,
            });
            return;
        }
        if !storage.size.is_multiple_of(least) {
            self.findings.push(Violation::SizeNotRounded {
                storage: self.findings.storage(id),
                size: storage.size,
                align: least,
            });
        }
        let steps = self.plan.steps.len() as u64;
        if !is_life(&storage.life, steps) {
            self.findings.push(Violation::BadLife {
                storage: self.findings.storage(id),
                steps,
            });
        }
        let Some((memory, start)) = self.place(id, storage) else {
            return;
        };
        for member in &storage.members {
            self.member(id, storage, member, memory, start);
        }
    }

    /// The storage's first byte, if it lies where it may.
    fn place(&mut self, id: StorageId, storage: &Storage) -> Option<(Memory, u64)> {
        let Place::Arena { arena, offset } = storage.place else {
            return Some((Memory::Caller(id), 0));
        };
        let arenas = &self.plan.arenas;
        if !self.findings.known("arena", arena as usize, arenas.len()) {
            return None;
        }
        let base = &arenas[arena as usize];
        let end = offset.checked_add(storage.size);
        if end.is_none_or(|end| end > base.size) {
            self.findings.push(Violation::StorageOutsideArena {
                storage: self.findings.storage(id),
                arena,
                offset,
                size: storage.size,
                arena_size: base.size,
            });
            return None;
        }
        if !offset.is_multiple_of(storage.align) {
            self.findings.push(Violation::Misaligned {
                what: self.findings.storage(id).name,
                offset,
                align: storage.align,
            });
        }
        if base.align < storage.align {
            self.findings.push(Violation::Alignment {
                what: format!("arena {arena}"),
                align: base.align,
                least: storage.align,
            });
        }
        Some((Memory::Arena(arena), offset))
    }

    fn member(&mut self, id: StorageId, storage: &Storage, m: &Member, memory: Memory, base: u64) {
        let Some(needs) = self.needs(id, m.item) else {
            return;
        };
        if m.bytes < needs {
            self.findings.push(Violation::MemberTooSmall {
                item: self.findings.item(m.item),
                storage: id,
                bytes: m.bytes,
                needs,
            });
            return;
        }
        let end = m.offset.checked_add(m.bytes);
        if end.is_none_or(|end| end > storage.size) {
            self.findings.push(Violation::MemberOutsideStorage {
                item: self.findings.item(m.item),
                storage: id,
                offset: m.offset,
                bytes: m.bytes,
                size: storage.size,
            });
            return;
        }
        // Behind a piece of a run without gaps lies the next one, and no memory to spare.
        let held = self.held(m.item).unwrap_or(m.bytes);
        let end = m.offset.checked_add(held);
        let is_short = end.is_none_or(|end| end > storage.size);
        if is_short && !(m.offset > 0 && self.is_packed(id, storage)) {
            self.findings.push(Violation::MemberOutsideStorage {
                item: self.findings.item(m.item),
                storage: id,
                offset: m.offset,
                bytes: held,
                size: storage.size,
            });
            return;
        }
        let start = base + m.offset;
        let spot = Spot {
            region: Region {
                memory,
                start,
                end: start + needs,
            },
            storage: id,
        };
        let is_aligned =
            matches!(m.item, Item::Workspace(..)) || start.is_multiple_of(self.plan.options.align);
        if !(is_aligned || m.offset > 0 && self.is_packed(id, storage)) {
            self.findings.push(Violation::Misaligned {
                what: self.findings.item(m.item).name,
                offset: start,
                align: self.plan.options.align,
            });
        }
        let before = match m.item {
            Item::Value(v) => self.layout.values[v].replace(spot),
            Item::Workspace(n, k) => self.layout.workspaces.insert((n, k), spot),
            Item::Copy(k) => self.layout.copies[k as usize].replace(spot),
        };
        if let Some(before) = before {
            self.findings.push(Violation::PlacedTwice {
                item: self.findings.item(m.item),
                first: before.storage,
                second: id,
            });
        }
    }

    /// Bytes of memory that the plan's options give a value.
    fn held(&self, item: Item) -> Option<u64> {
        let value = match item {
            Item::Value(value) => value,
            Item::Copy(k) => self.plan.copies[k as usize].value,
            Item::Workspace(..) => return None,
        };
        self.plan.options.held(self.graph, value)
    }

    /// Whether something in a storage lies in a run without gaps.
    fn is_packed(&mut self, id: StorageId, storage: &Storage) -> bool {
        // Members of one storage are asked one after the other.
        if let Some((known, is_packed)) = self.last_packed
            && known == id
        {
            return is_packed;
        }
        let (graph, table) = (self.graph, self.table);
        let packed = self
            .packed
            .get_or_insert_with(|| crate::demands::packed(graph, table));
        let is_packed = storage.members.iter().any(|m| match m.item {
            Item::Value(value) => packed.contains(&value),
            Item::Copy(k) => {
                let copy = self.plan.copies.get(k as usize);
                copy.is_some_and(|c| packed.contains(&c.value))
            }
            Item::Workspace(..) => false,
        });
        self.last_packed = Some((id, is_packed));
        is_packed
    }

    /// The bytes that an item needs; `None` if it does not exist or must have no storage.
    fn needs(&mut self, storage: StorageId, item: Item) -> Option<u64> {
        let graph = self.graph;
        match item {
            Item::Value(v) => {
                if !self.findings.known("value", v.index(), graph.values.len()) {
                    return None;
                }
                let bytes = graph.bytes(v);
                let unknown = if bytes.is_none() {
                    Some(Outside::Dynamic)
                } else {
                    None
                };
                if let Some(outside) = self.layout.outside[v].or(unknown) {
                    self.findings.push(Violation::OutsidePlaced {
                        value: self.findings.value(v),
                        outside,
                        storage,
                    });
                    return None;
                }
                bytes
            }
            Item::Workspace(n, k) => {
                if !self.findings.known("node", n.index(), graph.nodes.len()) {
                    return None;
                }
                let scratch = self.table.effects(graph, n).scratch;
                self.findings
                    .known("workspace", k as usize, scratch.len())
                    .then(|| scratch[k as usize].size)
            }
            Item::Copy(k) => {
                let copies = &self.plan.copies;
                if !self.findings.known("copy", k as usize, copies.len()) {
                    return None;
                }
                let value = copies[k as usize].value;
                (value.index() < graph.values.len())
                    .then(|| graph.bytes(value))
                    .flatten()
            }
        }
    }
}
