//! `bitmap`: the table of who uses a block as far as each stream knows.

use serde_json::Value;
use tenure_runtime::allocator::Occupancy;

use super::{File, Script, Status, config, get, list, number, object, play, same};

pub fn run(file: &File) -> Result<Vec<String>, String> {
    let streams = index(get(config(file)?, "streams")?)?;
    play(file, &mut Table(Occupancy::new(streams)))
}

struct Table(Occupancy);

fn index(value: &Value) -> Result<usize, String> {
    usize::try_from(number(value)?).map_err(|e| e.to_string())
}

impl Script for Table {
    fn step(&mut self, step: &Value) -> Result<Status, String> {
        let table = &mut self.0;
        let pair = |value: &Value| {
            let pair = list(value)?.iter().map(index);
            match pair.collect::<Result<Vec<_>, _>>()?[..] {
                [a, b] => Ok((a, b)),
                _ => Err(format!("{value} is no pair")),
            }
        };
        let mut parts = object(step)?.iter().filter(|part| part.0 != "status");
        let (key, value) = parts.next().ok_or("an empty step")?;
        let done = match &**key {
            "set" => pair(value).map(|(row, stream)| table.set(row, stream, true))?,
            "clear" => pair(value).map(|(row, stream)| table.set(row, stream, false))?,
            "set_all" => table.set_all(index(value)?),
            "set_row" => table.set_row(index(value)?),
            "merge" => pair(value).map(|(from, to)| table.merge(from, to))?,
            _ => return Err(format!("there is no step {step}")),
        };
        Ok(done.map_or(Status::Error, |()| Status::Ok))
    }

    fn expect(&mut self, key: &str, want: &Value) -> Result<Vec<String>, String> {
        if key != "rows" {
            return Ok(vec!["cannot be judged".to_owned()]);
        }
        let mut missed = Vec::new();
        for (row, want) in object(want)? {
            let number = row.parse().map_err(|e| format!("{row}: {e}"))?;
            let want = list(want)?.iter().map(index).collect::<Result<_, _>>()?;
            missed.extend(same(row, self.0.row(number).collect::<Vec<_>>(), want));
        }
        Ok(missed)
    }
}
