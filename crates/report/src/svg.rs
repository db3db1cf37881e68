//! A packing as one picture in SVG: a rectangle for each piece of a buffer's life, time from left
//! to right, offsets from the bottom up.
//!
//! Only the order of births and deaths matters to a packing, so each moment at which a buffer is
//! born or dies is as far from the next one as any other; the axis names the times. The colour
//! stands for the size, in eight steps on a logarithmic scale. Pointing at a rectangle shows its
//! id, size, offset and life.
//!
//! The picture is bounded: at most [`MAX_RECTANGLES`] rectangles, those of the largest buffers,
//! and it says so when others are left out. Ids are hostile until shown otherwise: they become
//! text, cut to [`MAX_ID`] columns. Coordinates are worked out in hundredths of a pixel as
//! integers, so that the same packing gives the same bytes everywhere.

use std::cmp::Reverse;
use std::fmt::Write;

use crate::html::escape;
use crate::name::{harmless, shorten, width};
use crate::size::{grouped, human};
use crate::text::Style;

/// The most rectangles that are drawn.
pub const MAX_RECTANGLES: usize = 20_000;

/// The most columns of an id that are shown.
pub const MAX_ID: usize = 120;

/// The most ids that are written into their rectangles.
const MAX_LABELS: usize = 400;

const STYLE: &str = include_str!("../assets/packing.css");

// All lengths below are hundredths of a pixel.
const PIXEL: u64 = 100;
const WIDTH: u64 = 1280 * PIXEL;
const HEIGHT: u64 = 800 * PIXEL;
const LEFT: u64 = 84 * PIXEL;
const TOP: u64 = 76 * PIXEL;
const PLOT_WIDTH: u64 = WIDTH - LEFT - 20 * PIXEL;
const PLOT_HEIGHT: u64 = HEIGHT - TOP - 44 * PIXEL;
/// Advance of one column of an id inside a rectangle.
const COLUMN: u64 = 6 * PIXEL + 2;
/// Rectangles below this width or height have no outline: it would cover them.
const LEAST_OUTLINED: u64 = 3 * PIXEL;

/// What becomes a picture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packing<'a> {
    /// What stands above it, such as the name of the file.
    pub title: &'a str,
    /// The end of the highest buffer in bytes.
    pub height: u64,
    /// A height in bytes that no packing can beat.
    pub lower_bound: u64,
    /// The buffers; those of size 0 are not drawn.
    pub buffers: Vec<PackedBuffer<'a>>,
}

/// A buffer and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackedBuffer<'a> {
    /// Its name.
    pub id: &'a str,
    /// Bytes.
    pub size: u64,
    /// First byte.
    pub offset: u64,
    /// The pieces of its life, half-open and in the order of time.
    pub life: Vec<(u64, u64)>,
}

/// The picture, a file of its own. The same packing gives the same bytes.
///
/// ```
/// use tenure_report::svg::{PackedBuffer, Packing, picture};
///
/// let buffer = PackedBuffer { id: "conv1", size: 4096, offset: 0, life: vec![(0, 3)] };
/// let packing = Packing { title: "net.csv", height: 4096, lower_bound: 4096, buffers: vec![buffer] };
/// assert!(picture(&packing).contains("conv1\n4 096 bytes (4.0 KiB)"));
/// ```
#[must_use]
pub fn picture(packing: &Packing<'_>) -> String {
    let scale = Scale::new(packing);
    let rectangles = rectangles(packing, &scale);
    let drawn = rectangles.last().map_or(0, |r| r.rank + 1);
    let (width, height) = (WIDTH / PIXEL, HEIGHT / PIXEL);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\" role=\"img\">\n<style>\n{STYLE}</style>\n"
    );
    heading(&mut out, packing, drawn);
    axes(&mut out, packing, &scale);
    draw(&mut out, packing, rectangles);
    lines(&mut out, packing, &scale);
    out.push_str("</svg>\n");
    out
}

