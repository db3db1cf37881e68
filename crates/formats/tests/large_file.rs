//! A model with two gigabytes of weights inside the file is read without reading them.
//!
//! The file is sparse, so that it takes no room on the disk. Memory is measured where the system
//! tells how much a process holds; nothing else may run beside it, so the test is alone in its
//! program.

use std::fs::File;
use std::io::Write as _;
use tenure_graph::{Attr, TensorData};

const WEIGHT_BYTES: u64 = 2 << 30;

/// A protobuf field of the wire type "length, then bytes".
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = head(number, bytes.len() as u64);
    out.extend(bytes);
    out
}

fn head(number: u8, length: u64) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    prost::encoding::encode_varint(length, &mut out);
    out
}

/// The bytes of the file up to the first byte of the weights.
fn start_of_file() -> Vec<u8> {
    // dims: 2^29, data_type: float, name.
    let mut tensor = vec![0x08, 0x80, 0x80, 0x80, 0x80, 0x02, 0x10, 0x01];
    tensor.extend(field(8, b"w"));
    tensor.extend(head(9, WEIGHT_BYTES));
    let node = [
        field(1, b"x"),
        field(1, b"w"),
        field(2, b"y"),
        field(4, b"Add"),
    ]
    .concat();
    let mut graph = [
        field(1, &node),
        field(11, &field(1, b"x")),
        field(12, &field(1, b"y")),
    ]
    .concat();
    graph.extend(head(5, tensor.len() as u64 + WEIGHT_BYTES));
    graph.extend(tensor);
    let mut model = vec![0x08, 0x08];
    model.extend(head(7, graph.len() as u64 + WEIGHT_BYTES));
    model.extend(graph);
    model
}

/// Bytes of memory that the process holds, where the system tells.
fn resident() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * 4096)
}

#[test]
fn weights_inside_the_file_are_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.onnx");
    let start = start_of_file();
    let mut file = File::create(&path).unwrap();
    file.write_all(&start).unwrap();
    file.set_len(start.len() as u64 + WEIGHT_BYTES).unwrap();
    drop(file);

    let before = resident();
    let graph = tenure_formats::read(&path).unwrap_or_else(|e| panic!("{e}"));
    let after = resident();

    let weights = graph.nodes.values().find(|n| &*n.op == "Const").unwrap();
    match weights.attrs.get("value") {
        Some(Attr::Tensor(w)) => match &w.data {
            TensorData::Bytes(bytes) => assert_eq!(bytes.len() as u64, WEIGHT_BYTES),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
    if let (Some(before), Some(after)) = (before, after) {
        let grown = after.saturating_sub(before);
        assert!(grown < 8 << 20, "{grown} bytes more are held");
    }
}
