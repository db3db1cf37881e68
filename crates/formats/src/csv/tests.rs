//! Tables that are read, tables that are refused, and tables that are written back.

use std::cell::Cell;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::*;

fn read_str(text: &str) -> Result<Table, Error> {
    read(text.as_bytes(), &Options::default())
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn row(id: &str, lower: u64, upper: u64, size: u64, line: u64) -> Row {
    Row {
        id: id.to_owned(),
        lower,
        upper,
        size,
        alignment: 1,
        offset: None,
        gaps: Vec::new(),
        line,
    }
}

#[test]
fn spellings_of_the_same_table_read_alike() {
    let plain = "id,lower,upper,size\na,0,4,100\nb,2,6,0\n";
    let expected = [row("a", 0, 4, 100, 2), row("b", 2, 6, 0, 3)];
    let spellings = [
        plain.to_owned(),
        plain.trim_end().to_owned(),
        plain.replace('\n', "\r\n"),
        format!("\u{feff}{plain}"),
        plain.replace(',', " ,\t "),
        plain.replace('a', "\"a\""),
    ];
    for text in &spellings {
        assert_eq!(read_str(text).unwrap().rows(), expected, "{text:?}");
    }
    let zipped = gzip(plain.as_bytes());
    assert_eq!(
        read(&zipped[..], &Options::default()).unwrap().rows(),
        expected
    );
    // Two gzip members are one text.
    let halves = plain.split_at(25);
    let zipped = [gzip(halves.0.as_bytes()), gzip(halves.1.as_bytes())].concat();
    assert_eq!(
        read(&zipped[..], &Options::default()).unwrap().rows(),
        expected
    );
}

#[test]
fn columns_come_in_any_order_and_may_be_empty() {
    let text = "gaps,size,offset,upper,alignment,id,lower\n\
                6-8 2-4,100,128,9,64,\"x, y\",1\n\
                ,7,,3,,z,2\n";
    let mut first = row("x, y", 1, 9, 100, 2);
    first.alignment = 64;
    first.offset = Some(128);
    first.gaps = vec![(2, 4), (6, 8)];
    assert_eq!(
        read_str(text).unwrap().rows(),
        [first, row("z", 2, 3, 7, 3)]
    );
}

#[test]
fn other_names_of_columns_are_taken_where_the_usual_ones_are_not_there() {
    let expected = [row("a", 2, 4, 7, 2)];
    for text in [
        "buffer,begin,upper,size\na,2,4,7\n",
        "buffer_id,lower,upper,size\na,2,4,7\n",
        "begin,buffer,id,lower,upper,size\n9,9,a,2,4,7\n",
    ] {
        assert_eq!(read_str(text).unwrap().rows(), expected, "{text}");
    }
}

#[test]
fn as_many_columns_as_a_line_can_name_are_read_at_once() {
    let columns = 150_000;
    let names = (0..columns).map(|at| format!(",{at}"));
    let text = format!("id,lower,upper,size{}\n", names.collect::<String>());
    let text = format!("{text}a,0,4,1{}\n", ",".repeat(columns));
    let start = std::time::Instant::now();
    let table = read_str(&text).unwrap();
    assert_eq!(table.rows(), [row("a", 0, 4, 1, 2)]);
    let mut out = Vec::new();
    table.write_with_offsets(&[8], &mut out).unwrap();
    assert!(out.ends_with(b",8\n"));
    // Comparing all pairs takes minutes.
    assert!(start.elapsed().as_secs() < 10);
}

#[test]
fn lines_count_from_one_and_blank_ones_too() {
    let text = "\nid,lower,upper,size\n  \n\na,0,4,100\n\n\"b\nb\",0,4,1\nc,0,4,1";
    for text in [text.to_owned(), text.replace('\n', "\r\n")] {
        let table = read_str(&text).unwrap();
        let lines: Vec<u64> = table.rows().iter().map(|row| row.line).collect();
        assert_eq!(lines, [5, 7, 9]);
    }
}

#[test]
fn inclusive_ends_are_read_on_request() {
    let options = Options {
        times: Times::Inclusive,
        ..Options::default()
    };
    let text = "id,start,end,size\na,0,4,100\n";
    let table = read(text.as_bytes(), &options).unwrap();
    assert_eq!(table.rows(), [row("a", 0, 5, 100, 2)]);
    let mut out = Vec::new();
    table.write_with_offsets(&[7], &mut out).unwrap();
    assert_eq!(out, b"id,start,end,size,offset\na,0,4,100,7\n");

    let text = "id,start,end,size,gaps\na,0,9,100,3-3 5-9\n";
    let table = read(text.as_bytes(), &options).unwrap();
    assert_eq!(table.rows()[0].gaps, [(3, 4), (5, 10)]);

    let text = "id,start,end,size\na,0,4,100\n";
    let cases = [
        (read_str(text), "with --inclusive"),
        (
            read(
                "id,start,end,size,gaps\na,5,18446744073709551614,1,7-18446744073709551615\n"
                    .as_bytes(),
                &options,
            ),
            "line 2: gap `7-18446744073709551615` is outside",
        ),
        (
            read("id,lower,upper,size\n".as_bytes(), &options),
            "without --inclusive",
        ),
        (
            read("id,start,end,size\na,5,4,1\n".as_bytes(), &options),
            "end 4 is not after 5",
        ),
        (
            read(
                "id,start,end,size\na,5,18446744073709551615,1\n".as_bytes(),
                &options,
            ),
            "line 2: end `18446744073709551615` does not fit",
        ),
    ];
    for (result, part) in cases {
        let message = result.unwrap_err().to_string();
        assert!(message.contains(part), "{message:?} should say {part:?}");
    }
}

#[test]
fn faults_are_named_with_their_lines() {
    let long = "9".repeat(100);
    let cases = [
        ("", "line 1: no header"),
        ("\n\n", "line 1: no header"),
        ("0,0,4,100\n", "line 1: no header"),
        ("id,lower,upper\n", "line 1: no column `size` in the header"),
        (
            "id,lower,upper,size,id\n",
            "line 1: the header names column `id` twice",
        ),
        (
            "id,lower,upper,size\na,0,4\n",
            "line 2: the header names 4 columns, but this row has 3",
        ),
        (
            "id,lower,upper,size\na,0,4,1,\n",
            "line 2: the header names 4 columns, but this row has 5",
        ),
        (
            "id,lower,upper,size\na,0,4,1\nb,-1,4,1\n",
            "line 3: lower `-1` is negative",
        ),
        (
            "id,lower,upper,size\na,0,4,1.5\n",
            "line 2: size `1.5` is no whole number",
        ),
        (
            "id,lower,upper,size\na,0,4,\n",
            "line 2: size `` is no whole number",
        ),
        (
            "id,lower,upper,size\na,0,4,+1\n",
            "line 2: size `+1` is no whole number",
        ),
        (
            "id,lower,upper,size\na,0,18446744073709551616,1\n",
            "line 2: upper `18446744073709551616` does not fit into 64 bits",
        ),
        (
            &format!("id,lower,upper,size\na,0,{long},1\n"),
            "9999999999999999999999999999999999999999…` does not fit",
        ),
        (
            "id,lower,upper,size\na,4,4,1\n",
            "line 2: the lifetime is empty: upper 4 is not after 4",
        ),
        (
            "id,lower,upper,size,alignment\na,0,4,1,0\n",
            "line 2: alignment 0",
        ),
        (
            "id,lower,upper,size\na,0,4,1\nb,0,4,1\na,0,4,1\nc,0,4,x\n",
            "line 4: id `a` stands on line 2",
        ),
        (
            "id,lower,upper,size,gaps\na,0,4,1,2\n",
            "line 2: gap `2` is not of the form",
        ),
        (
            "id,lower,upper,size,gaps\na,0,4,1,2-x\n",
            "line 2: gaps `x` is no whole number",
        ),
        (
            "id,lower,upper,size,gaps\na,0,4,1,2-2\n",
            "line 2: gap `2-2` is empty",
        ),
        (
            "id,lower,upper,size,gaps\na,0,4,1,2-3@0:1\n",
            "line 2: gap `2-3@0:1` lends out some of the bytes",
        ),
        (
            "id,lower,upper,size,gaps\na,0,4,1,2-5\n",
            "line 2: gap `2-5` is outside the lifetime",
        ),
        (
            "id,lower,upper,size,gaps\na,0,4,1,1-3 2-4\n",
            "line 2: gap `1-3 2-4` has parts that",
        ),
        (
            "id,lower,upper,size,gaps\na,0,4,1,2-4 0-2\n",
            "line 2: gap `2-4 0-2` covers the whole",
        ),
    ];
    for (text, part) in cases {
        let message = read_str(text).unwrap_err().to_string();
        assert!(
            message.contains(part),
            "{text:?} gives {message:?}, should say {part:?}"
        );
    }
}

#[test]
fn bytes_that_are_no_text_are_refused() {
    let bytes = b"id,lower,upper,size\na,0,4,1\n\xff\xfe,0,4,1\n";
    let error = read(&bytes[..], &Options::default()).unwrap_err();
    assert!(matches!(error, Error::NotText { line: 3 }), "{error:?}");
}

#[test]
fn control_characters_are_refused_wherever_they_stand() {
    for control in ('\0'..='\u{a0}').filter(|c| c.is_control()) {
        let harmless = matches!(control, '\t' | '\r' | '\n');
        let texts = [
            (
                3,
                format!("id,lower,upper,size\na,0,4,1\n\"b{control}b\",0,4,1\n"),
            ),
            (2, format!("id,lower,upper,size\na,0,4,\"{control}1\"\n")),
            (2, format!("id,lower,upper,size\n\"{control}\"\na,0,4,1\n")),
            (1, format!("id,lower,upper,size,\"{control}\"\na,0,4,1,\n")),
        ];
        for (at, text) in texts {
            match read_str(&text) {
                Err(Error::Control {
                    line,
                    control: found,
                }) if !harmless => {
                    assert_eq!((line, found), (at, control));
                }
                Ok(_) if harmless => {}
                other => panic!("{text:?} gives {other:?}"),
            }
        }
    }
}

/// An endless input; counts what was asked of it.
struct Endless<'a> {
    head: &'a [u8],
    byte: u8,
    given: &'a Cell<usize>,
}

