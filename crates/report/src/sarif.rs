//! Findings as SARIF 2.1.0 (OASIS, "Static Analysis Results Interchange Format"), which code hosts
//! and editors show.
//!
//! Models have no lines, so a result is located by its file and by logical locations: the nodes. Its
//! fingerprint is made of the rule and the names of the nodes alone, so it stays the same when
//! something else in the model changes.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// A rule of the tool.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Stable id.
    pub id: &'static str,
    /// In a few words.
    pub title: &'static str,
    /// What goes wrong.
    pub harm: &'static str,
    /// What to do about it.
    pub remedy: &'static str,
    /// `error`, `warning` or `note`.
    pub level: &'static str,
}

/// One thing that was found.
#[derive(Clone, Debug)]
pub struct Finding<'a> {
    /// Index of its rule.
    pub rule: usize,
    /// In words.
    pub message: &'a str,
    /// Kind of danger.
    pub kind: &'static str,
    /// Labels of the nodes involved, the first being where it is.
    pub nodes: &'a [String],
    /// A schedule that goes wrong: node, and what it does.
    pub witness: Vec<(&'a str, &'a str)>,
}

/// The log of one run over one file.
///
/// ```
/// use tenure_report::sarif::{Finding, Rule, log};
/// let rules = [Rule {
///     id: "W1", title: "It is so", harm: "It hurts.", remedy: "Mend it.", level: "warning",
/// }];
/// let nodes = ["a".to_owned()];
/// let found = [Finding { rule: 0, message: "a is so", kind: "layout", nodes: &nodes, witness: vec![] }];
/// let log = log("1.0", "dir/my model.json", &rules, &found);
/// let result = &log["runs"][0]["results"][0];
/// assert_eq!(result["ruleId"], "W1");
/// let place = &result["locations"][0];
/// assert_eq!(place["physicalLocation"]["artifactLocation"]["uri"], "dir/my%20model.json");
/// assert_eq!(place["logicalLocations"][0]["fullyQualifiedName"], "a");
/// ```
#[must_use]
pub fn log(version: &str, file: &str, rules: &[Rule], findings: &[Finding<'_>]) -> Value {
    let uri = uri(file);
    let rules_json: Vec<Value> = rules.iter().map(rule).collect();
    let results = findings.iter();
    let results: Vec<Value> = results
        .filter_map(|f| Some(result(&uri, rules.get(f.rule)?, f)))
        .collect();
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {"name": "tenure", "semanticVersion": version, "rules": rules_json}},
            "columnKind": "unicodeCodePoints",
            "results": results,
        }],
    })
}

fn rule(rule: &Rule) -> Value {
    json!({
        "id": rule.id,
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.harm},
        "help": {"text": rule.remedy},
        "defaultConfiguration": {"level": rule.level},
    })
}

fn result(uri: &str, rule: &Rule, finding: &Finding<'_>) -> Value {
    let mut result = json!({
        "ruleId": rule.id,
        "ruleIndex": finding.rule,
        "level": rule.level,
        "message": {"text": finding.message},
        "locations": [location(uri, finding.nodes, None)],
        "partialFingerprints": {"nodes/v1": fingerprint(rule.id, finding.nodes)},
        "properties": {"kind": finding.kind},
    });
    if !finding.witness.is_empty() {
        let steps: Vec<Value> = (finding.witness.iter())
            .map(|&(node, does)| {
                let text = format!("{node} {does}");
                let place = location(uri, &[node.to_owned()], Some(text.trim_end()));
                json!({"location": place})
            })
            .collect();
        result["codeFlows"] = json!([{"threadFlows": [{"locations": steps}]}]);
    }
    result
}

fn location(uri: &str, nodes: &[String], message: Option<&str>) -> Value {
    let logical: Vec<Value> = nodes
        .iter()
        .map(|label| {
            let name = label.rsplit('/').next().unwrap_or(label);
            json!({"name": name, "fullyQualifiedName": label, "kind": "object"})
        })
        .collect();
    let mut location = json!({
        "physicalLocation": {"artifactLocation": {"uri": uri}},
        "logicalLocations": logical,
    });
    if let Some(text) = message {
        location["message"] = json!({"text": text});
    }
    location
}

/// A path as a URI reference: what is no plain character of one is written as bytes in percent.
fn uri(path: &str) -> String {
    let path = path.replace('\\', "/");
    let mut uri = if path.starts_with('/') {
        "file://".to_owned()
    } else {
        String::new()
    };
    for byte in path.bytes() {
        let is_plain = byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
        if is_plain {
            uri.push(char::from(byte));
        } else {
            uri.push_str(&format!("%{byte:02X}"));
        }
    }
    uri
}

fn fingerprint(rule: &str, nodes: &[String]) -> String {
    let mut hash = Sha256::new();
    for part in std::iter::once(rule).chain(nodes.iter().map(String::as_str)) {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    let digest = hash.finalize();
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_become_references() {
        assert_eq!(uri("a/b c#1.json"), "a/b%20c%231.json");
        assert_eq!(uri("/tmp/ä.onnx"), "file:///tmp/%C3%A4.onnx");
        assert_eq!(uri("a\\b.json"), "a/b.json");
    }

    #[test]
    fn a_fingerprint_is_that_of_rule_and_nodes() {
        let nodes = |names: &[&str]| names.iter().map(|&n| n.to_owned()).collect::<Vec<_>>();
        let one = fingerprint("r", &nodes(&["a", "b"]));
        assert_eq!(one, fingerprint("r", &nodes(&["a", "b"])));
        assert_ne!(one, fingerprint("r", &nodes(&["ab"])));
        assert_ne!(one, fingerprint("s", &nodes(&["a", "b"])));
        assert_eq!(one.len(), 64);
    }
}
