//! One small graph for each thing that a pass does, and for what it leaves alone.

use super::*;
use crate::Options;
use crate::testing::report;

#[test]
fn collectives_write_copies_of_what_others_need() {
    let cases = [
        (
            "a reader that must come later",
            "%x: float32[4] = Relu()\n%r: float32[4] = HcomAllReduce(%x) {_input_mutable = true}\n%y: float32[4] = Relu(%x) after @r",
        ),
        (
            "a reader in no order is put first, which costs nothing",
            "%x: float32[4] = Relu()\n%r: float32[4] = HcomAllReduce(%x) {_input_mutable = true}\n%y: float32[4] = Relu(%x)",
        ),
        (
            "a constant",
            "%k: float32[4] = Const()\n%r: float32[4] = HcomAllReduce(%k) {_input_mutable = true}",
        ),
        (
            "the only reader may have the memory",
            "%x: float32[4] = Relu()\n%r: float32[4] = HcomAllReduce(%x) {_input_mutable = true}",
        ),
        (
            "who asks for the shape alone is no reader",
            "%x: float32[4] = Relu()\n%r: float32[4] = HcomAllReduce(%x) {_input_mutable = true}\n%s: int64[1] = Shape(%x) after @r",
        ),
    ];
    insta::assert_snapshot!(report(collective_writes::run, &Options::default(), &cases));
}

#[test]
fn who_lists_a_slot_to_be_cleared_that_he_has_not_is_refused() {
    for (list, is_there) in [
        ("[0]", true),
        ("[-1]", true),
        ("[1]", false),
        ("[-2]", false),
    ] {
        for attr in ["atomic_output_index", "atomic_input_index"] {
            let lines =
                format!("%x: float32[4] = Relu()\n%y: float32[4] = Add(%x) {{{attr} = {list}}}");
            let graph = crate::testing::graph(&lines);
            let table = tenure_graph::effects::OpTable::builtin(graph.dialect);
            let done = zeroing::run(&graph, &table, &Options::default());
            assert_eq!(done.is_ok(), is_there, "{lines}");
        }
    }
}

/// Who writes state behind a collective writes it after the collective has read it, on other streams
/// as well.
#[test]
fn a_collective_finds_state_as_it_is_where_it_stands() {
    for stream in ["", " stream 1"] {
        let lines = format!(
            "%v: float32[4] = Variable()\n%a: float32[4] <ref_input = 0> = InplaceAdd(%v, %v)\n\
             %h: float32[4] = HcomAllReduce(%a) {{_input_mutable = true}}{stream}\n\
             %b: float32[4] <ref_input = 0> = InplaceAdd(%v, %a)\nNetOutput(%h, %b) @results"
        );
        let graph = crate::testing::graph(&lines);
        let table = tenure_graph::effects::OpTable::builtin(graph.dialect);
        let done = crate::compile::run(&graph, &table, &Options::default()).unwrap();
        let safe = done.graph(&graph);
        let node = |label: &str| {
            let mut nodes = safe.nodes.keys();
            nodes.find(|&n| safe.node_label(n) == label).unwrap()
        };
        let work = Work::new(safe, &table);
        let before = work.ancestors(node("h"), 0);
        assert!(!before.contains(&node("b")), "{lines}");
        assert_eq!(done.findings.len(), 1, "{:?}", done.findings);
    }
}

#[test]
fn groups_get_copies_of_what_cannot_move() {
    let cases = [
        (
            "a variable, and a tensor of two groups",
            "%v: float32[4] = Variable()\n%x: float32[4] = Relu()\n%a: float32[4] = HcomAllGather(%v, %x) {continuous_input = true}\n%b: float32[4] = HcomAllGather(%x) {continuous_input = true}",
        ),
        (
            "what peers read",
            "%v: float32[4] = Variable()\n%a: float32[4] = HcomAllGather(%v) {_input_memory_type = [17]}",
        ),
        (
            "packed groups are the layout pass's",
            "%v: float32[4] = Variable()\n%a: float32[4] = PhonyConcat(%v, %v) {_no_padding_continuous_input = true}",
        ),
    ];
    insta::assert_snapshot!(report(contiguous_inputs::run, &Options::default(), &cases));
}

#[test]
fn copies_that_stand_for_the_value_go() {
    let cases = [
        (
            "order by the copy becomes order by the reader",
            "%v: float32[4] = Variable()\n%i: float32[4] = Identity(%v)\n%r: float32[4] = Relu(%i)\n%w: float32[4] <ref_input = 0> = ScatterUpdate(%v) after @i",
        ),
        (
            "a snapshot stays",
            "%v: float32[4] = Variable()\n%i: float32[4] = Identity(%v)\n%w: float32[4] <ref_input = 0> = Assign(%v) after @i\n%m: float32[4] = Mul(%i, %w)",
        ),
        (
            "marked",
            "%x: float32[4] = Data()\n%i: float32[4] = Identity(%x) {no_need_constant_folding = false}\n%r: float32[4] = Relu(%i)",
        ),
    ];
    insta::assert_snapshot!(report(identity::run, &Options::default(), &cases));
}

