//! What a model's file says of single outputs, where it does not go well with the rest of the graph:
//! there is a plan that passes its check, or a refusal that says why.

use tenure_graph::effects::OpTable;
use tenure_graph::plan::{Item, Place, Placement, Plan, PlanOptions, Sizes, Storage};
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

/// A variable is copied to other memory, and of something without a size there is no copy.
#[test]
fn a_variable_of_unknown_size_cannot_go_to_other_memory() {
    for (first, second, kind) in [
        ("?", "8", "_input_memory_type"),
        ("?", "8", "_output_memory_type"),
        ("?", "?", "_output_memory_type"),
    ] {
        let text = format!(
            "model m ge graph ^root {{
               %v: float32[8] = RefData() {{index = 0}}
               %set: float32[{first}] <ref_input = 0> = Assign(%v)
               %far: float32[{second}] <ref_input = 0> = Assign(%set) {{{kind} = [17]}}
               NetOutput(%far) @out
             }}"
        );
        let error = planned(&text, Placement::Planned).unwrap_err();
        assert!(
            matches!(error, PlanError::UnsizedReference { .. }),
            "{error}"
        );
        assert!(error.to_string().contains("\"far\""), "{error}");
    }
    let text = "model m ge graph ^root {
                  %v: float32[8] = RefData() {index = 0}
                  %far: float32[8] <ref_input = 0> = Assign(%v) {_output_memory_type = [17]}
                  NetOutput(%far) @out
                }";
    assert_eq!(planned(text, Placement::Planned).unwrap().copies.len(), 1);
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
fn what_takes_no_memory_has_none_to_spare_and_no_references_with_some() {
    let text = "model m ge graph ^root {
        %x: float32[256] = Data() {index = 0}
        %a: float32[256] = Relu(%x) {_output_memory_type = [32768]}
        %b: float32[256] <ref_input = 0> = InplaceAdd(%a, %x)
        %c: float32[256] = Relu(%b)
        NetOutput(%c) @out
      }";
    let graph = text::parse(text).unwrap();
    let table = OpTable::builtin(graph.dialect);
    let options = PlanOptions {
        align: 512,
        sizes: Sizes::Padded,
        inputs: Placement::User,
        outputs: Placement::User,
        ..PlanOptions::default()
    };
    let plan = plan(&graph, &table, &options, &Config::default())
        .unwrap()
        .plan;
    tenure_check::check(&graph, &table, &plan).unwrap();
    assert_eq!(plan.arenas[0].size, 0);
}

#[test]
fn memory_on_the_chip_is_beside_nothing() {
    let text = |kind: i64| {
        format!(
            "model m ge graph ^root {{
               %x: float32[256] = Data() {{index = 0}}
               %a: float32[256] = Relu(%x) {{_output_memory_type = [{kind}]}}
               %b: float32[256] = Relu(%x)
               %c: float32[512] = Gather(%a, %b) {{continuous_input = true}} @join
               NetOutput(%c) @out
             }}"
        )
    };
    planned(&text(2), Placement::Planned).unwrap();
    let error = planned(&text(0x8000), Placement::Planned).unwrap_err();
    assert!(error.to_string().contains("\"join\""), "{error}");
}

#[test]
fn what_has_no_memory_has_none_for_pieces() {
    let joined = "%a: float32[256] = Relu(%x)
                  %b: float32[256] = Exp(%x)
                  %c: float32[512] = ConcatD(%a, %b) @cut {concat_dim = 0,
                    _no_padding_continuous_input = true, _output_reuse_input = true, KIND}
                  %d: float32[512] = Neg(%c)";
    let split = "%a: float32[256] = Relu(%x) {KIND}
                 %b: float32[128], %c: float32[128] = SplitD(%a) @cut {split_dim = 0,
                   _no_padding_continuous_output = true, _output_reuse_input = true}
                 %d: float32[128] = Add(%b, %c)";
    for lines in [joined, split] {
        let found = |kind: i64| {
            let kind = format!("_output_memory_type = [{kind}]");
            let text = format!(
                "model m ge graph ^root {{\n%x: float32[256] = Data() {{index = 0}}\n{}\n\
                 NetOutput(%d) @out\n}}",
                lines.replace("KIND", &kind)
            );
            planned(&text, Placement::Planned).map_err(|error| error.to_string())
        };
        found(2).unwrap();
        let error = found(0x8000).unwrap_err();
        assert!(error.contains("\"cut\""), "{error}");
    }
}

