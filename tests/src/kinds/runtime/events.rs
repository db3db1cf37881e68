//! `events`: which events a graph needs.

use std::collections::HashSet;
use std::ops::Range;

use serde_json::{Value, json};
use tenure_runtime::sync_stages::{StreamNode, plan};

use super::{File, config, get, list, object, same, stream, streams_of, text};

pub fn run(file: &File) -> Result<Vec<String>, String> {
    let config = config(file)?;
    let expect = file.get("expect").ok_or("\"expect\" is missing")?;
    let streams = stream(get(config, "streams")?)?;
    let events = config.get("events").map(stream).transpose()?.unwrap_or(0);
    let nodes = list(get(config, "nodes")?)?;
    let mut used = HashSet::new();
    for node in nodes {
        for input in inputs(node)? {
            used.insert(text(input)?);
        }
    }
    let node = |node: &Value| {
        let name = text(get(node, "name")?)?;
        let ids = |key| node.get(key).map(streams_of).transpose();
        Ok::<_, String>(StreamNode {
            name: name.to_owned(),
            stream: stream(get(node, "stream")?)?,
            has_inputs: !inputs(node)?.is_empty(),
            has_outputs: used.contains(name),
            sends: ids("send")?.unwrap_or_default(),
            receives: ids("recv")?.unwrap_or_default(),
        })
    };
    let nodes = nodes.iter().map(node).collect::<Result<Vec<_>, _>>()?;
    let refused = expect.get("error") == Some(&Value::Bool(true));
    let stages = match plan(&nodes, streams, events) {
        Ok(_) if refused => return Ok(vec!["an error was expected".to_owned()]),
        Err(_) if refused => return Ok(Vec::new()),
        other => other.map_err(|e| e.to_string())?,
    };
    let ids = |range: &Range<usize>| Value::from(range.clone().collect::<Vec<_>>());
    let mut failures = Vec::new();
    for (key, want) in object(expect)? {
        let got = match &**key {
            "events" => stages
                .events
                .iter()
                .map(|e| json!([e.from, e.to]))
                .collect(),
            "first" => ids(&stages.first),
            "last" => ids(&stages.last),
            "clean" => ids(&stages.clean),
            _ => return Err(format!("{key:?} cannot be judged")),
        };
        failures.extend(same(key, &got, want));
    }
    Ok(failures)
}

fn inputs(node: &Value) -> Result<&[Value], String> {
    node.get("inputs").map_or(Ok(&[]), list)
}
