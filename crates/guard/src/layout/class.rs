//! One storage class: which of its anchors cannot be one memory, and the copies that part them.
//!
//! A cut parts the class at one place. Cuts are found for all pairs in conflict, the class is
//! parted, and what is left in one part is looked at again, until no pair is in conflict. Then
//! cuts that nobody needs are taken back, the latest first: that rule chooses among equal sets the
//! places that the checkers name first.
//!
//! Anchors that ask the same are alike to all rules but a few, so an anchor is compared with a
//! handful of each kind and not with all others, and two parts that a cut has parted are compared
//! by going through the smaller one: the work grows with `n log n`, not with the pairs.

use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;
use tenure_graph::NodeId;
use tenure_graph::patch::Slot;

use super::attributes::{Attribute, Scope, Traits};
use super::checkers::{Pair, cuts};
use super::table::{Checker, Rule, rule};
use crate::storage::{Anchor, Classes, Joint, outer_input, reference};
use crate::work::{Question, Work};

/// How many nodes that ask the same stand for all of them: an anchor's own node, the one that it
/// is exempt from, and one more.
const REPRESENTATIVES: usize = 3;

/// A place at which a class is parted, and the pair that asked for it.
#[derive(Clone, Debug)]
pub struct Cut {
    /// An input is cut before it, an output behind it.
    pub at: Anchor,
    /// The two anchors that cannot be one memory.
    pub pair: (Anchor, Anchor),
    /// What they ask.
    pub attributes: (Attribute, Attribute),
    /// The rule that parts them; `None` for a pair that can never be one memory.
    pub checker: Option<Checker>,
    /// Whether a copy stands there already.
    pub is_free: bool,
}

/// One class, and what the checkers ask about it.
pub struct ClassView<'a> {
    /// The part of the program that is analysed.
    pub scope: Scope<'a>,
    /// The program as it stands.
    pub work: &'a Work<'a>,
    classes: &'a Classes,
    class: usize,
    traits: Vec<Traits>,
    /// For each node the inputs and outputs by which it holds the class.
    held: FxHashMap<NodeId, (Vec<Anchor>, Vec<Anchor>)>,
}

/// Members by what they ask; of each node the first, as a place in the class's list.
type Groups = BTreeMap<Traits, Vec<usize>>;

/// The reader of a part whose neighbours decide where it lies.
#[derive(Clone)]
struct Reader {
    place: usize,
    node: NodeId,
    padded: bool,
}

/// Members of a class that are one memory.
#[derive(Default)]
struct Part {
    /// Places in the class's list.
    members: Vec<usize>,
    groups: Groups,
    reader: Option<Reader>,
}

impl<'a> ClassView<'a> {
    /// Looks at a class; `None` where nothing that its anchors ask can be in conflict.
    #[must_use]
    pub fn new(
        scope: Scope<'a>,
        work: &'a Work<'a>,
        classes: &'a Classes,
        class: usize,
    ) -> Option<Self> {
        let list = &classes.lists[class];
        if list.len() < 2 {
            return None;
        }
        let anchors = list.iter().map(|&m| classes.anchors[m]);
        let traits: Vec<Traits> = anchors.map(|a| scope.traits(classes, a)).collect();
        let mut kinds: Vec<Traits> = traits.clone();
        kinds.sort_unstable();
        kinds.dedup();
        let mut pairs = kinds.iter().flat_map(|a| kinds.iter().map(move |b| (a, b)));
        if !pairs.any(|(a, b)| may_clash(a, b)) {
            return None;
        }
        let mut held: FxHashMap<NodeId, (Vec<Anchor>, Vec<Anchor>)> = FxHashMap::default();
        for &member in list {
            let anchor = classes.anchors[member];
            let (inputs, outputs) = held.entry(anchor.node).or_default();
            if anchor.is_output() { outputs } else { inputs }.push(anchor);
        }
        Some(ClassView {
            scope,
            work,
            classes,
            class,
            traits,
            held,
        })
    }

    fn anchor(&self, place: usize) -> Anchor {
        self.classes.anchors[self.classes.lists[self.class][place]]
    }

