//! Programs played step by step, with two memories laid over one another: who reads what another
//! wrote there. It shares no code with what is tested but the table of operators and the list of
//! what is handed over at borders.

use std::collections::{BTreeMap, BTreeSet};

use tenure_graph::control::{Pass, Point, transfers};
use tenure_graph::effects::{OpClass, OpTable, Trait};
use tenure_graph::{Graph, NodeId, SubgraphId, ValueId};
use tenure_guard::storage::reference;

/// Passes that a loop is played at most.
const PASSES: u32 = 3;

/// What is in the memory: a number for who wrote it, and for which of the two values.
type Content = (u64, usize);

/// A run of a program, as far as it has come.
#[derive(Clone)]
pub struct Game<'g> {
    graph: &'g Graph,
    table: &'g OpTable,
    /// The values of the two memories.
    side: &'g BTreeMap<ValueId, usize>,
    /// Subgraphs that run, with what has run there in this pass.
    open: BTreeMap<SubgraphId, BTreeSet<NodeId>>,
    started: BTreeSet<NodeId>,
    ended: BTreeSet<NodeId>,
    /// Bodies of loops and branches that have run, by owner: the last one, and how often.
    last: BTreeMap<NodeId, (SubgraphId, u32)>,
    contents: BTreeMap<ValueId, u64>,
    memory: Option<Content>,
    /// Values made slice by slice of which a slice has been overwritten.
    damaged: BTreeSet<ValueId>,
    written: u64,
    /// Whether what the caller hands in comes at a moment of the run, and not before.
    inputs_come: bool,
    /// Reads that found what was written for the other value.
    pub clashes: u32,
    /// Reads that found something else than what they mean.
    pub wrong: u32,
}

impl<'g> Game<'g> {
    /// A run that has not begun.
    #[must_use]
    pub fn new(graph: &'g Graph, table: &'g OpTable, side: &'g BTreeMap<ValueId, usize>) -> Self {
        Game {
            graph,
            table,
            side,
            open: BTreeMap::from([(graph.root, BTreeSet::new())]),
            started: BTreeSet::new(),
            ended: BTreeSet::new(),
            last: BTreeMap::new(),
            contents: BTreeMap::new(),
            memory: None,
            damaged: BTreeSet::new(),
            written: 0,
            inputs_come: false,
            clashes: 0,
            wrong: 0,
        }
    }

    fn class(&self, node: NodeId) -> OpClass {
        self.table.class(self.graph, node)
    }

    /// Whether a node is memory and runs nothing.
    fn is_memory(&self, node: NodeId) -> bool {
        matches!(
            self.class(node),
            OpClass::Input | OpClass::Constant | OpClass::Variable
        )
    }

    fn read(&mut self, value: ValueId) {
        let meant = self.content(value);
        let is_damaged = u32::from(self.damaged.contains(&value));
        self.clashes += is_damaged;
        self.wrong += is_damaged;
        if let (Some(&side), Some((found, of))) = (self.side.get(&value), self.memory) {
            self.clashes += u32::from(side != of);
            self.wrong += u32::from(found != meant);
        }
    }

    fn content(&mut self, value: ValueId) -> u64 {
        self.written += 1;
        *self.contents.entry(value).or_insert(self.written)
    }

    /// Gives a value another name: with the same content, and the same damage.
    fn name(&mut self, value: ValueId, from: ValueId) {
        let content = self.content(from);
        self.contents.insert(value, content);
        if self.damaged.contains(&from) {
            self.damaged.insert(value);
        } else {
            self.damaged.remove(&value);
        }
    }

    fn write(&mut self, value: ValueId) {
        self.written += 1;
        self.contents.insert(value, self.written);
        self.damaged.remove(&value);
        if let Some(&side) = self.side.get(&value) {
            self.memory = Some((self.written, side));
        }
    }

