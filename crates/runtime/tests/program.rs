//! Programs from small graphs: what is refused and how, what is computed once, and where loops end.

use tenure_check::CheckedPlan;
use tenure_graph::effects::OpTable;
use tenure_graph::plan::PlanOptions;
use tenure_graph::{DType, Dialect, Graph, json, text};
use tenure_plan::Config;
use tenure_runtime::numbers::{decode, encode};
use tenure_runtime::{Kernels, Layout, Program, RuntimeError};

fn parsed(dialect: Dialect, lines: &str) -> Graph {
    let name = dialect.name();
    let lines = lines.trim().replace('\n', "\n  ");
    let source = format!("model m {name}\ngraph ^root {{\n  {lines}\n}}\n");
    text::parse(&source).unwrap_or_else(|e| panic!("{e}\n{source}"))
}

fn planned(graph: &Graph) -> CheckedPlan {
    let table = OpTable::builtin(graph.dialect);
    let options = PlanOptions::default();
    let plan = tenure_plan::plan(graph, &table, &options, &Config::default()).unwrap();
    tenure_check::check(graph, &table, &plan.plan).unwrap()
}

fn program(graph: &Graph, plan: &CheckedPlan) -> Result<Program, RuntimeError> {
    let table = OpTable::builtin(graph.dialect);
    Program::new(graph, &table, plan, &Kernels::builtin(), Layout::Planned)
}

#[test]
fn all_nodes_that_cannot_be_run_are_listed() {
    let graph = parsed(
        Dialect::Ge,
        "
%x: float32[4] = Data()
%i: complex64[4] = Data()
%a: float32[4] = FancyOp(%x) @fancy
%b: complex64[4] = Neg(%i) @neg
%c: float32[4] = Relu(%a)
NetOutput(%b, %c) @out",
    );
    let refused = program(&graph, &planned(&graph)).unwrap_err();
    let RuntimeError::Unsupported(nodes) = &refused else {
        panic!("{refused}");
    };
    let names: Vec<&str> = nodes.iter().map(|n| &*n.node).collect();
    assert_eq!(names, ["fancy", "neg"]);
    assert!(refused.to_string().contains("complex64"), "{refused}");
}

#[test]
fn what_depends_on_constants_alone_is_computed_once() {
    let graph = parsed(
        Dialect::Onnx,
        "
%x: float32[2] = Data()
%k: float32[2] = Const() {value = float32[2] [1, -2]}
%r: float32[2] = Relu(%k)
%n: float32[2] = Neg(%r)
%y: float32[2] = Add(%x, %n)
NetOutput(%y) @out",
    );
    let plan = planned(&graph);
    assert_eq!(plan.plan().folded.len(), 2);
    let mut program = program(&graph, &plan).unwrap();
    for x in [[1.0, 2.0], [5.0, 0.0]] {
        let given = encode(tenure_graph::DType::F32, x).unwrap();
        program.poison(0xff);
        program.run(&[&given]).unwrap();
        let dtype = program.results()[0].dtype;
        let got = decode(dtype, &program.result(0));
        assert_eq!(got, Some(vec![x[0] - 1.0, x[1]]));
    }
}

#[test]
fn inputs_are_as_many_and_as_large_as_the_graph_says() {
    let graph = parsed(Dialect::Ge, "%x: float32[4] = Data()\nNetOutput(%x) @out");
    let mut program = program(&graph, &planned(&graph)).unwrap();
    let wrong = |e: Result<(), RuntimeError>| e.unwrap_err().to_string();
    assert!(wrong(program.run(&[])).contains("1 inputs, and 0 are given"));
    assert!(wrong(program.run(&[&[0; 15]])).contains("16 bytes, and 15 are given"));
    assert_eq!(program.run(&[&[1; 16]]), Ok(()));
    assert_eq!(program.result(0), [1; 16]);
    assert!(wrong(program.set_variable(0, &[])).contains('1'));
}

