//! Bytes that are no models, or nearly: an error, never a crash.

use super::*;
use crate::testing::{check, pb, tensor};
use arbitrary::{Result, Unstructured};
use tenure_graph::DType;

/// A small model with a bit of everything.
fn sample() -> Vec<u8> {
    let mut then = graph("then", &[], &["r"]);
    then.node("Relu", &["x"], &["r"]);
    let mut other = graph("else", &[], &["r"]);
    other.node("F", &["x"], &["r"]).domain("local").int("p", 2);
    let mut f = graph("F", &["a"], &["b"]);
    f.node("Softmax", &["a"], &["b"]).reference(
        "axis",
        pb::attribute_proto::AttributeType::Int,
        "p",
    );
    let mut g = graph("main", &["x"], &["y"]);
    g.declare("z", DType::F32, "batch, past + 1, ?");
    g.weight("w", DType::F32, &[4]);
    g.ints("axes", &[0, 1]);
    let mut typed = tensor("t", DType::F16, &[2]);
    typed.int32_data = vec![1, 2];
    g.initializer(typed);
    g.node("If", &["x"], &["z"])
        .graph("then_branch", then)
        .graph("else_branch", other);
    g.node("Constant", &[], &["c"]).ints("value_ints", &[1, 2]);
    g.node("Op", &["z", "w", "axes", "t", "c"], &["y"])
        .float("alpha", 0.5);
    g.model(17).function("F", &["p"], f).encode()
}

#[test]
fn a_flipped_bit_or_a_cut_end_is_no_crash() {
    let sample = sample();
    read_bytes(sample.clone()).unwrap_or_else(|e| panic!("{e}"));
    for end in 0..sample.len() {
        check(&sample[..end]);
    }
    for at in 0..sample.len() {
        for bit in 0..8 {
            let mut bytes = sample.clone();
            bytes[at] ^= 1 << bit;
            check(&bytes);
        }
    }
}

#[test]
fn mutated_bytes_are_no_crash() {
    let sample = sample();
    arbtest::arbtest(|u| {
        let mut bytes = sample.clone();
        for _ in 0..u.int_in_range(1..=8)? {
            let at = u.choose_index(bytes.len())?;
            match u.int_in_range(0..=2)? {
                0 => bytes[at] = u.arbitrary()?,
                1 => bytes.insert(at, u.arbitrary()?),
                _ if bytes.len() > 1 => drop(bytes.remove(at)),
                _ => {}
            }
        }
        check(&bytes);
        Ok(())
    })
    .budget_ms(1000);
}

/// A graph of a few nodes that read what `known` and the graph itself define; now and then a name
/// out of the blue, so that names clash, lack a definition or form cycles.
fn random_graph(u: &mut Unstructured<'_>, known: &[String], depth: u32) -> Result<GraphBuilder> {
    const OPS: [&str; 6] = ["Relu", "Loop", "Scan", "If", "F", "G"];
    let mut known = known.to_vec();
    let name = |u: &mut Unstructured<'_>, known: &[String]| -> Result<String> {
        Ok(match u.int_in_range(0..=20)? {
            0 => u.choose(&["a", "b", "x/y"])?.to_string(),
            1 => String::new(),
            _ if known.is_empty() => String::new(),
            _ => u.choose(known)?.clone(),
        })
    };
    let fresh = |u: &mut Unstructured<'_>, known: &[String]| -> Result<String> {
        Ok(match u.int_in_range(0..=20)? {
            0 => u.choose(&["a", "b", "x/y"])?.to_string(),
            1 => String::new(),
            _ => format!("v{}", known.len()),
        })
    };
    let mut g = GraphBuilder::new(u.choose(&["main", "a", "x", ""])?);
    for _ in 0..u.int_in_range(0..=2)? {
        let input = fresh(u, &known)?;
        g.input(&input, DType::F32, "4");
        known.push(input);
    }
    for _ in 0..u.int_in_range(0..=4)? {
        let op = *u.choose(&OPS)?;
        let mut bodies = Vec::new();
        if depth > 0 {
            for _ in 0..u.int_in_range(0..=2)? {
                bodies.push(random_graph(u, &known, depth - 1)?);
            }
        }
        let mut inputs = Vec::new();
        for _ in 0..u.int_in_range(0..=3)? {
            inputs.push(name(u, &known)?);
        }
        let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
        let output = fresh(u, &known)?;
        let domain = if matches!(op, "F" | "G") { "local" } else { "" };
        let mut node = g.node(op, &inputs, &[&output]).domain(domain);
        node = node
            .name(u.choose(&["", "n", "x/y"])?)
            .int("num_scan_inputs", u.int_in_range(-1..=3)?);
        for (body, role) in bodies.into_iter().zip(["body", "then_branch"]) {
            node = node.graph(role, body);
        }
        known.push(output);
    }
    let result = name(u, &known)?;
    g.output(&result, DType::F32, "4");
    Ok(g)
}