    fn place(&self, anchor: Anchor) -> Option<usize> {
        let index = self.classes.index(anchor)?;
        (self.classes.class_of(anchor) == Some(self.class)).then_some(())?;
        self.classes.place_of(index)
    }

    /// The inputs by which a node holds the class.
    pub(super) fn held_inputs(&self, node: NodeId) -> impl Iterator<Item = Anchor> {
        let held = self.held.get(&node).map(|(inputs, _)| inputs.clone());
        held.unwrap_or_default().into_iter()
    }

    /// The outputs by which a node holds the class.
    pub(super) fn held_outputs(&self, node: NodeId) -> impl Iterator<Item = Anchor> {
        let held = self.held.get(&node).map(|(_, outputs)| outputs.clone());
        held.unwrap_or_default().into_iter()
    }

    /// The cuts that part all pairs in conflict, as few as the rules allow, in the order of the
    /// class's list; and pairs that no copy can part.
    #[must_use]
    pub fn resolve(&self) -> (Vec<Cut>, Vec<Cut>) {
        let mut cuts: Vec<Cut> = Vec::new();
        let mut places: FxHashSet<Anchor> = FxHashSet::default();
        let mut hopeless = Vec::new();
        loop {
            let parts = self.parts(&places);
            let mut found = Vec::new();
            for part in &parts {
                self.conflicts(part, &mut found);
            }
            let before = cuts.len();
            for cut in &found {
                if let Some(at) = self.fit(cut.at)
                    && places.insert(at)
                {
                    cuts.push(self.cut_at(at, cut));
                }
            }
            if cuts.len() > before {
                continue;
            }
            // The places that the checkers name do not part what is left: try the other anchor.
            for cut in &found {
                let others = [cut.pair.1, cut.pair.0]
                    .into_iter()
                    .filter_map(|a| self.fit(a));
                let other = others.into_iter().find(|at| !places.contains(at));
                match other {
                    Some(at) => {
                        places.insert(at);
                        cuts.push(self.cut_at(at, cut));
                        break;
                    }
                    None => hopeless.push(cut.clone()),
                }
            }
            if cuts.len() == before {
                break;
            }
            hopeless.clear();
        }
        self.take_back(&mut cuts, &mut places);
        cuts.sort_by_key(|cut| (self.work.position(cut.at.node), cut.at));
        hopeless.truncate(1);
        (cuts, hopeless)
    }

    fn cut_at(&self, at: Anchor, cut: &Cut) -> Cut {
        let is_free = match at.slot {
            Slot::In(i) => self.work.is_copied_before(at.node, i),
            Slot::Out(_) => at
                .value(self.work.graph())
                .is_some_and(|v| self.work.is_copied_behind(v)),
        };
        Cut {
            at,
            is_free,
            ..cut.clone()
        }
    }

    /// The place of a cut as it can be made: an input that stands for an outer one is cut there, an
    /// output that nobody reads before the input that it refers to. `None` where no copy helps.
    fn fit(&self, at: Anchor) -> Option<Anchor> {
        let graph = self.work.graph();
        match at.slot {
            Slot::In(_) if at.value(graph).is_some() => Some(at),
            Slot::In(_) => {
                let (owner, i) = outer_input(graph, self.work.table, at.node)?;
                let outer = Anchor::input(owner, i);
                (outer.value(graph).is_some() && self.place(outer).is_some()).then_some(outer)
            }
            Slot::Out(o) => {
                let value = at.value(graph)?;
                if !self.work.users(value).is_empty() {
                    return Some(at);
                }
                let input = reference(graph, self.work.table, at.node, o)?;
                Some(Anchor::input(at.node, input)).filter(|a| a.value(graph).is_some())
            }
        }
    }

    /// The parts of the class when it is cut at the given places.
    fn parts(&self, cuts: &FxHashSet<Anchor>) -> Vec<Part> {
        let (part_of, parts) = self.components(cuts);
        let mut members: Vec<Vec<usize>> = vec![Vec::new(); parts];
        for (place, &part) in part_of.iter().enumerate() {
            members[part].push(place);
        }
        members
            .into_iter()
            .map(|members| self.part(members))
            .collect()
    }

