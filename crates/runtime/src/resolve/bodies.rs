//! Nodes with bodies: what passes between an owner and the subgraphs that it runs, and where the
//! run goes on.

use rustc_hash::FxHashSet;
use smallvec::SmallVec;
use tenure_graph::control::{Pass, Point, Transfer, transfers};
use tenure_graph::effects::OpClass;
use tenure_graph::{Attrs, DType, NodeId, ValueId};

use super::Resolve;
use crate::RuntimeError;
use crate::memory::Address;
use crate::program::{Action, Condition, Slice, Trips};

/// A node with bodies between its first and its last step.
pub(super) struct Owner {
    node: NodeId,
    class: OpClass,
    transfers: Vec<Transfer>,
    /// Body that is open.
    body: usize,
    /// First instruction of each body.
    entries: Vec<usize>,
    /// The instruction that goes to a body when the node begins, where the first one is not simply
    /// what comes next.
    start: Option<usize>,
    /// Instructions that go elsewhere when a body ends, with the body.
    ends: Vec<(usize, usize)>,
    /// Where a loop that counts its passes does so.
    counter: Address,
    /// Passes that its outputs have slices for.
    planned: Option<i64>,
    /// Where it is written how many passes a scan has, if only the run knows.
    pub(super) passes: Option<Address>,
}

impl Owner {
    pub(super) fn node(&self) -> NodeId {
        self.node
    }

    pub(super) fn transfers(&self) -> &[Transfer] {
        &self.transfers
    }

    pub(super) fn counter(&self) -> Address {
        self.counter
    }

    pub(super) fn is_scan(&self) -> bool {
        self.class == OpClass::Scan
    }

    fn at(&self, point: Point) -> SmallVec<[Transfer; 8]> {
        let here = self.transfers.iter().filter(|t| t.at == point);
        here.copied().collect()
    }
}

