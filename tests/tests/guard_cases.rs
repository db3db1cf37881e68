//! Every case of the kinds that are built: those in `tests/cases`, and those of the folder of
//! shared cases where it is at hand (`TENURE_SHARED`, or `shared` beside the repository).

use std::path::{Path, PathBuf};

use tenure_tests::case::{self, Outcome};

/// Folders of shared cases of which every one is met.
const KINDS: &[&str] = &["bugs", "layout", "passes", "runtime"];

fn shared() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared");
    let folder = std::env::var_os("TENURE_SHARED").map_or(beside, PathBuf::from);
    folder.is_dir().then_some(folder)
}

/// What is not met of the cases in a folder and below, and how many there are.
fn run(folder: &Path) -> (Vec<String>, usize) {
    let mut files = Vec::new();
    collect(folder, &mut files);
    files.sort();
    let failed = files.iter().filter_map(|file| match case::run(file) {
        Outcome::Passed | Outcome::Deviates(_) => None,
        Outcome::Failed(reasons) => Some(format!("{}: {}", file.display(), reasons.join("; "))),
    });
    (failed.collect(), files.len())
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder of cases") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|e| e == "json") {
            files.push(path);
        }
    }
}

#[test]
fn all_cases_of_the_repository_are_met() {
    let (failed, count) = run(&Path::new(env!("CARGO_MANIFEST_DIR")).join("cases"));
    assert!(count > 0, "no cases");
    assert_eq!(failed, Vec::<String>::new());
}

#[test]
#[expect(clippy::print_stderr, reason = "says that it was passed over")]
fn all_shared_cases_are_met() {
    let Some(folder) = shared() else {
        eprintln!("skipped: no folder of shared cases; set TENURE_SHARED");
        return;
    };
    for kind in KINDS {
        let (failed, count) = run(&folder.join("cases").join(kind));
        assert!(count > 0, "{kind}: no cases");
        assert_eq!(failed, Vec::<String>::new());
    }
}