    /// For each member the number of its part, and how many there are. The readers of an output
    /// that is cut behind read one copy: they are one part.
    fn components(&self, cuts: &FxHashSet<Anchor>) -> (Vec<usize>, usize) {
        let count = self.classes.lists[self.class].len();
        let mut sets = Sets::new(count);
        let mut copies: FxHashMap<usize, usize> = FxHashMap::default();
        for link in self.classes.links(self.class) {
            let ends = self
                .classes
                .place_of(link.from)
                .zip(self.classes.place_of(link.to));
            let Some((from, to)) = ends else { continue };
            if link.joint == Joint::Fixed {
                sets.join(from, to);
                continue;
            }
            if cuts.contains(&self.anchor(to)) {
                continue;
            }
            if cuts.contains(&self.anchor(from)) {
                let copy = *copies.entry(from).or_insert(to);
                sets.join(copy, to);
            } else {
                sets.join(from, to);
            }
        }
        sets.numbered()
    }

    fn part(&self, members: Vec<usize>) -> Part {
        let mut groups = Groups::new();
        let mut seen: FxHashSet<(Traits, NodeId)> = FxHashSet::default();
        for &place in &members {
            let traits = self.traits[place];
            if seen.insert((traits, self.anchor(place).node)) {
                groups.entry(traits).or_default().push(place);
            }
        }
        let mut part = Part {
            members,
            groups,
            reader: None,
        };
        let readers = self.readers(&part);
        part.reader = self.choose_readers(&readers, &mut Vec::new());
        part
    }

    /// The readers of a part that want it next to others, in order.
    fn readers(&self, part: &Part) -> Vec<Reader> {
        let padded = |t: &Traits| t.attributes.has(Attribute::ContiguousInput);
        let packed = |t: &Traits| t.attributes.has(Attribute::PackedInput);
        let members = part.members.iter();
        let wanted = members.filter(|&&m| padded(&self.traits[m]) || packed(&self.traits[m]));
        let reader = |&place: &usize| Reader {
            place,
            node: self.anchor(place).node,
            padded: padded(&self.traits[place]),
        };
        wanted.map(reader).collect()
    }

    /// Keeps readers that can have their neighbours together, and adds a cut before each other one.
    /// Gives the kept reader with the longest row.
    fn choose_readers(&self, readers: &[Reader], found: &mut Vec<Cut>) -> Option<Reader> {
        let mut kept: Option<Reader> = None;
        for reader in readers {
            let Some(first) = &kept else {
                kept = Some(reader.clone());
                continue;
            };
            if !self.readers_clash(first, reader) {
                let row = |r: &Reader| self.work.graph().nodes[r.node].inputs.len();
                if row(reader) > row(first) {
                    kept = Some(reader.clone());
                }
                continue;
            }
            let of = |r: &Reader| match r.padded {
                true => Attribute::ContiguousInput,
                false => Attribute::PackedInput,
            };
            let at = self.anchor(reader.place);
            found.push(Cut {
                at,
                pair: (self.anchor(first.place), at),
                attributes: (of(first), of(reader)),
                checker: match rule(of(first), of(reader)) {
                    Rule::Ask(checker) => Some(checker),
                    Rule::Agree | Rule::Clash => None,
                },
                is_free: false,
            });
        }
        kept
    }

    /// Whether two readers of one memory want different neighbours.
    fn readers_clash(&self, one: &Reader, other: &Reader) -> bool {
        if one.node == other.node {
            let pair = (one.node, one.node);
            let slices = || self.reads_slices(one.node);
            return !self.work.once(Question::InputsAreSlices, pair, slices);
        }
        if one.padded || other.padded {
            return true;
        }
        let row = |r: &Reader| self.work.producers(r.node).collect::<Vec<_>>();
        let together = || self.packed_together(&row(one), &row(other));
        let pair = (one.node, other.node);
        !self.work.once(Question::InputsMeet, pair, together)
    }