    /// What is handed over at one point.
    fn hand_over(&mut self, owner: NodeId, point: Point) {
        for transfer in transfers(self.graph, owner, self.class(owner)) {
            if transfer.at != point {
                continue;
            }
            let sides = [transfer.from, transfer.to].map(|v| v.and_then(|v| self.side.get(&v)));
            match (transfer.pass, transfer.from, transfer.to) {
                (Pass::View | Pass::Move, Some(from), Some(to)) if sides[0] == sides[1] => {
                    self.name(to, from);
                }
                (pass, from, to) => {
                    if let Some(from) = from {
                        self.read(from);
                    }
                    let Some(to) = to else { continue };
                    let is_first = self.last.get(&owner).is_none_or(|l| l.1 < 2);
                    let is_sliced = matches!(pass, Pass::Append | Pass::Put) && !is_first;
                    let mine = self.side.get(&to).copied();
                    let is_over = mine.is_some() && self.memory.map(|m| m.1) != mine;
                    let is_damaged = is_sliced && (is_over || self.damaged.contains(&to));
                    self.write(to);
                    if is_damaged {
                        self.damaged.insert(to);
                    }
                }
            }
        }
    }

    /// Whether a node has ended, so that others may start.
    fn has_ended(&self, node: NodeId) -> bool {
        if self.graph.nodes[node].bodies.is_empty() {
            let home = self.graph.nodes[node].subgraph;
            let comes =
                self.inputs_come && home == self.graph.root && self.class(node) == OpClass::Input;
            self.is_memory(node) && !comes
                || self.open.get(&home).is_some_and(|d| d.contains(&node))
        } else {
            self.ended.contains(&node)
        }
    }

    /// Whether a node may start now.
    #[must_use]
    pub fn may_start(&self, node: NodeId) -> bool {
        let n = &self.graph.nodes[node];
        let Some(done) = self.open.get(&n.subgraph) else {
            return false;
        };
        if done.contains(&node) || self.started.contains(&node) {
            return false;
        }
        let ended = |p: NodeId| self.has_ended(p);
        let producer = |v: &ValueId| self.graph.values[*v].producer;
        let inputs = n.inputs.iter().flatten().map(producer).all(ended);
        let captured = self.inside(node).into_iter().all(|inner| {
            let read = self.graph.nodes[inner].inputs.iter().flatten();
            let read = read.filter(|v| self.graph.home(**v) == n.subgraph);
            read.map(producer).all(ended)
        });
        inputs && captured && n.control.iter().all(|&c| ended(c)) && self.stream_is_free(node)
    }

    /// Whether all that stands before a node in the list of its stream has ended.
    fn stream_is_free(&self, node: NodeId) -> bool {
        let Some(stream) = self.graph.nodes[node].stream else {
            return true;
        };
        let mut here = node;
        loop {
            let home = self.graph.nodes[here].subgraph;
            let list = &self.graph.subgraphs[home].nodes;
            let before = list.iter().take_while(|&&n| n != here);
            for &n in before {
                let on_it = |n: NodeId| self.graph.nodes[n].stream == Some(stream);
                if on_it(n) && !self.has_ended(n) {
                    return false;
                }
                // What a body that runs has on the stream comes first, too.
                for inner in self.inside(n) {
                    let home = self.graph.nodes[inner].subgraph;
                    if on_it(inner) && self.open.contains_key(&home) && !self.has_ended(inner) {
                        return false;
                    }
                }
            }
            match self.graph.subgraphs[home].owner {
                Some(owner) => here = owner,
                None => return true,
            }
        }
    }

    /// All nodes inside a node.
    fn inside(&self, node: NodeId) -> Vec<NodeId> {
        let mut all = Vec::new();
        let mut list = vec![node];
        while let Some(node) = list.pop() {
            for body in &self.graph.nodes[node].bodies {
                let nodes = &self.graph.subgraphs[body.graph].nodes;
                all.extend(nodes);
                list.extend(nodes);
            }
        }
        all
    }

