//! Bytes over steps as a chart of block characters.

use super::{Paint, Style};
use crate::model::Peak;
use crate::name;
use crate::size;

/// Columns of the plot.
const COLUMNS: usize = 60;
/// Lines of the plot.
const LINES: usize = 8;
/// Columns left of the axis.
const MARGIN: usize = 11;
/// How finely a block character divides its line.
const EIGHTHS: usize = 8;

/// The chart with its axes, a line each; empty when there is nothing to plot.
pub(super) fn lines(load: &[u64], peak: Peak, style: Style) -> Vec<String> {
    let columns = columns(load);
    if columns.is_empty() || peak.bytes == 0 {
        return Vec::new();
    }
    let marks = Marks::of(style);
    let paint = Paint::of(style);
    let peak_column = column_of(peak.step as usize, load.len(), columns.len());
    let mut out = Vec::with_capacity(LINES + 2);
    for line in (0..LINES).rev() {
        let label = match line {
            _ if line == LINES - 1 => size::human(peak.bytes),
            _ if line == LINES / 2 - 1 => size::human(peak.bytes / 2),
            _ => String::new(),
        };
        let tick = if label.is_empty() {
            marks.side
        } else {
            marks.tick
        };
        let mut text = format!("{label:>MARGIN$} {tick}");
        for (i, &bytes) in columns.iter().enumerate() {
            let mark = marks.cell(height(bytes, peak.bytes).saturating_sub(line * EIGHTHS));
            if i == peak_column {
                text += &paint.peak(&mark.to_string());
            } else {
                text.push(mark);
            }
        }
        // Spaces behind the last block say nothing.
        out.push(text.trim_end().to_owned());
    }
    let axis: String = std::iter::repeat_n(marks.floor, columns.len()).collect();
    out.push(format!("{:>MARGIN$} {}{axis}", 0, marks.corner));
    out.push(under_axis(
        load.len(),
        peak.step,
        peak_column,
        columns.len(),
        &marks,
        paint,
    ));
    out
}

/// The line below the axis: first step, the peak, last step.
fn under_axis(
    steps: usize,
    peak: u32,
    peak_column: usize,
    columns: usize,
    marks: &Marks,
    paint: Paint,
) -> String {
    let indent = MARGIN + 2;
    let (first, last) = (format!("{:>MARGIN$}  0", "step"), (steps - 1).to_string());
    let mark = format!("{} {peak}", marks.peak);
    let at = indent + peak_column;
    let mut out = first;
    let mut used = name::width(&out);
    if at > used {
        out += &" ".repeat(at - used);
        used = at;
    } else {
        // The peak is at the left edge: its own number takes the place of the 0.
        out.truncate(out.len() - 1);
        used -= 1;
    }
    used += name::width(&mark);
    out += &paint.peak(&mark);
    let last_at = (indent + columns).saturating_sub(last.len());
    if last_at > used {
        out += &" ".repeat(last_at - used);
        out += &last;
    }
    out
}

/// The greatest load of the steps behind each column. Fewer steps than columns take several
/// columns each, all the same number.
fn columns(load: &[u64]) -> Vec<u64> {
    if load.is_empty() {
        return Vec::new();
    }
    let count = if load.len() < COLUMNS {
        load.len() * (COLUMNS / load.len())
    } else {
        COLUMNS
    };
    let mut columns = vec![0u64; count];
    if load.len() <= count {
        for (i, column) in columns.iter_mut().enumerate() {
            *column = load[i * load.len() / count];
        }
    } else {
        for (step, &bytes) in load.iter().enumerate() {
            let column = &mut columns[column_of(step, load.len(), count)];
            *column = bytes.max(*column);
        }
    }
    columns
}

/// The first column that shows a step.
fn column_of(step: usize, steps: usize, columns: usize) -> usize {
    (step * columns / steps).min(columns - 1)
}

/// Eighths of a line, at least one for what is not nothing.
fn height(bytes: u64, peak: u64) -> usize {
    let full = (LINES * EIGHTHS) as u128;
    let eighths = (u128::from(bytes) * full).div_ceil(u128::from(peak));
    usize::try_from(eighths).unwrap_or(LINES * EIGHTHS)
}

/// The characters that a chart is drawn with.
struct Marks {
    cells: &'static [char],
    side: char,
    tick: char,
    corner: char,
    floor: char,
    peak: char,
}

impl Marks {
    fn of(style: Style) -> Self {
        if style.unicode {
            Marks {
                cells: &[' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'],
                side: '│',
                tick: '┤',
                corner: '└',
                floor: '─',
                peak: '▲',
            }
        } else {
            Marks {
                cells: &[' ', '.', '#'],
                side: '|',
                tick: '+',
                corner: '+',
                floor: '-',
                peak: '^',
            }
        }
    }

    /// The character that fills so many eighths of a line.
    fn cell(&self, eighths: usize) -> char {
        let last = self.cells.len() - 1;
        self.cells[(eighths.min(EIGHTHS) * last).div_ceil(EIGHTHS)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Style = Style {
        color: false,
        unicode: true,
    };

    #[test]
    fn every_column_is_the_greatest_of_its_steps() {
        let load: Vec<u64> = (0..1000).map(|i| if i == 777 { 50 } else { 1 }).collect();
        let columns = columns(&load);
        assert_eq!(columns.len(), COLUMNS);
        assert_eq!(columns[column_of(777, load.len(), COLUMNS)], 50);
        assert_eq!(columns.iter().filter(|&&c| c == 50).count(), 1);
    }

    #[test]
    fn few_steps_are_equally_wide() {
        let columns = columns(&[1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(columns.len(), 56);
        for step in 0..7usize {
            assert_eq!(columns.iter().filter(|&&c| c == step as u64 + 1).count(), 8);
            assert_eq!(columns[column_of(step, 7, 56)], step as u64 + 1);
        }
    }

    #[test]
    fn the_least_load_still_shows() {
        assert_eq!(height(1, u64::MAX), 1);
        assert_eq!(height(u64::MAX, u64::MAX), LINES * EIGHTHS);
        assert_eq!(height(0, 7), 0);
    }

    #[test]
    fn no_chart_is_wider_than_a_terminal() {
        for steps in [1usize, 2, 59, 60, 61, 100_000] {
            for peak in [0, steps / 2, steps - 1] {
                let mut load = vec![3; steps];
                load[peak] = 5;
                let step = u32::try_from(peak).unwrap();
                let lines = lines(&load, Peak { step, bytes: 5 }, PLAIN);
                assert_eq!(lines.len(), LINES + 2);
                assert!(lines.iter().all(|l| name::width(l) <= 80), "{lines:#?}");
            }
        }
    }
}
