//! Every rule of the checker, broken once: the code of each violation and what its message names.

use crate::support::planner::{Style, place, plan};
use std::collections::BTreeSet;
use tenure_check::{Violation, check};
use tenure_graph::effects::OpTable;
use tenure_graph::plan::{
    Copy, Item, Member, Phase, Place, Placement, Plan, PlanOptions, Sharing, Span,
};
use tenure_graph::{DType, Dialect, Graph, NodeId, OutputHints, Shape, StorageId, ValueId};

/// A graph whose parts are found by name.
struct Model {
    graph: Graph,
    table: OpTable,
}

impl Model {
    /// `a = Relu(x)`, `b = Identity(a)` (a view), `c = Add(a, w)`, `d = MatMul(c, b)`, and an `If`
    /// whose branches read `c`. Each value has 64 bytes, but for the condition.
    fn new() -> Self {
        let mut m = Model {
            graph: Graph::new("", Dialect::Onnx, "root"),
            table: OpTable::builtin(Dialect::Onnx),
        };
        m.table
            .extend_toml(concat!(
                "[[op]]\nops = [\"Worker\"]\n",
                "scratch = [{ size = \"in0.bytes\", align = 128 }]\noutput_align = 128\n",
            ))
            .unwrap();
        let root = m.graph.root;
        let x = m
            .graph
            .add_input(root, "x", DType::F32, Some(Shape::of(&[4, 4])));
        let cond = m
            .graph
            .add_input(root, "cond", DType::Bool, Some(Shape::of(&[])));
        let w = m.node(root, "weight", "Const", &[], &["w"])[0];
        let a = m.node(root, "relu", "Relu", &[x], &["a"])[0];
        let b = m.node(root, "view", "Identity", &[a], &["b"])[0];
        let c = m.node(root, "add", "Add", &[a, w], &["c"])[0];
        let d = m.node(root, "matmul", "MatMul", &[c, b], &["d"])[0];
        m.node(root, "pure", "Exp", &[w], &["folded"]);
        let choice = m.node(root, "if", "If", &[cond], &["e"])[0];
        let owner = m.graph.values[choice].producer;
        for (role, op) in [("then", "Exp"), ("else", "Neg")] {
            let body = m.graph.add_subgraph(owner, role, role);
            let result = m.node(body, op, op, &[c], &[role])[0];
            m.graph
                .add_results(body, format!("{role} results"), [Some(result)]);
        }
        m.graph
            .add_results(root, "results", [Some(d), Some(choice)]);
        m
    }

    fn node(
        &mut self,
        at: tenure_graph::SubgraphId,
        name: &str,
        op: &str,
        inputs: &[ValueId],
        outputs: &[&str],
    ) -> Vec<ValueId> {
        let node = self.graph.add_node(at, name, op);
        let inputs = inputs.iter().copied().map(Some);
        self.graph.nodes[node].inputs.extend(inputs);
        let shape = || Some(Shape::of(&[4, 4]));
        outputs
            .iter()
            .map(|&o| self.graph.add_output(node, o, DType::F32, shape()))
            .collect()
    }

    fn value(&self, name: &str) -> ValueId {
        let all = self.graph.values.iter();
        all.filter(|(_, v)| v.name == name)
            .map(|(id, _)| id)
            .next()
            .unwrap()
    }

    fn id(&self, name: &str) -> NodeId {
        let all = self.graph.nodes.iter();
        all.filter(|(_, n)| n.name == name)
            .map(|(id, _)| id)
            .next()
            .unwrap()
    }

    fn step(&self, plan: &Plan, name: &str, phase: Phase) -> usize {
        let node = self.id(name);
        let at = |s: &tenure_graph::plan::Step| s.node == node && s.phase == phase;
        plan.steps.iter().position(at).unwrap()
    }

    fn plan(&self, options: PlanOptions) -> Plan {
        plan(&self.graph, &self.table, options, Style::Greedy)
    }

    fn violations(&self, plan: &Plan) -> Vec<Violation> {
        check(&self.graph, &self.table, plan)
            .err()
            .unwrap_or_default()
    }
}

