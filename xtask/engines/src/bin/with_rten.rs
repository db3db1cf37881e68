//! Runs a model with `rten` on one thread.

use std::error::Error;
use std::sync::Arc;

use rten::{ModelOptions, RunOptions, ThreadPool, Value};
use rten_tensor::Tensor;
use rten_tensor::prelude::*;
use tenure_engines::{Data, Request};

fn main() -> Result<(), Box<dyn Error>> {
    let request = Request::read()?;
    let model = ModelOptions::with_all_ops().load_file(&request.model)?;
    let pool = Arc::new(ThreadPool::with_num_threads(1));
    let options = RunOptions::default().with_thread_pool(Some(pool));
    let mut inputs: Vec<(_, Value)> = Vec::new();
    for (name, array) in &request.inputs {
        let node = model.find_node(name).ok_or("there is no such input")?;
        let value = match &array.data {
            Data::F32(data) => Tensor::from_data(&array.dims, data.clone()).into(),
            Data::I32(data) => Tensor::from_data(&array.dims, data.clone()).into(),
        };
        inputs.push((node, value));
    }
    let outputs = request.measure(|| {
        let inputs = inputs
            .iter()
            .map(|(node, value)| (*node, value.as_view().into()));
        let inputs = inputs.collect();
        Ok(model.run(inputs, model.output_ids(), Some(options.clone()))?)
    })?;
    match outputs.first() {
        Some(Value::FloatTensor(tensor)) => request.write(tensor.iter().copied()),
        _ => Err("the first output is not of float32".into()),
    }
}
