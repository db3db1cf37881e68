//! What a model's file says of single outputs, where it does not go well with the rest of the graph:
//! there is a plan that passes its check, or a refusal that says why.

use tenure_graph::effects::OpTable;
use tenure_graph::plan::{Placement, Plan, PlanOptions};
use tenure_graph::text;
use tenure_plan::{Config, PlanError, plan};

fn planned(text: &str, inputs: Placement) -> Result<Plan, PlanError> {
    let graph = text::parse(text).unwrap();
    let table = OpTable::builtin(graph.dialect);
    let options = PlanOptions {
        inputs,
        ..PlanOptions::default()
    };
    let plan = plan(&graph, &table, &options, &Config::default())?.plan;
    if let Err(violations) = tenure_check::check(&graph, &table, &plan) {
        let list: Vec<String> = violations.iter().map(ToString::to_string).collect();
        panic!("{text}\n{}", list.join("\n"));
    }
    Ok(plan)
}

/// `Assign` with the given dimensions of what it writes in, and of its output.
fn assign(target: &str, output: &str) -> String {
    format!(
        "model m ge graph ^root {{
           %x: float32[{target}] = Data() {{index = 0}}
           %y: float32[8] = Data() {{index = 1}}
           %set: float32[{output}] <ref_input = 0> = Assign(%x, %y)
           NetOutput(%set, %y) @out
         }}"
    )
}

#[test]
fn a_reference_of_unknown_size_is_refused_where_it_needs_a_place() {
    let refused = |text: &str, inputs| {
        let error = planned(text, inputs).unwrap_err();
        assert!(
            matches!(error, PlanError::UnsizedReference { .. }),
            "{error}"
        );
        assert!(error.to_string().contains("\"set\""), "{error}");
    };
    for inputs in [Placement::Planned, Placement::User] {
        refused(&assign("?", "8"), inputs);
        refused(&assign("8", "?"), inputs);
    }
    // What is the caller's may not be written, and cannot be copied.
    refused(&assign("?", "?"), Placement::User);
    let plan = planned(&assign("?", "?"), Placement::Planned).unwrap();
    assert_eq!(plan.dynamic.len(), 2);
}

#[test]
fn a_reference_to_nothing_has_a_place_of_its_own() {
    for inputs in [Placement::Planned, Placement::User] {
        let plan = planned(&assign("0", "8"), inputs).unwrap();
        assert!(plan.copies.is_empty());
        planned(&assign("8", "0"), inputs).unwrap();
    }
}

#[test]
fn what_is_asked_for_its_shape_is_read_when_it_is_reused() {
    let text = "model m onnx opsets [\"\" 17] graph ^root {
        %x: float32[2] = Data()
        %y: float32[2] = Relu(%x)
        %z: float32[2] = Exp(%x)
        %s: int64[1] <reuse_input = 0> = Shape(%y)
        NetOutput(%s, %z) @out
      }";
    planned(text, Placement::User).unwrap();
}

#[test]
fn what_writes_in_its_input_is_not_computed_at_load_time() {
    let text = "model m onnx opsets [\"\" 17] graph ^root {
        %k: float32[2] = Const() {value = float32[2] [1.0, 2.0]}
        %y: float32[2] <ref_input = 0> = Relu(%k)
        NetOutput(%y, %k) @out
      }";
    let plan = planned(text, Placement::Planned).unwrap();
    assert!(plan.folded.is_empty());
    assert_eq!(plan.copies.len(), 1);
}

#[test]
fn a_body_without_results_is_refused() {
    let text = "model m ge graph ^root {
        %x: float32[8] = Data() {index = 0}
        PartitionedCall(%x) @call
          body ^body { %a: float32[8] = Relu(%x^root) }
        NetOutput() @out
      }";
    let error = planned(text, Placement::Planned).unwrap_err();
    assert!(matches!(error, PlanError::NoResults { .. }), "{error}");
}

#[test]
fn a_value_has_what_its_shape_needs_and_what_the_file_asks_for() {
    let bytes = |size: u64| {
        let text = format!(
            "model m ge graph ^root {{
               %x: float32[8] = Data() {{index = 0}}
               %y: float32[8] <size = {size}> = Relu(%x)
               NetOutput(%y) @out
             }}"
        );
        let plan = planned(&text, Placement::User).unwrap();
        let storage = plan.storages.values().next().unwrap();
        assert_eq!(storage.members[0].bytes, 32);
        storage.size
    };
    assert_eq!([0, 4, 32, 100].map(bytes), [64, 64, 64, 128]);
}