fn holder(plan: &Plan, item: Item) -> StorageId {
    let holds = |id: &StorageId| plan.storages[*id].members.iter().any(|m| m.item == item);
    plan.storages.keys().find(holds).unwrap()
}

fn offset(plan: &mut Plan, id: StorageId) -> &mut u64 {
    match &mut plan.storages[id].place {
        Place::Arena { offset, .. } => offset,
        Place::Caller => panic!("{id} lies in no arena"),
    }
}

/// Puts the second value into the storage of the first.
fn share(m: &Model, plan: &mut Plan, first: &str, second: &str) {
    let item = Item::Value(m.value(second));
    let (to, from) = (
        holder(plan, Item::Value(m.value(first))),
        holder(plan, item),
    );
    plan.storages[from].members.clear();
    let spans = plan.storages[from].life.clone();
    let to = &mut plan.storages[to];
    to.members.push(Member {
        item,
        offset: 0,
        bytes: 64,
    });
    to.life[0].first = to.life[0].first.min(spans[0].first);
    to.life[0].last = to.life[0].last.max(spans[0].last);
    place(plan);
}

type Break = fn(&mut Model, &mut Plan);

/// (code, a word of the message, how to break the rule)
const RULES: &[(&str, &str, Break)] = &[
    ("T001", "value", |_, p| {
        p.dynamic.push(ValueId::from_u32(999))
    }),
    ("T001", "node", |_, p| p.folded.push(NodeId::from_u32(999))),
    ("T001", "node", |_, p| {
        p.steps[0].node = NodeId::from_u32(999)
    }),
    ("T001", "arena", |_, p| p.arenas.clear()),
    ("T001", "workspace", |m, p| {
        let item = Item::Workspace(m.id("relu"), 0);
        add_member(p, 0, item);
    }),
    ("T001", "copy", |_, p| add_member(p, 0, Item::Copy(7))),
    ("T002", "the plan", |_, p| p.options.align = 48),
    ("T002", "storage", |_, p| first(p).align = 32),
    ("T002", "arena", |_, p| p.arenas[0].align = 4),
    ("T003", "node \"pure\"", |m, p| p.folded.push(m.id("pure"))),
    ("T004", "\"then\"", |m, _| {
        let then = m.graph.nodes[m.id("if")].bodies[0].graph;
        m.graph.subgraphs[then].output = None;
    }),
    ("T010", "node \"relu\"", |_, p| _ = p.steps.remove(0)),
    ("T010", "node \"results\"", |_, p| _ = p.steps.pop()),
    ("T011", "step 1 of node \"relu\"", |_, p| {
        p.steps.insert(1, p.steps[0]);
    }),
    ("T012", "node \"weight\"", |m, p| {
        p.steps[0].node = m.id("weight")
    }),
    ("T012", "node \"pure\"", |m, p| {
        p.steps[0].node = m.id("pure")
    }),
    ("T013", "the entry of body 1", |m, p| {
        let at = m.step(p, "if", Phase::Enter(1));
        p.steps[at].phase = Phase::Enter(0);
    }),
    ("T013", "its begin", |m, p| {
        let at = m.step(p, "if", Phase::Begin);
        p.steps[at].phase = Phase::Run;
    }),
    ("T014", "\"then\"", |m, p| {
        let at = m.step(p, "Exp", Phase::Run);
        let step = p.steps.remove(at);
        p.steps.insert(0, step);
    }),
    ("T015", "node \"relu\"", |_, p| p.steps.swap(0, 1)),
    ("T016", "node \"add\"", |m, _| {
        let (add, view) = (m.id("add"), m.id("view"));
        m.graph.nodes[view].control.push(add);
    }),
    ("T017", "value \"then/then\"", |m, _| {
        let (matmul, inner) = (m.id("matmul"), m.value("then"));
        m.graph.nodes[matmul].inputs[0] = Some(inner);
    }),
    ("T020", "value \"a\"", |m, p| {
        let id = holder(p, Item::Value(m.value("a")));
        p.storages[id].members.clear();
    }),
    ("T020", "workspace 0", |m, _| {
        let relu = m.id("relu");
        m.graph.nodes[relu].workspace.push(100);
    }),
    ("T021", "value \"a\"", |m, p| {
        let item = Item::Value(m.value("a"));
        add_member(p, 0, item);
    }),
    ("T022", "a constant", |m, p| {
        let item = Item::Value(m.value("w"));
        add_member(p, 0, item);
    }),
    ("T022", "the caller's memory", |_, p| {
        p.options.inputs = Placement::User
    }),
    ("T022", "not known before the run", |m, _| {
        let a = m.value("a");
        m.graph.values[a].shape = None;
    }),
    ("T023", "listed", |m, p| p.dynamic.push(m.value("a"))),
    ("T023", "not listed", |m, p| {
        let a = m.value("a");
        m.graph.values[a].shape = None;
        let id = holder(p, Item::Value(a));
        p.storages[id].members.clear();
    }),
    ("T024", "needs 64", |_, p| first(p).members[0].bytes = 60),
    ("T025", "which has 64 bytes", |_, p| {
        first(p).members[0].offset = 64
    }),
    ("T026", "arena 0", |_, p| p.arenas[0].size -= 64),
    ("T026", "arena 0", |_, p| {
        *offset(p, StorageId::from_u32(0)) = u64::MAX - 63;
    }),
    ("T027", "no multiple of 64", |_, p| {
        p.arenas[0].size += 64;
        *offset(p, StorageId::from_u32(0)) += 1;
    }),
    ("T027", "as node \"relu\" needs it", |m, _| {
        let relu = m.id("relu");
        m.graph.nodes[relu].op = "Worker".into();
    }),
    ("T028", "no multiple", |_, p| first(p).size += 1),
    ("T029", "lower bound", |_, p| {
        p.arenas[0].lower_bound = p.arenas[0].size + 1
    }),
    ("T030", "ascending", |_, p| first(p).life[0].last = 99),
    ("T030", "ascending", |_, p| {
        let span = first(p).life[0];
        first(p).life.push(span);
    }),
    ("T031", "both held", |_, p| {
        *offset(p, StorageId::from_u32(1)) = 0;
    }),
    ("T032", "output 0", |_, p| {
        p.options.outputs = Placement::User
    }),
    ("T032", "value \"a\"", |m, p| {
        let id = holder(p, Item::Value(m.value("a")));
        p.storages[id].place = Place::Caller;
    }),
    ("T050", "value \"c\" was written there", |m, p| {
        share(m, p, "b", "c")
    }),
    ("T051", "value \"c\" (input 0)", |m, p| {
        let id = holder(p, Item::Value(m.value("c")));
        p.storages[id].life[0].last = p.storages[id].life[0].first;
    }),
    ("T052", "does not allow this in place", |m, p| {
        share(m, p, "c", "d")
    }),
    ("T053", "writes both", |m, p| {
        let split = m.id("relu");
        let second = m
            .graph
            .add_output(split, "a2", DType::F32, Some(Shape::of(&[4, 4])));
        let a = holder(p, Item::Value(m.value("a")));
        p.storages[a].members.push(Member {
            item: Item::Value(second),
            offset: 0,
            bytes: 64,
        });
    }),
    ("T054", "overlap", |m, p| {
        let a = holder(p, Item::Value(m.value("a")));
        let b = holder(p, Item::Value(m.value("b")));
        let at = *offset(p, a);
        p.options.align = 32;
        *offset(p, b) = at + 32;
        p.storages[b].align = 32;
        p.arenas[0].size += 64;
    }),
    ("T055", "reference", |m, _| refer(m, "c", 0)),
    ("T056", "which is a constant", |m, _| refer(m, "c", 1)),
    ("T057", "reads value \"w\" after node \"add\"", |m, p| {
        // The weight is a variable, which the view looks at and the sum is written to.
        let row = "[[op]]\nops = [\"State\"]\nclass = \"variable\"\n";
        m.table.extend_toml(row).unwrap();
        let (weight, view, w) = (m.id("weight"), m.id("view"), m.value("w"));
        m.graph.nodes[weight].op = "State".into();
        m.graph.nodes[view].inputs.push(Some(w));
        refer(m, "c", 1);
        let c = holder(p, Item::Value(m.value("c")));
        p.storages[c].members.clear();
        p.steps.swap(1, 2);
    }),
    ("T070", "share", |m, p| {
        p.options.sharing = Sharing::Views;
        share(m, p, "x", "a");
    }),
    ("T070", "share", |m, p| {
        p.options.sharing = Sharing::None;
        share(m, p, "a", "b");
    }),
    ("T071", "value \"a\" shares", |_, p| {
        p.options.no_reuse.push("relu".to_owned())
    }),
    ("T071", "value \"a\" shares", |m, p| {
        p.options.no_reuse.push("Relu".to_owned());
        share(m, p, "a", "b");
    }),
    ("T074", "value \"a\" must have its memory", |_, p| {
        p.options.no_reuse.push("*".to_owned());
    }),
    ("T074", "must have its memory at every step", |_, p| {
        p.options.lent_outputs = Some(Vec::new());
    }),
    (
        "T025",
        "value \"a\" lies at bytes 0.. (96 bytes)",
        |_, p| {
            p.options.sizes = tenure_graph::plan::Sizes::Padded;
        },
    ),
    ("T072", "node \"relu\"", |m, p| {
        p.folded.push(m.id("relu"));
        p.steps.remove(0);
        let id = holder(p, Item::Value(m.value("a")));
        p.storages[id].members.clear();
        let last = u32::try_from(p.steps.len()).unwrap() - 1;
        for storage in p.storages.values_mut() {
            storage.life[0].last = storage.life[0].last.min(last);
        }
    }),
    ("T072", "options", |_, p| p.options.fold = false),
    ("T073", "does not name the value", |m, p| copy(m, p, "x")),
    ("T073", "has a copy already", |m, p| {
        copy(m, p, "a");
        copy(m, p, "a");
    }),
];

