//! Runs a model with `tract`, which has one thread.

use std::error::Error;

use tenure_engines::{Data, Request};
use tract_onnx::prelude::*;
use tract_onnx::tract_hir::infer::Factoid;

fn main() -> Result<(), Box<dyn Error>> {
    let request = Request::read()?;
    let mut model = tract_onnx::onnx().model_for_path(&request.model)?;
    let mut inputs = tvec!();
    for (number, outlet) in model.input_outlets()?.to_vec().into_iter().enumerate() {
        let name = &model.node(outlet.node).name;
        let given = request.inputs.iter().find(|(n, _)| n == name);
        let (_, array) = given.ok_or("an input is missing")?;
        let tensor = match &array.data {
            Data::F32(data) => Tensor::from_shape(&array.dims, data)?,
            Data::I32(data) => Tensor::from_shape(&array.dims, data)?,
        };
        let kind = model.input_fact(number)?.datum_type.concretize();
        let tensor = match kind {
            Some(kind) => tensor.cast_to_dt(kind)?.into_owned(),
            None => tensor,
        };
        let fact = InferenceFact::dt_shape(tensor.datum_type(), tensor.shape());
        model.set_input_fact(number, fact)?;
        inputs.push(tensor.into_tvalue());
    }
    let plan = model.into_optimized()?.into_runnable()?;
    let outputs = request.measure(|| Ok(plan.run(inputs.clone())?))?;
    let output = outputs.first().ok_or("there is no output")?;
    let output = output.cast_to::<f32>()?;
    let numbers = output.try_as_plain_ram()?.as_slice::<f32>()?.to_vec();
    request.write(numbers)
}
