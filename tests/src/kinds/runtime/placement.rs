//! `placement`: copies between host, device and peer memory.

use serde_json::Value;
use tenure_runtime::placement::{Made, Place, Placements, Request, When, copies_at_run};

use super::{File, get, list, number, object, same, text};

/// The nodes by the names that the cases have for them.
const NODES: &[(&str, Made)] = &[
    ("SyncStream", Made::SyncStream),
    ("CalcTensorSizeFromStorage", Made::TensorSize),
    (
        "CalcUnalignedTensorSizeFromStorage",
        Made::UnalignedTensorSize,
    ),
    ("CalcStringTensorSize", Made::StringTensorSize),
    ("CopyH2D", Made::CopyToDevice),
    ("CopyD2H", Made::CopyToHost),
    ("MakeSureTensorAtDevice", Made::EnsureOnDevice),
    ("MakeSureTensorAtHost", Made::EnsureOnHost),
    ("MakeSureTensorAtHostWithoutSync", Made::EnsureOnHostNoSync),
    ("BuildTensor", Made::BuildTensor),
    ("FreeMemory", Made::Free),
];

const PLACES: &[(&str, Place)] = &[
    ("host", Place::Host),
    ("hbm", Place::Device),
    ("p2p", Place::Peer),
    ("unknown", Place::Unknown),
    ("following", Place::Following),
];

pub fn run(file: &File) -> Result<Vec<String>, String> {
    let part = |key: &str| file.get(key).ok_or_else(|| format!("{key:?} is missing"));
    let (value, expect) = (part("value")?, part("expect")?);
    let mut placements = Placements::new(read(value)?);
    let refused = expect.get("error") == Some(&Value::Bool(true));
    let mut placed = Vec::new();
    for request in list(part("requests")?)? {
        let answer = match usize::try_from(get(request, "output")?.as_i64().unwrap_or(-1)) {
            Err(_) => None,
            Ok(output) => {
                let request = Request {
                    output,
                    to: place(get(request, "to")?)?,
                    data_dependent: flag(request, "data_dependent"),
                };
                placements.get(request).ok()
            }
        };
        match answer {
            Some(answer) => placed.push(answer),
            None if refused => return Ok(Vec::new()),
            None => return Ok(vec![format!("{request} was refused")]),
        }
    }
    let mut failures = Vec::new();
    for (key, want) in object(expect)? {
        match &**key {
            "nodes" => {
                for (name, want) in object(want)? {
                    let made = placements.made(node(name)?);
                    failures.extend(same(
                        name,
                        u64::try_from(made).unwrap_or(u64::MAX),
                        number(want)?,
                    ));
                }
            }
            "result" => {
                for (at, want) in list(want)?.iter().enumerate() {
                    let placed = placed.get(at).ok_or("more results than requests")?;
                    for (key, want) in object(want)? {
                        let got = match &**key {
                            "type" => Value::from(placed.node.map_or("same", name)),
                            "guard" => Value::from(placed.guarded),
                            "place" => Value::from(place_name(placed.place)),
                            "graph" => Value::from(match placed.when {
                                When::Load => "init",
                                When::Run => "main",
                            }),
                            "after" => placed.after.iter().map(|&n| name(n)).collect(),
                            _ => return Err(format!("{key:?} cannot be judged")),
                        };
                        failures.extend(same(&format!("result {at}: {key}"), &got, want));
                    }
                }
            }
            "runtime_copy" => {
                let decides = |n| {
                    matches!(
                        n,
                        Made::EnsureOnDevice | Made::EnsureOnHost | Made::EnsureOnHostNoSync
                    )
                };
                let last = placed.iter().rev().find(|p| p.node.is_some_and(decides));
                let to = last.ok_or("nothing decides at run time")?.place;
                for (found, want) in object(want)? {
                    let copies = copies_at_run(place(&Value::from(&**found))?, to);
                    failures.extend(same(found, &Value::from(copies), want));
                }
            }
            "error" => failures.push("an error was expected".to_owned()),
            _ => return Err(format!("{key:?} cannot be judged")),
        }
    }
    Ok(failures)
}

fn flag(object: &Value, key: &str) -> bool {
    object.get(key) == Some(&Value::Bool(true))
}

fn read(value: &Value) -> Result<tenure_runtime::placement::Value, String> {
    let outputs = value.get("outputs").map_or(Ok(1), number)?;
    Ok(tenure_runtime::placement::Value {
        from: place(get(value, "from")?)?,
        strings: value.get("dtype").and_then(Value::as_str) == Some("string"),
        is_input: value.get("node_type").and_then(Value::as_str) == Some("Data"),
        written_in_place: flag(value, "referenced_in_place"),
        at_load: flag(value, "init"),
        own_rule: flag(value, "own_rule"),
        outputs: usize::try_from(outputs).map_err(|e| e.to_string())?,
    })
}

fn place(value: &Value) -> Result<Place, String> {
    let name = text(value)?;
    let place = PLACES.iter().find(|p| p.0 == name);
    place
        .map(|p| p.1)
        .ok_or_else(|| format!("there is no place {name:?}"))
}

fn place_name(place: Place) -> &'static str {
    PLACES.iter().find(|p| p.1 == place).map_or("?", |p| p.0)
}

fn node(name: &str) -> Result<Made, String> {
    let node = NODES.iter().find(|n| n.0 == name);
    node.map(|n| n.1)
        .ok_or_else(|| format!("there is no node {name:?}"))
}

fn name(node: Made) -> &'static str {
    NODES.iter().find(|n| n.1 == node).map_or("?", |n| n.0)
}
