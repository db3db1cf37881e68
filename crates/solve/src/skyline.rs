//! The skyline over the sections and what is still to come above it: for any range of sections,
//! the highest top of a placed buffer and the largest load of unplaced ones, in O(log n).

use std::ops::ControlFlow;

use crate::instance::Piece;

/// One node of the tree. A change of a whole subtree stays in its root as a tag and is not pushed
/// down; readers collect the tags on their way up.
#[derive(Clone, Copy, Default)]
struct Node {
    /// Highest top below this node, the tags of nodes above it left out.
    top: u64,
    /// Every section below has at least this top.
    top_tag: u64,
    /// Largest load below this node, the tags of nodes above it left out.
    load: u64,
    /// Taken off every load below.
    load_tag: u64,
}

/// What [`Skyline::query`] finds in a range of sections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct View {
    /// The highest top.
    pub(crate) top: u64,
    /// The largest load of unplaced buffers.
    pub(crate) load: u64,
}

impl View {
    /// The view over both ranges.
    pub(crate) fn join(self, other: View) -> View {
        View {
            top: self.top.max(other.top),
            load: self.load.max(other.load),
        }
    }
}

/// See the module page.
#[derive(Clone)]
pub(crate) struct Skyline {
    /// Number of leaves, a power of two; section `s` is leaf `s + 1`, so that every range has a
    /// leaf on either side.
    leaves: usize,
    nodes: Vec<Node>,
}

impl Skyline {
    /// Nothing is placed: all tops are 0, `loads` are the full loads of the sections.
    pub(crate) fn new(loads: &[u64]) -> Self {
        let leaves = (loads.len() + 2).next_power_of_two();
        let mut nodes = vec![Node::default(); 2 * leaves];
        for (section, &load) in loads.iter().enumerate() {
            nodes[leaves + section + 1].load = load;
        }
        for node in (1..leaves).rev() {
            nodes[node].load = nodes[2 * node].load.max(nodes[2 * node + 1].load);
        }
        Skyline { leaves, nodes }
    }

    /// Number of nodes: what a copy costs.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Height of the tree: about how many nodes a query or change touches on each side.
    pub(crate) fn depth(&self) -> u64 {
        u64::from(self.leaves.trailing_zeros())
    }

    /// The view over one piece.
    pub(crate) fn query(&self, piece: Piece) -> View {
        let (mut left, mut right) = self.around(piece);
        let (mut left_view, mut right_view) = (None, None);
        while left ^ right != 1 {
            if left.is_multiple_of(2) {
                left_view = Some(self.nodes[left + 1].view(left_view));
            }
            if !right.is_multiple_of(2) {
                right_view = Some(self.nodes[right - 1].view(right_view));
            }
            left /= 2;
            right /= 2;
            left_view = left_view.map(|view| self.nodes[left].tagged(view));
            right_view = right_view.map(|view| self.nodes[right].tagged(view));
        }
        let mut view = left_view
            .unwrap_or_default()
            .join(right_view.unwrap_or_default());
        while left > 1 {
            left /= 2;
            view = self.nodes[left].tagged(view);
        }
        view
    }

    /// The load of one section.
    pub(crate) fn load(&self, section: u32) -> u64 {
        let mut node = self.leaves + section as usize + 1;
        let mut load = self.nodes[node].load;
        while node > 1 {
            node /= 2;
            load -= self.nodes[node].load_tag;
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
        let range = piece.lower as usize + 1..piece.upper as usize + 1;
        // (node, first leaf below it, number of leaves below it, tags above it): at most two wait
        // on each level of the tree.
        let mut stack = [(0, 0, 0, 0); 2 * usize::BITS as usize];
        stack[0] = (1, 0, self.leaves, 0);
        let mut waiting = 1;
        let mut seen = 0;
        while waiting > 0 {
            seen += 1;
            waiting -= 1;
            let (node, first, count, tags) = stack[waiting];
            let outside = first >= range.end || first + count <= range.start;
            if outside || self.nodes[node].load < least + tags {
                continue;
            }
            if count == 1 {
                let section = u32::try_from(first - 1).unwrap_or(u32::MAX);
                if visit(section, self.nodes[node].load - tags).is_break() {
                    break;
                }
                continue;
            }
            let tags = tags + self.nodes[node].load_tag;
            stack[waiting] = (2 * node + 1, first + count / 2, count / 2, tags);
            stack[waiting + 1] = (2 * node, first, count / 2, tags);
            waiting += 2;
        }
        seen
    }

    /// Puts a buffer of `size` bytes that ends at `top` on the sections of `piece`: no top there
    /// may be higher, and each load must hold the buffer.
    pub(crate) fn place(&mut self, piece: Piece, top: u64, size: u64) {
        let (mut left, mut right) = self.around(piece);
        while left ^ right != 1 {
            if left.is_multiple_of(2) {
                self.nodes[left + 1].place(top, size);
            }
            if !right.is_multiple_of(2) {
                self.nodes[right - 1].place(top, size);
            }
            left /= 2;
            right /= 2;
            self.refresh(left);
            self.refresh(right);
        }
        while left > 1 {
            left /= 2;
            self.refresh(left);
        }
    }

    /// The leaf before and the leaf after a piece.
    fn around(&self, piece: Piece) -> (usize, usize) {
        let before = self.leaves + piece.lower as usize;
        (before, self.leaves + piece.upper as usize + 1)
    }

    fn refresh(&mut self, node: usize) {
        let (left, right) = (self.nodes[2 * node], self.nodes[2 * node + 1]);
        let node = &mut self.nodes[node];
        node.top = left.top.max(right.top).max(node.top_tag);
        node.load = left.load.max(right.load) - node.load_tag;
    }
}

impl Node {
    /// This node's view joined with what was found beside it.
    fn view(&self, beside: Option<View>) -> View {
        let here = View {
            top: self.top,
            load: self.load,
        };
        beside.map_or(here, |view| view.join(here))
    }

    /// A view over sections below this node, with its tags.
    fn tagged(&self, view: View) -> View {
        View {
            top: view.top.max(self.top_tag),
            load: view.load - self.load_tag,
        }
    }

    fn place(&mut self, top: u64, size: u64) {
        self.top = self.top.max(top);
        self.top_tag = self.top_tag.max(top);
        self.load -= size;
        self.load_tag += size;
    }
}
