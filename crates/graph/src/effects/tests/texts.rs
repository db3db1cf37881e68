//! Rows that users give: what they may say, and how mistakes are told.

use super::*;

fn refused(text: &str) -> String {
    let mut table = OpTable::empty();
    let message = table.extend_toml(text).unwrap_err().to_string();
    assert!(table.rows.is_empty(), "a refused text changed the table");
    message
}

fn site_with(rows: &str, op: &str, inputs: &[&str], outputs: &[&str]) -> Site {
    let mut site = Site::onnx(op, inputs, outputs);
    site.table.extend_toml(rows).unwrap();
    site
}

#[test]
fn rows_add_and_replace() {
    let rows = r#"
        [[op]]
        domain = "example"
        ops = ["FlashAttention"]
        scratch = [
            { size = "in0.dim[0] * ceil_div(in0.dim[-1], attr.block|16) * 4", align = 256 },
            { size = 1024 },
            { size = "in0.bytes - in0.bytes" },
        ]
        input_align = 32
        output_align = [64, 128]

        [[op]]
        domain = "ai.onnx"
        ops = ["Relu"]
    "#;
    let x = "float32[8,40]";
    let site = site_with(rows, "example:FlashAttention", &[x, x], &[x]);
    let effects = site.effects();
    assert!(effects.known);
    let scratch = |size: u64, align: u64| Scratch {
        size,
        align,
        kind: crate::effects::demands::ANY_MEMORY,
        alone: false,
        cleared: false,
    };
    // What has no bytes keeps its number.
    let all = [scratch(96, 256), scratch(1024, 1), scratch(0, 1)];
    assert_eq!(effects.scratch[..], all);
    assert_eq!(effects.unsized_scratch, 0);
    assert_eq!(effects.input_align[..], [32, 32]);
    assert_eq!(effects.output_align[..], [64]);

    let relu = site_with(rows, "Relu", &[x], &[x]);
    assert_eq!(
        relu.text(),
        "",
        "the user's row has taken the built-in row's place"
    );
    assert_eq!(Site::onnx("Relu", &[x], &[x]).text(), "over 0=0 with 0=0");
}

#[test]
fn the_example_of_the_documentation_does_what_it_says() {
    let page = include_str!("../../../../../docs/adding-an-operator.md");
    let (_, rest) = page.split_once("```toml\n").unwrap();
    let (rows, _) = rest.split_once("```").unwrap();
    let (queries, keys) = ("float32[8,128,64]", "float32[8,256,64]");
    let op = "example.accelerator:BlockAttention";
    let site = site_with(rows, op, &[queries, keys, keys, queries], &[queries]);
    assert_eq!(site.text(), "over 0=0 shape 3");
    let effects = site.effects();
    let scratch = [
        Scratch {
            size: 524_288,
            align: 256,
            kind: crate::effects::demands::ANY_MEMORY,
            alone: false,
            cleared: false,
        },
        Scratch {
            size: 8_192,
            align: 1,
            kind: crate::effects::demands::ANY_MEMORY,
            alone: false,
            cleared: false,
        },
    ];
    assert_eq!(effects.scratch[..], scratch);
    assert_eq!(effects.input_align[..], [32; 4]);
    assert_eq!(site.with("causal=1").text(), "shape 3");
}

#[test]
fn scratch_of_unknown_size_is_counted() {
    let rows = r#"
        [[op]]
        ops = ["Foo"]
        scratch = [{ size = "in0.bytes" }, { size = "0 - 1" }, { size = "in1.elems * in1.elems" }]
    "#;
    let inputs = ["float32[?]", "float32[4294967296]"];
    let effects = site_with(rows, "Foo", &inputs, &[]).effects();
    assert!(effects.scratch.is_empty());
    assert_eq!(effects.unsized_scratch, 3);
}

#[test]
fn a_row_may_say_that_an_output_lives_in_an_input() {
    let rows = r#"
        [[op]]
        ops = ["Update"]
        refs = [{ out = 1, in = 0 }]
        in_place = [{ out = 1, in = 1 }]
    "#;
    let x = "float32[4]";
    assert_eq!(
        site_with(rows, "Update", &[x, x], &[x, x]).text(),
        "ref 1=0"
    );
}

