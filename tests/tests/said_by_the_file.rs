//! What a model's file says of single outputs, where it does not go well with the rest of the graph:
//! there is a plan that passes its check, or a refusal that says why.

use tenure_graph::effects::OpTable;
use tenure_graph::plan::{Item, Placement, Plan, PlanOptions};
use tenure_graph::{Dialect, Graph, text};
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
fn nothing_is_written_over_an_input_that_another_output_is_a_name_of() {
    // The file says that an output that nobody reads is its node's input.
    let text = "model m onnx opsets [\"\" 17] graph ^root {
        %x: float32[6, 8] = Data()
        %s: float32[8] = Data()
        %a: float32[6, 8] = Relu(%x)
        %y: float32[6, 8], _, %d: float32[6, 1] <reuse_input = 0> = LayerNormalization(%a, %s)
        NetOutput(%y) @out
      }";
    for inputs in [Placement::Planned, Placement::User] {
        planned(text, inputs).unwrap();
    }
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

/// A plan of three nodes in a row, the middle one with what is given for its output and behind it.
fn row(output: &str, node: &str, inputs: Placement, outputs: Placement) -> (Graph, Plan) {
    let text = format!(
        "model m ge graph ^root {{
           %x: float32[256] = Data() {{index = 0}}
           %a: float32[256] = Relu(%x)
           %b: float32[256] {output} = Relu(%a) @middle {node}
           %c: float32[256] = Relu(%b)
           NetOutput(%c) @out
         }}"
    );
    let graph = text::parse(&text).unwrap_or_else(|e| panic!("{text}: {e}"));
    let table = OpTable::builtin(graph.dialect);
    let options = PlanOptions {
        inputs,
        outputs,
        ..PlanOptions::default()
    };
    let plan = plan(&graph, &table, &options, &Config::default()).unwrap();
    let checked = tenure_check::check(&graph, &table, &plan.plan);
    checked.unwrap_or_else(|v| panic!("{text}: {v:?}"));
    (graph, plan.plan)
}

/// Bytes that the middle node has for its output and its workspaces.
fn of_the_middle(graph: &Graph, plan: &Plan) -> (u64, u64) {
    let storages = plan.storages.values();
    let members = storages.flat_map(|s| s.members.iter().map(|m| (m.item, m.bytes)));
    let (mut output, mut workspaces) = (0, 0);
    for (item, bytes) in members {
        match item {
            Item::Value(v) if graph.values[v].name == "b" => output += bytes,
            Item::Workspace(..) => workspaces += bytes,
            _ => {}
        }
    }
    (output, workspaces)
}

#[test]
fn what_is_not_in_our_memory_takes_none() {
    let bytes = |output: &str, node: &str| {
        let (graph, plan) = row(output, node, Placement::Planned, Placement::Planned);
        assert_eq!(plan.arenas.len(), 1, "{output} {node}");
        of_the_middle(&graph, &plan)
    };
    assert_eq!(bytes("", "workspace [512, 64]"), (1024, 576));
    // In the memory of the device, which is ordinary; on the chip, where two buffers are.
    let kinds = |kind: i64| {
        let output = bytes("", &format!("{{_output_memory_type = [{kind}]}}"));
        let attrs = format!("{{tvm_workspace_type = [0, {kind}]}} workspace [512, 64]");
        (output, bytes("", &attrs))
    };
    assert_eq!(kinds(2), ((1024, 0), (1024, 576)));
    assert_eq!(kinds(0x8000), ((0, 0), (1024, 512)));
    assert_eq!(kinds(0x1_0000), ((0, 0), (1024, 512)));
    // Always empty; somebody else's.
    let of = |attr: &str| bytes(&format!("<attrs = {{{attr}}}>"), "").0;
    assert_eq!(of("_memory_size_calc_type = 0"), 1024);
    assert_eq!(of("_memory_size_calc_type = 1"), 0);
    assert_eq!(of("_tensor_memory_scope = 1"), 1024);
    assert_eq!(of("_tensor_memory_scope = 2"), 0);
}