#[test]
fn a_loop_without_end_is_cut_by_the_limit() {
    let source = r#"{"format": "tenure.graph/1", "graphs": [
      {"name": "root", "nodes": [
        {"name": "x", "op": "Data", "outputs": [{"dtype": "float32", "shape": [1]}]},
        {"name": "loop", "op": "While", "inputs": ["x:0"],
         "outputs": [{"dtype": "float32", "shape": [1]}],
         "subgraphs": [{"role": "body", "graph": "b"}, {"role": "cond", "graph": "c"}]},
        {"name": "out", "op": "NetOutput", "inputs": ["loop:0"]}]},
      {"name": "b", "nodes": [
        {"name": "s", "op": "Data", "attrs": {"parent_index": 0},
         "outputs": [{"dtype": "float32", "shape": [1]}]},
        {"name": "n", "op": "Neg", "inputs": ["s:0"],
         "outputs": [{"dtype": "float32", "shape": [1]}]},
        {"name": "out", "op": "NetOutput", "inputs": ["n:0"]}]},
      {"name": "c", "nodes": [
        {"name": "s", "op": "Data", "attrs": {"parent_index": 0},
         "outputs": [{"dtype": "float32", "shape": [1]}]},
        {"name": "out", "op": "NetOutput", "inputs": ["s:0"]}]}]}"#;
    let graph = json::read(source.as_bytes()).unwrap();
    let mut program = program(&graph, &planned(&graph)).unwrap();
    program.set_limit(1000);
    let number = |x| encode(tenure_graph::DType::F32, [x]).unwrap();
    let run = program.run(&[&number(3.0)]);
    assert_eq!(run, Err(RuntimeError::TooLong(1000)));
    // 0 is no reason to go on.
    assert_eq!(program.run(&[&number(0.0)]), Ok(()));
}

/// The condition of a loop is read before its states are written, which may lie over it; and slices
/// are handed over before and after, as the list of transfers says.
#[test]
fn a_loop_of_onnx_counts_collects_and_stops() {
    let source = r#"{"format": "tenure.graph/1", "dialect": "onnx", "graphs": [
      {"name": "root", "nodes": [
        {"name": "trips", "op": "Const", "attrs": {"value": [3]},
         "outputs": [{"dtype": "int64", "shape": []}]},
        {"name": "go", "op": "Const", "attrs": {"value": [true]},
         "outputs": [{"dtype": "bool", "shape": []}]},
        {"name": "x", "op": "Data", "outputs": [{"dtype": "float32", "shape": []}]},
        {"name": "loop", "op": "Loop", "inputs": ["trips:0", "go:0", "x:0"],
         "outputs": [{"dtype": "float32", "shape": []}, {"dtype": "float32", "shape": [3]}],
         "subgraphs": [{"role": "body", "graph": "b"}]},
        {"name": "out", "op": "NetOutput", "inputs": ["loop:0", "loop:1"]}]},
      {"name": "b", "nodes": [
        {"name": "i", "op": "Data", "outputs": [{"dtype": "int64", "shape": []}]},
        {"name": "c", "op": "Data", "outputs": [{"dtype": "bool", "shape": []}]},
        {"name": "s", "op": "Data", "outputs": [{"dtype": "float32", "shape": []}]},
        {"name": "go", "op": "Identity", "inputs": ["c:0"],
         "outputs": [{"dtype": "bool", "shape": []}]},
        {"name": "next", "op": "Add", "inputs": ["s:0", "s:0"],
         "outputs": [{"dtype": "float32", "shape": []}]},
        {"name": "kept", "op": "Identity", "inputs": ["s:0"],
         "outputs": [{"dtype": "float32", "shape": []}]},
        {"name": "out", "op": "NetOutput", "inputs": ["go:0", "next:0", "kept:0"]}]}]}"#;
    let graph = json::read(source.as_bytes()).unwrap();
    let mut program = program(&graph, &planned(&graph)).unwrap();
    let given = encode(tenure_graph::DType::F32, [1.5]).unwrap();
    for poison in [0, 0xff, 0] {
        program.poison(poison);
        program.run(&[&given]).unwrap();
        let result = |i: usize| decode(program.results()[i].dtype, &program.result(i));
        assert_eq!(result(0), Some(vec![12.0]));
        assert_eq!(result(1), Some(vec![1.5, 3.0, 6.0]));
    }
}

/// A plan is of one graph: with another one it is refused or runs somehow, and nothing panics.
#[test]
fn a_plan_of_another_graph_does_no_harm() {
    let lines = [
        "%x: float32[4] = Data()\nNetOutput(%x) @out",
        "%x: float32[8] = Data()\n%y: float32[8] = Neg(%x)\nNetOutput(%y, %x) @out",
        "%x: float32[4] = Data()\n%y: float32[4] = Neg(%x)\n%z: float32[4] = Add(%x, %y) workspace [9]\nNetOutput(%z) @out",
        "%x: float32[2, 2] = Data()\n%y: float32[4] <ref_input = 0> = Reshape(%x)\n%z: float32[4] <ref_input = 0> = Assign(%y, %y)\nNetOutput(%z) @out",
        "%v: float32[4] = Variable()\n%y: float32[4] <ref_input = 0> = InplaceAdd(%v, %v)\nNetOutput(%y) @out",
    ];
    let graphs: Vec<Graph> = lines.iter().map(|l| parsed(Dialect::Ge, l)).collect();
    let mut refused = 0;
    for made_for in &graphs {
        let plan = planned(made_for);
        for graph in &graphs {
            match program(graph, &plan) {
                Ok(mut program) => {
                    let inputs = program.inputs().iter().enumerate();
                    let inputs: Vec<Vec<u8>> = inputs.map(|(i, _)| program.input(i)).collect();
                    let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
                    assert_eq!(program.run(&inputs), Ok(()));
                }
                Err(_) => refused += 1,
            }
        }
    }
    assert!(refused > 5, "{refused}");
}

