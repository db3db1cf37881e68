//! Places the buffers of a small network in one arena and draws the arena over time.
//!
//! `cargo run -p tenure-solve --example arena`

#![expect(clippy::print_stdout, reason = "an example shows its result")]

use tenure_solve::{Buffer, Config, Instance, solve};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (names, buffers): (Vec<&str>, Vec<Buffer>) = [
        ("input", Buffer::new(96, 0, 2)),
        ("conv", Buffer::new(128, 1, 4)),
        ("scratch", Buffer::new(64, 1, 2)),
        ("relu", Buffer::new(128, 2, 3)),
        ("branch", Buffer::new(64, 3, 6)),
        ("sum", Buffer::new(96, 5, 7)),
    ]
    .map(|(name, buffer)| (name, buffer.with_alignment(32)))
    .into_iter()
    .unzip();
    let instance = Instance::new(buffers)?;
    let solution = solve(&instance, &Config::default())?;

    println!("bytes     at steps 0 to 6");
    for row in (0..solution.height.div_ceil(32)).rev() {
        let cell = |step: u64| {
            let mut placed = instance.buffers().iter().zip(&solution.offsets).zip(&names);
            let holder = placed.find(|((buffer, offset), _)| {
                let bytes = **offset..**offset + buffer.size;
                (buffer.lower..buffer.upper).contains(&step) && bytes.contains(&(row * 32))
            });
            holder.map_or("", |(_, name)| name)
        };
        let cells: Vec<String> = (0..7).map(|step| format!("{:8}", cell(step))).collect();
        println!("{:4}      {}", row * 32, cells.join(""));
    }
    println!(
        "{} bytes by {}; no plan needs less than {}",
        solution.height, solution.strategy, solution.lower_bound
    );
    Ok(())
}
