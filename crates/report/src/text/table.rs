//! A table that fits a terminal: columns that may be cut give way to those that may not.

use super::{Style, name};

/// How a column is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Column {
    /// Right-aligned, never cut.
    Number,
    /// Left-aligned, never cut.
    Text,
    /// Left-aligned, its middle left out when room is short, down to so many columns.
    Cut(usize),
}

/// Spaces between two columns.
const BETWEEN: usize = 2;

/// Lays out rows in at most `room` columns of the terminal, unless what may not be cut takes
/// more. The first row is the heading.
pub(super) fn lines(
    columns: &[Column],
    rows: &[Vec<String>],
    room: usize,
    style: Style,
) -> Vec<String> {
    let mut widths: Vec<usize> = (0..columns.len())
        .map(|c| {
            rows.iter()
                .filter_map(|r| r.get(c))
                .map(|t| name::width(t))
                .max()
                .unwrap_or(0)
        })
        .collect();
    let between = BETWEEN * columns.len().saturating_sub(1);
    while widths.iter().sum::<usize>() + between > room {
        let widest = (0..columns.len())
            .filter(|&c| matches!(columns[c], Column::Cut(least) if widths[c] > least))
            .max_by_key(|&c| widths[c]);
        let Some(widest) = widest else { break };
        widths[widest] -= 1;
    }
    rows.iter()
        .map(|row| {
            let cells = row
                .iter()
                .zip(columns)
                .zip(&widths)
                .map(|((text, column), &width)| {
                    let text = name::shorten(text, width, style);
                    let pad = " ".repeat(width.saturating_sub(name::width(&text)));
                    match column {
                        Column::Number => pad + &text,
                        Column::Text | Column::Cut(_) => text + &pad,
                    }
                });
            cells
                .collect::<Vec<_>>()
                .join(&" ".repeat(BETWEEN))
                .trim_end()
                .to_owned()
        })
        .collect()
}