/// Who reads a variable finds what was written last, whatever name it has: through a view, or given
/// back by a partition, also by one in another.
#[test]
fn a_variable_is_one_under_each_of_its_names() {
    let partition = |name: &str, given: &str, lines: &str, result: &str| {
        format!(
            "%{name}: float32[4] = PartitionedCall(%{given})\n  partition ^g{name} {{\n    \
             %d: float32[4] = Data() {{parent_index = 0}}\n    {lines}\n    \
             NetOutput(%{result}) @r inputs [{{parent_index = 0}}]\n  }}\n"
        )
    };
    let inner = partition("e", "d", "", "d");
    let names = [
        "%n: float32[4] = Reshape(%v)\n".to_owned(),
        "%n: float32[4] <ref_input = 0> = Reshape(%v)\n".to_owned(),
        partition("n", "v", "", "d"),
        partition("n", "v", "%c: float32[4] = Reshape(%d)", "c"),
        partition("n", "v", &inner, "e"),
        format!(
            "%m: float32[4] = Reshape(%v)\n{}",
            partition("n", "m", "", "d")
        ),
    ];
    for name in names {
        let lines = format!(
            "%x: float32[4] = Data()\n%v: float32[4] = Variable() {{value = [1.0, 2.0, 3.0, 4.0]}}\n\
             {name}%y: float32[4] <ref_input = 0> = InplaceAdd(%n, %x)\n\
             %z: float32[4] = Relu(%v) after @y\nNetOutput(%z, %y, %n, %v) @out"
        );
        let graph = parsed(Dialect::Ge, &lines);
        let plan = planned(&graph);
        let mut program = program(&graph, &plan).expect("a program");
        let x: Vec<u8> = [10.0f32; 4].iter().flat_map(|x| x.to_le_bytes()).collect();
        for run in [1.0f32, 2.0] {
            program.run(&[&x]).expect("it runs");
            let expected = [1.0f32, 2.0, 3.0, 4.0].map(|v| v + 10.0 * run);
            let expected: Vec<u8> = expected.iter().flat_map(|v| v.to_le_bytes()).collect();
            for result in 0..4 {
                assert_eq!(
                    program.result(result),
                    expected,
                    "result {result} of {lines}"
                );
            }
        }
    }
}

/// Files of Graph Engine say of answers that they are numbers; what a kernel writes is as large as the
/// model says, or the node is refused.
#[test]
fn answers_are_of_the_type_that_the_model_says() {
    for (kind, expected) in [
        ("float32", vec![1.0, 0.0, 0.0]),
        ("bool", vec![1.0, 0.0, 0.0]),
    ] {
        let lines = format!(
            "%x: float32[3] = Data()\n%k: float32[3] = Const() {{value = [1.0, 2.0, 3.0]}}\n\
             %y: {kind}[3] = Less(%x, %k)\nNetOutput(%y) @out"
        );
        let graph = parsed(Dialect::Ge, &lines);
        let plan = planned(&graph);
        let mut program = program(&graph, &plan).expect("a program");
        let x = encode(DType::F32, [0.0, 2.0, 4.0]).expect("numbers");
        program.run(&[&x]).expect("it runs");
        let dtype = program.results()[0].dtype;
        let found = decode(dtype, &program.result(0)).expect("numbers");
        assert_eq!(found, expected, "{kind}");
    }
    let lines = "%x: bool[3] = Data()\n%y: float32[3] = LogicalNot(%x)\n%z: float32[3] = Not(%x)\nNetOutput(%y, %z) @out";
    let graph = parsed(Dialect::Ge, lines);
    let refused = program(&graph, &planned(&graph)).unwrap_err();
    assert!(matches!(refused, RuntimeError::Unsupported(_)), "{refused}");
}
