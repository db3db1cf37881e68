//! Writes the report of a made-up plan to standard output, to look at the page without a model:
//!
//! ```text
//! cargo run -p tenure-report --example sample -- 1000 > sample.html
//! ```
//!
//! The plan is shaped like a network of residual blocks, its storages placed first-fit. The
//! number is how many storages it has; with `hostile` as second argument their names are long and
//! full of markup.

use std::io::Write;

use tenure_graph::plan::{Arena, PlanOptions};
use tenure_graph::plan_file::{
    CheckBlock, FORMAT, FileMember, FileStep, FileStorage, MemberKind, ModelIdentity, PlanFile,
    Summary,
};
use tenure_report::{ReportModel, html};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let count: u32 = args.next().map_or(Ok(100), |n| n.parse())?;
    let hostile = args.next().is_some_and(|a| a == "hostile");
    let warnings = vec!["This plan is made up: no model stands behind it.".to_owned()];
    let model = ReportModel::new(plan(count, hostile), warnings)?;
    std::io::stdout().write_all(html::page(&model).as_bytes())?;
    Ok(())
}

fn plan(count: u32, hostile: bool) -> PlanFile {
    let node = |step: u32| {
        let op = ["Conv", "Relu", "Conv", "Add"][step as usize % 4];
        let name = format!("/layer{}/block{}/{op}", step / 24 + 1, step / 4 % 6);
        if hostile {
            format!(
                "{name}</script><img src=x onerror=alert(1)>\u{202e}\"'{}",
                "x".repeat(10_000)
            )
        } else {
            format!("{name}_{step}")
        }
    };
    let mut storages: Vec<FileStorage> = Vec::new();
    let mut held: Vec<(u64, u64, u32)> = Vec::new();
    let mut state = 7u64;
    for step in 0..count {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let chance = u32::try_from(state >> 33).unwrap_or(0);
        let size = 4096 * u64::from(1 + chance % 61) * if chance % 16 == 0 { 4 } else { 1 };
        let reach = if step % 4 == 0 { 4 } else { 1 + chance % 2 };
        let last = (step + reach).min(count - 1);
        held.retain(|&(_, _, last)| last >= step);
        held.sort_unstable();
        let mut offset = 0;
        for &(start, end, _) in &held {
            if start >= offset + size {
                break;
            }
            offset = offset.max(end);
        }
        held.push((offset, offset + size, last));
        let kind = match step {
            0 => MemberKind::Input,
            _ if step + 1 == count => MemberKind::Output,
            _ if chance % 11 == 0 => MemberKind::Workspace,
            _ => MemberKind::Intermediate,
        };
        let name = format!("{}_output_0", node(step));
        storages.push(FileStorage {
            name: name.clone(),
            arena: Some(0),
            offset,
            size,
            align: 64,
            first: step,
            last,
            spans: Vec::new(),
            values: vec![FileMember {
                name,
                kind,
                offset: 0,
                bytes: size,
                dtype: "float32".into(),
                shape: format!("[1, {}, 32, 32]", size / 4096),
                producer: format!("{} (Conv)", node(step)),
                last_reader: format!("{} (Add)", node(last)),
            }],
        });
    }
    let size = storages
        .iter()
        .map(|s| s.offset + s.size)
        .max()
        .unwrap_or(0);
    let no_reuse = storages.iter().map(|s| s.size).sum();
    PlanFile {
        format: FORMAT.to_owned(),
        model: ModelIdentity {
            path: String::new(),
            name: if hostile {
                "</title><script>alert(1)</script>".repeat(20)
            } else {
                "sample".to_owned()
            },
            format: "onnx".to_owned(),
            nodes: count as usize,
            values: count as usize,
            sha256: String::new(),
        },
        options: PlanOptions::default(),
        arenas: vec![Arena {
            kind: "device".to_owned(),
            size,
            align: 64,
            lower_bound: peak(&storages, count),
            proven_optimal: false,
            no_reuse,
        }],
        guard: tenure_graph::changes::Changes::default(),
        steps: (0..count)
            .map(|step| FileStep {
                node: node(step),
                phase: "run".into(),
                stream: Some(0),
                waits: Default::default(),
                records: Default::default(),
            })
            .collect(),
        storages,
        copies: Vec::new(),
        folded: Vec::new(),
        dynamic: Vec::new(),
        strategy: "first-fit".to_owned(),
        summary: Summary {
            constants: 102_442_450,
            intermediates: no_reuse,
            ..Summary::default()
        },
        check: CheckBlock::default(),
    }
}

/// The greatest load.
fn peak(storages: &[FileStorage], steps: u32) -> u64 {
    let mut change = vec![0i128; steps as usize + 1];
    for s in storages {
        change[s.first as usize] += i128::from(s.size);
        change[s.last as usize + 1] -= i128::from(s.size);
    }
    let loads = change.iter().scan(0, |held, c| {
        *held += c;
        Some(*held)
    });
    loads
        .max()
        .and_then(|max| u64::try_from(max).ok())
        .unwrap_or(0)
}
