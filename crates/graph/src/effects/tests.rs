//! Tests of the operator tables.

use super::*;

#[test]
fn embedded_tables_parse() {
    for dialect in [Dialect::Onnx, Dialect::Ge, Dialect::Tflite] {
        assert!(OpTable::builtin(dialect).has_row("", "NetOutput"));
    }
}