    /// Starts a node that may; one without bodies ends as well.
    pub fn start(&mut self, node: NodeId) {
        let n = &self.graph.nodes[node];
        if !n.bodies.is_empty() {
            self.started.insert(node);
            self.looks(node);
            self.hand_over(node, Point::Begin);
            let handed = transfers(self.graph, node, self.class(node));
            for &value in n.outputs.iter().flatten() {
                if handed.iter().all(|t| t.to != Some(value)) {
                    self.write(value);
                }
            }
            return;
        }
        let is_result = self.class(node) == OpClass::Output && n.subgraph != self.graph.root;
        if !is_result {
            self.looks(node);
        }
        self.clashes += u32::from(!is_result && self.overwrites_what_it_reads(node));
        let effects = self.table.effects(self.graph, node);
        let mut sides: BTreeSet<usize> = BTreeSet::new();
        for (o, value) in (0u32..).zip(&n.outputs) {
            let Some(value) = *value else { continue };
            let names = self.names(node, o);
            let written = effects.refs.iter().any(|a| a.output == o);
            match names.first() {
                Some(&from) if !written => self.name(value, from),
                _ => {
                    self.write(value);
                    sides.extend(self.side.get(&value));
                }
            }
        }
        if sides.len() > 1 {
            // Which of the two is there is not known.
            self.memory = Some((self.written + 1, 2));
        }
        if let Some(done) = self.open.get_mut(&n.subgraph) {
            done.insert(node);
        }
    }

    /// Whether a node reads one memory and writes the other, and cannot do so in place.
    fn overwrites_what_it_reads(&self, node: NodeId) -> bool {
        let n = &self.graph.nodes[node];
        let effects = self.table.effects(self.graph, node);
        let side = |v: Option<ValueId>| v.and_then(|v| self.side.get(&v).copied());
        let inputs = || (0u32..).zip(&n.inputs).map(|(i, &v)| (i, side(v)));
        let outputs = || (0u32..).zip(&n.outputs).map(|(o, &v)| (o, side(v)));
        [0, 1].into_iter().any(|read| {
            let reads = |i: u32| {
                let is_name = outputs().any(|(o, _)| {
                    let value = n.input(i as usize);
                    let written = effects.refs.iter().any(|a| a.output == o);
                    !written && value.is_some_and(|v| self.names(node, o).contains(&v))
                });
                !is_name && !effects.shape_only.contains(&i)
            };
            let reads = inputs().any(|(i, s)| s == Some(read) && reads(i));
            let writes = outputs().any(|(o, s)| {
                s == Some(1 - read) && self.names(node, o).is_empty()
                    || s == Some(1 - read) && effects.refs.iter().any(|a| a.output == o)
            });
            let in_place = effects.in_place.iter().any(|entry| {
                let sharers = inputs().filter(|(_, s)| *s == Some(read)).map(|(i, _)| i);
                side(n.input(entry.input as usize)) == Some(read)
                    && side(n.output(entry.output as usize)) == Some(1 - read)
                    && effects.tolerates(*entry, sharers)
            });
            reads && writes && !in_place
        })
    }

    /// The inputs that an output is another name for.
    fn names(&self, node: NodeId, o: u32) -> Vec<ValueId> {
        let n = &self.graph.nodes[node];
        let effects = self.table.effects(self.graph, node);
        let merges =
            o == 0 && (effects.merges || self.table.traits(self.graph, node).has(Trait::Merges));
        let alias = effects
            .view_of(o)
            .or_else(|| reference(self.graph, self.table, node, o));
        let inputs = (0u32..).zip(&n.inputs);
        let named = inputs.filter(|&(i, _)| merges || alias == Some(i));
        let named = named.filter_map(|(_, v)| *v);
        // What hands on whichever input has come may do so in memory of its own.
        let side = |v: Option<ValueId>| v.and_then(|v| self.side.get(&v));
        let here = side(n.output(o as usize));
        named.filter(|&v| side(Some(v)) == here).collect()
    }

