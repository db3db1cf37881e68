//! `io_reuse`: outputs that are to lie in inputs.

use serde_json::Value;
use tenure_runtime::io_reuse::{check, parse};

use super::{File, get, list, number, same, text};

pub fn run(file: &File) -> Result<Vec<String>, String> {
    let part = |key: &str| file.get(key).ok_or_else(|| format!("{key:?} is missing"));
    let (pairs, _) = parse(text(part("attr")?)?);
    let mut failures = Vec::new();
    for (at, call) in list(part("calls")?)?.iter().enumerate() {
        let (inputs, outputs) = (addresses(call, "inputs")?, addresses(call, "outputs")?);
        let result = match check(&pairs, inputs.as_deref(), outputs.as_deref()) {
            Ok(()) => "ok",
            Err(_) => "invalid",
        };
        let want = text(get(call, "result")?)?;
        failures.extend(same(&format!("call {at}:"), result, want));
    }
    let want = list(get(part("expect")?, "pairs")?)?;
    let got = pairs.iter().map(|p| serde_json::json!([p.input, p.output]));
    failures.extend(same("pairs:", got.collect::<Vec<_>>(), want.to_vec()));
    Ok(failures)
}

/// The addresses of a call; an address that is left out is 0.
fn addresses(call: &Value, key: &str) -> Result<Option<Vec<u64>>, String> {
    match call.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => {
            let address = |value: &Value| match value {
                Value::Null => Ok(0),
                value => number(value),
            };
            list(value)?
                .iter()
                .map(address)
                .collect::<Result<_, _>>()
                .map(Some)
        }
    }
}