impl Read for Endless<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = if self.head.is_empty() {
            buffer.fill(self.byte);
            buffer.len()
        } else {
            self.head.read(buffer)?
        };
        self.given.set(self.given.get() + count);
        Ok(count)
    }
}

#[test]
fn an_endless_line_is_refused_soon() {
    for (head, line) in [("", 1), ("id,lower,upper,size\na,0,4,1\n\"", 3)] {
        let given = Cell::new(0);
        let input = Endless {
            head: head.as_bytes(),
            byte: b'x',
            given: &given,
        };
        let error = read(input, &Options::default()).unwrap_err();
        assert!(
            matches!(error, Error::LineTooLong { line: at } if at == line),
            "{error:?}"
        );
        assert!(given.get() < 2 << 20, "{} bytes were read", given.get());
    }
}

#[test]
fn the_longest_line_is_exactly_one_mebibyte() {
    let limit = usize::try_from(MAX_LINE).unwrap();
    for (length, accepted) in [(limit, true), (limit + 1, false)] {
        let mut text = String::from("id,lower,upper,size\n");
        let tail = ",0,4,1\n";
        text.push_str(&"x".repeat(length - tail.len()));
        text.push_str(tail);
        assert_eq!(read_str(&text).is_ok(), accepted, "{length} bytes");
    }
}

