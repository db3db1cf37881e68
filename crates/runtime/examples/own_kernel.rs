//! An operator of one's own in Rust: a kernel that is made for its node and runs in the plan.

use tenure_graph::effects::OpTable;
use tenure_graph::plan::PlanOptions;
use tenure_graph::text;
use tenure_runtime::kernels::{Call, Kernel};
use tenure_runtime::numbers::{decode, encode};
use tenure_runtime::{Kernels, Layout, Program};

/// `y = x + n`, where `n` is an attribute of the node.
struct Shift(f64);

impl Kernel for Shift {
    fn run(&mut self, call: &mut Call<'_>) -> Result<(), String> {
        let x: &[f64] = call.read(0);
        for (y, x) in call.write::<f64>(0).iter_mut().zip(x) {
            *y = x + self.0;
        }
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let graph = text::parse(
        "model m onnx
graph ^root {
  %x: float64[2] = Data()
  %y: float64[2] = example::Shift(%x) {n = 10.0}
  NetOutput(%y) @out
}
",
    )?;
    let table = OpTable::builtin(graph.dialect);
    let config = tenure_plan::Config::default();
    let plan = tenure_plan::plan(&graph, &table, &PlanOptions::default(), &config)?.plan;
    let plan = tenure_check::check(&graph, &table, &plan).map_err(|v| v[0].to_string())?;

    let mut kernels = Kernels::builtin();
    kernels.add("example", "Shift", |site| {
        Ok(Box::new(Shift(site.float("n", 0.0))))
    });
    let mut program = Program::new(&graph, &table, &plan, &kernels, Layout::Planned)?;
    let dtype = program.inputs()[0].dtype;
    program.run(&[&encode(dtype, [1.0, 2.0]).ok_or("numbers")?])?;
    match decode(dtype, &program.result(0)).as_deref() {
        Some([11.0, 12.0]) => Ok(()),
        other => Err(format!("the result is {other:?}").into()),
    }
}

#[test]
fn it_runs() {
    main().expect("the result of the operator");
}
