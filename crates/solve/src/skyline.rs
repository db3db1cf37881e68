//! What is placed and what is still to come, by section: the highest *top* of a placed buffer in
//! any range of sections, and the sections with a large *load* of unplaced ones.
//!
//! Both are segment trees over the sections in which a change of a whole subtree stays in its root
//! as a tag; it is not pushed down, readers collect the tags above them. The trees are apart
//! because tops are asked for far more often.

use std::ops::ControlFlow;

use crate::instance::Piece;

/// A node of one of the trees.
#[derive(Clone, Copy, Default)]
struct Node {
    /// The largest value below, the tags of the nodes above left out.
    max: u64,
    /// Tops: every value below is at least this. Loads: this is taken off every value below.
    tag: u64,
}

/// See the module page.
#[derive(Clone)]
pub(crate) struct Skyline {
    /// Number of leaves, a power of two; node `i` has the children `2 i` and `2 i + 1`.
    leaves: usize,
    tops: Vec<Node>,
    loads: Vec<Node>,
}

impl Skyline {
    /// Nothing is placed: all tops are 0, `loads` are the full loads of the sections.
    pub(crate) fn new(loads: &[u64]) -> Self {
        let leaves = loads.len().next_power_of_two();
        let mut tree = vec![Node::default(); 2 * leaves];
        for (section, &load) in loads.iter().enumerate() {
            tree[leaves + section].max = load;
        }
        for node in (1..leaves).rev() {
            tree[node].max = tree[2 * node].max.max(tree[2 * node + 1].max);
        }
        Skyline {
            leaves,
            tops: vec![Node::default(); 2 * leaves],
            loads: tree,
        }
    }

    /// Number of nodes: what a copy costs.
    pub(crate) fn len(&self) -> usize {
        self.tops.len() + self.loads.len()
    }

    /// Height of the trees: about how many nodes a query or change touches.
    pub(crate) fn depth(&self) -> u64 {
        u64::from(self.leaves.trailing_zeros()) + 1
    }

    /// The highest top on a piece.
    pub(crate) fn top(&self, piece: Piece) -> u64 {
        let (mut first, mut last) = self.ends(piece);
        let mut top = 0;
        cover(first, last, |node| top = top.max(self.tops[node].max));
        // A tag above either end holds for that end, and so for the piece.
        while first > 1 {
            first /= 2;
            last /= 2;
            top = top.max(self.tops[first].tag).max(self.tops[last].tag);
        }
        top
    }

    /// The load of one section.
    pub(crate) fn load(&self, section: u32) -> u64 {
        let mut node = self.leaves + section as usize;
        let mut load = self.loads[node].max;
        while node > 1 {
            node /= 2;
            load -= self.loads[node].tag;
        }
        load
    }

    /// Calls `visit` with each section of `piece` whose load is at least `least`, and its load, in
    /// the order of time, until it breaks. Returns the number of nodes seen.
    pub(crate) fn heavy(
        &self,
        piece: Piece,
        least: u64,
        mut visit: impl FnMut(u32, u64) -> ControlFlow<()>,
    ) -> u64 {
        let range = piece.lower as usize..piece.upper as usize;
        // (node, first section below it, number of sections below it, tags above it): at most two
        // wait on each level of the tree.
        let mut stack = [(0, 0, 0, 0); 2 * usize::BITS as usize];
        stack[0] = (1, 0, self.leaves, 0);
        let mut waiting = 1;
        let mut seen = 0;
        while waiting > 0 {
            seen += 1;
            waiting -= 1;
            let (node, first, count, tags) = stack[waiting];
            let outside = first >= range.end || first + count <= range.start;
            let Node { max, tag } = self.loads[node];
            if outside || max < least + tags {
                continue;
            }
            if count == 1 {
                let section = u32::try_from(first).unwrap_or(u32::MAX);
                if visit(section, max - tags).is_break() {
                    break;
                }
                continue;
            }
            let half = count / 2;
            stack[waiting] = (2 * node + 1, first + half, half, tags + tag);
            stack[waiting + 1] = (2 * node, first, half, tags + tag);
            waiting += 2;
        }
        seen
    }

    /// Puts a buffer of `size` bytes that ends at `top` on the sections of `piece`: no top there
    /// may be higher, and each load must hold the buffer.
    pub(crate) fn place(&mut self, piece: Piece, top: u64, size: u64) {
        let (mut first, mut last) = self.ends(piece);
        cover(first, last, |node| {
            let tops = &mut self.tops[node];
            tops.max = tops.max.max(top);
            tops.tag = tops.tag.max(top);
            let loads = &mut self.loads[node];
            loads.max -= size;
            loads.tag += size;
        });
        while first > 1 {
            first /= 2;
            last /= 2;
            self.refresh(first);
            self.refresh(last);
        }
    }

    /// The leaves of the first and the last section of a piece.
    fn ends(&self, piece: Piece) -> (usize, usize) {
        let first = self.leaves + piece.lower as usize;
        (first, self.leaves + piece.upper as usize - 1)
    }

    fn refresh(&mut self, node: usize) {
        let below = |tree: &[Node]| tree[2 * node].max.max(tree[2 * node + 1].max);
        self.tops[node].max = below(&self.tops).max(self.tops[node].tag);
        self.loads[node].max = below(&self.loads) - self.loads[node].tag;
    }
}

/// Calls `visit` with the fewest nodes whose leaves are exactly `first..=last`.
fn cover(first: usize, last: usize, mut visit: impl FnMut(usize)) {
    let (mut lower, mut upper) = (first, last + 1);
    while lower < upper {
        if !lower.is_multiple_of(2) {
            visit(lower);
            lower += 1;
        }
        if !upper.is_multiple_of(2) {
            upper -= 1;
            visit(upper);
        }
        lower /= 2;
        upper /= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_plain_lists() {
        let mut random = fastrand::Rng::with_seed(3);
        for sections in 1..40 {
            let mut loads: Vec<u64> = (0..sections).map(|_| random.u64(50..99)).collect();
            let mut tops = vec![0; loads.len()];
            let mut skyline = Skyline::new(&loads);
            for _ in 0..20 {
                let lower = random.u32(0..sections);
                let piece = Piece {
                    lower,
                    upper: random.u32(lower..sections) + 1,
                };
                let range = lower as usize..piece.upper as usize;
                let highest = tops[range.clone()].iter().copied().max().unwrap();
                assert_eq!(skyline.top(piece), highest);

                let least = random.u64(0..99);
                let mut found = Vec::new();
                skyline.heavy(piece, least, |section, load| {
                    found.push((section, load));
                    ControlFlow::Continue(())
                });
                let all = (0..).zip(loads.iter().copied());
                let expected: Vec<(u32, u64)> = all
                    .filter(|&(section, load)| range.contains(&(section as usize)) && load >= least)
                    .collect();
                assert_eq!(found, expected);
                assert_eq!(skyline.load(lower), loads[lower as usize]);

                let size = loads[range.clone()].iter().copied().min().unwrap() / 2;
                skyline.place(piece, highest + 5, size);
                tops[range.clone()].fill(highest + 5);
                loads[range].iter_mut().for_each(|load| *load -= size);
            }
        }
    }
}
