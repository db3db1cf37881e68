//! Code generation: `.proto` files become Rust types.
//!
//! The result is committed, so that building the workspace needs no generator. Every `bytes`
//! field becomes a `bytes::Bytes`: decoding a mapped file then makes each tensor's `raw_data` a
//! slice of the map, and no weight is read. Messages that a model has by the million ([`LATER`])
//! become `Bytes` as well, to be decoded one at a time.

use std::fs;
use std::path::Path;

use crate::Mode;

/// Schema and the file made from it, below `crates/formats`.
const TARGETS: &[(&str, &str)] = &[("proto/onnx-ml.proto", "src/generated/onnx.rs")];

/// Fields that are left encoded: message and field. On the wire a message is the same as its bytes.
const LATER: &[(&str, &str)] = &[
    ("GraphProto", "node"),
    ("GraphProto", "value_info"),
    ("FunctionProto", "node"),
    ("FunctionProto", "value_info"),
    ("AttributeProto", "g"),
    ("AttributeProto", "graphs"),
];

/// The number of the type `bytes` in a descriptor.
const TYPE_BYTES: i32 = 12;

/// Generates all files of [`TARGETS`].
pub(crate) fn run(root: &Path, mode: Mode) -> Result<(), String> {
    let formats = root.join("crates/formats");
    let mut stale = Vec::new();
    for &(schema, target) in TARGETS {
        let code = generate(&formats, schema)?;
        let path = formats.join(target);
        if fs::read_to_string(&path).is_ok_and(|old| old == code) {
            continue;
        }
        match mode {
            Mode::Write => {
                fs::write(&path, code).map_err(|e| format!("{}: {e}", path.display()))?;
                println!("wrote {target}");
            }
            Mode::Check => stale.push(target),
        }
    }
    if stale.is_empty() {
        Ok(())
    } else {
        Err(format!(
            "{} is not what its schema gives; run `cargo xtask codegen`",
            stale.join(", ")
        ))
    }
}

fn generate(formats: &Path, schema: &str) -> Result<String, String> {
    let file = formats.join(schema);
    let folder = file.parent().unwrap_or(formats);
    let mut descriptors =
        protox::compile([&file], [folder]).map_err(|e| format!("{}: {e}", file.display()))?;
    let mut config = prost_build::Config::new();
    // Comments of a schema are not written for rustdoc: indented lines would become doc tests.
    config.bytes(["."]).disable_comments(["."]);
    // Every node has attributes, and few of them hold messages of their own.
    for field in ["t", "sparse_tensor", "tp"] {
        config.boxed(format!(".onnx.AttributeProto.{field}"));
    }
    let messages = descriptors
        .file
        .iter_mut()
        .flat_map(|f| &mut f.message_type);
    for message in messages {
        let name = message.name().to_owned();
        for field in &mut message.field {
            if LATER.contains(&(&*name, field.name())) {
                field.r#type = Some(TYPE_BYTES);
                field.type_name = None;
            }
        }
    }
    let requests = descriptors
        .file
        .into_iter()
        .map(|f| (prost_build::Module::from_parts(["generated"]), f))
        .collect();
    let modules = config
        .generate(requests)
        .map_err(|e| format!("{}: {e}", file.display()))?;
    Ok(modules.into_values().collect())
}