/// Where times and bytes lie in the picture.
struct Scale {
    /// All births and deaths, ascending.
    times: Vec<u64>,
    /// Bytes up to the top of the plot; at least 1.
    bytes: u64,
}

impl Scale {
    fn new(packing: &Packing<'_>) -> Self {
        let held = packing.buffers.iter().filter(|buffer| buffer.size > 0);
        let lives = held.flat_map(|buffer| &buffer.life);
        let mut times: Vec<u64> = lives.flat_map(|&(lower, upper)| [lower, upper]).collect();
        times.sort_unstable();
        times.dedup();
        Scale {
            times,
            bytes: packing.height.max(packing.lower_bound).max(1),
        }
    }

    /// The place of a moment: `number` of all births and deaths.
    fn moment(&self, number: usize) -> u64 {
        let last = self.times.len().saturating_sub(1);
        LEFT + part(PLOT_WIDTH, number as u64, last as u64)
    }

    fn time(&self, time: u64) -> u64 {
        self.moment(self.times.partition_point(|&other| other < time))
    }

    fn byte(&self, byte: u64) -> u64 {
        TOP + PLOT_HEIGHT - part(PLOT_HEIGHT, byte, self.bytes)
    }
}

/// `length * number / of`, at most `length`.
fn part(length: u64, number: u64, of: u64) -> u64 {
    let product = u128::from(length) * u128::from(number);
    let part = product.checked_div(u128::from(of)).unwrap_or(0);
    u64::try_from(part).map_or(length, |part| part.min(length))
}

/// A length as it stands in the file: `12`, `12.5`, `12.34`.
fn px(hundredths: u64) -> String {
    let (whole, rest) = (hundredths / PIXEL, hundredths % PIXEL);
    match (rest, rest % 10) {
        (0, _) => whole.to_string(),
        (_, 0) => format!("{whole}.{}", rest / 10),
        _ => format!("{whole}.{rest:02}"),
    }
}

/// A piece of a buffer.
struct Rectangle {
    buffer: usize,
    /// The place of its buffer when the largest ones come first.
    rank: usize,
    x: u64,
    y: u64,
    w: u64,
    h: u64,
}

/// The rectangles of the largest buffers, the largest first, as many as may be drawn; a buffer is
/// drawn with all its pieces or not at all.
fn rectangles(packing: &Packing<'_>, scale: &Scale) -> Vec<Rectangle> {
    let buffers = &packing.buffers;
    let mut order: Vec<usize> = (0..buffers.len()).collect();
    order.retain(|&index| buffers[index].size > 0);
    order.sort_by_key(|&index| (Reverse(buffers[index].size), index));
    let mut out: Vec<Rectangle> = Vec::new();
    for (rank, &index) in order.iter().enumerate() {
        let buffer = &buffers[index];
        if out.len() + buffer.life.len() > MAX_RECTANGLES {
            break;
        }
        let end = scale.byte(buffer.offset.saturating_add(buffer.size));
        for &(lower, upper) in &buffer.life {
            let x = scale.time(lower);
            out.push(Rectangle {
                buffer: index,
                rank,
                x,
                y: end,
                w: scale.time(upper).saturating_sub(x),
                h: scale.byte(buffer.offset).saturating_sub(end),
            });
        }
    }
    out
}

