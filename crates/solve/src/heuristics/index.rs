//! Buffers by time: which of the entered ones are alive in a range of sections?

use std::ops::ControlFlow;

use crate::instance::{Instance, Piece};

/// Pieces sorted by their first section, in a segment tree over their last ones; a piece that is
/// not entered has end 0. A query walks only where some entered piece is alive, so it takes
/// O((k + 1) log n) for k answers.
#[derive(Clone)]
pub(crate) struct TimeIndex {
    /// Number of leaves, a power of two.
    leaves: usize,
    /// Node `i` has the children `2 i` and `2 i + 1` and the largest end below it.
    ends: Vec<u32>,
    /// The buffer of each leaf.
    owner: Vec<u32>,
    /// The leaf of each piece.
    leaf: Vec<u32>,
    /// Number of pieces that begin before each section.
    begun: Vec<u32>,
}

impl TimeIndex {
    pub(crate) fn new(instance: &Instance) -> Self {
        let pieces = instance.all_pieces();
        let mut begun = vec![0u32; instance.sections() + 1];
        for piece in pieces {
            begun[piece.lower as usize + 1] += 1;
        }
        for section in 1..begun.len() {
            begun[section] += begun[section - 1];
        }
        // Counting sort by the first section.
        let mut next = begun.clone();
        let mut leaf = vec![0u32; pieces.len()];
        let mut owner = vec![0u32; pieces.len()];
        for (buffer, name) in (0..instance.len()).zip(0u32..) {
            for piece in instance.piece_range(buffer) {
                let slot = &mut next[pieces[piece].lower as usize];
                leaf[piece] = *slot;
                owner[*slot as usize] = name;
                *slot += 1;
            }
        }
        let leaves = pieces.len().next_power_of_two();
        TimeIndex {
            leaves,
            ends: vec![0; 2 * leaves],
            owner,
            leaf,
            begun,
        }
    }

    /// Enters all pieces of a buffer.
    pub(crate) fn insert(&mut self, instance: &Instance, buffer: usize) {
        for piece in instance.piece_range(buffer) {
            let end = instance.all_pieces()[piece].upper;
            let mut node = self.leaves + self.leaf[piece] as usize;
            while node > 0 && self.ends[node] < end {
                self.ends[node] = end;
                node /= 2;
            }
        }
    }

    /// Enters all pieces of many buffers, in O(n) for all together.
    pub(crate) fn insert_all(&mut self, instance: &Instance, buffers: impl Iterator<Item = usize>) {
        for buffer in buffers {
            for piece in instance.piece_range(buffer) {
                let node = self.leaves + self.leaf[piece] as usize;
                self.ends[node] = instance.all_pieces()[piece].upper;
            }
        }
        for node in (1..self.leaves).rev() {
            self.ends[node] = self.ends[2 * node].max(self.ends[2 * node + 1]);
        }
    }

    /// Takes all pieces of a buffer out again.
    pub(crate) fn remove(&mut self, instance: &Instance, buffer: usize) {
        for piece in instance.piece_range(buffer) {
            let mut node = self.leaves + self.leaf[piece] as usize;
            self.ends[node] = 0;
            while node > 1 {
                node /= 2;
                let end = self.ends[2 * node].max(self.ends[2 * node + 1]);
                if self.ends[node] == end {
                    break;
                }
                self.ends[node] = end;
            }
        }
    }

    /// Calls `visit` with the buffer of every entered piece that shares a section with `piece`;
    /// a buffer with several such pieces comes several times. Ends when `visit` breaks. Returns the
    /// number of nodes seen.
    pub(crate) fn overlapping(
        &self,
        piece: Piece,
        mut visit: impl FnMut(usize) -> ControlFlow<()>,
    ) -> u64 {
        let begun = self.begun[piece.upper as usize] as usize;
        let mut seen = 0;
        // Nodes still to visit: at most two wait on each level of the tree.
        let mut stack = [1; 2 * usize::BITS as usize];
        let mut waiting = 1;
        while waiting > 0 {
            seen += 1;
            waiting -= 1;
            let node = stack[waiting];
            if self.ends[node] <= piece.lower {
                continue;
            }
            if node >= self.leaves {
                if visit(self.owner[node - self.leaves] as usize).is_break() {
                    break;
                }
                continue;
            }
            // The first leaf below the right child decides whether it can be among `begun`.
            let right = 2 * node + 1;
            let below = (self.leaves / 2) >> node.ilog2();
            let right_leaf = (right << below.trailing_zeros()) - self.leaves;
            if right_leaf < begun {
                stack[waiting] = right;
                waiting += 1;
            }
            stack[waiting] = 2 * node;
            waiting += 1;
        }
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instance::Buffer;

    #[test]
    fn answers_agree_with_looking_at_all() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..200 {
            let buffers: Vec<Buffer> = (0..random.usize(1..40))
                .map(|_| {
                    let lower = random.u64(0..30);
                    let buffer = Buffer::new(1, lower, lower + random.u64(1..12));
                    match buffer.upper - lower {
                        3.. => buffer.with_gap(lower + 1, lower + 2),
                        _ => buffer,
                    }
                })
                .collect();
            let instance = Instance::new(buffers).unwrap();
            let mut index = TimeIndex::new(&instance);
            let entered: Vec<usize> = (0..instance.len()).filter(|_| random.bool()).collect();
            index.insert_all(&instance, 0..instance.len());
            for buffer in (0..instance.len()).filter(|buffer| !entered.contains(buffer)) {
                index.remove(&instance, buffer);
            }
            for piece in instance.all_pieces() {
                let mut found = Vec::new();
                index.overlapping(*piece, |buffer| {
                    found.push(buffer);
                    ControlFlow::Continue(())
                });
                found.sort_unstable();
                let meets = |other: &&Piece| other.lower < piece.upper && piece.lower < other.upper;
                let expected: Vec<usize> = entered
                    .iter()
                    .flat_map(|&buffer| {
                        instance
                            .pieces(buffer)
                            .iter()
                            .filter(meets)
                            .map(move |_| buffer)
                    })
                    .collect();
                assert_eq!(found, expected);
            }
        }
    }
}
