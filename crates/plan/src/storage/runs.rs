//! Runs: tensors that must lie one behind the other, as inputs or outputs of a node.
//!
//! The tensors of a run become one class in which each has its place, and stay storages in all else:
//! each is held only while it is needed. A tensor that cannot have the place that a run gives it,
//! since it has another or is not in planned memory, is copied for that run.

use std::rc::Rc;
use tenure_graph::effects::{Effects, Run};
use tenure_graph::plan::Sharing;
use tenure_graph::{NodeId, ValueId};

use super::merge::{Sizes, end_of};
use super::{Index, Join};
use crate::PlanError;

const REASON: &str = "the reader needs it beside its other inputs";

/// How many tensors of a run are tried as the one that stays where it is.
const ANCHORS: usize = 8;

/// Tensors of a run that bring others with them, beyond which all are copied: each would be
/// compared with each.
const MOST_LARGE: usize = 256;

impl Join<'_> {
    /// Gives all tensors of runs their places: outputs first, for which there is no other way.
    pub(super) fn runs(&mut self) -> Result<(), PlanError> {
        let asking = Rc::clone(&self.asking);
        for &(node, _) in asking.iter() {
            let effects = self.table.effects(self.graph, node);
            if let Some(run) = effects.output_run {
                self.output_run(node, run)?;
            }
        }
        for &(node, step) in asking.iter() {
            let effects = self.table.effects(self.graph, node);
            if let Some(run) = effects.input_run {
                self.input_run(node, step, run, &effects)?;
            }
        }
        Ok(())
    }

    fn unmet(&self, node: NodeId, side: &str) -> PlanError {
        PlanError::Run {
            node: self.graph.node_label(node),
            side: side.to_owned(),
        }
    }

    /// The values of a run with their distances from its start.
    fn places(&self, run: Run, values: &[Option<ValueId>]) -> Option<Vec<(u32, ValueId, i64)>> {
        let mut places = Vec::with_capacity(values.len());
        let mut at = 0u64;
        for (slot, value) in (0u32..).zip(values) {
            let Some(value) = *value else { continue };
            places.push((slot, value, i64::try_from(at).ok()?));
            let stride = self.options.stride(run, self.graph, value)?;
            at = at.checked_add(stride)?;
        }
        i64::try_from(at).is_ok().then_some(places)
    }

    fn output_run(&mut self, node: NodeId, run: Run) -> Result<(), PlanError> {
        let error = self.unmet(node, "outputs");
        self.copy_variables(node, "the output must lie beside others");
        let Some(places) = self.places(run, &self.graph.nodes[node].outputs) else {
            return Err(error);
        };
        let places: Vec<(Index, i64)> = (places.into_iter())
            .filter(|&(_, value, _)| self.graph.bytes(value) != Some(0))
            .map(|(_, value, at)| (self.group(value), at))
            .collect();
        if run.whole {
            let Some(value) = self.graph.nodes[node].input(0) else {
                return Err(error);
            };
            let held = self.held(node, 0).unwrap_or(self.group(value));
            let all = |join: &mut Self, source: Index| {
                join.is_pieced(source, run);
                for &(piece, at) in &places {
                    join.pieces.insert((piece, source), -at);
                }
                places
                    .iter()
                    .all(|&(p, at)| join.fit(source, p, Sizes::Any, at).is_some())
            };
            let source = if all(self, held) {
                held
            } else if self.copy_at.contains_key(&(node, 0)) {
                return Err(error);
            } else {
                let copy = self.late_copy(value, node, 0, "its pieces are written there");
                if !all(self, copy) {
                    return Err(error);
                }
                copy
            };
            let mut pieces = places.iter();
            return match pieces.all(|&(p, at)| self.join_at(source, p, Sizes::Any, at)) {
                true => Ok(()),
                false => Err(error),
            };
        }
        let Some((&(first, start), rest)) = places.split_first() else {
            return Ok(());
        };
        let mut rest = rest.iter();
        match rest.all(|&(other, at)| self.join_at(first, other, Sizes::Any, at - start)) {
            true => Ok(()),
            false => Err(error),
        }
    }

    fn input_run(
        &mut self,
        node: NodeId,
        step: u32,
        run: Run,
        effects: &Effects,
    ) -> Result<(), PlanError> {
        let error = self.unmet(node, "inputs");
        let Some(places) = self.places(run, &self.graph.nodes[node].inputs) else {
            return Err(error);
        };
        self.copy_variables(node, REASON);
        let mut pieces: Vec<Piece> = Vec::with_capacity(places.len());
        for (slot, value, at) in places {
            if self.graph.bytes(value) == Some(0) {
                continue;
            }
            let held = self.held(node, slot).unwrap_or(self.group(value));
            let mut piece = Piece {
                slot,
                value,
                held,
                at,
            };
            let (root, _) = self.find(held);
            let root = &self.items[root as usize];
            // The caller's memory has no room beside an output.
            if !root.planned || root.caller || self.copying.contains(&node) {
                self.copy_piece(node, &mut piece)?;
            }
            pieces.push(piece);
        }
        let whole = self.graph.nodes[node].output(0).filter(|_| run.whole);
        if whole.is_none() {
            self.copy_misfits(node, step, &mut pieces)?;
        }
        // What is written is copied, if it must be, before anything lies beside it.
        self.references(node, step, effects)?;
        self.spoils(node, step, effects)?;
        for piece in &mut pieces {
            piece.held = self.held(node, piece.slot).unwrap_or(piece.held);
        }
        let (base, start) = match whole {
            Some(value) => {
                let whole = self.group(value);
                self.is_pieced(whole, run);
                for piece in &pieces {
                    self.pieces.insert((piece.held, whole), -piece.at);
                }
                (whole, 0)
            }
            None => match self.copy_misfits(node, step, &mut pieces)? {
                Some(base) => (base.held, base.at),
                None => return Ok(()),
            },
        };
        for mut piece in pieces {
            let shift = piece.at - start;
            if self.join_at(base, piece.held, Sizes::Any, shift) {
                continue;
            }
            self.copy_piece(node, &mut piece)?;
            if whole.is_some() {
                self.pieces.insert((piece.held, base), -piece.at);
            }
            if !self.join_at(base, piece.held, Sizes::Any, shift) {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Notes that the pieces of a tensor lie in it without gaps.
    fn is_pieced(&mut self, whole: Index, run: Run) {
        let (root, _) = self.find(whole);
        let root = &mut self.items[root as usize];
        root.pieced |= run.packed;
        // Pieces and the whole may be there together, so that their ends do not ascend.
        root.shifted = true;
    }

    /// Copies the pieces that cannot stay where they are; gives one beside which all can lie.
    fn copy_misfits(
        &mut self,
        node: NodeId,
        step: u32,
        pieces: &mut [Piece],
    ) -> Result<Option<Piece>, PlanError> {
        let stays = self.settle(pieces, step);
        for (piece, stays) in pieces.iter_mut().zip(&stays) {
            if !stays {
                self.copy_piece(node, piece)?;
            }
        }
        let mut settled = pieces.iter().zip(&stays).filter(|(_, stays)| **stays);
        // Where nobody can stay, all lie beside the copy of the first.
        let base = settled.next().map(|(piece, _)| *piece);
        Ok(base.or_else(|| pieces.first().copied()))
    }

    /// Copies a piece, unless it is a copy already, or lies where the node writes.
    fn copy_piece(&mut self, node: NodeId, piece: &mut Piece) -> Result<(), PlanError> {
        let slot = (node, piece.slot);
        let is_written = self.written.contains(&slot);
        if is_written || self.copy_at.contains_key(&slot) {
            return Err(self.unmet(node, "inputs"));
        }
        piece.held = self.late_copy(piece.value, node, piece.slot, REASON);
        Ok(())
    }

    /// Which pieces can stay where they are, so that the fewest are copied and each copy can lie in
    /// its place.
    fn settle(&mut self, pieces: &[Piece], step: u32) -> Vec<bool> {
        if self.is_settled(pieces) {
            return vec![true; pieces.len()];
        }
        let mut order: Vec<usize> = (0..pieces.len()).collect();
        let single: Vec<bool> = pieces.iter().map(|p| self.is_single(p)).collect();
        if single.iter().filter(|single| !**single).count() > MOST_LARGE {
            return vec![false; pieces.len()];
        }
        // Those that bring others with them first.
        order.sort_by_key(|&i| single[i]);
        let mut best: Option<(usize, Vec<bool>)> = None;
        for &anchor in order
            .iter()
            .rev()
            .take(ANCHORS)
            .chain(order.iter().take(ANCHORS))
        {
            let around = self.around(pieces, &order, &single, anchor, step);
            let Some(stays) = around else { continue };
            let copies = stays.iter().filter(|stays| !**stays).count();
            if best.as_ref().is_none_or(|(least, _)| copies < *least) {
                best = Some((copies, stays));
            }
        }
        best.map_or_else(|| vec![false; pieces.len()], |(_, stays)| stays)
    }

    /// Whether all pieces lie beside one another already, as when the outputs of a run are the
    /// inputs of another.
    fn is_settled(&mut self, pieces: &[Piece]) -> bool {
        let Some(first) = pieces.first() else {
            return true;
        };
        let (root, start) = self.find(first.held);
        pieces
            .iter()
            .all(|p| self.find(p.held) == (root, start + p.at - first.at))
    }

    /// Which pieces can stay if one does; `None` if the others could not even lie there as copies.
    fn around(
        &mut self,
        pieces: &[Piece],
        order: &[usize],
        single: &[bool],
        anchor: usize,
        step: u32,
    ) -> Option<Vec<bool>> {
        let mut stays = vec![false; pieces.len()];
        stays[anchor] = true;
        // What can be in a further piece's way: all for those that bring others with them.
        let mut settled = vec![anchor];
        let mut large: Vec<usize> = settled.iter().copied().filter(|&i| !single[i]).collect();
        for &i in order.iter().filter(|&&i| i != anchor) {
            let piece = pieces[i];
            let (first, others) = match single[i] {
                true => (Some(anchor), &large),
                false => (None, &settled),
            };
            let mut others = others
                .iter()
                .copied()
                .chain(first)
                .map(|other| pieces[other]);
            let agrees = others.all(|other| {
                let shift = piece.at - other.at;
                self.fit(other.held, piece.held, Sizes::Any, shift)
                    .is_some()
            });
            if agrees {
                stays[i] = true;
                settled.push(i);
                if !single[i] {
                    large.push(i);
                }
                continue;
            }
            let mut others = large.iter().map(|&other| pieces[other]);
            let free = |other: Piece| {
                let shift = piece.at - other.at;
                self.is_free(other.held, shift, piece.value, step)
            };
            if !others.all(free) {
                return None;
            }
        }
        Some(stays)
    }

    /// Whether a piece is alone in its class.
    fn is_single(&mut self, piece: &Piece) -> bool {
        let (root, _) = self.find(piece.held);
        let entry = &self.items[root as usize];
        let bytes = i64::try_from(self.items[piece.held as usize].bytes);
        bytes.is_ok_and(|bytes| entry.extent.1 - entry.extent.0 == bytes)
    }

    /// Whether a copy that is held at one step could lie so far behind a group.
    fn is_free(&mut self, group: Index, shift: i64, value: ValueId, step: u32) -> bool {
        let (root, at) = self.find(group);
        let start = at.saturating_add(shift);
        let end = end_of(start, self.graph.bytes(value).unwrap_or(0));
        let extent = self.items[root as usize].extent;
        if end <= extent.0 || start >= extent.1 {
            return true;
        }
        let alive = self.segments[root as usize].clone();
        let full = self.sharing() == Sharing::Full && self.clocks.is_none();
        let is_there = |s: &&super::Segment| !full || (s.span.first..=s.span.last).contains(&step);
        let mut there = alive.iter().filter(is_there);
        there.all(|segment| {
            let from = self.find(segment.group).1;
            let to = end_of(from, self.items[segment.group as usize].bytes);
            end <= from || start >= to
        })
    }
}

/// One tensor of a run of inputs.
#[derive(Clone, Copy)]
struct Piece {
    slot: u32,
    value: ValueId,
    held: Index,
    /// How far behind the start of the run it lies.
    at: i64,
}
