//! Damaged files of every kind through every reader: no panic, and what is read is planned right.
//! `TENURE_ROUNDS` gives the number of damaged files a reader.

use std::path::Path;

use fastrand::Rng;
use tenure_formats::csv;
use tenure_formats::testing::ge::{Container, Model, Node, Tensor, Value};
use tenure_graph::effects::OpTable;
use tenure_graph::plan::PlanOptions;
use tenure_graph::plan_file::{CheckBlock, ModelIdentity, PlanFile, Summary};
use tenure_graph::{json, text};
use tenure_plan::metadata::MemoryGraph;
use tenure_plan::{Config, memory, plan};
use tenure_tests::readers::{READERS, sample};

/// A sound file for each reader, in the order of [`READERS`].
fn sound() -> Vec<Vec<u8>> {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/models");
    let model = std::fs::read(models.join("speech_gru.onnx")).unwrap();
    let graph = sample();
    let table = OpTable::builtin(graph.dialect);
    let options = PlanOptions::default();
    let planned = plan(&graph, &table, &options, &Config::default()).unwrap();
    let memory = memory(&graph, &table, &options).unwrap();
    let memory = MemoryGraph::new(&graph, &memory);
    let summary = Summary::new(&graph, &planned.plan, planned.in_place);
    let file = PlanFile::new(
        &graph,
        ModelIdentity::default(),
        &planned.plan,
        summary,
        CheckBlock::default(),
    );
    let rows = r#"
        [[op]]
        ops = ["Relu", "Add"]
        in_place = [{ out = 0, in = 0, when = ["same-dtype", "attr.causal|0 == 0"] }]
        scratch = [
            { size = "in0.dim[0] * attr.block|64 * in0.dim[-1] * 4", align = 256 },
            { size = "in0.dim[0] * 2 * 4" },
        ]
        input_align = 32
    "#;
    OpTable::empty().extend_toml(rows).unwrap();
    let csv = "id,lower,upper,size,alignment,offset,gaps\n\
               a,0,40,100,64,,4-9 12-13\n\
               b,2,6,50,1,200,\n\
               c,7,12,31,2,,\n";
    csv::read(csv.as_bytes(), &csv::Options::default()).unwrap();
    let engine = compiled();
    vec![
        model,
        engine.om(Container::Wide),
        engine.proto_text(),
        engine.onnx_text(),
        json::write(&graph).into_bytes(),
        text::print(&graph).into_bytes(),
        serde_json::to_vec_pretty(&memory).unwrap(),
        serde_json::to_vec_pretty(&file).unwrap(),
        rows.as_bytes().to_vec(),
        csv.as_bytes().to_vec(),
    ]
}

/// A compiled model that asks for memory in several ways.
fn compiled() -> Model {
    let block = || Tensor::new("DT_FLOAT16", &[2, 100]).size(448);
    let mut model = Model::new("compiled");
    model.attr("memory_size", Value::Int(4096));
    model.add(Node::new("x", "Data").output(block()).at(&[3584]));
    model.add(Node::new("clean", "MemSet").workspace(512, 0));
    model.add(
        Node::new("a", "Abs")
            .inputs(&["x:0", "clean:-1"])
            .attr("atomic_output_index", Value::Ints(vec![0]))
            .output(block())
            .workspace(100, 512)
            .at(&[0]),
    );
    model.add(
        Node::new("b", "InplaceAdd")
            .inputs(&["a:0", "", "x:0"])
            .stream(1)
            .output(block().reuses(0))
            .at(&[0]),
    );
    model.add(
        Node::new("send", "Send")
            .inputs(&["b:-1"])
            .stream(1)
            .attr("event_id", Value::Int(3)),
    );
    model.add(Node::new("wait", "Recv").attr("event_id", Value::Int(3)));
    model.add(
        Node::new("c", "HcomAllReduce")
            .inputs(&["b:0", "a:0", "wait:-1"])
            .attr("continuous_input", Value::Flag(true))
            .attr("_output_memory_type", Value::Ints(vec![17]))
            .output(block())
            .at(&[1024]),
    );
    model.add(Node::new("out", "NetOutput").inputs(&["c:0"]));
    model
}

/// Numbers that are put in the place of others.
const EXTREME: [&str; 8] = [
    "0",
    "-1",
    "1",
    "63",
    "4294967295",
    "9223372036854775807",
    "18446744073709551615",
    "1e400",
];

/// The bytes with one to four places changed.
fn damaged(sound: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = sound.to_vec();
    for _ in 0..rng.usize(1..=4) {
        if bytes.is_empty() {
            break;
        }
        let at = rng.usize(..bytes.len());
        let end = (at + rng.usize(0..40)).min(bytes.len());
        match rng.u32(..6) {
            0 => bytes[at] ^= 1 << rng.u32(..8),
            1 => bytes[at] = rng.u8(..),
            2 => bytes.truncate(at),
            3 => drop(bytes.drain(at..end)),
            4 => {
                let part = bytes[at..end].to_vec();
                let to = rng.usize(..=bytes.len());
                bytes.splice(to..to, part);
            }
            _ => {
                let digit = bytes[at..].iter().position(u8::is_ascii_digit);
                let Some(begin) = digit.map(|digit| at + digit) else {
                    continue;
                };
                let digits = bytes[begin..].iter().take_while(|b| b.is_ascii_digit());
                let end = begin + digits.count();
                let number = EXTREME[rng.usize(..EXTREME.len())];
                bytes.splice(begin..end, number.bytes());
            }
        }
    }
    bytes
}

#[test]
fn no_damage_makes_a_reader_panic_or_a_plan_wrong() {
    let rounds = std::env::var("TENURE_ROUNDS").map_or(300, |s| s.parse().expect("a number"));
    for ((name, read), sound) in READERS.iter().zip(sound()) {
        read(&sound);
        let mut rng = Rng::with_seed(7);
        for round in 0..rounds {
            let bytes = damaged(&sound, &mut rng);
            let outcome = std::panic::catch_unwind(|| read(&bytes));
            assert!(
                outcome.is_ok(),
                "{name}, round {round}: {}",
                String::from_utf8_lossy(&bytes)
            );
        }
    }
}