fn heading(out: &mut String, packing: &Packing<'_>, drawn: usize) {
    let title = escape(&shown(packing.title));
    let count = packing.buffers.iter().filter(|b| b.size > 0).count();
    let buffers = if count == 1 { "buffer" } else { "buffers" };
    let mut about = format!(
        "{} {buffers} · height {}, ",
        grouped(count as u64),
        bytes(packing.height)
    );
    about += &match packing.height.checked_sub(packing.lower_bound) {
        None | Some(0) => "which is the lower bound".to_owned(),
        Some(over) => format!(
            "{} bytes above the lower bound {}",
            grouped(over),
            grouped(packing.lower_bound)
        ),
    };
    if drawn < count {
        let drawn = grouped(drawn as u64);
        about += &format!(" · only the {drawn} largest buffers are drawn");
    }
    let plot = (px(LEFT), px(TOP), px(PLOT_WIDTH), px(PLOT_HEIGHT));
    let _ = write!(
        out,
        "<title>{title}: {about}</title>\n\
         <rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n\
         <text class=\"title\" x=\"{0}\" y=\"28\">{title}</text>\n\
         <text x=\"{0}\" y=\"48\">{about}</text>\n\
         <rect class=\"plot\" x=\"{0}\" y=\"{1}\" width=\"{2}\" height=\"{3}\"/>\n",
        plot.0, plot.1, plot.2, plot.3
    );
}

/// A size in bytes, and in a larger unit where that says more.
fn bytes(size: u64) -> String {
    match size {
        0..1024 => format!("{size} bytes"),
        _ => format!("{} bytes ({})", grouped(size), human(size)),
    }
}

/// Text of the user as it is shown.
fn shown(text: &str) -> String {
    let style = Style {
        color: false,
        unicode: true,
    };
    shorten(&harmless(text, style), MAX_ID, style)
}

fn axes(out: &mut String, packing: &Packing<'_>, scale: &Scale) {
    let right = px(LEFT + PLOT_WIDTH);
    // Steps of a power of two, at most eight of them.
    let step = scale.bytes.div_ceil(8).next_power_of_two();
    for mark in 0..=packing.height / step {
        let byte = mark * step;
        let y = scale.byte(byte);
        let _ = writeln!(
            out,
            "<line class=\"grid\" x1=\"{left}\" x2=\"{right}\" y1=\"{line}\" y2=\"{line}\"/>\
             <text x=\"{label}\" y=\"{base}\" text-anchor=\"end\">{text}</text>",
            left = px(LEFT),
            line = px(y),
            label = px(LEFT - 8 * PIXEL),
            base = px(y + 4 * PIXEL),
            text = in_units(byte, step),
        );
    }
    let below = px(TOP + PLOT_HEIGHT + 16 * PIXEL);
    let moments = scale.times.len();
    let stride = moments.saturating_sub(1).div_ceil(12).max(1);
    for (number, time) in scale.times.iter().enumerate().step_by(stride) {
        let _ = writeln!(
            out,
            "<text x=\"{}\" y=\"{below}\" text-anchor=\"middle\">{}</text>",
            px(scale.moment(number)),
            grouped(*time)
        );
    }
    let _ = writeln!(
        out,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">time, one place for each of the {} moments \
         of birth or death</text>",
        px(LEFT + PLOT_WIDTH / 2),
        px(TOP + PLOT_HEIGHT + 34 * PIXEL),
        grouped(moments as u64)
    );
}

/// A mark on the axis of bytes: in the largest unit of which the step is a quarter at least, so
/// that no mark needs rounding.
fn in_units(bytes: u64, step: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let unit = (step.ilog2() + 2) / 10;
    let hundredths = (u128::from(bytes) * 100) >> (10 * unit);
    let hundredths = u64::try_from(hundredths).unwrap_or(u64::MAX);
    let name = UNITS.get(unit as usize).unwrap_or(&"");
    format!("{} {name}", px(hundredths))
}

