//! `branch`: outputs of `If` and `Case`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use tenure_runtime::branches::{Branch, Input, Node, Plan, Source, is_guard, plan};
use tenure_runtime::placement::Place;

use super::{File, get, list, number, object, same, text};

pub fn run(file: &File) -> Result<Vec<String>, String> {
    let part = |key: &str| file.get(key).ok_or_else(|| format!("{key:?} is missing"));
    let expect = part("expect")?;
    let refused = expect.get("error") == Some(&Value::Bool(true));
    let built = Built::new(file, part("inputs")?, part("branches")?);
    let built = built.and_then(|b| {
        let plan = plan(&b.inputs, &b.branches).map_err(|e| e.to_string())?;
        Ok((b, plan))
    });
    match built {
        Ok(_) if refused => Ok(vec!["an error was expected".to_owned()]),
        Err(_) if refused => Ok(Vec::new()),
        Err(error) => Err(error),
        Ok((built, plan)) => built.judge(&plan, object(expect)?),
    }
}

/// A branch as the file has it.
struct Written<'a> {
    /// Names, types and inputs of its nodes, and how many outputs they have.
    nodes: Vec<(&'a str, &'a str, Vec<Source>, usize)>,
}

struct Built<'a> {
    names: Vec<&'a str>,
    inputs: Vec<Input>,
    branches: Vec<Branch>,
    written: Vec<Written<'a>>,
}

impl<'a> Built<'a> {
    fn new(file: &'a File, inputs: &'a Value, branches: &'a Value) -> Result<Self, String> {
        let mut built = Built {
            names: Vec::new(),
            inputs: Vec::new(),
            branches: Vec::new(),
            written: Vec::new(),
        };
        for input in list(inputs)? {
            built.names.push(text(get(input, "name")?)?);
            built.inputs.push(Input {
                guard: input
                    .get("guard")
                    .and_then(Value::as_str)
                    .map(str::to_owned),
                place: place(input)?,
            });
        }
        let selector = file.get("cond").and_then(Value::as_str);
        let selector = selector.ok_or("nothing selects a branch")?;
        if !built.names.contains(&selector) {
            return Err(format!("{selector:?} is no input"));
        }
        let may_be_absent = match file.get("op").and_then(Value::as_str) {
            Some("If") => true,
            Some("Case") => false,
            op => return Err(format!("{op:?} has no branches")),
        };
        for branch in list(branches)? {
            if branch.is_null() && !may_be_absent {
                return Err("an absent branch".to_owned());
            }
            let (branch, written) = match branch {
                Value::Null => (Branch::default(), Written { nodes: Vec::new() }),
                branch => built.branch(branch)?,
            };
            built.branches.push(branch);
            built.written.push(written);
        }
        Ok(built)
    }

    fn branch(&self, branch: &'a Value) -> Result<(Branch, Written<'a>), String> {
        let mut nodes = Vec::new();
        let mut written = Written { nodes: Vec::new() };
        for node in list(get(branch, "nodes")?)? {
            let outputs = node.get("outputs").map_or(Ok(1), number)?;
            let outputs = usize::try_from(outputs).map_err(|e| e.to_string())?;
            let guards = match node.get("guard") {
                Some(Value::Array(each)) => {
                    let each = each.iter().map(|g| g.as_str().map(str::to_owned));
                    each.chain(std::iter::repeat(None)).take(outputs).collect()
                }
                guard => vec![guard.and_then(Value::as_str).map(str::to_owned); outputs],
            };
            let inputs = list(get(node, "inputs")?)?.iter();
            let inputs = inputs.map(|i| self.source(&written, i));
            let inputs = inputs.collect::<Result<_, _>>()?;
            let (name, op) = (text(get(node, "name")?)?, text(get(node, "op")?)?);
            written.nodes.push((name, op, inputs, outputs));
            nodes.push(Node {
                guards,
                place: place(node)?,
            });
        }
        let outputs = list(get(branch, "outputs")?)?.iter();
        let outputs = outputs.map(|o| self.source(&written, o));
        let outputs = outputs.collect::<Result<_, _>>()?;
        Ok((Branch { nodes, outputs }, written))
    }

    /// What `x` or `x:k` stands for.
    fn source(&self, written: &Written<'_>, value: &Value) -> Result<Source, String> {
        let whole = text(value)?;
        let (name, output) = match whole.rsplit_once(':') {
            Some((name, output)) => (name, output.parse().map_err(|e| format!("{whole}: {e}"))?),
            None => (whole, 0),
        };
        if let Some(node) = written.nodes.iter().position(|n| n.0 == name) {
            return Ok(Source::Node { node, output });
        }
        let input = self.names.iter().position(|n| *n == name);
        let input = input.ok_or_else(|| format!("there is no value {whole:?}"))?;
        Ok(Source::Input(input))
    }