    /// Whether all inputs of a node are slices of one memory, each written in place there.
    fn reads_slices(&self, node: NodeId) -> bool {
        let work = self.work;
        let graph = work.graph();
        let mut seen: FxHashSet<Anchor> = FxHashSet::default();
        let mut producers = work.producers(node);
        self.has_one_producer(node)
            && producers.all(|p| match p.slot {
                // One output cannot be two slices.
                Slot::Out(o) => reference(graph, work.table, p.node, o).is_some() && seen.insert(p),
                Slot::In(_) => false,
            })
    }

    /// Adds what parts the pairs in conflict of a part.
    fn conflicts(&self, part: &Part, found: &mut Vec<Cut>) {
        if part.members.len() < 2 {
            return;
        }
        for &place in &part.members {
            self.conflicts_with(place, &part.groups, found);
        }
        self.choose_readers(&self.readers(part), found);
    }

    /// Adds what parts a member from the members of groups.
    fn conflicts_with(&self, place: usize, groups: &Groups, found: &mut Vec<Cut>) {
        let mine = self.traits[place];
        for (theirs, nodes) in groups.iter().filter(|(theirs, _)| may_clash(&mine, theirs)) {
            let all = looks_at_both(&mine, theirs);
            let count = if all { nodes.len() } else { REPRESENTATIVES };
            for &other in nodes.iter().take(count) {
                let before = found.len();
                self.compare(place, other, found);
                if found.len() > before && !all {
                    break;
                }
            }
        }
    }

    /// Adds what parts two members.
    fn compare(&self, one: usize, other: usize, found: &mut Vec<Cut>) {
        let (first, second) = (one.min(other), one.max(other));
        let (a, b) = (self.anchor(first), self.anchor(second));
        let (a_traits, b_traits) = (self.traits[first], self.traits[second]);
        if a.node == b.node || is_exempt(a, &a_traits, b, &b_traits) {
            return;
        }
        for a_is in a_traits.attributes.iter() {
            for b_is in b_traits.attributes.iter() {
                let rule = rule(a_is, b_is);
                let pair = Pair {
                    a,
                    a_is,
                    a_traits,
                    b,
                    b_is,
                    b_traits,
                };
                found.extend(cuts(self, rule, &pair).into_iter().map(|at| Cut {
                    at,
                    pair: (a, b),
                    attributes: (a_is, b_is),
                    checker: match rule {
                        Rule::Ask(checker) => Some(checker),
                        Rule::Agree | Rule::Clash => None,
                    },
                    is_free: false,
                }));
            }
        }
    }

    /// Takes back cuts without which no pair is in conflict, the latest first.
    fn take_back(&self, cuts: &mut Vec<Cut>, places: &mut FxHashSet<Anchor>) {
        if cuts.is_empty() {
            return;
        }
        let (part_of, count) = self.components(places);
        let mut members: Vec<Vec<usize>> = vec![Vec::new(); count];
        for (place, &part) in part_of.iter().enumerate() {
            members[part].push(place);
        }
        let mut parts: Vec<Part> = members.into_iter().map(|m| self.part(m)).collect();
        let mut sets = Sets::new(count);
        let mut needed = vec![true; cuts.len()];
        for (i, cut) in cuts.iter().enumerate().rev() {
            if cut.is_free {
                continue;
            }
            let sides = self.sides(cut.at, places);
            let sides = sides.map(|(from, to)| (sets.root(part_of[from]), sets.root(part_of[to])));
            let Some((one, other)) = sides else { continue };
            if one != other {
                let (small, large) = if parts[one].members.len() < parts[other].members.len() {
                    (one, other)
                } else {
                    (other, one)
                };
                if self.parts_clash(&parts[small], &parts[large]) {
                    continue;
                }
                let small = std::mem::take(&mut parts[small]);
                let large = std::mem::take(&mut parts[large]);
                sets.join(one, other);
                parts[sets.root(one)] = self.joined(small, large);
            }
            needed[i] = false;
            places.remove(&cut.at);
        }
        let mut needed = needed.into_iter();
        cuts.retain(|_| needed.next() == Some(true));
    }

