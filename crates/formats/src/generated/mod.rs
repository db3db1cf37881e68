//! Code made by `cargo xtask codegen` from the schemas in `proto/`; not edited by hand.

#[rustfmt::skip]
#[allow(missing_docs, unreachable_pub, clippy::all, reason = "generated")]
pub mod onnx;