#[test]
fn outputs_of_the_session_share_with_nobody() {
    let session = 0x1_0000_0002_i64;
    let kind = format!("{{_output_memory_type = [{session}]}}");
    let text = format!(
        "model m ge graph ^root {{
           %x: float32[256] = Data() {{index = 0}}
           %a: float32[256] = Exp(%x) {kind}
           %b: float32[256] = MatMul(%a, %a)
           %c: float32[256] = Exp(%b) {kind}
           %d: float32[256] = MatMul(%c, %c)
           NetOutput(%d) @out
         }}"
    );
    let plan = planned(&text, Placement::Planned).unwrap();
    let sizes: Vec<u64> = plan.arenas.iter().map(|a| a.size).collect();
    assert_eq!((plan.arenas.len(), sizes[1]), (2, 2048));
    // The check asks for it on its own.
    let mut wrong = plan;
    let storages = wrong.storages.values_mut();
    for storage in storages.filter(|s| matches!(s.place, Place::Arena { arena: 1, .. })) {
        storage.place = Place::Arena {
            arena: 1,
            offset: 0,
        };
        storage.life = storage
            .life
            .iter()
            .copied()
            .filter(|s| s.first > 0)
            .collect();
    }
    let graph = text::parse(&text).unwrap();
    let found = tenure_check::check(&graph, &OpTable::builtin(Dialect::Ge), &wrong).unwrap_err();
    assert!(
        found
            .iter()
            .any(|v| v.code() == "T071" || v.code() == "T029"),
        "{found:?}"
    );
}

#[test]
fn nothing_is_written_over_memory_of_another_size() {
    let size = |size: u64| {
        let text = format!(
            "model m ge graph ^root {{
               %x: float32[128] = Data() {{index = 0}}
               %a: float32[128] <size = 512> = Op(%x)
               %b: float32[128] <size = {size}> = Op(%a) {{_output_inplace_ability = [[0, 0]]}}
               NetOutput(%b) @out
             }}"
        );
        let plan = planned(&text, Placement::User).unwrap();
        let holds_two = |s: &Storage| s.members.len() == 2;
        plan.storages.values().any(holds_two)
    };
    assert!(size(512));
    assert!(!size(4096));
}

#[test]
fn what_must_be_zero_is_written_over_no_input() {
    let text = |attrs: &str| {
        format!(
            "model m ge graph ^root {{
               %x: float32[128] = Data() {{index = 0}}
               %a: float32[128] = Op(%x)
               AtomicAddrClean() @clean after @op_2
               %c: float32[128] = Op(%a) {{_output_inplace_ability = [[0, 0]]{attrs}}} @add after @clean
               NetOutput(%c) @out
             }}"
        )
    };
    for (attrs, shares) in [("", true), (", atomic_output_index = [0]", false)] {
        let text = text(attrs).replace("= Op(%x)", "= Op(%x) @op_2");
        let graph = text::parse(&text).unwrap_or_else(|e| panic!("{text}: {e}"));
        let table = OpTable::builtin(Dialect::Ge);
        let guarded = tenure_guard::in_place::resolve(&graph, &table, &Default::default());
        let guarded = guarded.unwrap();
        let guarded = guarded.graph(&graph);
        let plan = plan(guarded, &table, &PlanOptions::default(), &Config::default());
        let plan = plan.unwrap().plan;
        tenure_check::check(guarded, &table, &plan).unwrap_or_else(|v| panic!("{text}: {v:?}"));
        let has = |s: &Storage, name: &str| {
            let mut members = s.members.iter();
            members.any(|m| matches!(m.item, Item::Value(v) if guarded.values[v].name == name))
        };
        let one = plan.storages.values().any(|s| has(s, "a") && has(s, "c"));
        assert_eq!(one, shares, "{attrs}");
    }
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
fn state_that_the_caller_hands_in_is_the_callers_memory() {
    let copies = |state: &str, view: &str, node: &str| {
        let text = |engine: &str| {
            format!(
                "model m ge graph ^root {{
                   %s: float32[256] = {state}()
                   {view}
                   {node} with {{kernel_lib = \"{engine}\"}}
                   NetOutput(%y) @out
                 }}"
            )
        };
        let parsed = |engine: &str| {
            let text = text(engine);
            text::parse(&text).unwrap_or_else(|e| panic!("{text}: {e}"))
        };
        let (told, keeps) = (parsed("AIcoreEngine"), parsed("ops_kernel_info_hccl"));
        let table = OpTable::builtin(Dialect::Ge);
        [Placement::Planned, Placement::User].map(|inputs| {
            let options = PlanOptions {
                inputs,
                ..PlanOptions::default()
            };
            let planned = |graph| {
                plan(graph, &table, &options, &Config::default())
                    .unwrap()
                    .plan
            };
            let plan = planned(&keeps);
            tenure_check::check(&keeps, &table, &plan).unwrap_or_else(|v| panic!("{node}: {v:?}"));
            // Without the copies the check refuses it.
            let without = tenure_check::check(&keeps, &table, &planned(&told));
            let said = without.err().unwrap_or_default();
            assert!(said.iter().all(|v| v.code() == "T067"), "{node}: {said:?}");
            assert_eq!(said.len(), plan.copies.len(), "{node}");
            plan.copies.len()
        })
    };
    let read = "%y: float32[256] = Relu(%s)";
    assert_eq!(copies("RefData", "", read), [0, 1]);
    assert_eq!(copies("Variable", "", read), [0, 0]);
    let view = "%v: float32[16, 16] <ref_input = 0> = Reshape(%s)";
    let read_as = "%y: float32[16, 16] = Relu(%v)";
    assert_eq!(copies("RefData", view, read_as), [0, 1]);
    // What is written must be written where the caller looks for it.
    let written = "%y: float32[256] <ref_input = 0> = Relu(%s)";
    assert_eq!(copies("RefData", "", written), [0, 0]);
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