#[test]
fn what_is_kept_from_run_to_run_is_in_an_arena_of_its_own() {
    let session = 0x1_0000_0000_i64;
    let ways = [
        format!("{{_output_memory_type = [{}]}}", session | 2),
        "{_workspace_memory_no_reuse_scope = [1]} workspace [512]".to_owned(),
    ];
    for node in ways {
        let (_, plan) = row("", &node, Placement::Planned, Placement::Planned);
        let kinds: Vec<&str> = plan.arenas.iter().map(|a| &*a.kind).collect();
        assert_eq!(kinds, ["device", "session"], "{node}");
    }
}

#[test]
fn a_list_of_kinds_has_an_entry_for_each_workspace() {
    let text = "model m ge graph ^root {
        %x: float32[8] = Data() {index = 0}
        %y: float32[8] = Relu(%x) {_workspace_type = [17]} workspace [512, 64]
        NetOutput(%y) @out
      }";
    let said = text::parse(text).unwrap_err().to_string();
    assert!(
        said.contains("_workspace_type has 1 entries for 2 workspaces"),
        "{said}"
    );
}

#[test]
fn who_keeps_addresses_finds_nothing_in_the_callers_memory() {
    let engines = |engine: &str, attrs: &str| {
        let node = format!("{attrs} with {{kernel_lib = \"{engine}\"}}");
        let text = format!(
            "model m ge graph ^root {{
               %x: float32[256] = Data() {{index = 0}}
               %y: float32[256] = Relu(%x) {node}
               NetOutput(%y) @out
             }}"
        );
        let graph = text::parse(&text).unwrap_or_else(|e| panic!("{text}: {e}"));
        let table = OpTable::builtin(graph.dialect);
        let options = |inputs, outputs| PlanOptions {
            inputs,
            outputs,
            ..PlanOptions::default()
        };
        use Placement::{Planned, User};
        [
            (Planned, Planned),
            (User, Planned),
            (Planned, User),
            (User, User),
        ]
        .map(|(i, o)| {
            let planned = plan(&graph, &table, &options(i, o), &Config::default()).unwrap();
            let plan = planned.plan;
            tenure_check::check(&graph, &table, &plan).unwrap_or_else(|v| panic!("{text}: {v:?}"));
            plan.copies.len()
        })
    };
    assert_eq!(engines("ops_kernel_info_hccl", ""), [0, 1, 1, 2]);
    assert_eq!(engines("DNN_VM_CUSTOM_OP_STORE", ""), [0, 1, 1, 2]);
    let told = "{address_refreshable = true}";
    assert_eq!(engines("DNN_VM_CUSTOM_OP_STORE", told), [0; 4]);
    assert_eq!(engines("AIcoreEngine", ""), [0; 4]);
}

#[test]
fn the_callers_memory_is_refused_to_who_keeps_addresses() {
    // A plan of a node that is told new addresses, for one that is not: it reads a view of an input.
    let text = |engine: &str| {
        format!(
            "model m ge graph ^root {{
               %x: float32[256] = Data() {{index = 0}}
               %v: float32[16, 16] <ref_input = 0> = Reshape(%x)
               %y: float32[16, 16] = Relu(%v) with {{kernel_lib = \"{engine}\"}}
               NetOutput(%y) @out
             }}"
        )
    };
    let table = OpTable::builtin(Dialect::Ge);
    let options = PlanOptions {
        inputs: Placement::User,
        outputs: Placement::User,
        ..PlanOptions::default()
    };
    let told = text::parse(&text("AIcoreEngine")).unwrap();
    let keeps = text::parse(&text("ops_kernel_info_hccl")).unwrap();
    let planned = plan(&told, &table, &options, &Config::default())
        .unwrap()
        .plan;
    let violations = tenure_check::check(&keeps, &table, &planned).unwrap_err();
    let codes: Vec<&str> = violations.iter().map(|v| v.code()).collect();
    assert_eq!(codes, ["T067", "T067"]);
    let node = "with {kernel_lib = \"ops_kernel_info_hccl\"}";
    let (_, between) = row("", node, Placement::User, Placement::User);
    assert_eq!(between.copies, []);
}
