//! Small models with the numbers that they give by the operators' rules, planned as users plan them:
//! shapes are inferred, constants folded, and what has no size is pooled.

use tenure_graph::effects::OpTable;
use tenure_graph::plan::PlanOptions;
use tenure_graph::shapes::Bindings;
use tenure_graph::{DType, text};
use tenure_plan::{Config, Watch};
use tenure_runtime::numbers::{decode, encode};
use tenure_runtime::session::{Contents, Session};
use tenure_runtime::{Kernels, Layout, Program};

/// Dimensions and numbers of each result.
type Results = Vec<(Vec<u64>, Vec<f64>)>;

fn run(lines: &str, inputs: &[(DType, &[f64])]) -> Results {
    let source = format!("model m onnx opsets [\"\" 17]\ngraph ^main {{\n{lines}\n}}\n");
    let graph = text::parse(&source).unwrap_or_else(|error| panic!("{error}\n{source}"));
    let table = OpTable::builtin(graph.dialect);
    let mut session = Session::new(graph, &table, PlanOptions::default(), Config::default());
    let shaped = session.plan(&Bindings::default(), &Contents::new(), &Watch::default());
    let shaped = shaped.unwrap_or_else(|error| panic!("{error}\n{source}"));
    let (graph, plan) = (&shaped.graph, &shaped.plan);
    let program = Program::new(graph, &table, plan, &Kernels::builtin(), Layout::Planned);
    let mut program = program.unwrap_or_else(|error| panic!("{error}\n{source}"));
    let inputs: Vec<Vec<u8>> = (inputs.iter())
        .map(|(dtype, numbers)| encode(*dtype, numbers.iter().copied()).expect("numbers"))
        .collect();
    let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
    let ran = program.run(&inputs);
    ran.unwrap_or_else(|error| panic!("{error}\n{source}"));
    let results = program.results().iter().enumerate();
    let results = results.map(|(i, tensor)| {
        let dims = program.result_dims(i).expect("a result");
        let numbers = decode(tensor.dtype, &program.result(i)).expect("numbers");
        (dims, numbers)
    });
    results.collect()
}