fn first(plan: &mut Plan) -> &mut tenure_graph::plan::Storage {
    &mut plan.storages[StorageId::from_u32(0)]
}

fn add_member(plan: &mut Plan, storage: u32, item: Item) {
    plan.storages[StorageId::from_u32(storage)]
        .members
        .push(Member {
            item,
            offset: 0,
            bytes: 64,
        });
}

/// The value is a reference to an input of its node.
fn refer(m: &mut Model, value: &str, input: u32) {
    let value = m.value(value);
    m.graph.values[value].hints = Some(Box::new(OutputHints {
        ref_input: Some(input),
        ..OutputHints::default()
    }));
}

/// A copy of a value for the first input of `add`.
fn copy(m: &Model, plan: &mut Plan, value: &str) {
    plan.copies.push(Copy {
        value: m.value(value),
        reader: m.id("add"),
        input: 0,
        reason: String::new(),
    });
}

#[test]
fn each_rule_has_its_code() {
    let mut seen = BTreeSet::new();
    for (i, (code, word, break_rule)) in RULES.iter().enumerate() {
        let mut m = Model::new();
        let mut plan = m.plan(PlanOptions::default());
        assert_eq!(m.violations(&plan), [], "rule {i} before it is broken");
        break_rule(&mut m, &mut plan);
        let said: Vec<(&str, String)> = m
            .violations(&plan)
            .iter()
            .map(|v| (v.code(), v.to_string()))
            .collect();
        assert!(
            said.iter()
                .any(|(c, text)| c == code && text.contains(word)),
            "rule {i}: expected {code} with {word:?}, found {said:#?}"
        );
        seen.insert(*code);
    }
    assert_eq!(seen.len(), 38, "{seen:?}");
}

