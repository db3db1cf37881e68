//! Which rule an operator has: one table per family.
//!
//! A rule is written once for all versions of its operator: what older versions hold in an
//! attribute and newer ones in an input is looked for in both.

mod arithmetic;
mod attention;
mod contrib;
mod conv;
mod elementwise;
mod generate;
mod image;
mod index;
mod layout;
mod matrix;
mod norm;
mod reduce;
mod rnn;
mod sequence;
mod signal;
mod slice;
mod text;
mod train;

use super::context::Rule;
use crate::ir::domain_key;

/// The rule for an operator, if there is one.
pub(super) fn find(domain: &str, op: &str) -> Option<Rule> {
    let families: &[fn(&str) -> Option<Rule>] = match domain_key(domain) {
        "" => &[
            elementwise::find,
            layout::find,
            slice::find,
            index::find,
            matrix::find,
            conv::find,
            norm::find,
            reduce::find,
            generate::find,
            attention::find,
            rnn::find,
            image::find,
            signal::find,
            text::find,
            sequence::find,
            train::find,
        ],
        "ai.onnx.ml" => &[text::find_ml],
        "ai.onnx.preview" => &[attention::find],
        "ai.onnx.preview.training" => &[train::find],
        "com.microsoft" => &[contrib::find, train::find_microsoft],
        _ => &[],
    };
    families.iter().find_map(|find| find(op))
}
