//! Scripts of memory bookkeeping and tables of rules (`tenure.runtime/1`), a file for each kind.
//!
//! These files only say things in the product's words; the rules are in `tenure-runtime`.

mod bitmap;
mod branch;
mod events;
mod io_reuse;
mod placement;
mod pool;
mod streams;

use serde_json::{Map, Value};

/// A case.
pub type File = Map<String, Value>;

/// Runs the case, and gives back what does not hold.
pub fn run(file: &File) -> Vec<String> {
    let ran = match file.get("kind").and_then(Value::as_str) {
        Some("bitmap") => bitmap::run(file),
        Some("branch") => branch::run(file),
        Some("events") => events::run(file),
        Some("io_reuse") => io_reuse::run(file),
        Some("placement") => placement::run(file),
        Some("pool") => pool::run(file),
        Some("streams") => streams::run(file),
        kind => Err(format!("there is no kind {kind:?} of runtime cases")),
    };
    ran.unwrap_or_else(|reason| vec![reason])
}

/// The member `key` of an object.
fn get<'a>(object: &'a Value, key: &str) -> Result<&'a Value, String> {
    let value = object.get(key);
    value.ok_or_else(|| format!("{key:?} is missing in {object}"))
}

fn number(value: &Value) -> Result<u64, String> {
    let number = value.as_u64();
    number.ok_or_else(|| format!("{value} is no number"))
}

fn stream(value: &Value) -> Result<u32, String> {
    let number = number(value)?;
    u32::try_from(number).map_err(|e| format!("{number}: {e}"))
}

fn text(value: &Value) -> Result<&str, String> {
    let text = value.as_str();
    text.ok_or_else(|| format!("{value} is no text"))
}

fn list(value: &Value) -> Result<&[Value], String> {
    let list = value.as_array();
    let list = list.ok_or_else(|| format!("{value} is no list"))?;
    Ok(list)
}

fn object(value: &Value) -> Result<&Map<String, Value>, String> {
    let object = value.as_object();
    object.ok_or_else(|| format!("{value} is no object"))
}

fn streams_of(value: &Value) -> Result<Vec<u32>, String> {
    list(value)?.iter().map(stream).collect()
}

/// The key `config` of a script.
fn config(file: &File) -> Result<&Value, String> {
    let config = file.get("config");
    config.ok_or_else(|| "\"config\" is missing".to_owned())
}

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    /// It did what it says.
    Ok,
    /// There was no memory.
    Fail,
    /// It was refused as a wrong call.
    Error,
}

/// A script and what it runs on.
trait Script {
    /// Does one step. `Err` is a step that makes no sense.
    fn step(&mut self, step: &Value) -> Result<Status, String>;

    /// One expectation; what does not hold.
    fn expect(&mut self, key: &str, want: &Value) -> Result<Vec<String>, String>;
}

/// Runs all steps of a script, and gives back what does not hold.
fn play(file: &File, script: &mut impl Script) -> Result<Vec<String>, String> {
    let steps = file.get("steps").and_then(Value::as_array);
    let steps = steps.ok_or("\"steps\" is missing")?;
    let mut failures = Vec::new();
    for (at, step) in steps.iter().enumerate() {
        let said = |e: String| format!("step {at}: {e}");
        if let Some(wants) = step.get("expect") {
            for (key, want) in object(wants).map_err(said)? {
                let missed = script.expect(key, want).map_err(said)?;
                failures.extend(missed.into_iter().map(|m| format!("step {at}: {key}: {m}")));
            }
            continue;
        }
        let want = match step.get("status").and_then(Value::as_str) {
            None | Some("ok") => Status::Ok,
            Some("fail") => Status::Fail,
            Some("error") => Status::Error,
            Some(other) => return Err(format!("step {at}: there is no status {other:?}")),
        };
        let got = script.step(step).map_err(said)?;
        if got != want {
            failures.push(format!("step {at}: {step} was {got:?}"));
            return Ok(failures);
        }
    }
    Ok(failures)
}

/// Says so when two things differ.
fn same<T: PartialEq + std::fmt::Debug>(what: &str, got: T, want: T) -> Vec<String> {
    if got == want {
        Vec::new()
    } else {
        vec![format!("{what} expected {want:?}, got {got:?}")]
    }
}