    /// Reads what a node looks at when it starts.
    fn looks(&mut self, node: NodeId) {
        let n = &self.graph.nodes[node];
        let effects = self.table.effects(self.graph, node);
        let all = transfers(self.graph, node, self.class(node));
        for (i, value) in (0u32..).zip(&n.inputs) {
            let Some(value) = *value else { continue };
            let outputs = (0u32..).zip(&n.outputs);
            let mut outputs = outputs.filter(|(_, v)| v.is_some());
            let is_name = n.bodies.is_empty()
                && outputs.any(|(o, _)| {
                    let written = effects.refs.iter().any(|a| a.output == o);
                    let names = self.names(node, o);
                    !written && names.contains(&value)
                });
            let handed = all.iter().any(|t| t.from == Some(value));
            let hint = self.table.traits(self.graph, node).has(Trait::Hint);
            if !is_name && !handed && !hint && !effects.shape_only.contains(&i) {
                self.read(value);
            }
        }
    }

    /// Whether a body may be entered now, for the first or one more time.
    #[must_use]
    pub fn may_enter(&self, body: SubgraphId) -> bool {
        let Some(owner) = self.graph.subgraphs[body].owner else {
            return false;
        };
        let bodies = &self.graph.nodes[owner].bodies;
        let is_open = bodies.iter().any(|b| self.open.contains_key(&b.graph));
        if !self.started.contains(&owner) || self.ended.contains(&owner) || is_open {
            return false;
        }
        let Some(&(last, times)) = self.last.get(&owner) else {
            // A loop looks at its condition first.
            let condition = bodies.iter().find(|b| b.is_condition());
            let is_while = self.class(owner) == OpClass::While;
            return !is_while || condition.is_none_or(|b| b.graph == body);
        };
        match self.class(owner) {
            OpClass::Branch | OpClass::Call => false,
            OpClass::While => times < 2 * PASSES && last != body,
            _ => times < PASSES,
        }
    }

    /// Enters a body that may be entered.
    pub fn enter(&mut self, body: SubgraphId) {
        let Some(owner) = self.graph.subgraphs[body].owner else {
            return;
        };
        self.open.insert(body, BTreeSet::new());
        for node in self.inside(owner) {
            self.started.remove(&node);
            self.ended.remove(&node);
            self.last.remove(&node);
        }
        let times = self.last.get(&owner).map_or(0, |l| l.1) + 1;
        self.last.insert(owner, (body, times));
        self.hand_over(owner, Point::Enter(self.number(owner, body)));
    }

    fn number(&self, owner: NodeId, body: SubgraphId) -> u32 {
        let mut bodies = (0u32..).zip(&self.graph.nodes[owner].bodies);
        bodies.find(|(_, b)| b.graph == body).map_or(0, |b| b.0)
    }

    /// Whether all nodes of a body that runs have ended.
    #[must_use]
    pub fn may_leave(&self, body: SubgraphId) -> bool {
        let nodes = &self.graph.subgraphs[body].nodes;
        body != self.graph.root
            && self.open.contains_key(&body)
            && nodes.iter().all(|&n| self.has_ended(n))
    }

    /// Leaves a body that may be left.
    pub fn leave(&mut self, body: SubgraphId) {
        self.open.remove(&body);
        if let Some(owner) = self.graph.subgraphs[body].owner {
            self.hand_over(owner, Point::Leave(self.number(owner, body)));
        }
    }

