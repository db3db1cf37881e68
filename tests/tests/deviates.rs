//! Answers other than the one a case asks for: which of them count, and which do not.

use tenure_tests::case::{self, Outcome};

/// A constant that a node writes, with the copies that a case asks for.
fn case(origin: &str, note: &str, expect: &str) -> String {
    format!(
        r#"{{"format": "tenure.graph/1", "name": "case", "origin": "{origin}"{note},
            "graphs": [{{"name": "root", "nodes": [
              {{"name": "c", "op": "Const", "outputs": [{{"dtype": "float32", "shape": [4]}}]}},
              {{"name": "w", "op": "AddInplace", "inputs": ["c:0"],
                "outputs": [{{"dtype": "float32", "shape": [4], "ref_input": 0}}]}},
              {{"name": "r", "op": "Relu", "inputs": ["w:0"],
                "outputs": [{{"dtype": "float32", "shape": [4]}}]}},
              {{"name": "out", "op": "NetOutput", "inputs": ["r:0"]}}]}}],
            "expect": {{"run": "rw_conflict", {expect}}}}}"#
    )
}

fn run(text: &str) -> Outcome {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("case.json");
    std::fs::write(&path, text).unwrap();
    case::run(&path)
}

const NOTE: &str = r#", "note": "strange""#;

#[test]
fn as_good_an_answer_counts() {
    // As it is asked for.
    let place = r#""identity_before": [["w", 0]]"#;
    assert_eq!(run(&case("ut", NOTE, place)), Outcome::Passed);
    // One more copy is asked for than is needed.
    let more = r#""identity_count": 2"#;
    let Outcome::Deviates(results) = run(&case("ut", NOTE, more)) else {
        panic!("fewer copies are as good");
    };
    assert_eq!(results, "1 copies, proven; the case asks for 2");
    // None is asked for, and the constant would be written.
    let none = r#""identity_count": 0"#;
    let Outcome::Deviates(results) = run(&case("code", NOTE, none)) else {
        panic!("the case's own answer is wrong");
    };
    assert!(results.ends_with("data is lost"), "{results}");
}

#[test]
fn other_answers_do_not() {
    let failed = |origin: &str, note: &str, expect: &str| {
        matches!(run(&case(origin, note, expect)), Outcome::Failed(_))
    };
    let more = r#""identity_count": 2"#;
    assert!(failed("ut", "", more), "without a note");
    assert!(failed("own", NOTE, more), "a case of ours");
    let error = r#""identity_count": 2, "error": true"#;
    assert!(failed("ut", NOTE, error), "an error that is not there");
    let attrs = r#""attrs": [{"node": "w", "attr": "a", "value": 1}]"#;
    assert!(failed("ut", NOTE, attrs), "no matter of places");
}
