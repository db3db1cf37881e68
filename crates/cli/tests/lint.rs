//! `tenure lint` and `tenure guard` as a user runs them, on the small models that show each code.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tenure_guard::lint::Code;

fn tenure(args: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_tenure"))
        .args(args)
        .output();
    output.expect("tenure runs")
}

fn fixture(code: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases/lint");
    folder.join(format!("{code}.json"))
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text")
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).expect("JSON alone on standard output")
}

#[test]
fn every_code_has_a_page_an_explanation_and_a_model_that_shows_it() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/lint.md");
    let docs = std::fs::read_to_string(docs).expect("docs/lint.md");
    for code in Code::ALL {
        let name = code.name();
        let heading = format!("\n## {name}\n\n**{}** ({})", code.title(), code.level());
        assert!(docs.contains(&heading), "no section for {name}");
        let explained = tenure(&["lint", "--explain", name]);
        assert_eq!(explained.status.code(), Some(0));
        assert!(out(&explained).starts_with(&format!("{name}: {}", code.title())));
        let path = fixture(name);
        let path = path.to_str().expect("a path in UTF-8");
        let told = tenure(&["lint", path, "--format", "json", "--fail-on", name]);
        assert_eq!(told.status.code(), Some(1), "{name} fails on itself");
        let told = json(&told);
        let findings = told["findings"].as_array().expect("a list");
        let found = findings.iter().find(|f| f["code"] == name);
        let found = found.unwrap_or_else(|| panic!("{name} is not in {told}"));
        for key in ["level", "kind", "stage", "message", "harm", "remedy"] {
            assert!(found[key].as_str().is_some_and(|s| !s.is_empty()), "{key}");
        }
        let never = tenure(&["lint", path, "--fail-on", "never"]);
        assert_eq!(never.status.code(), Some(0));
    }
}

#[test]
fn levels_decide_what_fails() {
    let of = |code: &str, on: &str| {
        let path = fixture(code);
        let path = path.to_str().expect("a path in UTF-8");
        tenure(&["lint", path, "--fail-on", on]).status.code()
    };
    assert_eq!(of("constant-written", "error"), Some(0));
    assert_eq!(of("constant-written", "warning"), Some(1));
    assert_eq!(of("same-memory-two-outputs", "warning"), Some(0));
    assert_eq!(of("same-memory-two-outputs", "note"), Some(1));
    assert_eq!(of("constant-written", "W18888,constant-written"), Some(1));
    assert_eq!(of("constant-written", "nonsense"), Some(2));
    assert_eq!(tenure(&["lint", "--explain", "E0"]).status.code(), Some(2));
    assert_eq!(tenure(&["lint"]).status.code(), Some(2));
}

#[test]
fn sarif_has_rules_places_and_fingerprints() {
    let path = fixture("W18888");
    let path = path.to_str().expect("a path in UTF-8");
    let log = json(&tenure(&["lint", path, "--format", "sarif"]));
    assert_eq!(log["version"], "2.1.0");
    let run = &log["runs"][0];
    let rules = run["tool"]["driver"]["rules"].as_array().expect("rules");
    assert_eq!(rules.len(), Code::ALL.len());
    let results = run["results"].as_array().expect("results");
    let found = results.iter().find(|r| r["ruleId"] == "W18888");
    let found = found.expect("the finding");
    let index = found["ruleIndex"].as_u64().expect("an index");
    assert_eq!(
        rules[usize::try_from(index).expect("small")]["id"],
        "W18888"
    );
    let place = &found["locations"][0];
    assert!(place["physicalLocation"]["artifactLocation"]["uri"].is_string());
    assert!(place["logicalLocations"][0]["fullyQualifiedName"].is_string());
    let print = found["partialFingerprints"]["nodes/v1"].as_str();
    assert_eq!(print.map(str::len), Some(64));
    // The same finding in a larger model has the same fingerprint.
    let text = std::fs::read_to_string(path).expect("the model");
    let mut larger: Value = serde_json::from_str(&text).expect("JSON");
    let more = serde_json::json!({"name": "more", "op": "Relu", "inputs": ["x:0"],
        "outputs": [{"dtype": "float32", "shape": [4]}]});
    let nodes = larger["graphs"][0]["nodes"].as_array_mut().expect("nodes");
    nodes.insert(2, more);
    let folder = tempfile::tempdir().expect("a folder");
    let other = folder.path().join("larger model.json");
    std::fs::write(&other, larger.to_string()).expect("written");
    let other = other.to_str().expect("a path in UTF-8");
    let log = json(&tenure(&["lint", other, "--format", "sarif"]));
    let results = log["runs"][0]["results"].as_array().expect("results");
    let again = results.iter().find(|r| r["ruleId"] == "W18888");
    let again = again.expect("the finding");
    assert_eq!(again["partialFingerprints"]["nodes/v1"].as_str(), print);
}

#[test]
fn a_kind_is_chosen_and_an_output_is_written_whole() {
    let path = fixture("collective-input-written");
    let path = path.to_str().expect("a path in UTF-8");
    let count = |only: &str| {
        let told = json(&tenure(&["lint", path, "--format", "json", "--only", only]));
        told["findings"].as_array().map_or(0, Vec::len)
    };
    assert_eq!((count("collective-write"), count("layout")), (1, 0));
    assert_eq!(
        tenure(&["lint", path, "--only", "colour"]).status.code(),
        Some(2)
    );
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("lint.txt");
    let told = tenure(&["lint", path, "-o", file.to_str().expect("UTF-8")]);
    assert!(told.stdout.is_empty());
    let text = std::fs::read_to_string(file).expect("written");
    assert!(
        text.contains("warning [collective-input-written, collective-write]:"),
        "{text}"
    );
}

#[test]
fn guard_parts_what_the_lint_finds() {
    let path = fixture("overwrite-before-read");
    let path = path.to_str().expect("a path in UTF-8");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("guarded.json");
    let file = file.to_str().expect("a path in UTF-8");
    let told = json(&tenure(&["guard", path, "-o", file, "--json"]));
    assert_eq!(told["copies"]["inserted"], 1);
    assert!(told["copies"]["bytes"].as_u64().is_some_and(|b| b == 16));
    let repairs = told["repairs"].as_array().expect("a list");
    assert!(
        repairs
            .iter()
            .any(|r| r["kind"] == "read-write" && r["harm"].is_string())
    );
    let copied = repairs.iter().find(|r| r["node"].is_string());
    let wrong = copied.and_then(|r| r["wrong"].as_array());
    let last = wrong.and_then(|steps| steps.last()?["does"].as_str());
    assert!(
        last.is_some_and(|does| does.contains(" and finds ")),
        "{told}"
    );
    let after = json(&tenure(&["lint", file, "--format", "json"]));
    assert_eq!(
        after["findings"].as_array().map(Vec::len),
        Some(0),
        "{after}"
    );
    let text = out(&tenure(&["guard", path]));
    assert!(text.trim_end().ends_with("0 control edges"), "{text}");
}
