//! No copy of the guard is needless: in random programs, and in the programs of the cases. More
//! programs are looked at when `TENURE_GRAPHS` gives their number.

use std::path::{Path, PathBuf};

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
