//! Looks for an order of the nodes with a lower peak than the model's own.
//!
//! Three orders compete: the model's, one that is depth first from the results (what a reader
//! needs is made right before it), and a greedy one that always runs the ready node that adds the
//! least. The maximum load of each, with all sharing, decides; the model's own wins a tie. Bodies
//! of loops and branches are ordered the same way, each on its own.
//!
//! What a variable holds depends on who wrote it last, so its writers keep their place among all
//! that touch it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rustc_hash::FxHashMap;
use tenure_graph::control::{Pass, Point, transfers};
use tenure_graph::effects::{Alias, OpClass, OpTable};
use tenure_graph::entity::SecondaryMap;
use tenure_graph::plan::PlanOptions;
use tenure_graph::{Graph, NodeId, SubgraphId, ValueId};

use crate::{Memory, PlanError, memory};

/// A graph whose nodes stand in the best order that was found; the same nodes and values.
///
/// # Errors
/// See [`memory()`].
pub fn improve(graph: Graph, table: &OpTable, options: &PlanOptions) -> Result<Graph, PlanError> {
    let mut best_load = load(&memory(&graph, table, options)?, options.align);
    let variables = variables(&graph, table);
    let mut best = graph;
    for ordering in [depth_first, greedy] {
        let mut other = best.clone();
        let ids: Vec<SubgraphId> = other.subgraphs.keys().collect();
        for subgraph in ids {
            let flow = Flow::new(&other, table, &variables, subgraph);
            let order = ordering(&flow);
            let nodes: Vec<NodeId> = order.iter().map(|&i| flow.nodes[i]).collect();
            other.subgraphs[subgraph].nodes = nodes;
        }
        let other_load = load(&memory(&other, table, options)?, options.align);
        if other_load < best_load {
            best_load = other_load;
            best = other;
        }
    }
    Ok(best)
}

/// The maximum load of what has been found to live when.
fn load(memory: &Memory, align: u64) -> u64 {
    let mut events: Vec<(u32, bool, u64)> = Vec::new();
    for class in memory.classes.classes.iter().filter(|c| !c.caller) {
        let bytes = class.bytes.checked_next_multiple_of(align);
        let bytes = bytes.unwrap_or(u64::MAX);
        for span in &class.life {
            events.push((span.first, true, bytes));
            events.push((span.last.saturating_add(1), false, bytes));
        }
    }
    // Ends come before beginnings at the same step.
    events.sort_unstable_by_key(|&(step, begins, _)| (step, begins));
    let mut now = 0u128;
    let mut most = 0u128;
    for (_, begins, bytes) in events {
        if begins {
            now += u128::from(bytes);
            most = most.max(now);
        } else {
            now -= u128::from(bytes);
        }
    }
    u64::try_from(most).unwrap_or(u64::MAX)
}

/// The nodes of one subgraph as a graph of dependences with the bytes that flow along it.
struct Flow {
    nodes: Vec<NodeId>,
    /// Nodes that need this one to have run.
    next: Vec<Vec<usize>>,
    /// Nodes that this one needs to have run.
    previous: Vec<Vec<usize>>,
    /// Pieces of memory that a node reads.
    reads: Vec<Vec<usize>>,
    /// Pieces of memory that a node makes.
    makes: Vec<Vec<usize>>,
    /// Bytes of each piece.
    bytes: Vec<u64>,
    /// How many nodes read each piece.
    readers: Vec<usize>,
}

