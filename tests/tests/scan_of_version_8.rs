//! `Scan` of opset 8: a batch axis everywhere, and the lengths of the sequences before the states.

use tenure_graph::effects::OpTable;
use tenure_graph::plan::{Placement, PlanOptions, Sharing};
use tenure_graph::text;
use tenure_plan::{Config, plan};

/// A state, two inputs that are cut into slices, one collected value, and an outer value that the
/// body reads. `start` is read once more behind the scan if `again`.
fn model(lengths: &str, again: bool) -> String {
    let last = if again { "%start" } else { "%final" };
    format!(
        r#"
model m onnx opsets ["" 8]
graph ^main {{
  %lengths: int64[2] = Data()
  %start: float32[2, 4] = Data()
  %xs: float32[2, 3, 4] = Data()
  %ys: float32[2, 3, 1] = Data()
  %w0: float32[4] = Data()
  %w: float32[4] = Relu(%w0)
  %final: float32[2, 4], %all: float32[2, 3, 4] = Scan({lengths}, %start, %xs, %ys) {{num_scan_inputs = 2}}
    body ^body {{
      %s: float32[4] = Data()
      %x: float32[4] = Data()
      %y: float32[1] = Data()
      %a: float32[4] = Add(%s, %x)
      %b: float32[4] = Mul(%a, %y)
      %c: float32[4] = Add(%b, %w^main)
      NetOutput(%c, %b) @results
    }}
  %end: float32[2, 4] = Add(%final, {last})
  NetOutput(%end, %all) @outputs
}}
"#
    )
}

/// The bound of a plan, which must pass its check.
fn bound(model: &str, inputs: Placement, sharing: Sharing) -> u64 {
    let graph = text::parse(model).unwrap();
    let table = OpTable::builtin(graph.dialect);
    tenure_graph::verify(&graph).unwrap();
    tenure_graph::verify::verify_bodies(&graph, &table).unwrap();
    let options = PlanOptions {
        align: 1,
        fold: false,
        inputs,
        sharing,
        ..PlanOptions::default()
    };
    let planned = plan(&graph, &table, &options, &Config::default()).unwrap();
    if let Err(violations) = tenure_check::check(&graph, &table, &planned.plan) {
        let list: Vec<String> = violations.iter().map(ToString::to_string).collect();
        panic!("{}", list.join("\n"));
    }
    planned.plan.arenas[0].lower_bound
}

#[test]
fn without_sharing_it_is_what_one_pass_needs() {
    // %w, %final and %all; in the body %s, %x, %y and %a.
    let outside = (16 + 32 + 96) + (16 + 16 + 4 + 16);
    let inputs = 32 + 96 + 24;
    for (lengths, bytes) in [("_", 0), ("%lengths", 16)] {
        let model = model(lengths, false);
        assert_eq!(bound(&model, Placement::User, Sharing::None), outside);
        // The lengths, where the scan is given them, are looked at for every item.
        assert_eq!(
            bound(&model, Placement::Planned, Sharing::None),
            outside + inputs + bytes
        );
    }
}

#[test]
fn the_states_take_the_memory_of_their_start_values_unless_these_are_read_again() {
    for lengths in ["_", "%lengths"] {
        let once = bound(&model(lengths, false), Placement::Planned, Sharing::Full);
        let again = bound(&model(lengths, true), Placement::Planned, Sharing::Full);
        // %start.
        assert_eq!(again - once, 32);
    }
}
