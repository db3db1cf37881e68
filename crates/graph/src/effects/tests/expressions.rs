//! The language of sizes and conditions.

use super::super::expr::{Condition, Expr, Scope};
use super::*;

/// What an expression is at a node with inputs `float32[2,3,5]`, none, `int64[3]=4,-7,9` and
/// output `float16[30]`.
fn eval(text: &str) -> Result<Option<i128>, String> {
    let inputs = ["float32[2,3,5]", "-", "int64[3]=4,-7,9", "float32[?,4]"];
    let site = Site::onnx("Relu", &inputs, &["float16[30]"]).with("axis=-1 pads=0,3");
    let scope = Scope {
        table: &site.table,
        graph: &site.graph,
        node: &site.graph.nodes[site.node],
        output: 0,
        input: 0,
    };
    Ok(Expr::parse(text)?.eval(&scope))
}

#[test]
fn values() {
    let cases = [
        ("1 + 2 * 3", Some(7)),
        ("(1 + 2) * 3", Some(9)),
        ("10 - 2 - 3", Some(5)),
        ("7 / 2", Some(3)),
        ("-7 / 2", Some(-4)),
        ("ceil_div(7, 2)", Some(4)),
        ("ceil_div(-7, 2)", Some(-3)),
        ("min(4, 2, 3)", Some(2)),
        ("max(4, 2 , 3) + 1", Some(5)),
        ("in0.bytes", Some(120)),
        ("in0.elems * out0.itemsize", Some(60)),
        ("out.bytes + in.bytes", Some(180)),
        ("in0.rank", Some(3)),
        ("in0.dim[1]", Some(3)),
        ("in0.dim[-1]", Some(5)),
        ("in0.present + in1.present + in9.present", Some(1)),
        ("in2.min", Some(-7)),
        ("in2.max", Some(9)),
        ("attr.axis", Some(-1)),
        ("attr.axis|4", Some(-1)),
        ("attr.none|4", Some(4)),
        ("attr.none|-4", Some(-4)),
        ("attr.pads.max", Some(3)),
        ("in1.bytes|8", Some(8)),
        ("opset", Some(21)),
        // Not known.
        ("attr.none", None),
        ("attr.pads", None),
        ("in1.bytes", None),
        ("in0.value", None),
        ("in2.value", None),
        ("in0.dim[3]", None),
        ("in0.dim[-4]", None),
        ("in3.bytes", None),
        ("in3.dim[0] * 0", None),
        ("in3.dim[1]", Some(4)),
        ("out4294967295.bytes", None),
        // Not computable.
        ("1 / 0", None),
        ("1 / (0 - 1)", None),
        ("ceil_div(1, 0)", None),
        (
            "18446744073709551615 * 18446744073709551615 * 18446744073709551615",
            None,
        ),
    ];
    for (text, value) in cases {
        assert_eq!(eval(text), Ok(value), "{text}");
    }
}

#[test]
fn mistakes_are_refused() {
    for text in [
        "",
        " ",
        "1 +",
        "(1",
        "1)",
        "1 2",
        "in0",
        "in0.",
        "in0.byte",
        "in0.dim",
        "in0.dim[",
        "in0.dim[x]",
        "inn.bytes",
        "in-1.bytes",
        "in4294967296.bytes",
        "attr.",
        "attr",
        "foo",
        "min()",
        "min(1",
        "ceil_div 1",
        "1 | 2",
        "attr.a|",
        "attr.a|x",
        "1 == 1",
        "é",
        "1é",
        "18446744073709551616",
        "in0.dim[99999999999999999999]",
        "--",
        "max",
    ] {
        assert!(eval(text).is_err(), "{text:?} was accepted");
    }
}

#[test]
fn nesting_and_length_are_bounded() {
    let nested = |n: usize| format!("{}1{}", "(".repeat(n), ")".repeat(n));
    assert_eq!(eval(&nested(30)), Ok(Some(1)));
    assert!(eval(&nested(400)).unwrap_err().contains("nested"));
    assert!(eval(&"-".repeat(900)).unwrap_err().contains("nested"));
    assert!(eval(&"1+".repeat(600)).unwrap_err().contains("longer"));
    assert_eq!(eval(&format!("1{}", "+1".repeat(500))), Ok(Some(501)));
}

#[test]
fn conditions() {
    let site = Site::onnx("Transpose", &["float32[2,3]"], &["int32[6]"]).with("axis=1");
    let holds = |text: &str| {
        let scope = Scope {
            table: &site.table,
            graph: &site.graph,
            node: &site.graph.nodes[site.node],
            output: 0,
            input: 0,
        };
        Condition::parse(text).map(|c| c.holds(&scope))
    };
    for (text, expected) in [
        ("attr.axis == 1", true),
        ("attr.axis != 1", false),
        ("attr.axis<2", true),
        ("attr.axis <= 1", true),
        ("attr.axis > 1", false),
        ("attr.axis >= 1", true),
        // What is not known does not hold, and its opposite does not either.
        ("attr.none == 1", false),
        ("attr.none != 1", false),
        ("same-dtype", false),
        ("same-elements", true),
        ("keeps-order", false),
    ] {
        assert_eq!(holds(text), Ok(expected), "{text}");
    }
    for text in ["", "sometimes", "1", "1 = 1", "1 == ", "1 == 1 == 1"] {
        assert!(holds(text).is_err(), "{text:?} was accepted");
    }
}