#[test]
fn memory_is_cleared_before_anything_runs() {
    let cases = [
        (
            "one node for all",
            "%x: float32[4] = Data()\n%y: float32[4] = Relu(%x)\n%a: float32[4] = ScatterAdd(%y) {atomic_output_index = [0]}\n%b: float32[4] = ScatterAdd(%a) {atomic_output_index = [0]}",
        ),
        (
            "an output that zero copy may move",
            "%x: float32[4] = Data()\n%a: float32[4] = ScatterAdd(%x) {atomic_output_index = [0], _is_connected_to_netoutput = [0]}",
        ),
    ];
    insta::assert_snapshot!(report(zeroing::run, &Options::default(), &cases));
    let by_task = Options {
        nodes_clear_themselves: true,
        ..Options::default()
    };
    let cases = [(
        "each with its own task",
        "%x: float32[4] = Data()\n%a: float32[4] = ScatterAdd(%x) {atomic_output_index = [0]}",
    )];
    insta::assert_snapshot!(report(zeroing::run, &by_task, &cases));
}

#[test]
fn addresses_are_handed_over_and_marked() {
    let cases = [(
        "a constant as result, and reference data in a collective",
        "%k: float32[4] = Const()\n%v: float32[4] = RefData()\n%r: float32[4] = HcomAllReduce(%v) with {kernel_lib = \"ops_kernel_info_hccl\"}\nNetOutput(%k, %r) @results",
    )];
    insta::assert_snapshot!(report(user_addresses::run, &Options::default(), &cases));
    let cases = [(
        "what a switch reads",
        "%a: int32[1] = Relu()\n%s: float32[4] = StreamSwitch(%a)",
    )];
    insta::assert_snapshot!(report(fixed_addresses::run, &Options::default(), &cases));
}

#[test]
fn a_join_needs_no_task_where_pieces_are_whole_blocks() {
    let cases = [
        (
            "two pieces of 64 bytes",
            "%a: float32[1, 16] = Relu()\n%b: float32[1, 16] = Relu()\n%c: float32[1, 32] = ConcatD(%a, %b) {concat_dim = 1}",
        ),
        (
            "an axis before the joined one is not 1",
            "%a: float32[2, 16] = Relu()\n%b: float32[2, 16] = Relu()\n%c: float32[2, 32] = ConcatD(%a, %b) {concat_dim = 1}",
        ),
        (
            "one tensor twice",
            "%a: float32[1, 16] = Relu()\n%c: float32[1, 32] = ConcatD(%a, %a) {concat_dim = 1}",
        ),
    ];
    insta::assert_snapshot!(report(concat_no_task::run, &Options::default(), &cases));
}

#[test]
fn copies_of_the_user_go_where_value_and_copy_can_be_one() {
    let cases = [
        (
            "nobody writes",
            "%x: float32[4] = Relu()\n%t: float32[4] = TensorMove(%x)\n%r: float32[4] = Relu(%t)",
        ),
        (
            "the reader writes what a sibling reads",
            "%x: float32[4] = Relu()\n%s: float32[4] = Relu(%x)\n%t: float32[4] = TensorMove(%x)\n%r: float32[4] = HcomAllReduce(%t) {_input_mutable = true}",
        ),
        (
            "the caller keeps its input",
            "%x: float32[4] = Data() {index = 0}\n%t: float32[4] = TensorMove(%x)\nNetOutput(%t) @results",
        ),
    ];
    insta::assert_snapshot!(report(tensor_moves::run, &Options::default(), &cases));
    let donated = Options {
        donated_inputs: [0].into(),
        ..Options::default()
    };
    let cases = [(
        "the caller gives its input away",
        "%x: float32[4] = Data() {index = 0}\n%t: float32[4] = TensorMove(%x)\nNetOutput(%t) @results",
    )];
    insta::assert_snapshot!(report(tensor_moves::run, &donated, &cases));
}

#[test]
fn marks_and_offsets() {
    let on_host = Options {
        host_runs: true,
        ..Options::default()
    };
    let cases = [(
        "the only reader of an input like its output",
        "%x: float32[4] = Data()\n%a: float32[4] = Relu(%x)\n%b: float32[4] = Relu(%a)",
    )];
    insta::assert_snapshot!(report(in_place_support::run, &on_host, &cases));
    let cases = [(
        "two halves of one user output",
        "%a: float32[4] = Relu() with {output_offsets = [256]}\n%b: float32[4] = Relu() with {output_offsets = [512]}\n%j: float32[8] = ConcatD(%a, %b) {_is_connected_to_netoutput = [0], _no_task = true, continuous_input = true} with {output_offsets = [256]}\nNetOutput(%j) @results",
    )];
    insta::assert_snapshot!(report(joined_offsets::run, &Options::default(), &cases));
}

#[test]
fn subgraphs_keep_their_borders() {
    let cases = [(
        "a branch that returns a constant and its input",
        "%x: float32[4] = Data()\n%y: float32[4], %z: float32[4] = If(%x) @if\n  then ^t {\n    %k: float32[4] = Const()\n    %d: float32[4] = Data()\n    NetOutput(%k, %d) @results\n  }\nNetOutput(%y, %z) @results",
    )];
    insta::assert_snapshot!(report(subgraph::run, &Options::default(), &cases));
}