#[test]
fn a_read_is_named_with_node_anchor_bytes_intruder_and_step() {
    let m = Model::new();
    let mut plan = m.plan(PlanOptions::default());
    share(&m, &mut plan, "a", "c");
    // The sum runs before the view and destroys what the view reads.
    let add = m.step(&plan, "add", Phase::Run);
    plan.steps.swap(1, add);
    let a = holder(&plan, Item::Value(m.value("a")));
    let at = *offset(&mut plan, a);
    let place = format!("bytes {at}..{} of arena 0", at + 64);
    let expected = format!(
        "step 2 of node \"view\" reads value \"a\" (input 0) in {place}, but finds other bytes in \
         {place}: value \"c\" was written there at step 1"
    );
    let said: Vec<String> = m
        .violations(&plan)
        .iter()
        .map(ToString::to_string)
        .collect();
    assert!(said.contains(&expected), "{said:#?}");
}

#[test]
fn all_accesses_are_counted() {
    let m = Model::new();
    let checked = check(&m.graph, &m.table, &m.plan(PlanOptions::default())).unwrap();
    // Written: x, cond, a, b, c, d, then, else, and e from each branch. Read: one input each of
    // relu, view, Exp, Neg and If, two each of add, matmul and results, and each branch's result
    // by its output node and once more by the If.
    assert_eq!(checked.accesses(), 10 + 5 + 6 + 4);
}

