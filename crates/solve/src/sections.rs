//! Times become *sections*.
//!
//! Only the order of births and deaths matters: a section is a maximal run of births followed by
//! the deaths up to the next birth. Buffers are alive together exactly when they share a section,
//! and there are never more sections than live intervals (they are the maximal cliques of the
//! interval graph).

use crate::instance::Buffer;

/// A maximal run of sections in which one buffer is alive; half-open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) lower: u32,
    pub(crate) upper: u32,
}

/// Replaces times by sections; returns the pieces, the first piece of each buffer and the number
/// of sections.
pub(crate) fn compress(buffers: &[Buffer]) -> (Vec<Piece>, Vec<u32>, u32) {
    let mut events: Vec<(u64, bool, u32)> = Vec::new();
    let mut first_piece = Vec::with_capacity(buffers.len() + 1);
    let mut count = 0u32;
    for buffer in buffers {
        first_piece.push(count);
        if buffer.size == 0 {
            continue;
        }
        for span in buffer.live_spans() {
            events.push((span.lower, true, count));
            events.push((span.upper, false, count));
            count += 1;
        }
    }
    first_piece.push(count);
    // Deaths (false) come before births (true) of the same time: lifetimes are half-open.
    events.sort_unstable();

    let mut pieces = vec![Piece { lower: 0, upper: 0 }; count as usize];
    let mut section = 0u32;
    let mut after_death = false;
    for (_, birth, piece) in events {
        let piece = &mut pieces[piece as usize];
        if birth {
            section += u32::from(after_death);
            after_death = false;
            piece.lower = section;
        } else {
            after_death = true;
            piece.upper = section + 1;
        }
    }
    let sections = if count == 0 { 0 } else { section + 1 };
    (
        merge_adjacent(pieces, &mut first_piece),
        first_piece,
        sections,
    )
}

/// Joins pieces of one buffer that became adjacent because nothing is born in the gap.
fn merge_adjacent(pieces: Vec<Piece>, first_piece: &mut [u32]) -> Vec<Piece> {
    let mut merged: Vec<Piece> = Vec::with_capacity(pieces.len());
    let mut kept = 0u32;
    for buffer in 0..first_piece.len() - 1 {
        let range = first_piece[buffer] as usize..first_piece[buffer + 1] as usize;
        first_piece[buffer] = kept;
        for (position, &piece) in pieces[range].iter().enumerate() {
            match merged.last_mut() {
                Some(last) if position > 0 && last.upper >= piece.lower => last.upper = piece.upper,
                _ => {
                    merged.push(piece);
                    kept += 1;
                }
            }
        }
    }
    if let Some(last) = first_piece.last_mut() {
        *last = kept;
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instance::Instance;

    fn pieces_of(buffers: Vec<Buffer>) -> Vec<Vec<(u32, u32)>> {
        let instance = Instance::new(buffers).unwrap();
        let ends = |piece: &Piece| (piece.lower, piece.upper);
        (0..instance.len())
            .map(|index| instance.pieces(index).iter().map(ends).collect())
            .collect()
    }

    #[test]
    fn births_without_a_death_between_share_a_section() {
        let buffers = vec![
            Buffer::new(1, 0, 100),
            Buffer::new(1, 10, 50),
            Buffer::new(1, 50, 60),
        ];
        let expected = vec![vec![(0, 2)], vec![(0, 1)], vec![(1, 2)]];
        assert_eq!(pieces_of(buffers), expected);
    }

    #[test]
    fn a_gap_counts_only_when_something_is_born_in_it() {
        let lent = Buffer::new(1, 0, 10).with_gap(2, 6);
        let guest = Buffer::new(1, 3, 5);
        assert_eq!(pieces_of(vec![lent.clone()]), vec![vec![(0, 2)]]);
        let expected = vec![vec![(0, 1), (2, 3)], vec![(1, 2)]];
        assert_eq!(pieces_of(vec![lent, guest]), expected);
    }
}