#[test]
fn a_small_file_that_inflates_beyond_the_limit_is_refused() {
    let bomb = gzip(&vec![b'\n'; 1 << 20]);
    assert!(bomb.len() < 1 << 13);
    let options = Options {
        max_bytes: 1 << 16,
        ..Options::default()
    };
    let error = read(&bomb[..], &options).unwrap_err();
    assert!(
        matches!(error, Error::TooLarge { max_bytes: 65_536 }),
        "{error:?}"
    );
}

#[test]
fn more_rows_than_the_limit_are_refused() {
    let text = "id,lower,upper,size\na,0,4,1\n\nb,0,4,1\nc,0,4,1\n";
    let limited = |max_rows| {
        let options = Options {
            max_rows,
            ..Options::default()
        };
        read(text.as_bytes(), &options)
    };
    assert_eq!(limited(3).unwrap().rows().len(), 3);
    let error = limited(1).unwrap_err();
    assert!(
        matches!(
            error,
            Error::TooManyRows {
                line: 4,
                max_rows: 1
            }
        ),
        "{error:?}"
    );
}

#[test]
fn a_broken_gzip_is_told_from_a_file_that_cannot_be_read() {
    let mut zipped = gzip(b"id,lower,upper,size\na,0,4,1\n");
    zipped.truncate(zipped.len() - 6);
    let error = read(&zipped[..], &Options::default()).unwrap_err();
    assert!(matches!(error, Error::Damaged { .. }), "{error:?}");

    struct Failing;
    impl Read for Failing {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::from(io::ErrorKind::PermissionDenied))
        }
    }
    let error = read(zipped[..20].chain(Failing), &Options::default()).unwrap_err();
    assert!(matches!(error, Error::Io(_)), "{error:?}");
}

#[test]
fn writing_keeps_every_column_and_fills_in_offsets() {
    let cases = [
        (
            "id,lower,upper,size\na,0,4,007\n",
            "id,lower,upper,size,offset\na,0,4,007,64\n",
        ),
        (
            "note,offset,id,gaps,lower,upper,size\n\"x, y\",,a,1-2,0,4,7\n",
            "note,offset,id,gaps,lower,upper,size\n\"x, y\",64,a,1-2,0,4,7\n",
        ),
    ];
    for (text, expected) in cases {
        let mut out = Vec::new();
        read_str(text)
            .unwrap()
            .write_with_offsets(&[64], &mut out)
            .unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
    let table = read_str(cases[1].0).unwrap();
    let error = table.write_with_offsets(&[1, 2], io::sink()).unwrap_err();
    assert_eq!(error.to_string(), "2 offsets for 1 rows");
}