#[test]
fn nothing_in_a_hostile_plan_makes_the_checker_panic() {
    let m = Model::new();
    let good = m.plan(PlanOptions::default());
    let mut rng = fastrand::Rng::with_seed(3);
    let number = |rng: &mut fastrand::Rng| match rng.u8(0..4) {
        0 => rng.u64(0..200),
        1 => u64::MAX - rng.u64(0..200),
        2 => 1 << rng.u64(0..64),
        _ => rng.u64(..),
    };
    let small = |rng: &mut fastrand::Rng| {
        if rng.bool() {
            rng.u32(0..30)
        } else {
            u32::MAX - 1 - rng.u32(0..3)
        }
    };
    let mut refused = 0;
    for _ in 0..5000 {
        let mut p = good.clone();
        for _ in 0..rng.u8(1..4) {
            let n = p.storages.len();
            let id = StorageId::from_u32(u32::try_from(rng.usize(0..n)).unwrap());
            let s = &mut p.storages[id];
            match rng.u8(0..17) {
                0 => s.size = number(&mut rng),
                1 => s.align = number(&mut rng),
                2 => {
                    s.place = Place::Arena {
                        arena: small(&mut rng),
                        offset: number(&mut rng),
                    }
                }
                3 => s.place = Place::Caller,
                4 => s.life.push(Span {
                    first: small(&mut rng),
                    last: small(&mut rng),
                }),
                5 => s.members.push(Member {
                    item: match rng.u8(0..3) {
                        0 => Item::Value(ValueId::from_u32(small(&mut rng))),
                        1 => Item::Workspace(NodeId::from_u32(small(&mut rng)), small(&mut rng)),
                        _ => Item::Copy(small(&mut rng)),
                    },
                    offset: number(&mut rng),
                    bytes: number(&mut rng),
                }),
                6 => p.options.align = number(&mut rng),
                7 => p.arenas.iter_mut().for_each(|a| a.size = number(&mut rng)),
                8 => p.arenas.iter_mut().for_each(|a| a.align = number(&mut rng)),
                9 => p
                    .arenas
                    .iter_mut()
                    .for_each(|a| a.lower_bound = number(&mut rng)),
                10 => p.steps.clear(),
                11 => {
                    let at = rng.usize(0..p.steps.len().max(1));
                    if let Some(step) = p.steps.get_mut(at) {
                        step.node = NodeId::from_u32(small(&mut rng));
                    }
                }
                12 => {
                    let at = rng.usize(0..p.steps.len().max(1));
                    if let Some(step) = p.steps.get_mut(at) {
                        step.phase = match rng.u8(0..4) {
                            0 => Phase::Run,
                            1 => Phase::Begin,
                            2 => Phase::End,
                            _ => Phase::Enter(small(&mut rng)),
                        };
                    }
                }
                13 => p.folded.push(NodeId::from_u32(small(&mut rng))),
                14 => p.dynamic.push(ValueId::from_u32(small(&mut rng))),
                15 => p.copies.push(Copy {
                    value: ValueId::from_u32(small(&mut rng)),
                    reader: NodeId::from_u32(small(&mut rng)),
                    input: small(&mut rng),
                    reason: String::new(),
                }),
                _ => p.arenas.clear(),
            }
        }
        let violations = m.violations(&p);
        violations.iter().for_each(|v| drop(v.to_string()));
        refused += usize::from(!violations.is_empty());
    }
    assert!(refused > 3500, "{refused}");
}