impl Flow {
    fn new(graph: &Graph, table: &OpTable, variables: &Variables, subgraph: SubgraphId) -> Self {
        let nodes = graph.subgraphs[subgraph].nodes.clone();
        let n = nodes.len();
        let place: FxHashMap<NodeId, usize> = nodes.iter().copied().zip(0..).collect();
        let mut flow = Flow {
            next: vec![Vec::new(); n],
            previous: vec![Vec::new(); n],
            reads: vec![Vec::new(); n],
            makes: vec![Vec::new(); n],
            bytes: Vec::new(),
            readers: Vec::new(),
            nodes,
        };
        let mut piece: FxHashMap<ValueId, usize> = FxHashMap::default();
        let mut touched: FxHashMap<ValueId, Touched> = FxHashMap::default();
        for i in 0..n {
            let node = flow.nodes[i];
            let effects = table.effects(graph, node);
            let mut needed: Vec<usize> = graph.nodes[node]
                .control
                .iter()
                .filter_map(|c| place.get(c).copied())
                .collect();
            for value in named(graph, node) {
                // What comes from outside the subgraph neither orders nor is freed here.
                if let Some(&from) = place.get(&graph.values[value].producer) {
                    needed.push(from);
                    flow.reads[i].extend(piece.get(&value).copied());
                }
                if let Some(variable) = variables[value] {
                    // What bodies do with it is not looked at.
                    let refers =
                        |a: &Alias| graph.nodes[node].input(a.input as usize) == Some(value);
                    let writes =
                        !graph.nodes[node].bodies.is_empty() || effects.refs.iter().any(refers);
                    needed.extend(touched.entry(variable).or_default().touch(i, writes));
                }
            }
            needed.retain(|&from| from != i);
            needed.sort_unstable();
            needed.dedup();
            flow.reads[i].sort_unstable();
            flow.reads[i].dedup();
            for &from in &needed {
                flow.next[from].push(i);
            }
            flow.previous[i] = needed;
            for &p in &flow.reads[i] {
                flow.readers[p] += 1;
            }
            let constant = matches!(
                table.class(graph, node),
                OpClass::Constant | OpClass::Variable
            );
            for (k, value) in (0u32..).zip(&graph.nodes[node].outputs) {
                let Some(value) = *value else { continue };
                let source = effects
                    .views
                    .iter()
                    .find(|v| v.output == k)
                    .and_then(|v| graph.nodes[node].input(v.input as usize))
                    .and_then(|v| piece.get(&v).copied());
                let at = source.unwrap_or_else(|| {
                    flow.bytes.push(if constant {
                        0
                    } else {
                        graph.bytes(value).unwrap_or(0)
                    });
                    flow.readers.push(0);
                    flow.bytes.len() - 1
                });
                if source.is_none() {
                    flow.makes[i].push(at);
                }
                piece.insert(value, at);
            }
        }
        flow
    }

    /// Bytes that running node `i` adds, less those that it is the last to read.
    fn growth(&self, i: usize, left: &[usize]) -> i128 {
        let made = self.makes[i].iter().map(|&p| i128::from(self.bytes[p]));
        let freed = self.reads[i]
            .iter()
            .filter(|&&p| left[p] == 1)
            .map(|&p| i128::from(self.bytes[p]));
        made.sum::<i128>() - freed.sum::<i128>()
    }
}

/// Nodes that have touched a variable so far.
#[derive(Default)]
struct Touched {
    writer: Option<usize>,
    /// Since the last writer.
    readers: Vec<usize>,
}

impl Touched {
    /// Node `i` touches the variable; gives back whom it must come after.
    fn touch(&mut self, i: usize, writes: bool) -> Vec<usize> {
        let mut before: Vec<usize> = self.writer.into_iter().collect();
        if writes {
            before.append(&mut self.readers);
            self.writer = Some(i);
        } else {
            self.readers.push(i);
        }
        before
    }
}

/// The variable that each value is a name of.
type Variables = SecondaryMap<ValueId, Option<ValueId>>;

