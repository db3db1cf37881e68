//! No copy of the guard is needless: in random programs, and in the programs of the cases. More
//! programs are looked at when `TENURE_GRAPHS` gives their number.

use std::path::{Path, PathBuf};

use tenure_check::check;
use tenure_graph::effects::OpTable;
use tenure_graph::plan::PlanOptions;
use tenure_graph::text;
use tenure_guard::{Options, compile};
use tenure_plan::{Config, plan};
use tenure_tests::needless::{Tally, look, random};

/// How many random programs are looked at.
fn graphs() -> u64 {
    std::env::var("TENURE_GRAPHS").map_or(40, |n| n.parse().expect("a number"))
}

#[test]
fn every_copy_in_a_random_program_is_needed() {
    let mut tally = Tally::default();
    for seed in 0..graphs() {
        tally.add(look(&format!("seed {seed}"), &random(seed)).expect("plans pass their check"));
    }
    assert_eq!(tally.needless, Vec::<String>::new());
    assert!(tally.programs > graphs() / 2, "{tally:?}");
    assert!(tally.needed > graphs() / 4, "{tally:?}");
}

/// Programs in which copies once were needless, one or two of each kind, or whose plan was refused.
const ONCE_WRONG: &[u64] = &[
    16_671, 17_931, 20_339, 28_357, 45_647, 45_968, 53_556, 59_703, 76_133, 87_479, 103_628,
    113_577, 124_279, 144_403, 168_748, 174_447, 247_099, 302_204, 323_801, 374_213, 384_088,
    468_373, 1_008_718, 3_354_522, 3_377_122,
];

#[test]
fn what_was_wrong_once_is_not_again() {
    for &seed in ONCE_WRONG {
        let tally = look(&format!("seed {seed}"), &random(seed)).expect("plans pass their check");
        assert_eq!(tally.needless, Vec::<String>::new());
        assert_eq!(tally.programs, 1);
    }
}

/// The cases of the repository, and the shared ones where they are at hand.
fn cases() -> Vec<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let beside = here.join("../../shared");
    let shared = std::env::var_os("TENURE_SHARED").map_or(beside, PathBuf::from);
    let mut folders = Vec::new();
    for folder in [here.join("cases"), shared.join("cases")] {
        folders.extend(["passes", "layout", "bugs"].map(|kind| folder.join(kind)));
    }
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else {
            continue;
        };
        for entry in entries {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

#[test]
fn every_copy_in_a_case_is_needed() {
    let mut tally = Tally::default();
    for file in cases() {
        let graph = std::fs::read(&file).expect("a case");
        if let Ok(graph) = tenure_graph::json::read(&graph) {
            let name = file.display().to_string();
            // A case may be about a program that is none.
            tally.add(look(&name, &graph).unwrap_or_default());
        }
    }
    assert_eq!(tally.needless, Vec::<String>::new());
    assert!(tally.programs > 0, "{tally:?}");
}

/// A plan of a guarded program finds nothing that must be parted: pieces of what is joined or cut in
/// place are that memory as well.
#[test]
fn what_is_joined_or_cut_in_place_is_its_pieces_too() {
    let join = |marks: &str| {
        format!(
            "%m: float32[8] = Relu(%x)
         %k: float32[8] = Neg(%x)
         %c: float32[16] = ConcatD(%m, %k) {{concat_dim = 0{marks}}}\n"
        )
    };
    let free = ", _no_task = true, _no_padding_continuous_input = true, _output_reuse_input = true";
    let cut = "%c: float32[16] = Relu(%y)
         %m: float32[8], %k: float32[8] = SplitD(%c) {split_dim = 0, _no_task = true, _no_padding_continuous_output = true, _output_reuse_input = true}\n";
    let uses = [
        "%h: float32[16] = HcomAllReduce(%c) {_input_mutable = true}
         %r: float32[8] = Relu(%k) after @h
         NetOutput(%h, %r) @out",
        "%h: float32[8] = HcomAllReduce(%k) {_input_mutable = true}
         %r: float32[16] = Relu(%c) after @h
         NetOutput(%h, %r) @out",
        "%w: float32[8] <ref_input = 0> = InplaceAdd(%k, %x)
         %r: float32[16] = Relu(%c)
         NetOutput(%w, %r) @out",
        "%h: float32[16], %g: float32[8] = HcomAllReduce(%c, %k) {_input_mutable = true}
         NetOutput(%h, %g) @out",
        "%h: float32[16] = HcomAllReduce(%c) {_input_mutable = true}
         %r: float32[8] = Relu(%k)
         %s: float32[8] = Relu(%m)
         NetOutput(%h, %r, %s) @out",
    ];
    let mut programs: Vec<String> = Vec::new();
    for made in [join(""), join(free), cut.to_owned()] {
        programs.extend(uses.map(|used| format!("{made}         {used}")));
    }
    // One tensor in two places, under whatever name.
    for name in ["Reshape(%m)", "InplaceAdd(%m, %x)"] {
        programs.push(format!(
            "%m: float32[8] = Relu(%x)
         %w: float32[8] <ref_input = 0> = {name}
         %c: float32[16] = ConcatD(%w, %w) {{concat_dim = 0, _no_padding_continuous_input = true}}
         NetOutput(%c) @out"
        ));
    }
    for program in programs {
        let source = format!(
            "model m ge graph ^root {{
         %x: float32[8] = Data() {{index = 0}}
         %y: float32[16] = Data() {{index = 1}}
         {program} }}"
        );
        let graph = text::parse(&source).unwrap_or_else(|e| panic!("{e}\n{source}"));
        let table = OpTable::builtin(graph.dialect);
        let guarded = compile::run(&graph, &table, &Options::of(&graph)).unwrap();
        let safe = guarded.graph(&graph);
        let planned = plan(safe, &table, &PlanOptions::default(), &Config::default());
        let plan = planned.unwrap_or_else(|e| panic!("{e}\n{source}")).plan;
        let further: Vec<_> = plan.copies.iter().map(|c| &c.reason).collect();
        assert!(further.is_empty(), "{further:?}\n{}", text::print(safe));
        check(safe, &table, &plan).unwrap_or_else(|e| panic!("{e:?}\n{source}"));
    }
}

/// What is cut and joined in place over and over has very many ways through it, and is looked at once.
#[test]
fn many_ways_through_pieces_end() {
    let mut lines =
        String::from("%x: float32[8] = Data() {index = 0}\n%c0: float32[8] = Relu(%x)\n");
    for k in 1..40 {
        let before = k - 1;
        lines += &format!(
            "%a{k}: float32[4], %b{k}: float32[4] = SplitD(%c{before}) {{split_dim = 0, _no_task = true, _no_padding_continuous_output = true, _output_reuse_input = true}}
         %c{k}: float32[8] = ConcatD(%a{k}, %b{k}) {{concat_dim = 0, _no_task = true, _no_padding_continuous_input = true, _output_reuse_input = true}}\n"
        );
    }
    let source = format!("model m ge graph ^root {{ {lines} NetOutput(%c39) @out }}");
    let graph = text::parse(&source).unwrap_or_else(|e| panic!("{e}\n{source}"));
    let table = OpTable::builtin(graph.dialect);
    compile::run(&graph, &table, &Options::of(&graph)).unwrap();
}
