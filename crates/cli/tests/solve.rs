//! `tenure solve` as a user runs it: the files that it writes, and its strategies by name.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// Four buffers that fit into 12 bytes.
const TABLE: &str = "id,lower,upper,size\nb1,0,3,4\nb2,3,9,4\nb3,0,9,4\nb4,9,21,4\n";

fn solve(folder: &Path, options: &[&str]) -> Output {
    fs::write(folder.join("table.csv"), TABLE).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
    command.arg("solve").arg("table.csv").args(options);
    command.current_dir(folder).output().unwrap()
}

#[test]
fn the_picture_shows_every_buffer_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let output = solve(folder.path(), &["--svg", "out.svg", "-o", "out.csv"]);
    assert!(output.status.success(), "{output:?}");
    let picture = fs::read_to_string(folder.path().join("out.svg")).unwrap();
    let placed = fs::read_to_string(folder.path().join("out.csv")).unwrap();
    for row in placed.lines().skip(1) {
        let fields: Vec<&str> = row.split(',').collect();
        let [id, lower, upper, size, offset] = fields[..] else {
            panic!("{row}");
        };
        let title =
            format!("<title>{id}\n{size} bytes at offset {offset}\nalive {lower}–{upper}</title>");
        assert!(picture.contains(&title), "{title}");
    }
    assert!(picture.contains("table.csv: 4 buffers · height 8 bytes, which is the lower bound"));
}

#[test]
fn it_can_be_called_as_minimalloc_is() {
    let folder = tempfile::tempdir().unwrap();
    let same = solve(folder.path(), &["--capacity", "8", "-o", "same.csv"]);
    assert!(same.status.success(), "{same:?}");
    let call = |options: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
        command.arg("solve").args(options);
        command.current_dir(folder.path()).output().unwrap()
    };
    let (input, output) = ("--input=table.csv", "--output=out.csv");
    let called = call(&["--capacity=8", input, output, "--timeout=15s"]);
    assert!(called.status.success(), "{called:?}");
    let read = |name| fs::read_to_string(folder.path().join(name)).unwrap();
    assert_eq!(read("out.csv"), read("same.csv"));
    for wrong in [&[input, "table.csv"][..], &[output]] {
        assert_eq!(call(wrong).status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn a_picture_that_cannot_be_written_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let output = solve(folder.path(), &["--svg", "no/such/folder/out.svg"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(
        error.starts_with("error: cannot create no/such/folder/out.svg"),
        "{error}"
    );
}

#[test]
fn planners_that_people_know_have_names() {
    let folder = tempfile::tempdir().unwrap();
    for name in [
        "tflite-greedy",
        "tflm-greedy",
        "equal-blocks",
        "whole-blocks",
        "growing-blocks",
        "caching-pool",
        "first-fit-birth",
        "best-fit-birth",
    ] {
        let output = solve(folder.path(), &["--json", "--strategy", name]);
        assert!(output.status.success(), "{output:?}");
        let summary = String::from_utf8(output.stdout).unwrap();
        assert!(
            summary.contains(&format!("\"strategy\": \"{name}\"")),
            "{summary}"
        );
    }
}

#[test]
fn what_does_not_fit_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let output = solve(folder.path(), &["--capacity", "7"]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("conflict     these alone need more: b1, b3"),
        "{text}"
    );
    let output = solve(folder.path(), &["--capacity", "7", "--json"]);
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(summary["conflict"], serde_json::json!(["b1", "b3"]));
    let output = solve(folder.path(), &["--capacity", "8", "--json"]);
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(summary.get("conflict"), None);
}

/// Buffers that no search places as low as the bound: sizes are odd and alignments of all kinds.
fn hard_table() -> String {
    let mut state = 1u64;
    let mut next = |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) % below
    };
    let mut table = "id,lower,upper,size,alignment\n".to_owned();
    for id in 0..2000 {
        let lower = next(1000);
        let upper = lower + 1 + next(60);
        let (size, alignment) = (2 * next(5000) + 1001, 1 << next(13));
        table += &format!("{id},{lower},{upper},{size},{alignment}\n");
    }
    table
}

/// Presses Ctrl-C, which is the signal SIGINT, once the program catches it and some field of what
/// Linux tells of the process is as it should be.
#[cfg(target_os = "linux")]
fn interrupt(child: &std::process::Child, ready: impl Fn(&str) -> bool) {
    use std::time::{Duration, Instant};

    let start = Instant::now();
    let is_ready = || {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = u64::from_str_radix(caught.unwrap().trim(), 16).unwrap();
        caught & 0b10 != 0 && ready(&status)
    };
    // More than once: a search may wait for a moment as well.
    let mut times = 0;
    while times < 3 {
        assert!(start.elapsed() < Duration::from_secs(30));
        std::thread::sleep(Duration::from_millis(20));
        times = if is_ready() { times + 1 } else { 0 };
    }
    let kill = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status();
    assert!(kill.unwrap().success());
}

/// The file that the result goes to is a pipe that nobody reads before Ctrl-C.
#[cfg(target_os = "linux")]
#[test]
fn ctrl_c_behind_the_search_does_not_lose_the_result() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(
        folder.path().join("a.csv"),
        "id,lower,upper,size\na,0,2,8\n",
    )
    .unwrap();
    let pipe = folder.path().join("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
    command.args(["solve", "a.csv", "-o", "pipe", "--json"]);
    command.stdout(std::process::Stdio::piped());
    let child = command.current_dir(folder.path()).spawn().unwrap();
    interrupt(&child, |status| status.contains("State:\tS"));
    let placed = fs::read_to_string(&pipe).unwrap();
    assert_eq!(placed, "id,lower,upper,size,offset\na,0,2,8,0\n");
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(output.stdout.starts_with(b"{"), "{output:?}");
}

#[cfg(target_os = "linux")]
#[test]
fn an_interrupted_search_prints_the_best_so_far() {
    use std::time::{Duration, Instant};

    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("hard.csv"), hard_table()).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
    command.args([
        "solve",
        "hard.csv",
        "--json",
        "-o",
        "placed.csv",
        "--time-limit",
        "60s",
    ]);
    command.stdout(std::process::Stdio::piped());
    let start = Instant::now();
    let child = command.current_dir(folder.path()).spawn().unwrap();
    interrupt(&child, |_| true);
    let output = child.wait_with_output().unwrap();
    assert!(start.elapsed() < Duration::from_secs(50), "it went on");
    assert!(output.status.success(), "{output:?}");
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(summary["cancelled"], true, "{summary}");
    assert_eq!(summary["proven_optimal"], false, "{summary}");
    let placed = fs::read_to_string(folder.path().join("placed.csv")).unwrap();
    let ends = placed.lines().skip(1).map(|row| {
        let fields: Vec<u64> = row.split(',').map(|field| field.parse().unwrap()).collect();
        fields[3] + fields[5]
    });
    assert_eq!(ends.max(), summary["height"].as_u64());
}
