//! Small readers of `expect`, and the rule that a key that nobody judged is a failure.

use serde_json::{Map, Value};

/// Collects what does not hold, and which keys were judged.
pub struct Judge<'a> {
    expect: &'a Map<String, Value>,
    judged: Vec<&'static str>,
    failures: Vec<String>,
}

impl<'a> Judge<'a> {
    /// A judge of all keys of `expect`; `run` needs no judging.
    #[must_use]
    pub fn new(expect: &'a Map<String, Value>) -> Self {
        Judge {
            expect,
            judged: vec!["run"],
            failures: Vec::new(),
        }
    }

    /// The value of `key`, which counts as judged from now on.
    pub fn take(&mut self, key: &'static str) -> Option<&'a Value> {
        self.judged.push(key);
        self.expect.get(key)
    }

    /// The number under `key`.
    pub fn number(&mut self, key: &'static str) -> Option<u64> {
        self.take(key)?.as_u64()
    }

    /// What is listed under `key`; anything but a list is a failure.
    pub fn list(&mut self, key: &'static str) -> &'a [Value] {
        match self.take(key) {
            None => &[],
            Some(Value::Array(list)) => list,
            Some(other) => {
                self.fail(format!("{key}: {other} is no list"));
                &[]
            }
        }
    }

    /// The pairs of names under `key`.
    pub fn pairs(&mut self, key: &'static str) -> Vec<(&'a str, &'a str)> {
        self.list(key)
            .iter()
            .filter_map(|pair| Some((pair.get(0)?.as_str()?, pair.get(1)?.as_str()?)))
            .collect()
    }

    /// Notes a failure.
    pub fn fail(&mut self, reason: impl Into<String>) {
        self.failures.push(reason.into());
    }

    /// Notes a failure unless `got` is what `key` expects.
    pub fn equal(&mut self, key: &'static str, got: u64) {
        if let Some(want) = self.number(key)
            && want != got
        {
            self.fail(format!("{key}: expected {want}, got {got}"));
        }
    }

    /// Everything that does not hold; keys that were never looked at are among it.
    #[must_use]
    pub fn failures(mut self) -> Vec<String> {
        for key in self.expect.keys() {
            if !self.judged.contains(&key.as_str()) {
                self.failures.push(format!("`{key}` cannot be judged yet"));
            }
        }
        self.failures
    }
}