/// Follows variables through views, references and the borders of subgraphs.
fn variables(graph: &Graph, table: &OpTable) -> Variables {
    let mut of: Variables = SecondaryMap::with_capacity(graph.values.len());
    let hand_over = |of: &mut Variables, node: NodeId, is_here: fn(Point) -> bool| {
        let all = transfers(graph, node, table.class(graph, node)).into_iter();
        for t in all.filter(|t| is_here(t.at)) {
            if let (Pass::View, Some(from), Some(to)) = (t.pass, t.from, t.to) {
                of[to] = of[from];
            }
        }
    };
    let nodes = |subgraph: SubgraphId| graph.subgraphs[subgraph].nodes.iter();
    let mut open = vec![(None, nodes(graph.root))];
    while let Some((owner, rest)) = open.last_mut() {
        let Some(&node) = rest.next() else {
            if let Some(owner) = *owner {
                hand_over(&mut of, owner, |at| matches!(at, Point::Leave(_)));
            }
            open.pop();
            continue;
        };
        let n = &graph.nodes[node];
        let class = table.class(graph, node);
        if class == OpClass::Variable {
            for &value in n.outputs.iter().flatten() {
                of[value] = Some(value);
            }
            continue;
        }
        if n.inputs.iter().flatten().any(|&v| of[v].is_some()) {
            let effects = table.effects(graph, node);
            for a in effects.views.iter().chain(&effects.refs) {
                let ends = (n.input(a.input as usize), n.output(a.output as usize));
                if let (Some(from), Some(to)) = ends {
                    of[to] = of[from];
                }
            }
            hand_over(&mut of, node, |at| !matches!(at, Point::Leave(_)));
        }
        let bodies = n.bodies.iter().rev();
        open.extend(bodies.map(|b| (Some(node), nodes(b.graph))));
    }
    of
}

/// Values that a node reads, those that its bodies capture included.
fn named(graph: &Graph, node: NodeId) -> Vec<ValueId> {
    let mut values: Vec<ValueId> = graph.nodes[node].inputs.iter().copied().flatten().collect();
    let mut bodies: Vec<SubgraphId> = graph.nodes[node].bodies.iter().map(|b| b.graph).collect();
    while let Some(body) = bodies.pop() {
        for &inner in &graph.subgraphs[body].nodes {
            values.extend(graph.nodes[inner].inputs.iter().copied().flatten());
            bodies.extend(graph.nodes[inner].bodies.iter().map(|b| b.graph));
        }
    }
    values
}

/// Every node right before the first that needs it, starting from the results.
fn depth_first(flow: &Flow) -> Vec<usize> {
    let n = flow.nodes.len();
    let mut order = Vec::with_capacity(n);
    let mut entered = vec![false; n];
    let sinks = (0..n).filter(|&i| flow.next[i].is_empty());
    for sink in sinks {
        let mut stack = vec![(sink, 0)];
        entered[sink] = true;
        while let Some((node, at)) = stack.last_mut() {
            match flow.previous[*node].get(*at) {
                Some(&before) => {
                    *at += 1;
                    if !entered[before] {
                        entered[before] = true;
                        stack.push((before, 0));
                    }
                }
                None => {
                    order.push(*node);
                    stack.pop();
                }
            }
        }
    }
    results_last(flow, order)
}

/// Always the ready node that adds the fewest bytes; the model's order breaks ties.
fn greedy(flow: &Flow) -> Vec<usize> {
    let n = flow.nodes.len();
    let mut left = flow.readers.clone();
    let mut waits: Vec<usize> = flow.previous.iter().map(Vec::len).collect();
    let mut readers_of: Vec<Vec<usize>> = vec![Vec::new(); flow.bytes.len()];
    for (i, reads) in flow.reads.iter().enumerate() {
        for &p in reads {
            readers_of[p].push(i);
        }
    }
    let mut done = vec![false; n];
    let mut ready: BinaryHeap<Reverse<(i128, usize)>> = (0..n)
        .filter(|&i| waits[i] == 0)
        .map(|i| Reverse((flow.growth(i, &left), i)))
        .collect();
    let mut order = Vec::with_capacity(n);
    while let Some(Reverse((growth, i))) = ready.pop() {
        // An entry whose growth has changed since was pushed again with the new one.
        if done[i] || growth != flow.growth(i, &left) {
            continue;
        }
        done[i] = true;
        order.push(i);
        for &p in &flow.reads[i] {
            left[p] -= 1;
            if left[p] == 1 {
                let last = readers_of[p].iter().copied().find(|&r| !done[r]);
                if let Some(last) = last.filter(|&r| waits[r] == 0) {
                    ready.push(Reverse((flow.growth(last, &left), last)));
                }
            }
        }
        for &next in &flow.next[i] {
            waits[next] -= 1;
            if waits[next] == 0 {
                ready.push(Reverse((flow.growth(next, &left), next)));
            }
        }
    }
    results_last(flow, order)
}