/// Sums and products of small floats are those of float32, rounded once.
#[test]
fn small_floats_are_taken_together_in_float32() {
    for (dtype, name) in [(DType::F16, "float16"), (DType::BF16, "bfloat16")] {
        let ones = [1.0; 4096];
        let found = run(
            &format!(
                "  %x: {name}[4096] = Data()
  %axis: int64 = Const() {{value = int64[] [0]}}
  %e: {name}[] = Einsum(%x, %x) {{equation = \"i,i->\"}}
  %c: {name}[4096] = CumSum(%x, %axis)
  NetOutput(%e, %c) @out"
            ),
            &[(dtype, &ones)],
        );
        assert_eq!(found[0].1, [4096.0], "{name}");
        assert_eq!(found[1].1.last(), Some(&4096.0), "{name}");

        // As products of two these are beyond float16, and the sum of two as well.
        let found = run(
            &format!(
                "  %x: {name}[4] = Data()
  %y: {name}[2] = Data()
  %p: {name}[] = ReduceProd(%x) {{keepdims = 0}}
  %m: {name}[2] = Mean(%y, %y, %y)
  NetOutput(%p, %m) @out"
            ),
            &[(dtype, &[512.0, 512.0, 0.25, 0.25]), (dtype, &[57344.0; 2])],
        );
        assert_eq!(found[0].1, [16384.0], "{name}");
        assert_eq!(found[1].1, [57344.0; 2], "{name}");

        // 256 and 2048 are where a 1 is lost that is added alone.
        let large = if dtype == DType::F16 { 2048.0 } else { 256.0 };
        let found = run(
            &format!(
                "  %x: {name}[2, 1] = Data()
  %y: {name}[1] = Data()
  %s: {name}[2, 1] = Sum(%x, %y, %y)
  NetOutput(%s) @out"
            ),
            &[(dtype, &[large, 0.0]), (dtype, &[1.0])],
        );
        assert_eq!(found[0].1, [large + 2.0, 2.0], "{name}");
    }
}

/// A start before the tensor is its first element, also backwards.
#[test]
fn a_slice_begins_within_the_tensor() {
    for (start, end, expected) in [
        (-4, -4, vec![1.0]),
        (-4, 0, vec![]),
        (9, -9, vec![2.0, 1.0]),
        (0, -9, vec![1.0]),
    ] {
        let found = run(
            &format!(
                "  %x: float32[2] = Data()
  %s: int64[1] = Const() {{value = int64[1] [{start}]}}
  %e: int64[1] = Const() {{value = int64[1] [{end}]}}
  %a: int64[1] = Const() {{value = int64[1] [0]}}
  %d: int64[1] = Const() {{value = int64[1] [-1]}}
  %y: float32[?] = Slice(%x, %s, %e, %a, %d)
  NetOutput(%y) @out"
            ),
            &[(DType::F32, &[1.0, 2.0])],
        );
        let expected = (vec![expected.len() as u64], expected);
        assert_eq!(found[0], expected, "{start} to {end}");
    }
}

/// One tensor is cut into slices several times, each time along an axis and in a direction of its own;
/// also where its size is known only during the run.
#[test]
fn a_scan_may_read_one_tensor_in_several_ways() {
    for (first, second) in [(0, 1), (1, 0)] {
        for (kind, size) in [("Relu", "2, 2"), ("Relu", "?, ?"), ("Compress", "?, 2")] {
            let read = match kind {
                "Relu" => "Relu(%x)",
                _ => "Compress(%x, %all) {axis = 0}",
            };
            let found = run(
                &format!(
                    "  %x: float32[2, 2] = Data()
  %all: bool[2] = Data()
  %r: float32[{size}] = {read}
  %zero: float32[2] = Const() {{value = float32[2] [0.0, 0.0]}}
  %s: float32[2], %a: float32[?, 2], %b: float32[?, 2], %c: float32[?, 2] = Scan(%zero, %r, %r, %r) {{num_scan_inputs = 3, scan_input_axes = [0, 0, 1], scan_input_directions = [{first}, {second}, 0]}}
    body ^body {{
      %t: float32[2] = Data()
      %p: float32[2] = Data()
      %q: float32[2] = Data()
      %w: float32[2] = Data()
      %u: float32[2] = Add(%t, %p)
      %i: float32[2] = Identity(%p)
      %j: float32[2] = Identity(%q)
      %k: float32[2] = Identity(%w)
      NetOutput(%u, %i, %j, %k) @results
    }}
  NetOutput(%s, %a, %b, %c) @out"
                ),
                &[(DType::F32, &[1.0, 2.0, 3.0, 4.0]), (DType::Bool, &[1.0, 1.0])],
            );
            let rows = |backwards: i32| match backwards {
                0 => vec![1.0, 2.0, 3.0, 4.0],
                _ => vec![3.0, 4.0, 1.0, 2.0],
            };
            let numbers: Vec<Vec<f64>> = found.into_iter().map(|(_, n)| n).collect();
            let expected = [
                vec![4.0, 6.0],
                rows(first),
                rows(second),
                vec![1.0, 3.0, 2.0, 4.0],
            ];
            assert_eq!(numbers, expected, "{kind} {first} {second}");
        }
    }
}

/// What the contents of constants decide is computed in the run, and not folded: nobody knows its size
/// when the plan is made.
#[test]
fn data_of_constants_may_decide_sizes() {
    let found = run(
        "  %x: float32[2] = Data()
  %k: float32[4] = Const() {value = float32[4] [0.0, 2.0, 0.0, 3.0]}
  %n: int64[1, ?] = NonZero(%k)
  %axis: int64[1] = Const() {value = int64[1] [0]}
  %f: int64[?] = Squeeze(%n, %axis)
  %c: float32[?] = Cast(%f) {to = 1}
  %y: float32[?] = Mul(%x, %c)
  NetOutput(%y, %n) @out",
        &[(DType::F32, &[1.0, 10.0])],
    );
    assert_eq!(found[0], (vec![2], vec![1.0, 30.0]));
    assert_eq!(found[1], (vec![1, 2], vec![1.0, 3.0]));
}

/// A kernel that has nothing to read writes zeros, and leaves nothing of what was there.
#[test]
fn outputs_of_nothing_are_zeros() {
    for line in [
        "%y: float32[1, 2, 1, 1] = GlobalAveragePool(%x)",
        "%y: float32[1, 2, 1, 1] = GlobalMaxPool(%x)",
        "%y: float32[1, 2, 1, 1] = GlobalLpPool(%x)",
    ] {
        let source = format!(
            "model m onnx opsets [\"\" 17]
graph ^main {{
  %x: float32[1, 2, 0, 3] = Data()
  {line}
  NetOutput(%y) @out
}}"
        );
        let graph = text::parse(&source).expect("a model");
        let table = OpTable::builtin(graph.dialect);
        let plan = tenure_plan::plan(&graph, &table, &PlanOptions::default(), &Config::default());
        let plan = tenure_check::check(&graph, &table, &plan.expect("a plan").plan);
        let plan = plan.expect("right");
        let program = Program::new(&graph, &table, &plan, &Kernels::builtin(), Layout::Planned);
        // A kernel may refuse, but must not show what was there.
        let Ok(mut program) = program else { continue };
        program.poison(0x7f);
        program.run(&[&[]]).expect("a run");
        let found = decode(DType::F32, &program.result(0)).expect("numbers");
        let (poison, inf) = (f64::from(f32::from_bits(0x7f7f_7f7f)), f64::NEG_INFINITY);
        assert!(found.iter().all(|&n| n != poison), "{line}: {found:?}");
        assert!(
            found.iter().all(|&n| n == 0.0 || n == inf || n.is_nan()),
            "{line}: {found:?}"
        );
    }
}

/// Regions of images, as ONNX Runtime has them.
#[test]
fn regions_are_brought_to_one_size() {
    let image: Vec<f64> = (0..16).map(f64::from).collect();
    let run = |attrs: &str, roi: [f64; 4]| {
        let lines = format!(
            "  %x: float32[1, 1, 4, 4] = Data()
  %r: float32[1, 4] = Data()
  %b: int64[1] = Const() {{value = int64[1] [0]}}
  %y: float32[1, 1, 2, 2] = RoiAlign(%x, %r, %b) {{output_height = 2, output_width = 2, {attrs}}}
  NetOutput(%y) @out"
        );
        run(&lines, &[(DType::F32, &image), (DType::F32, &roi)])
            .remove(0)
            .1
    };
    let whole = [0.0, 0.0, 4.0, 4.0];
    // Means of quarters: of the elements themselves, or of places half an element further.
    assert_eq!(run("sampling_ratio = 2", whole), [2.5, 4.5, 10.5, 12.5]);
    let old = "sampling_ratio = 1, coordinate_transformation_mode = \"output_half_pixel\"";
    assert_eq!(run(old, whole), [5.0, 7.0, 13.0, 15.0]);
    assert_eq!(
        run("sampling_ratio = 1, spatial_scale = 0.5", whole),
        [0.0, 1.0, 4.0, 5.0]
    );
    // Outside there is nothing.
    assert_eq!(
        run("sampling_ratio = 0", [-9.0, -9.0, -7.0, -7.0]),
        [0.0; 4]
    );
}

/// A result with one axis twice is refused, and not computed.
#[test]
fn an_axis_twice_in_a_result_is_refused() {
    let source = "model m onnx opsets [\"\" 17]
graph ^main {
  %x: float32[2] = Data()
  %y: float32[2, 2] = Einsum(%x) {equation = \"i->ii\"}
  NetOutput(%y) @out
}";
    let graph = text::parse(source).expect("a model");
    let table = OpTable::builtin(graph.dialect);
    let plan = tenure_plan::plan(&graph, &table, &PlanOptions::default(), &Config::default());
    let plan = tenure_check::check(&graph, &table, &plan.expect("a plan").plan).expect("right");
    let program = Program::new(&graph, &table, &plan, &Kernels::builtin(), Layout::Planned);
    let error = program.map(drop).expect_err("no such result").to_string();
    assert!(error.contains("has an axis twice"), "{error}");
}

/// The body ends a loop, whether that has a condition to begin with or not.
#[test]
fn a_body_may_end_a_loop_before_its_trip_count() {
    for condition in ["_", "%go"] {
        let found = run(
            &format!(
                "  %x: float32[1] = Data()
  %n: int64 = Const() {{value = int64[] [5]}}
  %go: bool = Const() {{value = bool[] [true]}}
  %last: float32[1], %all: float32[?, 1] = Loop(%n, {condition}, %x)
    body ^body {{
      %i: int64[] = Data()
      %c: bool[] = Data()
      %s: float32[1] = Data()
      %t: float32[1] = Add(%s, %s)
      %most: float32[1] = Const() {{value = float32[1] [3.0]}}
      %less: bool[1] = Less(%t, %most)
      %axis: int64[1] = Const() {{value = int64[1] [0]}}
      %on: bool[] = Squeeze(%less, %axis)
      %o: float32[1] = Identity(%t)
      NetOutput(%on, %t, %o) @results
    }}
  NetOutput(%last, %all) @out"
            ),
            &[(DType::F32, &[1.0])],
        );
        assert_eq!(found[0], (vec![1], vec![4.0]), "{condition}");
        assert_eq!(found[1], (vec![2, 1], vec![2.0, 4.0]), "{condition}");
    }
}