#[test]
fn mistakes_name_row_key_and_line() {
    let cases = [
        (
            "[[op]]\nops = [\"A\"]\nfoo = 1",
            "row of A (line 1)",
            "`foo`",
        ),
        (
            "\n\n[[op]]\nops = [\"A\"]\nclass = \"wheel\"",
            "row of A (line 3)",
            "`wheel`",
        ),
        (
            "[[op]]\nops = [\"A\"]\nelementwise = \"some\"",
            "row of A (line 1)",
            "elementwise",
        ),
        (
            "[[op]]\nops = [\"A\"]\nelementwise = -1",
            "row of A (line 1)",
            "elementwise",
        ),
        (
            "[[op]]\nops = [\"A\"]\npure = \"no\"",
            "row of A (line 1)",
            "pure",
        ),
        (
            "[[op]]\nops = [\"A\"]\nviews = [{ in = 0 }, { in = 0, when = [\"later\"] }]",
            "row of A (line 1)",
            "`views[1].when[0]`",
        ),
        (
            "[[op]]\nops = [\"A\"]\nviews = [{ inn = 0 }]",
            "row of A (line 1)",
            "`inn`",
        ),
        (
            "[[op]]\nops = [\"A\"]\nscratch = [{ size = \"in0.byte\" }]",
            "row of A (line 1)",
            "`scratch[0].size`",
        ),
        (
            "[[op]]\nops = [\"A\"]\nscratch = [{ size = 1, align = 3 }]",
            "row of A (line 1)",
            "`scratch[0].align`: 3 is no power of two",
        ),
        (
            "[[op]]\nops = [\"A\"]\nscratch = [{ size = -1 }]",
            "row of A (line 1)",
            "scratch",
        ),
        (
            "[[op]]\nops = [\"A\"]\ninput_align = [1, 0]",
            "row of A (line 1)",
            "`input_align`",
        ),
        (
            "[[op]]\nops = [\"A\"]\nblocks = { from = 2, inputs = 2, over = [2] }",
            "row of A (line 1)",
            "`blocks.over`",
        ),
        (
            "[[op]]\nops = [\"A\"]\nblocks = { from = 2, inputs = 0, over = [0] }",
            "row of A (line 1)",
            "`blocks`",
        ),
        ("[[op]]\nclass = \"branch\"", "row of ? (line 1)", "`ops`"),
        ("[[op]]\nops = []", "row of ? (line 1)", "`ops`"),
        (
            "[[op]]\nops = [\"A\"]\n[[op]]\nops = [\"B\", \"A\"]",
            "row of B (line 3)",
            "A has a row",
        ),
        ("[op]\nops = [\"A\"]", "line 1", "sequence"),
        ("domain = \"\"\nop = 3", "line 2", "sequence"),
        ("domain = \"\"\nrow = 3", "line 2", "`row`"),
        ("[[op]]\nops = [\"A\"", "line 2", ""),
    ];
    for (text, place, cause) in cases {
        let message = refused(text);
        assert!(message.starts_with(place), "{message:?} for {text:?}");
        assert!(message.contains(cause), "{message:?} for {text:?}");
        assert!(!message.contains('\n'), "{message:?} for {text:?}");
    }
}

#[test]
fn hostile_texts_are_refused() {
    for text in [
        format!("[[op]]\nops = {}", "[".repeat(100_000)),
        format!(
            "[[op]]\nops = [\"A\"]\npure = {}1{}",
            "[".repeat(9_000),
            "]".repeat(9_000)
        ),
        format!("op{} = 1", ".a".repeat(100_000)),
        format!("[{}]", vec!["op"; 100_000].join(".")),
        "[[op]]\nops = [\"A\"]\nelementwise = 4294967296".to_owned(),
        "[[op]]\nops = [\"A\"]\nelementwise = 99999999999999999999999999".to_owned(),
        "[[op]]\nops = [\"A\"]\nscratch = [{ size = 1, align = 18446744073709551616 }]".to_owned(),
        format!(
            "[[op]]\nops = [\"A\"]\nscratch = [{{ size = \"{}\" }}]",
            "(".repeat(100_000)
        ),
        "\u{feff}\0".to_owned(),
    ] {
        let message = refused(&text);
        assert!(message.len() < 1000, "{} bytes of message", message.len());
    }
}

#[test]
fn large_slots_are_harmless() {
    let rows = r#"
        [[op]]
        ops = ["Foo"]
        elementwise = [4294967295]
        views = [{ out = 4294967295, in = 4294967295 }]
        refs = [{ out = 4294967295, in = 4294967295 }]
        blocks = { from = 4294967295, inputs = 4294967295, over = [4294967294] }
    "#;
    let x = "float32[4]";
    assert_eq!(site_with(rows, "Foo", &[x], &[x]).text(), "");
}