    /// Whether a node with bodies may end now.
    #[must_use]
    pub fn may_end(&self, owner: NodeId) -> bool {
        let n = &self.graph.nodes[owner];
        let is_open = n.bodies.iter().any(|b| self.open.contains_key(&b.graph));
        if n.bodies.is_empty() || !self.started.contains(&owner) || is_open {
            return false;
        }
        let last = self.last.get(&owner).map(|l| l.0);
        let is_condition =
            |s: SubgraphId| n.bodies.iter().any(|b| b.graph == s && b.is_condition());
        !self.ended.contains(&owner)
            && match self.class(owner) {
                OpClass::Branch | OpClass::Call => last.is_some(),
                OpClass::While => {
                    let has_condition = n.bodies.iter().any(|b| b.is_condition());
                    !has_condition || last.is_some_and(is_condition)
                }
                _ => true,
            }
    }

    /// Ends a node with bodies that may end.
    pub fn end(&mut self, owner: NodeId) {
        self.ended.insert(owner);
        if !self.last.contains_key(&owner) {
            // Without a pass, what is made slice by slice has none, and is there.
            for transfer in transfers(self.graph, owner, self.class(owner)) {
                if let (Pass::Append, Some(value)) = (transfer.pass, transfer.to) {
                    self.write(value);
                }
            }
        }
        let home = self.graph.nodes[owner].subgraph;
        if let Some(done) = self.open.get_mut(&home) {
            done.insert(owner);
        }
    }

    /// Plays a whole run, in a random order.
    pub fn play(&mut self, rng: &mut fastrand::Rng) {
        /// What can be done next.
        enum Move {
            Start(NodeId),
            Enter(SubgraphId),
            Leave(SubgraphId),
            End(NodeId),
        }
        self.inputs_come = true;
        loop {
            let nodes = self.graph.nodes.keys();
            let starts = nodes.filter(|&n| !self.is_played(n) && self.may_start(n));
            let bodies: Vec<SubgraphId> = self.graph.subgraphs.keys().collect();
            let mut moves: Vec<Move> = starts.map(Move::Start).collect();
            let entered = bodies.iter().filter(|s| self.may_enter(**s));
            moves.extend(entered.map(|&s| Move::Enter(s)));
            let left = bodies.iter().filter(|s| self.may_leave(**s));
            moves.extend(left.map(|&s| Move::Leave(s)));
            let nodes = self.graph.nodes.keys();
            moves.extend(nodes.filter(|&n| self.may_end(n)).map(Move::End));
            match rng.choice(&moves) {
                Some(&Move::Start(node)) => self.start(node),
                Some(&Move::Enter(body)) => self.enter(body),
                Some(&Move::Leave(body)) => self.leave(body),
                Some(&Move::End(node)) => self.end(node),
                None => return,
            }
        }
    }

    /// Whether a node inside is memory that has been filled when its body was entered, or a
    /// constant. What stands for memory of the program is filled at some moment of the run.
    fn is_played(&self, node: NodeId) -> bool {
        let handed = self.graph.nodes[node].subgraph != self.graph.root;
        self.is_memory(node) && (handed || self.class(node) != OpClass::Input)
    }

    /// Runs a node that is to run next, after the borders that must be passed for it.
    ///
    /// # Errors
    /// When it may not run, with the reason.
    pub fn step(&mut self, node: NodeId) -> Result<(), String> {
        if self.is_memory(node) {
            for &value in self.graph.nodes[node].outputs.iter().flatten() {
                self.write(value);
            }
            return Ok(());
        }
        let is_again = self.started.contains(&node) || self.has_ended(node);
        self.reach(node, is_again)?;
        for _ in 0..=self.graph.nodes.len() {
            if self.may_start(node) {
                self.start(node);
                return Ok(());
            }
            // Whatever has run to its end ends, unless the node is inside.
            let mut around = BTreeSet::new();
            let mut here = Some(self.graph.nodes[node].subgraph);
            while let Some(subgraph) = here {
                around.insert(subgraph);
                here = self.graph.enclosing(subgraph);
            }
            let bodies: Vec<SubgraphId> = self.graph.subgraphs.keys().collect();
            for body in bodies.into_iter().filter(|s| !around.contains(s)) {
                if self.may_leave(body) {
                    self.leave(body);
                }
            }
            let nodes: Vec<NodeId> = self.graph.nodes.keys().collect();
            for owner in nodes {
                let bodies = &self.graph.nodes[owner].bodies;
                if self.may_end(owner) && bodies.iter().all(|b| !around.contains(&b.graph)) {
                    self.end(owner);
                }
            }
        }
        Err(format!("{} may not run", self.graph.node_label(node)))
    }