#[test]
fn random_models_are_sound_or_refused() {
    let read = std::cell::Cell::new(0);
    arbtest::arbtest(|u| {
        let model = random_graph(u, &[], 2)?
            .model(17)
            .function("F", &["p"], random_graph(u, &[], 1)?)
            .function("G", &[], random_graph(u, &[], 1)?);
        let bytes = model.encode();
        check(&bytes);
        read.set(read.get() + u32::from(read_bytes(bytes).is_ok()));
        Ok(())
    })
    .budget_ms(1000);
    assert!(read.get() > 0, "every model was refused");
}

#[test]
fn deep_nesting_is_refused() {
    // Outwards: an attribute with a graph, in a node, in a graph. The bytes grow at their front, so
    // they are written backwards.
    let mut backwards: Vec<u8> = Vec::new();
    let wrap = |backwards: &mut Vec<u8>, tag: u8| {
        let mut varint = Vec::new();
        prost::encoding::encode_varint(backwards.len() as u64, &mut varint);
        backwards.extend(varint.iter().rev());
        backwards.push(tag);
    };
    for _ in 0..10_000 {
        for tag in [0x32, 0x2a, 0x0a] {
            wrap(&mut backwards, tag);
        }
    }
    wrap(&mut backwards, 0x3a);
    backwards.reverse();
    let text = read_bytes(backwards).unwrap_err().to_string();
    assert!(text.contains("nested more than 64 deep"), "{text}");
}

#[test]
fn what_is_no_model_is_called_by_its_name() {
    let cases: [(&[u8], &str); 12] = [
        (b"", "is empty; a model was expected"),
        (b"\xff\xd8\xff\xe0\0\x10JFIF", "looks like a JPEG picture"),
        (b"\x89PNG\r\n\x1a\n....", "looks like a PNG picture"),
        (b"\x7fELF\x02\x01\x01", "looks like an ELF program"),
        (b"PK\x03\x04........", "looks like a zip archive"),
        (b"\x20\0\0\0TFL3....", "looks like a TensorFlow Lite model"),
        (b"IMOD\0\0\0\0", "is a damaged compiled model (.om): byte 8"),
        (
            b"once upon a time",
            "looks like text that begins \"once upon a time\"",
        ),
        (
            b"{\"format\": \"tenure.plan/1\"}",
            "looks like a saved plan",
        ),
        (
            b"{\"nodes\": []}",
            "looks like JSON without the key \"format\"",
        ),
        (b"{\"nodes\": ", "looks like JSON with a mistake"),
        (
            b"\xfe\xed\xfa\xce\0\0\0\0",
            "looks like binary data of an unknown kind",
        ),
    ];
    for (bytes, start) in cases {
        let text = read_bytes(bytes.to_vec()).unwrap_err().to_string();
        assert!(text.starts_with(start), "{bytes:?}: {text}");
    }
}

#[test]
fn protobuf_that_is_no_model_is_refused() {
    assert_eq!(
        read_bytes(vec![0x08, 0x0a]).unwrap_err().to_string(),
        "the model has no graph; the file may be cut short or be another kind of protobuf"
    );
    let empty = GraphBuilder::new("main").model(17);
    assert_eq!(problem(&empty), crate::Problem::EmptyGraph);
    let mut cut = sample();
    cut.truncate(100);
    let text = read_bytes(cut).unwrap_err().to_string();
    assert!(
        text.starts_with("is a damaged ONNX file: byte 10, in \"graph\": "),
        "{text}"
    );
    assert!(text.contains("but the file ends after"), "{text}");
}

#[test]
fn graph_json_is_read_too() {
    let text = "\u{feff}\n{\"format\": \"tenure.graph/1\", \"name\": \"m\", \"graphs\": [{\"name\": \
                \"root\", \"nodes\": [{\"name\": \"x\", \"op\": \"Data\", \"outputs\": [{\"dtype\": \
                \"float32\", \"shape\": [1]}]}, {\"name\": \"out\", \"op\": \"NetOutput\", \
                \"inputs\": [\"x:0\"]}]}]}";
    let graph = read_bytes(text).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(graph.nodes.len(), 2);
    let memory = read_bytes("{\"format\": \"tenure.memory/1\"}")
        .unwrap_err()
        .to_string();
    assert!(memory.contains("has no graph"), "{memory}");
}
