//! `pool`: one layer of pages on a device.

use std::collections::HashMap;
use std::ops::Range;

use serde_json::Value;
use tenure_runtime::allocator::pages::{PageError, PagePool, PageRules, SpanId, Split};
use tenure_runtime::allocator::{Bottom, Budget};

use super::{File, Script, Status, config, get, list, number, object, play, same, text};

pub fn run(file: &File) -> Result<Vec<String>, String> {
    let config = config(file)?;
    let option = |key: &str| config.get(key).map(number).transpose();
    let usual = PageRules::default();
    let rules = PageRules {
        page: option("page")?.unwrap_or(usual.page),
        threshold: option("threshold")?,
        least_piece: option("huge")?.unwrap_or(usual.least_piece),
        split: match option("lift")? {
            Some(0) => Split::Never,
            _ => usual.split,
        },
    };
    let mut pool = Pool {
        pool: PagePool::new(rules),
        device: Budget::new(option("device_bytes")?),
        spans: HashMap::new(),
        many: HashMap::new(),
    };
    play(file, &mut pool)
}

struct Pool {
    pool: PagePool,
    device: Budget,
    /// The last span of each name, and where it was.
    spans: HashMap<String, (SpanId, Range<u64>)>,
    /// How many spans have a name with a number behind it.
    many: HashMap<String, u64>,
}

impl Pool {
    fn alloc(&mut self, name: String, bytes: u64) -> Result<Status, String> {
        match self
            .pool
            .alloc(bytes, &mut Bottom::new(&mut self.device, u64::MAX))
        {
            Ok(span) => {
                let range = self.pool.range(span).map_err(|e| e.to_string())?;
                self.spans.insert(name, (span, range));
                Ok(Status::Ok)
            }
            Err(error) => Ok(status(error)),
        }
    }

    fn named(&self, name: &str) -> Result<&(SpanId, Range<u64>), String> {
        let span = self.spans.get(name);
        span.ok_or_else(|| format!("there is no span {name:?}"))
    }

    /// The address that a name has or had.
    fn address(&self, name: &Value) -> Result<u64, String> {
        Ok(self.named(text(name)?)?.1.start)
    }

    fn free(&mut self, name: &str) -> Result<Status, String> {
        let span = self.named(name)?.0;
        Ok(done(self.pool.free(span, 0)))
    }
}

fn status(error: PageError) -> Status {
    match error {
        PageError::NoMemory { .. } | PageError::OverThreshold { .. } | PageError::Part => {
            Status::Fail
        }
        PageError::NotHeld | PageError::Leak { .. } => Status::Error,
    }
}

fn done<T>(result: Result<T, PageError>) -> Status {
    result.map_or_else(status, |_| Status::Ok)
}

impl Script for Pool {
    fn step(&mut self, step: &Value) -> Result<Status, String> {
        let name = |key: &str| step.get(key).map(text).transpose();
        if let Some(name) = name("alloc")? {
            return self.alloc(name.to_owned(), number(get(step, "size")?)?);
        }
        if let Some(name) = name("free")? {
            return self.free(name);
        }
        if let Some(name) = name("addref")? {
            let span = self.named(name)?.0;
            return Ok(done(self.pool.share(span)));
        }
        if let Some(name) = name("move_out")? {
            let span = self.named(name)?.0;
            return Ok(done(self.pool.move_out(span)));
        }
        if let Some(name) = name("alloc_many")? {
            let (count, bytes) = (number(get(step, "count")?)?, number(get(step, "size")?)?);
            self.many.insert(name.to_owned(), count);
            for i in 0..count {
                let status = self.alloc(format!("{name}{i}"), bytes)?;
                if status != Status::Ok {
                    return Ok(status);
                }
            }
            return Ok(Status::Ok);
        }
        if let Some(name) = name("free_many")? {
            for i in 0..self.many.get(name).copied().unwrap_or(0) {
                let status = self.free(&format!("{name}{i}"))?;
                if status != Status::Ok {
                    return Ok(status);
                }
            }
            return Ok(Status::Ok);
        }
        let below = &mut Bottom::new(&mut self.device, u64::MAX);
        if step.get("recycle").is_some() {
            self.pool.recycle(u64::MAX, below);
            return Ok(Status::Ok);
        }
        if step.get("finalize").is_some() {
            return Ok(done(self.pool.finalize(below)));
        }
        Err(format!("there is no step {step}"))
    }

    fn expect(&mut self, key: &str, want: &Value) -> Result<Vec<String>, String> {
        let stats = self.pool.stats();
        let counter = match key {
            "idle_spans" => Some(stats.idle_spans),
            "idle_pages" => Some(stats.idle_pages),
            "occupied_spans" => Some(stats.held_spans),
            "occupied_pages" => Some(stats.held_pages),
            "from_below" => Some(self.pool.from_below()),
            _ => None,
        };
        if let Some(counter) = counter {
            return Ok(same("", counter, number(want)?));
        }
        let mut missed = Vec::new();
        match key {
            "pages" => {
                for (name, want) in object(want)? {
                    let start = self.named(name)?.1.start;
                    let mut spans = self.pool.spans().map(|s| s.0);
                    let span = spans.find(|range| range.start == start);
                    let pages = span.map(|r| (r.end - r.start) / self.pool.page());
                    missed.extend(same(name, pages, Some(number(want)?)));
                }
            }
            "offset" => {
                for want in list(want)? {
                    let address = |i| self.address(get_at(want, i)?);
                    let offset = address(0)?.checked_sub(address(1)?);
                    let want = number(get_at(want, 2)?)?;
                    missed.extend(same("", offset, Some(want)));
                }
            }
            "same_address" => {
                for want in list(want)? {
                    let address = |i| self.address(get_at(want, i)?);
                    missed.extend(same("", address(0)?, address(1)?));
                }
            }
            "idle_of" => {
                for (pages, want) in object(want)? {
                    let count = pages.parse().map_err(|e| format!("{pages}: {e}"))?;
                    missed.extend(same(pages, self.pool.idle_of(count), number(want)?));
                }
            }
            "device" => {
                let counts = self.device.counts();
                for (key, want) in object(want)? {
                    let got = match &**key {
                        "mallocs" => counts.takes,
                        "frees" => counts.returns,
                        "used" => counts.used,
                        _ => return Err(format!("there is no counter {key:?}")),
                    };
                    missed.extend(same(key, got, number(want)?));
                }
            }
            _ => missed.push("cannot be judged".to_owned()),
        }
        Ok(missed)
    }
}

fn get_at(list: &Value, at: usize) -> Result<&Value, String> {
    let value = list.get(at);
    value.ok_or_else(|| format!("{list} has no element {at}"))
}