    /// Opens the body of a node, for one more pass where the node has run already.
    fn reach(&mut self, node: NodeId, is_again: bool) -> Result<(), String> {
        let mut around: Vec<SubgraphId> = Vec::new();
        let mut here = Some(self.graph.nodes[node].subgraph);
        while let Some(subgraph) = here {
            around.push(subgraph);
            here = self.graph.enclosing(subgraph);
        }
        if is_again {
            // The innermost loop whose pass is over goes on.
            let over = around.iter().copied().find(|&s| {
                let owner = self.graph.subgraphs[s].owner;
                owner.is_some_and(|o| self.class(o).repeats())
            });
            let body = over.ok_or("a node runs twice that is in no loop")?;
            self.close(body)?;
        }
        for &body in around.iter().rev().filter(|&&s| s != self.graph.root) {
            if self.open.contains_key(&body) {
                continue;
            }
            let owner = self.graph.subgraphs[body].owner.ok_or("no owner")?;
            let bodies: Vec<SubgraphId> = (self.graph.nodes[owner].bodies.iter())
                .map(|b| b.graph)
                .collect();
            for other in bodies {
                self.close(other)?;
            }
            if !self.may_enter(body) {
                return Err(format!(
                    "{:?} may not be entered",
                    self.graph.subgraphs[body].name
                ));
            }
            self.enter(body);
        }
        Ok(())
    }

    /// Leaves a body, after what is inside it has ended.
    fn close(&mut self, body: SubgraphId) -> Result<(), String> {
        if !self.open.contains_key(&body) {
            return Ok(());
        }
        for node in self.graph.subgraphs[body].nodes.clone() {
            let bodies = self.graph.nodes[node].bodies.clone();
            for inner in &bodies {
                self.close(inner.graph)?;
            }
            if self.may_end(node) {
                self.end(node);
            }
        }
        if !self.may_leave(body) {
            return Err(format!(
                "{:?} is left too early",
                self.graph.subgraphs[body].name
            ));
        }
        self.leave(body);
        Ok(())
    }

    /// Reads what a node looks at, in another run.
    pub fn look_in_next_run(&mut self, node: NodeId) {
        self.looks(node);
    }

    /// Reads at a border what a node with bodies hands over, as its last step.
    pub fn look_at_borders(&mut self, owner: NodeId) {
        let mut read: Vec<ValueId> = transfers(self.graph, owner, self.class(owner))
            .iter()
            .filter_map(|t| t.from)
            .collect();
        read.extend(self.graph.nodes[owner].inputs.iter().flatten());
        for value in read {
            self.read(value);
        }
    }

    /// Passes the border at which a node with bodies writes a value.
    pub fn write_at_border(&mut self, owner: NodeId, value: ValueId) {
        for body in self.graph.nodes[owner].bodies.clone() {
            let is_given = self.graph.home(value) == body.graph;
            if is_given && self.may_enter(body.graph) {
                return self.enter(body.graph);
            }
            if !is_given && self.may_leave(body.graph) {
                return self.leave(body.graph);
            }
        }
        self.write(value);
    }

    /// Whether a node with bodies has started and not ended.
    #[must_use]
    pub fn is_running(&self, node: NodeId) -> bool {
        self.started.contains(&node) && !self.graph.nodes[node].bodies.is_empty()
    }

    /// Forgets what was found so far.
    pub fn forget(&mut self) {
        (self.clashes, self.wrong) = (0, 0);
    }
}