/// Rectangles in groups of one colour, then the names of the largest ones that have room.
fn draw(out: &mut String, packing: &Packing<'_>, rectangles: Vec<Rectangle>) {
    let sizes = rectangles.iter().map(|r| packing.buffers[r.buffer].size);
    let least = sizes.clone().min().unwrap_or(1).ilog2();
    let most = sizes.max().unwrap_or(1).ilog2();
    let color = |r: &Rectangle| {
        let octave = packing.buffers[r.buffer].size.ilog2() - least;
        octave * 7 / (most - least).max(1)
    };
    let outlined = |r: &Rectangle| r.w.min(r.h) >= LEAST_OUTLINED;
    let mut grouped: Vec<&Rectangle> = rectangles.iter().collect();
    grouped.sort_by_key(|r| (Reverse(color(r)), outlined(r)));
    for group in grouped.chunk_by(|a, b| color(a) == color(b) && outlined(a) == outlined(b)) {
        let class = if outlined(group[0]) { " outlined" } else { "" };
        let _ = writeln!(out, "<g class=\"c{}{class}\">", color(group[0]));
        for r in group {
            let (x, y, w, h) = (px(r.x), px(r.y), px(r.w), px(r.h));
            let about = escape(&tooltip(&packing.buffers[r.buffer]));
            let _ = writeln!(
                out,
                "<rect x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\"><title>{about}</title></rect>"
            );
        }
        out.push_str("</g>\n");
    }
    let roomy = |r: &&Rectangle| r.w >= 3 * COLUMN && r.h >= 12 * PIXEL;
    for r in rectangles.iter().filter(roomy).take(MAX_LABELS) {
        let id = shown(packing.buffers[r.buffer].id);
        let room = usize::try_from((r.w - COLUMN) / COLUMN).unwrap_or(usize::MAX);
        if width(&id) <= room {
            let x = px(r.x + COLUMN / 2);
            let y = px(r.y + r.h.min(20 * PIXEL) / 2 + 350);
            let id = escape(&id);
            let _ = writeln!(out, "<text class=\"name\" x=\"{x}\" y=\"{y}\">{id}</text>");
        }
    }
}

fn tooltip(buffer: &PackedBuffer<'_>) -> String {
    const PIECES: usize = 8;
    let life = buffer.life.iter().take(PIECES);
    let mut life: Vec<String> = life.map(|(from, to)| format!("{from}–{to}")).collect();
    if buffer.life.len() > PIECES {
        life.push("…".to_owned());
    }
    format!(
        "{}\n{} at offset {}\nalive {}",
        shown(buffer.id),
        bytes(buffer.size),
        grouped(buffer.offset),
        life.join(", ")
    )
}

/// The height, the lower bound where it is another, and the moment of greatest load.
fn lines(out: &mut String, packing: &Packing<'_>, scale: &Scale) {
    let mut line = |class: &str, byte: u64| {
        let _ = writeln!(
            out,
            "<line class=\"{class}\" x1=\"{}\" x2=\"{}\" y1=\"{y}\" y2=\"{y}\"/>",
            px(LEFT),
            px(LEFT + PLOT_WIDTH),
            y = px(scale.byte(byte))
        );
    };
    line("height", packing.height);
    if packing.lower_bound != packing.height {
        line("bound", packing.lower_bound);
    }
    let Some((moment, load)) = busiest(packing, scale) else {
        return;
    };
    // Loads are constant from one moment to the next.
    let x = scale.moment(moment).midpoint(scale.moment(moment + 1));
    let anchor = match x - LEFT {
        x if x < PLOT_WIDTH / 5 => "start",
        x if x > PLOT_WIDTH / 5 * 4 => "end",
        _ => "middle",
    };
    let _ = writeln!(
        out,
        "<path class=\"busiest\" d=\"M{} {}l-5 -8h10z\"/>\
         <text x=\"{0}\" y=\"{}\" text-anchor=\"{anchor}\">greatest load {} bytes at {}</text>",
        px(x),
        px(TOP - PIXEL),
        px(TOP - 13 * PIXEL),
        grouped(load),
        grouped(scale.times[moment]),
    );
}

