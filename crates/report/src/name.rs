//! Names on a terminal and in a picture: made harmless, then cut to a width.
//!
//! Names come from files that nobody vouches for. A control character could drive the terminal or
//! make the picture's XML unreadable, a bidirectional mark could turn the rest of the line around:
//! neither gets out.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::text::Style;

/// Columns that a text takes on a terminal.
pub(crate) fn width(text: &str) -> usize {
    text.width()
}

/// The text with everything that is not plain to print replaced.
pub(crate) fn harmless(text: &str, style: Style) -> String {
    let swap = if style.unicode { '\u{fffd}' } else { '?' };
    let printable = |c: char| {
        let no_text = matches!(c, '\u{2028}' | '\u{2029}' | '\u{fffe}' | '\u{ffff}');
        let harmful = c.is_control() || turns_the_line(c) || no_text;
        !harmful && (style.unicode || c.is_ascii())
    };
    text.chars()
        .map(|c| if printable(c) { c } else { swap })
        .collect()
}

/// Marks, embeddings, overrides and isolates of the bidirectional algorithm.
fn turns_the_line(c: char) -> bool {
    matches!(c, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The text in at most `columns` columns, its middle left out when it is longer: names of nodes
/// tell their place at the front and their operator at the end.
pub(crate) fn shorten(text: &str, columns: usize, style: Style) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let gap = if style.unicode { "…" } else { ".." };
    let Some(room) = columns.checked_sub(width(gap)) else {
        return String::new();
    };
    let head = take(text.chars(), room / 2);
    let tail: Vec<char> = take(text.chars().rev(), room - room / 2);
    head.iter().collect::<String>() + gap + &tail.iter().rev().collect::<String>()
}

/// As many characters from the front as fit in `columns`.
fn take(chars: impl Iterator<Item = char>, columns: usize) -> Vec<char> {
    let mut used = 0;
    chars
        .take_while(|c| {
            used += c.width().unwrap_or(0);
            used <= columns
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Style = Style {
        color: false,
        unicode: true,
    };
    const ASCII: Style = Style {
        color: false,
        unicode: false,
    };

    #[test]
    fn long_names_lose_their_middle() {
        assert_eq!(
            shorten("/layer1/conv1/Conv_output_0", 13, PLAIN),
            "/layer…tput_0"
        );
        assert_eq!(
            shorten("/layer1/conv1/Conv_output_0", 13, ASCII),
            "/laye..tput_0"
        );
        assert_eq!(shorten("short", 5, PLAIN), "short");
        assert_eq!(shorten("short", 1, PLAIN), "…");
        assert_eq!(shorten("short", 0, PLAIN), "");
    }

    #[test]
    fn wide_characters_never_pass_the_edge() {
        for columns in 0..12 {
            assert!(width(&shorten("畳み込み層の出力", columns, PLAIN)) <= columns);
        }
    }

    #[test]
    fn nothing_reaches_the_terminal_that_could_drive_it() {
        assert_eq!(harmless("a\x1b[2Jb\nc", PLAIN), "a\u{fffd}[2Jb\u{fffd}c");
        assert_eq!(harmless("x\u{202e}y\u{ffff}", PLAIN), "x\u{fffd}y\u{fffd}");
        assert_eq!(harmless("Größe", ASCII), "Gr??e");
    }
}