/// The output node stands last, as the verifier demands; it is a sink, so it may.
fn results_last(flow: &Flow, mut order: Vec<usize>) -> Vec<usize> {
    // The model's order has it last, so it has the highest number.
    let last = flow.nodes.len().saturating_sub(1);
    order.retain(|&i| i != last);
    if !flow.nodes.is_empty() {
        order.push(last);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_graph::{DType, Dialect, Shape};

    /// Every order keeps what a variable holds when it is read.
    #[test]
    fn writers_of_a_variable_keep_their_place() {
        let text = "model m ge graph ^root {
            %var: float32[8] = Variable()
            %x: float32[8] = Data() {index = 0}
            %before: float32[8] = Relu(%var)
            %wide: float32[800] = Tile(%before)
            %view: float32[8] <ref_input = 0> = Reshape(%var)
            %set: float32[8] <ref_input = 0> = Assign(%view, %x)
            %after: float32[8] = Relu(%var)
            %sum: float32[8] = Cross(%after, %wide)
            NetOutput(%sum) @out
          }";
        let graph = tenure_graph::text::parse(text).unwrap();
        let table = OpTable::builtin(Dialect::Ge);
        let flow = Flow::new(&graph, &table, &variables(&graph, &table), graph.root);
        let at = |order: &[usize], name: &str| {
            let is_it = |&i: &usize| graph.nodes[flow.nodes[i]].name == name;
            order.iter().position(is_it).unwrap()
        };
        for ordering in [depth_first, greedy] {
            let order = ordering(&flow);
            let [before, set, after] = ["before", "set", "after"].map(|name| at(&order, name));
            assert!(before < set && set < after, "{order:?}");
        }
    }

    /// Two branches widen and narrow again: depth first holds one wide value at a time.
    #[test]
    fn breadth_first_becomes_depth_first() {
        let mut graph = Graph::new("", Dialect::Ge, "root");
        let root = graph.root;
        let shape = |n| Some(Shape::of(&[n]));
        let x = graph.add_input(root, "x", DType::F32, shape(16));
        let add = |graph: &mut Graph, name: &str, inputs: &[ValueId], n| {
            let node = graph.add_node(root, name, "Any");
            graph.nodes[node]
                .inputs
                .extend(inputs.iter().map(|&v| Some(v)));
            graph.add_output(node, format!("{name}:0"), DType::F32, shape(n))
        };
        let wide1 = add(&mut graph, "wide1", &[x], 100);
        let wide2 = add(&mut graph, "wide2", &[x], 100);
        let small1 = add(&mut graph, "small1", &[wide1], 10);
        let small2 = add(&mut graph, "small2", &[wide2], 10);
        let join = add(&mut graph, "join", &[small1, small2], 10);
        graph.add_results(root, "out", [Some(join)]);
        let table = OpTable::builtin(Dialect::Ge);
        let options = PlanOptions {
            align: 1,
            inputs: tenure_graph::plan::Placement::User,
            ..PlanOptions::default()
        };
        let before = load(&memory(&graph, &table, &options).unwrap(), 1);
        let better = improve(graph, &table, &options).unwrap();
        let after = load(&memory(&better, &table, &options).unwrap(), 1);
        assert_eq!((before, after), (840, 480));
    }
}