    /// A member on each side of a cut.
    fn sides(&self, at: Anchor, places: &FxHashSet<Anchor>) -> Option<(usize, usize)> {
        let graph = self.work.graph();
        let value = at.value(graph)?;
        match at.slot {
            Slot::In(_) => {
                let feeder = Anchor::of(graph, value);
                if places.contains(&feeder) {
                    // What is behind a copy of the output belongs to the copy's readers.
                    let users = self.work.users(value).iter();
                    let mut readers = users.map(|&(n, i)| Anchor::input(n, i));
                    let reader = readers.find(|r| *r != at && !places.contains(r));
                    return Some((self.place(reader?)?, self.place(at)?));
                }
                Some((self.place(feeder)?, self.place(at)?))
            }
            Slot::Out(_) => {
                let users = self.work.users(value).iter();
                let mut readers = users.map(|&(n, i)| Anchor::input(n, i));
                let reader = readers.find(|r| !places.contains(r))?;
                Some((self.place(at)?, self.place(reader)?))
            }
        }
    }

    /// Whether a member of one part is in conflict with a member of another.
    fn parts_clash(&self, small: &Part, large: &Part) -> bool {
        if let (Some(one), Some(other)) = (&small.reader, &large.reader)
            && self.readers_clash(one, other)
        {
            return true;
        }
        let mut found = Vec::new();
        small.members.iter().any(|&place| {
            self.conflicts_with(place, &large.groups, &mut found);
            !found.is_empty()
        })
    }

    fn joined(&self, small: Part, mut large: Part) -> Part {
        for (traits, nodes) in small.groups {
            let group = large.groups.entry(traits).or_default();
            for place in nodes {
                // The first ones stand for all, so they must be of different nodes.
                let node = self.anchor(place).node;
                let mut first = group.iter().take(REPRESENTATIVES);
                if !first.any(|&other| self.anchor(other).node == node) {
                    group.push(place);
                }
            }
        }
        large.members.extend(small.members);
        let row = |r: &Reader| self.work.graph().nodes[r.node].inputs.len();
        large.reader = match (large.reader, small.reader) {
            (Some(a), Some(b)) => Some(if row(&b) > row(&a) { b } else { a }),
            (a, b) => a.or(b),
        };
        large
    }
}

/// Whether some rule between what two anchors ask is more than agreement.
pub(crate) fn may_clash(a: &Traits, b: &Traits) -> bool {
    rules(a, b).any(|rule| rule != Rule::Agree)
}

fn looks_at_both(a: &Traits, b: &Traits) -> bool {
    rules(a, b).any(|rule| matches!(rule, Rule::Ask(c) if c.looks_at_both_nodes()))
}

fn rules(a: &Traits, b: &Traits) -> impl Iterator<Item = Rule> {
    let (a, b) = (a.attributes, b.attributes);
    a.iter()
        .flat_map(move |x| b.iter().map(move |y| rule(x, y)))
}

/// Two outputs of which one is said to be the other's memory by name, and no group is involved.
fn is_exempt(a: Anchor, a_traits: &Traits, b: Anchor, b_traits: &Traits) -> bool {
    let group = Attribute::ContiguousOutput;
    a.is_output()
        && b.is_output()
        && !a_traits.attributes.has(group)
        && !b_traits.attributes.has(group)
        && (a_traits.source == Some(b.node) || b_traits.source == Some(a.node))
}

/// Disjoint sets of small numbers.
struct Sets(Vec<usize>);

impl Sets {
    fn new(count: usize) -> Self {
        Sets((0..count).collect())
    }

    fn root(&mut self, mut of: usize) -> usize {
        while self.0[of] != of {
            self.0[of] = self.0[self.0[of]];
            of = self.0[of];
        }
        of
    }

    fn join(&mut self, one: usize, other: usize) {
        let (one, other) = (self.root(one), self.root(other));
        let (low, high) = (one.min(other), one.max(other));
        self.0[high] = low;
    }

    /// For each number the number of its set, counted in the order of first members.
    fn numbered(mut self) -> (Vec<usize>, usize) {
        let mut numbers: FxHashMap<usize, usize> = FxHashMap::default();
        let of = (0..self.0.len()).map(|i| {
            let root = self.root(i);
            let next = numbers.len();
            *numbers.entry(root).or_insert(next)
        });
        let of = of.collect();
        (of, numbers.len())
    }
}