    fn judge(&self, plan: &Plan, expect: &Map<String, Value>) -> Result<Vec<String>, String> {
        let mut failures = Vec::new();
        for (key, want) in expect {
            let got = match &**key {
                "conflict" => json!(plan.conflicts),
                "all_same" => json!(plan.names),
                "outputs" => json!(plan.guards.len()),
                "places" => plan.places.iter().map(|p| place_name(*p)).collect(),
                "parent_guards" => {
                    let guards = plan.guards.iter().enumerate();
                    let guards =
                        guards.filter_map(|(i, g)| Some((i.to_string(), json!(g.as_ref()?))));
                    Value::Object(guards.collect())
                }
                "branches" => {
                    for (at, want) in list(want)?.iter().enumerate() {
                        if !want.is_null() {
                            failures.extend(self.judge_branch(at, plan, want)?);
                        }
                    }
                    continue;
                }
                _ => return Err(format!("{key:?} cannot be judged")),
            };
            failures.extend(same(key, &got, want));
        }
        Ok(failures)
    }

    fn judge_branch(&self, at: usize, plan: &Plan, want: &Value) -> Result<Vec<String>, String> {
        let (Some(does), Some(written)) = (plan.branches.get(at), self.written.get(at)) else {
            return Err(format!("there is no branch {at}"));
        };
        let mut failures = Vec::new();
        for (key, want) in object(want)? {
            let what = format!("branch {at}: {key}");
            match &**key {
                "removed_guards" => {
                    let want = list(want)?.iter().map(|v| self.source(written, v));
                    let want: BTreeSet<_> = want.collect::<Result<_, _>>()?;
                    let got = does.unguarded.iter().copied().collect();
                    failures.extend(same(&what, got, want));
                }
                "identity" => {
                    let slot = |slot: &Value| {
                        let output = number(slot.get(1).unwrap_or(&Value::Null))?;
                        let value = self.source(written, slot.get(0).unwrap_or(&Value::Null))?;
                        Ok::<_, String>((
                            value,
                            usize::try_from(output).map_err(|e| e.to_string())?,
                        ))
                    };
                    let want = list(want)?
                        .iter()
                        .map(slot)
                        .collect::<Result<Vec<_>, _>>()?;
                    failures.extend(same(&what, &does.holders, &want));
                }
                "point_from" => failures.extend(same(&what, &json!(does.pointers), want)),
                "nodes" => {
                    let got = self.nodes(at, plan);
                    let want = object(want)?.iter();
                    let want = want.map(|(op, n)| Ok((&**op, number(n)?)));
                    let want = want.collect::<Result<BTreeMap<_, _>, String>>()?;
                    failures.extend(same(&what, got, want));
                }
                _ => return Err(format!("{key:?} cannot be judged")),
            }
        }
        Ok(failures)
    }

    /// All nodes of a branch once it is built, by type.
    fn nodes(&'a self, at: usize, plan: &Plan) -> BTreeMap<&'a str, u64> {
        let (branch, does) = (&self.branches[at], &plan.branches[at]);
        let mut nodes = BTreeMap::new();
        let mut add = |op: &'a str| *nodes.entry(op).or_insert(0) += 1;
        let mut inputs = BTreeSet::new();
        let mut used = |source: &Source| {
            if let Source::Input(input) = source {
                inputs.insert(*input);
            }
        };
        branch.outputs.iter().for_each(&mut used);
        for (number, (_, op, of, _)) in self.written[at].nodes.iter().enumerate() {
            add(op);
            of.iter().for_each(&mut used);
            for (output, guard) in branch.nodes[number].guards.iter().enumerate() {
                let value = Source::Node {
                    node: number,
                    output,
                };
                if let Some(guard) = guard.as_deref()
                    && is_guard(guard)
                    && !does.unguarded.contains(&value)
                {
                    add(guard);
                }
            }
        }
        inputs.iter().for_each(|_| add("InnerData"));
        add("InnerNetOutput");
        if !does.holders.is_empty() {
            add("IdentityAddr");
        }
        if !does.pointers.is_empty() {
            add("PointFromInputs");
        }
        nodes
    }
}

const PLACES: &[(&str, Place)] = &[
    ("host", Place::Host),
    ("hbm", Place::Device),
    ("p2p", Place::Peer),
    ("following", Place::Following),
];

fn place(value: &Value) -> Result<Option<Place>, String> {
    match value.get("place").and_then(Value::as_str) {
        None | Some("unknown") => Ok(None),
        Some(name) => {
            let place = PLACES.iter().find(|p| p.0 == name);
            let place = place.ok_or_else(|| format!("there is no place {name:?}"))?;
            Ok(Some(place.1))
        }
    }
}

fn place_name(place: Option<Place>) -> &'static str {
    let found = PLACES.iter().find(|p| Some(p.1) == place);
    found.map_or("unknown", |p| p.0)
}
