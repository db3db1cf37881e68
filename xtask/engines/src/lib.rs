//! What the engines have in common: how they are called, and arrays in NumPy's files as far as the
//! benchmark writes them.

use std::error::Error;
use std::time::Instant;

/// What an engine was asked for: `MODEL RUNS OUTPUT.npy [NAME=FILE.npy]…`.
pub struct Request {
    /// The model's file.
    pub model: String,
    /// Runs after the first.
    pub runs: usize,
    /// The file of the first output.
    pub output: String,
    /// Inputs by name.
    pub inputs: Vec<(String, Array)>,
}

impl Request {
    /// The request of the command line.
    pub fn read() -> Result<Self, Box<dyn Error>> {
        let mut args = std::env::args().skip(1);
        let mut next = || args.next().ok_or("MODEL RUNS OUTPUT.npy [NAME=FILE.npy]…");
        let (model, runs, output) = (next()?, next()?.parse()?, next()?);
        let mut inputs = Vec::new();
        for given in args {
            let (name, file) = given.rsplit_once('=').ok_or("NAME=FILE.npy")?;
            inputs.push((name.to_owned(), Array::read(file)?));
        }
        Ok(Request {
            model,
            runs,
            output,
            inputs,
        })
    }

    /// Runs a model as often as was asked for, and prints the milliseconds of the shortest run.
    /// Gives what the last one gave.
    pub fn measure<T>(
        &self,
        mut run: impl FnMut() -> Result<T, Box<dyn Error>>,
    ) -> Result<T, Box<dyn Error>> {
        let mut least = f64::MAX;
        let mut result = None;
        for _ in 0..=self.runs {
            let start = Instant::now();
            result = Some(run()?);
            least = least.min(start.elapsed().as_secs_f64());
        }
        println!("{}", 1000.0 * least);
        result.ok_or_else(|| "there was no run".into())
    }

    /// Writes the first output.
    pub fn write(&self, numbers: impl IntoIterator<Item = f32>) -> Result<(), Box<dyn Error>> {
        let body: Vec<u8> = numbers.into_iter().flat_map(f32::to_le_bytes).collect();
        let count = body.len() / 4;
        let mut header =
            format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({count},), }}");
        while !(header.len() + 11).is_multiple_of(64) {
            header.push(' ');
        }
        header.push('\n');
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend(u16::try_from(header.len())?.to_le_bytes());
        bytes.extend(header.bytes());
        bytes.extend(body);
        Ok(std::fs::write(&self.output, bytes)?)
    }
}

/// An array.
pub struct Array {
    /// Its dimensions.
    pub dims: Vec<usize>,
    /// Its elements.
    pub data: Data,
}

/// Elements of an array.
pub enum Data {
    /// Of float32.
    F32(Vec<f32>),
    /// Whole numbers of 32 bits, or of 64 that have as few.
    I32(Vec<i32>),
}

impl Array {
    fn read(file: &str) -> Result<Self, Box<dyn Error>> {
        let bytes = std::fs::read(file)?;
        let (start, rest) = bytes.split_at_checked(10).ok_or("no array")?;
        let header = usize::from(u16::from_le_bytes([start[8], start[9]]));
        let (header, body) = rest.split_at_checked(header).ok_or("no array")?;
        let header = std::str::from_utf8(header)?;
        let dims = header
            .split_once('(')
            .and_then(|(_, rest)| rest.split_once(')'));
        let dims = dims.ok_or("no shape")?.0.split(',');
        let dims = dims.filter_map(|d| d.trim().parse().ok()).collect();
        let words = || body.chunks_exact(4).map(|b| [b[0], b[1], b[2], b[3]]);
        let data = if header.contains("'<f4'") {
            Data::F32(words().map(f32::from_le_bytes).collect())
        } else if header.contains("'<i4'") {
            Data::I32(words().map(i32::from_le_bytes).collect())
        } else if header.contains("'<i8'") {
            Data::I32(words().step_by(2).map(i32::from_le_bytes).collect())
        } else {
            return Err(format!("elements of another type: {header}").into());
        };
        Ok(Array { dims, data })
    }
}