/// The first moment of greatest load, and that load; `None` when nothing is alive.
fn busiest(packing: &Packing<'_>, scale: &Scale) -> Option<(usize, u64)> {
    let mut changes = vec![0i128; scale.times.len()];
    for buffer in packing.buffers.iter().filter(|buffer| buffer.size > 0) {
        for &(lower, upper) in &buffer.life {
            let number = |time| scale.times.partition_point(|&other| other < time);
            changes[number(lower)] += i128::from(buffer.size);
            changes[number(upper)] -= i128::from(buffer.size);
        }
    }
    let mut load = 0;
    let mut greatest = (0, 0);
    for (moment, change) in changes.into_iter().enumerate() {
        load += change;
        if load > greatest.1 {
            greatest = (moment, load);
        }
    }
    let (moment, load) = greatest;
    let load = u64::try_from(load).ok()?;
    (load > 0).then_some((moment, load))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(id: &str, size: u64, offset: u64, life: Vec<(u64, u64)>) -> PackedBuffer<'_> {
        PackedBuffer {
            id,
            size,
            offset,
            life,
        }
    }

    fn packing(buffers: Vec<PackedBuffer<'_>>) -> Packing<'_> {
        let ends = buffers.iter().map(|buffer| buffer.offset + buffer.size);
        Packing {
            title: "test",
            height: ends.max().unwrap_or(0),
            lower_bound: 0,
            buffers,
        }
    }

    #[test]
    fn lengths_are_written_without_needless_digits() {
        let cases = [
            (0, "0"),
            (100, "1"),
            (1250, "12.5"),
            (1205, "12.05"),
            (99, "0.99"),
        ];
        for (hundredths, text) in cases {
            assert_eq!(px(hundredths), text);
        }
    }

    #[test]
    fn marks_of_bytes_are_exact() {
        assert_eq!(in_units(768, 256), "0.75 KiB");
        assert_eq!(in_units(128, 128), "128 B");
        assert_eq!(in_units(3 << 20, 1 << 20), "3 MiB");
        assert_eq!(in_units(u64::MAX - 1, 1 << 63), "15.99 EiB");
    }

    #[test]
    fn the_largest_buffers_are_drawn_and_the_picture_says_so() {
        let count = MAX_RECTANGLES as u64 + 5;
        let buffers = (0..count).map(|i| buffer("b", 1 + i % 1000, 0, vec![(i, i + 1)]));
        let mut packing = packing(buffers.collect());
        packing.buffers[0].life = vec![(0, 1), (2, 3)];
        packing.buffers[0].size = 2000;
        let text = picture(&packing);
        assert_eq!(text.matches("<title>b\n").count(), MAX_RECTANGLES);
        let said = "20 005 buffers";
        assert!(text.contains(said), "{said}");
        assert!(text.contains("only the 19 999 largest buffers are drawn"));
        assert!(text.contains("alive 0–1, 2–3"));
    }

    #[test]
    fn ids_never_become_markup() {
        let long = "x".repeat(100_000);
        let hostile = [
            "</title><script>alert(1)</script>",
            "\u{0}\u{1b}[2J\u{202e}\u{ffff}",
            "\"'&<>",
            long.as_str(),
        ];
        let buffers = hostile.iter().zip(0..);
        let mut packing = packing(
            buffers
                .map(|(id, i)| buffer(id, 100, 100 * i, vec![(0, 1)]))
                .collect(),
        );
        packing.title = hostile[0];
        let text = picture(&packing);
        assert!(!text.contains("<script"));
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()));
        assert!(text.contains("&quot;&#39;&amp;&lt;&gt;"));
        assert!(text.len() < 20_000);
    }

    #[test]
    fn nothing_to_draw_and_numbers_at_the_edge_are_no_trouble() {
        assert!(picture(&packing(vec![])).contains("0 buffers"));
        let empty = buffer("a", 0, 5, vec![(1, 2)]);
        assert!(!picture(&packing(vec![empty])).contains("<title>a"));
        let edge = Packing {
            title: "",
            height: u64::MAX,
            lower_bound: u64::MAX,
            buffers: vec![
                buffer("a", u64::MAX, u64::MAX, vec![(0, u64::MAX)]),
                buffer("b", u64::MAX, 0, vec![(5, 4), (7, 7)]),
                buffer("c", 1, 0, vec![]),
            ],
        };
        assert!(picture(&edge).ends_with("</svg>\n"));
    }
}