impl Resolve<'_> {
    pub(super) fn begin(&mut self, id: NodeId) -> Result<(), RuntimeError> {
        let class = self.class(id);
        let mut transfers = transfers(self.graph, id, class);
        let counts = matches!(class, OpClass::Loop | OpClass::Scan);
        if !counts && !matches!(class, OpClass::Branch | OpClass::Call | OpClass::While) {
            self.refuse(id, "nodes with bodies of this kind are not run yet");
            transfers.clear();
        }
        let node = &self.graph.nodes[id];
        // Another name of a result is settled when that is known.
        let names = transfers.iter().filter(|t| t.gives_back_a_name());
        let named: FxHashSet<ValueId> = names.filter_map(|t| t.to).collect();
        for &value in node.outputs.iter().flatten() {
            if !named.contains(&value) {
                self.places.settle(value, None)?;
            }
        }
        self.copies(id)?;
        let mut owner = Owner {
            node: id,
            class,
            transfers,
            body: 0,
            entries: vec![0; node.bodies.len()],
            start: None,
            ends: Vec::new(),
            counter: Address::default(),
            planned: None,
            passes: None,
        };
        if counts {
            owner.counter = self.places.counter()?;
        }
        for t in owner.at(Point::Begin) {
            self.transfer(id, &t)?;
        }
        let start = match class {
            OpClass::Branch => Some(self.choice(id)?),
            OpClass::While => Some(Action::Jump(0)),
            OpClass::Loop | OpClass::Scan => Some(self.head(&mut owner)?),
            _ => None,
        };
        if let Some(action) = start {
            owner.start = Some(self.code.len());
            self.emit(id, action);
        }
        self.stack.push(owner);
        Ok(())
    }

    /// How a branch chooses its body; where each begins is filled in when all are known.
    fn choice(&mut self, id: NodeId) -> Result<Action, RuntimeError> {
        let node = &self.graph.nodes[id];
        let Some(value) = node.input(0) else {
            self.refuse(id, "its condition is left out");
            return Ok(Action::Jump(0));
        };
        let number = self.condition(id, value, self.source(id, 0, value)?)?;
        let by_truth = node
            .bodies
            .iter()
            .any(|b| matches!(&*b.role, "then" | "else"));
        Ok(if by_truth {
            Action::Test {
                condition: number,
                yes: 0,
                no: 0,
            }
        } else {
            Action::Select {
                number,
                targets: Vec::new(),
            }
        })
    }

    /// A tensor of at least one element whose type is one of numbers.
    fn condition(
        &mut self,
        node: NodeId,
        value: ValueId,
        at: Address,
    ) -> Result<Condition, RuntimeError> {
        let at = self.deciding(node, value, at)?;
        let dtype = self.graph.values[value].dtype;
        if crate::numbers::encode(dtype, [0.0]).is_none_or(|one| one.len() > at.len) {
            self.refuse(node, "its condition is no number");
        }
        Ok(Condition { at, dtype })
    }

    pub(super) fn enter(&mut self, k: u32) -> Result<(), RuntimeError> {
        let Some(mut owner) = self.stack.pop() else {
            return Err(out_of_place());
        };
        owner.body = usize::try_from(k).unwrap_or(usize::MAX);
        match owner.entries.get_mut(owner.body) {
            Some(entry) => *entry = self.code.len(),
            None => return Err(out_of_place()),
        }
        for t in owner.at(Point::Enter(k)) {
            self.pass(owner.node, &owner, &t)?;
        }
        self.stack.push(owner);
        Ok(())
    }

    /// The output node of a body: the owner takes the results, and it is decided where the run
    /// goes on.
    pub(super) fn leave(&mut self, output: NodeId) -> Result<(), RuntimeError> {
        let Some(mut owner) = self.stack.pop() else {
            return Err(out_of_place());
        };
        self.copies(output)?;
        let k = u32::try_from(owner.body).unwrap_or(u32::MAX);
        let mut condition = None;
        for t in owner.at(Point::Leave(k)) {
            if let (Pass::Take, Some(value)) = (t.pass, t.from) {
                let at = self.sources(output, value)?;
                let at = at.first().copied().unwrap_or_default();
                let taken = self.condition(owner.node, value, at)?;
                condition = Some(taken);
                // What comes after may be written over the condition.
                if owner.class == OpClass::Loop {
                    let (counter, condition) = (owner.counter, taken);
                    self.emit(output, Action::Decide { counter, condition });
                }
            } else {
                self.pass(output, &owner, &t)?;
            }
            // As many passes must run as there are slices to write.
            if let (Pass::Append, Some(whole)) = (t.pass, t.to) {
                owner.planned = self.passes(&owner, whole).or(owner.planned);
            }
        }
        self.release(output);
        if matches!(owner.class, OpClass::Loop | OpClass::Scan) {
            let counter = owner.counter;
            self.emit(output, Action::Step { counter });
            if let Some(head) = owner.start {
                self.emit(output, Action::Jump(head));
            }
            self.stack.push(owner);
            return Ok(());
        }
        owner.ends.push((self.code.len(), owner.body));
        match (owner.class, condition) {
            (OpClass::While, Some(condition)) => {
                let test = Action::Test {
                    condition,
                    yes: 0,
                    no: 0,
                };
                self.emit(output, test);
            }
            (OpClass::While | OpClass::Branch, _) => self.emit(output, Action::Jump(0)),
            _ => {
                owner.ends.pop();
            }
        }
        self.stack.push(owner);
        Ok(())
    }

    /// All instructions of the node are known: those that go elsewhere get their targets.
    pub(super) fn end(&mut self) -> Result<(), RuntimeError> {
        let Some(owner) = self.stack.pop() else {
            return Err(out_of_place());
        };
        let end = self.code.len();
        let bodies = &self.graph.nodes[owner.node].bodies;
        let entry = |role: &str| {
            let found = bodies.iter().position(|b| &*b.role == role);
            found.and_then(|k| owner.entries.get(k)).copied()
        };
        let decided = bodies.iter().position(|b| b.is_condition());
        let condition = decided.and_then(|k| owner.entries.get(k)).copied();
        let body = bodies.iter().position(|b| !b.is_condition());
        let body = body.and_then(|k| owner.entries.get(k)).copied();
        if owner.class == OpClass::While && (condition.is_none() || body.is_none()) {
            self.refuse(owner.node, "it has no condition or no body");
        }
        if let Some(start) = owner.start.and_then(|at| self.code.get_mut(at)) {
            match &mut start.action {
                Action::Test { yes, no, .. } if owner.class == OpClass::Branch => {
                    *yes = entry("then").unwrap_or(end);
                    *no = entry("else").unwrap_or(end);
                }
                Action::Select { targets, .. } => targets.clone_from(&owner.entries),
                Action::Jump(to) => *to = condition.unwrap_or(end),
                Action::Next { exit, .. } => *exit = end,
                _ => {}
            }
        }
        if matches!(owner.class, OpClass::Loop | OpClass::Scan) {
            let (counter, planned) = (owner.counter, owner.planned);
            self.emit(owner.node, Action::Done { counter, planned });
            return Ok(());
        }
        for &(at, k) in &owner.ends {
            let Some(instruction) = self.code.get_mut(at) else {
                continue;
            };
            match &mut instruction.action {
                Action::Test { yes, no, .. } => {
                    *yes = body.unwrap_or(end);
                    *no = end;
                }
                Action::Jump(to) if owner.class == OpClass::While && decided != Some(k) => {
                    *to = condition.unwrap_or(end);
                }
                Action::Jump(to) => *to = end,
                _ => {}
            }
        }
        Ok(())
    }

    /// What a loop that counts its passes begins with, and the instruction at its head.
    fn head(&mut self, owner: &mut Owner) -> Result<Action, RuntimeError> {
        let (id, counter) = (owner.node, owner.counter);
        self.begin_pooled(owner)?;
        let node = &self.graph.nodes[id];
        let mut condition = None;
        let trips = if owner.class == OpClass::Loop {
            if let Some(value) = node.input(1) {
                condition = Some(self.condition(id, value, self.source(id, 1, value)?)?);
            }
            match node.input(0) {
                Some(value) if self.graph.values[value].dtype == DType::I64 => {
                    // A loop reads its inputs when it begins: later their memory may be another's.
                    let at = self.source(id, 0, value)?;
                    let at = self.deciding(id, value, at)?;
                    let kept = self.places.few(8)?;
                    self.emit(id, Action::Copy { from: at, to: kept });
                    Trips::At(kept)
                }
                Some(_) => {
                    self.refuse(id, "its number of passes is not of type int64");
                    Trips::Any
                }
                None => Trips::Any,
            }
        } else if let Some(passes) = owner.passes {
            Trips::At(passes)
        } else {
            let steps = self.scanned(id);
            if steps.is_none() {
                self.refuse(
                    id,
                    "the number of its passes is not known, or it has a batch axis",
                );
            }
            Trips::Fixed(steps.unwrap_or(0))
        };
        self.emit(id, Action::Start { counter, condition });
        Ok(Action::Next {
            counter,
            trips,
            exit: 0,
        })
    }

    /// The steps of a scan: the size of its first sliced input along its axis.
    fn scanned(&self, id: NodeId) -> Option<i64> {
        let node = &self.graph.nodes[id];
        if self.graph.opset(node).is_some_and(|version| version < 9) {
            return None;
        }
        let slices = usize::try_from(node.attrs.int("num_scan_inputs")?).ok()?;
        let first = node.inputs.len().checked_sub(slices)?;
        let dims = self.dims(node.input(first)?)?;
        let axis = axis(&node.attrs, "scan_input_axes", 0, dims.len())?;
        i64::try_from(*dims.get(axis)?).ok()
    }

    fn dims(&self, value: ValueId) -> Option<SmallVec<[u64; 4]>> {
        self.graph.values[value].shape.as_ref()?.known()
    }

    /// One value passes in a loop: as a whole, as a slice, or made by the loop itself.
    fn pass(&mut self, reader: NodeId, owner: &Owner, t: &Transfer) -> Result<(), RuntimeError> {
        let counter = owner.counter;
        if matches!(t.pass, Pass::Slice | Pass::Append) && self.pooled_slice(reader, owner, t)? {
            return Ok(());
        }
        match (t.pass, t.from, t.to) {
            (Pass::Make, _, Some(to)) => {
                let truth = self.graph.values[to].dtype == DType::Bool;
                let to = self.places.settle(to, None)?;
                self.emit(reader, Action::Make { counter, to, truth });
                Ok(())
            }
            (Pass::Slice, Some(whole), Some(part)) => {
                let from = self.sources(reader, whole)?;
                let from = from.first().copied().unwrap_or_default();
                let to = self.places.settle(part, None)?;
                self.slice(owner, (whole, from), (part, to), true)
            }
            (Pass::Append, Some(part), Some(whole)) => {
                let from = self.sources(reader, part)?;
                let from = from.first().copied().unwrap_or_default();
                let to = self.places.settle(whole, None)?;
                self.slice(owner, (whole, to), (part, from), false)
            }
            (Pass::Put, ..) => Ok(()),
            _ => self.transfer(reader, t),
        }
    }

    /// The slices of an output that a loop fills, one a pass.
    fn passes(&self, owner: &Owner, whole: ValueId) -> Option<i64> {
        self.room_for_passes(owner, whole)
    }

    /// The slice of a pass, out of a whole or into it.
    fn slice(
        &mut self,
        owner: &Owner,
        (whole, at): (ValueId, Address),
        (part, part_at): (ValueId, Address),
        out: bool,
    ) -> Result<(), RuntimeError> {
        let node = &self.graph.nodes[owner.node];
        let (list, order, k) = if owner.class == OpClass::Loop {
            ("", "", Some(0))
        } else if out {
            let k = self.place_in_list(owner, part, true);
            ("scan_input_axes", "scan_input_directions", k)
        } else {
            let k = self.place_in_list(owner, whole, false);
            ("scan_output_axes", "scan_output_directions", k)
        };
        let slice = k.and_then(|k| {
            let dims = self.dims(whole)?;
            let axis = axis(&node.attrs, list, k, dims.len())?;
            let count = usize::try_from(*dims.get(axis)?).ok()?;
            let behind = dims
                .get(axis + 1..)?
                .iter()
                .try_fold(1u64, |n, &d| n.checked_mul(d))?;
            let run = self.graph.values[part].dtype.bytes(behind)?;
            let run = usize::try_from(run).ok()?;
            let backwards = node.attrs.ints(order).and_then(|l| l.get(k).copied()) == Some(1);
            // Slices of less than a byte, and parts that are no slice, are refused.
            let fits = self.graph.values[part].dtype.bits()? % 8 == 0
                && part_at.len.checked_mul(count) == Some(at.len);
            fits.then_some(Slice {
                whole: at,
                part: part_at,
                count,
                run,
                backwards,
            })
        });
        let Some(slice) = slice else {
            self.refuse(owner.node, "a slice that it works on has no known size");
            return Ok(());
        };
        let counter = owner.counter;
        self.emit(
            owner.node,
            Action::Slice {
                counter,
                slice,
                out,
            },
        );
        Ok(())
    }

    /// All places in which a node finds a value that it hands over: its input slots may have
    /// copies of their own.
    pub(super) fn sources(
        &self,
        reader: NodeId,
        value: ValueId,
    ) -> Result<SmallVec<[Address; 2]>, RuntimeError> {
        let slots = (0u32..).zip(&self.graph.nodes[reader].inputs);
        let named = slots.filter(|(_, v)| **v == Some(value));
        let mut found = named
            .map(|(slot, _)| self.source(reader, slot, value))
            .collect::<Result<SmallVec<[Address; 2]>, RuntimeError>>()?;
        if found.is_empty() {
            found.push(self.places.value(value)?);
        }
        Ok(found)
    }

    /// One value passes from one side of a subgraph's border to the other. `reader` is the node
    /// whose inputs are handed over: the owner, or the output node of the body.
    fn transfer(&mut self, reader: NodeId, t: &Transfer) -> Result<(), RuntimeError> {
        let (Some(from), Some(to)) = (t.from, t.to) else {
            return Ok(());
        };
        if self.pooled_transfer(reader, from, to)? {
            return Ok(());
        }
        let sources = self.sources(reader, from)?;
        let is_view = t.pass == Pass::View;
        let target = self.places.settle(to, Some(from).filter(|_| is_view))?;
        // What is there already in one of the places need not be written.
        let there = sources.iter().any(|s| s.begins_with(&target));
        if let (Some(&source), false) = (sources.first(), there) {
            self.hand_over(reader, source, target);
        }
        Ok(())
    }
}

/// The axis that entry `k` of a list of axes names; the first one where it is left out.
fn axis(attrs: &Attrs, list: &str, k: usize, rank: usize) -> Option<usize> {
    let axis = attrs
        .ints(list)
        .and_then(|l| l.get(k).copied())
        .unwrap_or(0);
    let from_front = if axis < 0 {
        axis.checked_add(i64::try_from(rank).ok()?)?
    } else {
        axis
    };
    usize::try_from(from_front).ok().filter(|&a| a < rank)
}

fn out_of_place() -> RuntimeError {
    RuntimeError::Mismatch("a step of a node with bodies is out of place".to_owned())
}
