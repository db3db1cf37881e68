//! What `tenure solve` says to tables that it cannot take: one message with the place, exit code 2,
//! and nothing on standard output.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output};

use flate2::Compression;
use flate2::write::GzEncoder;

const HEADER: &str = "id,lower,upper,size\n";
const FULL_HEADER: &str = "id,lower,upper,size,alignment,offset,gaps\n";

fn solve(folder: &Path, content: &[u8], options: &[&str]) -> Output {
    let path = folder.join("table.csv");
    fs::write(&path, content).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
    command.arg("solve").arg("table.csv").args(options);
    command.current_dir(folder).output().unwrap()
}

/// The whole of standard error of a refused table.
fn refusal(folder: &Path, content: &[u8], options: &[&str]) -> String {
    let output = solve(folder, content, options);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(output.stdout.is_empty(), "{error}");
    error
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn each_fault_has_its_message_and_line() {
    let folder = tempfile::tempdir().unwrap();
    let cases = [
        (
            "",
            "line 1: no header; the first line must name the columns, as `id,lower,upper,size`",
        ),
        (
            "a,0,1,5\n",
            "line 1: no header; the first line must name the columns, as `id,lower,upper,size`",
        ),
        (
            "id,lower,upper\na,0,1\n",
            "line 1: no column `size` in the header",
        ),
        (
            "\nid,lower,size\na,0,1\n",
            "line 2: no column `upper` in the header",
        ),
        (
            "id,start,end,size\na,0,1,5\n",
            "line 1: no column `lower` in the header; `start,end` with the end included are read with --inclusive",
        ),
        (
            "id,lower,upper,size,size\na,0,1,5,5\n",
            "line 1: the header names column `size` twice",
        ),
        (
            "HEADERa,0,1\n",
            "line 2: the header names 4 columns, but this row has 3",
        ),
        (
            "HEADERa,0,1,5,6\n",
            "line 2: the header names 4 columns, but this row has 5",
        ),
        (
            "HEADERa,0,1,5\n\"b,0,1,5\nc,0,1,5\n",
            "line 3: the header names 4 columns, but this row has 1; a quote on it is closed on another line, or not at all",
        ),
        ("HEADERa,0,1,5\nb,0,1,-5\n", "line 3: size `-5` is negative"),
        ("HEADERa,-1,1,5\n", "line 2: lower `-1` is negative"),
        ("HEADERa,0,1,5.5\n", "line 2: size `5.5` is no whole number"),
        ("HEADERa,0,1,\n", "line 2: size `` is no whole number"),
        (
            "HEADERa,3,3,5\n",
            "line 2: the lifetime is empty: upper 3 is not after 3",
        ),
        (
            "HEADERa,3,1,5\n",
            "line 2: the lifetime is empty: upper 1 is not after 3",
        ),
        (
            "HEADERa,0,1,18446744073709551616\n",
            "line 2: size `18446744073709551616` does not fit into 64 bits",
        ),
        (
            "HEADERa,0,1,9223372036854775807\nb,5,6,1\n",
            "line 3: sizes, paddings and fixed ends up to here add up to more than 63 bits",
        ),
        (
            "HEADERa,0,1,5\nb,0,1,5\n\na,1,2,5\n",
            "line 5: id `a` stands on line 2 already; ids must be unique",
        ),
        (
            "FULLa,0,1,5,0,,\n",
            "line 2: alignment 0; the least is 1, or leave the field empty",
        ),
        ("FULLa,0,1,5,,-1,\n", "line 2: offset `-1` is negative"),
        (
            "FULLa,0,1,5,,18446744073709551615,\n",
            "line 2: sizes, paddings and fixed ends up to here add up to more than 63 bits",
        ),
        (
            "FULLa,0,1,5,,,\nb,0,1,5,8,4,\n",
            "line 3: the offset 4 is no multiple of the alignment 8",
        ),
        (
            "FULLa,0,2,5,,0,\n\nb,1,3,5,,4,\n",
            "line 4: alive together with the buffer on line 2 and fixed on the same bytes",
        ),
        (
            "FULLa,0,9,5,,,3-12\n",
            "line 2: gap `3-12` is outside the lifetime",
        ),
        ("FULLa,0,9,5,,,3-x\n", "line 2: gaps `x` is no whole number"),
        (
            "FULLa,0,9,5,,,0-9\n",
            "line 2: gap `0-9` covers the whole lifetime; leave the buffer out instead",
        ),
    ];
    for (table, message) in cases {
        let table = table.replace("HEADER", HEADER).replace("FULL", FULL_HEADER);
        let expected = format!("error: table.csv: {message}\n");
        let plain = refusal(folder.path(), table.as_bytes(), &[]);
        assert_eq!(plain, expected, "{table}");
        let zipped = gzip(table.as_bytes());
        assert_eq!(refusal(folder.path(), &zipped, &[]), expected);
    }
}

#[test]
fn options_can_make_a_row_impossible() {
    let folder = tempfile::tempdir().unwrap();
    let table = format!("{FULL_HEADER}a,0,1,5,3,6,\n");
    assert!(solve(folder.path(), table.as_bytes(), &[]).status.success());
    assert_eq!(
        refusal(folder.path(), table.as_bytes(), &["--align", "4"]),
        "error: table.csv: line 2: the offset 6 is no multiple of the alignment 12\n"
    );
    assert_eq!(
        refusal(
            folder.path(),
            b"id,start,end,size\na,5,18446744073709551615,1\n",
            &["--inclusive"]
        ),
        "error: table.csv: line 2: end `18446744073709551615` does not fit into 64 bits\n"
    );
}

#[test]
fn what_is_no_text_or_no_whole_gzip_file_is_told_as_that() {
    let folder = tempfile::tempdir().unwrap();
    let error = |content: &[u8]| refusal(folder.path(), content, &[]);
    assert_eq!(
        error(b"\x7fELF\x00\x01\xff\xfe\n"),
        "error: table.csv: line 1: not UTF-8 text; is this an allocation table?\n"
    );
    let rows: String = (0..10_000).map(|row| format!("a{row},0,1,5\n")).collect();
    let zipped = gzip(format!("{HEADER}{rows}").as_bytes());
    let cut = error(&zipped[..zipped.len() / 2]);
    assert!(
        cut.contains(": the gzip file is damaged or cut short: "),
        "{cut}"
    );
    let damaged = error(b"\x1f\x8bno gzip at all");
    assert!(
        damaged.contains("line 1: the gzip file is damaged"),
        "{damaged}"
    );
}

#[test]
fn a_line_without_end_is_refused_before_it_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let too_long = |line: u64| {
        format!(
            "error: table.csv: line {line}: longer than 1048576 bytes; is this an allocation table?\n"
        )
    };
    // Gzip files in a row are one text: 4 GiB of zeros.
    let zeros = gzip(&vec![b'0'; 1 << 24]).repeat(256);
    let after = |start: &str| [gzip(start.as_bytes()), zeros.clone()].concat();
    let rows = format!("{HEADER}a,0,1,5\nb,0,1,");
    let cases = [(rows, 3), (format!("{HEADER}\""), 2), (String::new(), 1)];
    for (start, line) in cases {
        let bomb = after(&start);
        assert!(bomb.len() < 8 << 20);
        assert_eq!(refusal(folder.path(), &bomb, &[]), too_long(line));
    }
    let plain = [HEADER.as_bytes(), &vec![b'x'; 3 << 20]].concat();
    assert_eq!(refusal(folder.path(), &plain, &[]), too_long(2));
}
