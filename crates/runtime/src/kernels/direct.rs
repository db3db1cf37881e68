//! Convolutions of float32 images as sums over shifted rows.
//!
//! A block of the image is laid out with its padding, so that the elements that one element of the
//! window meets at all positions lie side by side; what a stride skips is laid out apart. A tile of
//! some output channels and some vectors of positions is then summed up in registers. Neither
//! weights nor patches are laid out anew, and the block stays in the cache.

use std::cell::RefCell;

use rten_simd::ops::{BitOps, NumOps};
use rten_simd::{Isa, SimdOp};

use super::window::Windows;

/// Elements of a block of the image, unless one window needs more.
const BLOCK: usize = 1 << 16;

/// Vectors of a tile. With six channels that is what 32 registers hold, with four what 16 hold.
const VECTORS: usize = 3;

/// The same where there is one channel: enough sums that none waits for the one before.
const VECTORS_ALONE: usize = 6;

/// Elements of a line of the cache. Planes of a block are an odd number of lines apart, so that what
/// a tile reads of all of them is spread over the whole cache.
const LINE: usize = 16;

/// Elements of a tile's row in the longest vectors: so far may it read beyond its block.
const BEYOND: usize = 16 * VECTORS_ALONE;

/// Bounds of what is computed here: beyond them lie holes and padding without end, not images.
const LONGEST: usize = 1 << 24;
const LARGEST: usize = 1 << 26;

thread_local! {
    /// The block at hand: all convolutions of a thread have this memory in common.
    static ROOM: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// One axis of an image, and how it is laid out in a block: a phase for each remainder by the
/// stride.
#[derive(Clone, Debug)]
struct Axis {
    image: usize,
    window: usize,
    positions: usize,
    stride: usize,
    dilation: usize,
    before: usize,
    /// The remainders at which elements are needed.
    phases: Vec<usize>,
    /// Elements of a phase that the last position needs beyond its first one.
    further: usize,
    /// Positions of a block.
    block: usize,
}

impl Axis {
    /// Axis `k` of windows, if it is not too long.
    fn new(windows: &Windows, k: usize) -> Option<Self> {
        let (stride, dilation) = (windows.strides[k], windows.dilations[k]);
        let (window, reach) = (windows.window[k], windows.reach(k));
        let end = windows.positions[k].checked_mul(stride)?;
        let sizes = [end, reach, windows.before[k], windows.image[k]];
        if sizes.iter().any(|&n| n > LONGEST) || windows.image[k] == 0 || window == 0 {
            return None;
        }
        let mut phases: Vec<usize> = (0..window).map(|k| k * dilation % stride).collect();
        phases.sort_unstable();
        phases.dedup();
        Some(Axis {
            image: windows.image[k],
            window,
            positions: windows.positions[k],
            stride,
            dilation,
            before: windows.before[k],
            phases,
            further: (reach - 1) / stride,
            block: 1,
        })
    }

    /// Whether there is one position, and one element in its window and in the image.
    fn is_one_element(&self) -> bool {
        [self.image, self.window, self.positions] == [1; 3] && self.before == 0
    }

    /// Elements of a phase.
    fn len(&self) -> usize {
        self.block + self.further
    }

    /// Splits the positions into blocks of nearly the same number, at most `most`.
    fn split(&mut self, most: usize) {
        let blocks = self.positions.div_ceil(most.max(1)).max(1);
        self.block = self.positions.div_ceil(blocks).max(1);
    }

    /// The phase of element `k` of the window, and how far in it lies.
    fn tap(&self, k: usize) -> (usize, usize) {
        let at = k * self.dilation;
        let phase = self.phases.iter().position(|&p| p == at % self.stride);
        (phase.unwrap_or(0), at / self.stride)
    }

    /// Which elements of a phase lie in the image, in the block whose first position is given: the
    /// first one, its place in the image, and their number.
    fn inside(&self, phase: usize, first: usize) -> (usize, usize, usize) {
        let start = first * self.stride + phase;
        let skipped = self.before.saturating_sub(start).div_ceil(self.stride);
        let from = (start + skipped * self.stride).saturating_sub(self.before);
        let skipped = skipped.min(self.len());
        let count = self.image.saturating_sub(from).div_ceil(self.stride);
        (skipped, from, count.min(self.len() - skipped))
    }
}

/// A convolution of one group of one image.
#[derive(Clone, Debug)]
pub(super) struct Direct {
    inputs: usize,
    outputs: usize,
    rows: Axis,
    cols: Axis,
    /// Elements from one plane of a block, a phase of a channel, to the next.
    plane: usize,
    /// Where in a block the elements of the window begin, channel by channel.
    taps: Vec<usize>,
    /// Elements of a block.
    room: usize,
}

impl Direct {
    /// A convolution of so many channels; `None` where a block of the image is too large.
    pub(super) fn new(inputs: usize, outputs: usize, windows: &Windows) -> Option<Self> {
        if inputs == 0 || outputs == 0 {
            return None;
        }
        let windows = windows.with_rank(2);
        let (mut rows, mut cols) = (Axis::new(&windows, 0)?, Axis::new(&windows, 1)?);
        if cols.is_one_element() {
            // The only column lies in memory as a row does, and rows are what is quick.
            std::mem::swap(&mut rows, &mut cols);
        }
        let planes = [rows.phases.len(), cols.phases.len()];
        let planes = planes.into_iter().try_fold(inputs, usize::checked_mul)?;
        let room = (BLOCK / planes.max(1)).max(1);
        // As many columns as there is room for a row of, and then as many rows.
        cols.split((room / rows.len()).saturating_sub(cols.further));
        rows.split((room / cols.len()).saturating_sub(rows.further));
        let plane = rows.len().checked_mul(cols.len())?;
        let plane = plane.checked_next_multiple_of(LINE)? | LINE;
        let room = planes.checked_mul(plane)?.checked_add(BEYOND)?;
        if room > LARGEST {
            return None;
        }
        let mut taps = Vec::with_capacity(inputs * rows.window * cols.window);
        for channel in 0..inputs {
            for (py, dy) in (0..rows.window).map(|k| rows.tap(k)) {
                for (px, dx) in (0..cols.window).map(|k| cols.tap(k)) {
                    let number = (channel * rows.phases.len() + py) * cols.phases.len() + px;
                    taps.push(number * plane + dy * cols.len() + dx);
                }
            }
        }
        Some(Direct {
            inputs,
            outputs,
            rows,
            cols,
            plane,
            taps,
            room,
        })
    }

    /// Computes the convolutions of some images, the groups of a batch: each group has weights of
    /// its own, and what belongs to an image lies behind that of the image before.
    pub(super) fn run(&self, x: &[f32], weights: &[f32], bias: Option<&[f32]>, out: &mut [f32]) {
        ROOM.with_borrow_mut(|room| {
            if room.len() < self.room {
                room.resize(self.room, 0.0);
            }
            let direct = self;
            let run = Run {
                direct,
                x,
                weights,
                bias,
                out,
                room,
            };
            run.dispatch();
        });
    }

    /// Whether an image is one block, whose padding is always at the same places.
    fn is_one_block(&self) -> bool {
        self.rows.block >= self.rows.positions && self.cols.block >= self.cols.positions
    }

    /// Lays out the block of the image whose first position is given, with or without its padding.
    #[inline(always)]
    fn lay_out(&self, x: &[f32], first: [usize; 2], padding: bool, room: &mut [f32]) {
        let (rows, cols) = (&self.rows, &self.cols);
        let mut planes = room.chunks_exact_mut(self.plane);
        for channel in x.chunks_exact(rows.image * cols.image).take(self.inputs) {
            for &phase in &rows.phases {
                let (top, from, high) = rows.inside(phase, first[0]);
                for &phase in &cols.phases {
                    let Some(plane) = planes.next() else { return };
                    let (left, start, count) = cols.inside(phase, first[1]);
                    if padding && (count < cols.len() || high < rows.len()) {
                        plane.fill(0.0);
                    }
                    let image = channel.chunks_exact(cols.image).skip(from);
                    let lines = plane.chunks_exact_mut(cols.len()).skip(top).take(high);
                    for (line, image) in lines.zip(image.step_by(rows.stride)) {
                        let image = image.get(start..).unwrap_or(&[]);
                        every(cols.stride, image, &mut line[left..left + count]);
                    }
                }
            }
        }
    }
}

/// Copies the first of each `stride` elements.
#[inline(always)]
fn every(stride: usize, from: &[f32], to: &mut [f32]) {
    match stride {
        1 => to.copy_from_slice(&from[..to.len()]),
        2 => {
            // The last pair may have no second element.
            let whole = to.len().min(from.len() / 2);
            let (pairs, last) = to.split_at_mut(whole);
            for (to, from) in pairs.iter_mut().zip(from.chunks_exact(2)) {
                *to = from[0];
            }
            for (to, &from) in last.iter_mut().zip(from.iter().skip(2 * whole)) {
                *to = from;
            }
        }
        _ => {
            for (to, &from) in to.iter_mut().zip(from.iter().step_by(stride)) {
                *to = from;
            }
        }
    }
}

/// A run of a convolution.
struct Run<'a> {
    direct: &'a Direct,
    x: &'a [f32],
    weights: &'a [f32],
    bias: Option<&'a [f32]>,
    out: &'a mut [f32],
    room: &'a mut [f32],
}

impl SimdOp for Run<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(self, isa: I) {
        let direct = self.direct;
        let (rows, cols) = (&direct.rows, &direct.cols);
        let image = direct.inputs * rows.image * cols.image;
        let result = direct.outputs * rows.positions * cols.positions;
        let weights = direct.outputs * direct.taps.len();
        let groups = self.weights.len().checked_div(weights).unwrap_or(0).max(1);
        let images = self.x.chunks_exact(image.max(1));
        let results = self.out.chunks_exact_mut(result.max(1));
        for (number, (x, out)) in images.zip(results).enumerate() {
            let group = number % groups;
            let weights = &self.weights[group * weights..][..weights];
            let bias = self
                .bias
                .map(|b| &b[group * direct.outputs..][..direct.outputs]);
            let padding = number == 0 || !direct.is_one_block();
            for y in (0..rows.positions).step_by(rows.block) {
                for x0 in (0..cols.positions).step_by(cols.block) {
                    direct.lay_out(x, [y, x0], padding, self.room);
                    let high = rows.block.min(rows.positions - y);
                    let wide = cols.block.min(cols.positions - x0);
                    let block = Block {
                        direct,
                        weights,
                        bias,
                        room: self.room,
                        at: y * cols.positions + x0,
                        wide,
                        places: (high - 1) * cols.len() + wide,
                    };
                    block.sum(isa, out);
                }
            }
        }
    }
}

/// A block that is laid out. Its positions are numbered row by row, with what lies between the rows
/// of a phase: these places are summed up as well, and left out at the end.
struct Block<'a> {
    direct: &'a Direct,
    weights: &'a [f32],
    bias: Option<&'a [f32]>,
    room: &'a [f32],
    /// The first position of the block, in a channel of the result.
    at: usize,
    /// Positions of a row.
    wide: usize,
    /// Places up to the last position.
    places: usize,
}

impl Block<'_> {
    #[inline(always)]
    fn sum<I: Isa>(&self, isa: I, out: &mut [f32]) {
        let lanes = isa.f32().len();
        let alone = self.direct.outputs == 1;
        let mut place = 0;
        while place < self.places {
            // Two and two vectors are quicker than three and one.
            let vectors = match (self.places - place).div_ceil(lanes) {
                n if alone => n.min(VECTORS_ALONE),
                4 => 2,
                n => n.min(VECTORS),
            };
            match vectors {
                1 => self.channels::<I, 1>(isa, place, out),
                2 => self.channels::<I, 2>(isa, place, out),
                VECTORS => self.channels::<I, VECTORS>(isa, place, out),
                4 => self.tile::<I, 1, 4>(isa, 0, place, out),
                5 => self.tile::<I, 1, 5>(isa, 0, place, out),
                _ => self.tile::<I, 1, VECTORS_ALONE>(isa, 0, place, out),
            };
            place += vectors * lanes;
        }
    }

    /// All output channels at some vectors of places.
    #[inline(always)]
    fn channels<I: Isa, const V: usize>(&self, isa: I, place: usize, out: &mut [f32]) -> usize {
        // Long vectors come with many registers.
        let many = isa.f32().len() >= 16;
        let mut channel = 0;
        while channel < self.direct.outputs {
            channel += match self.direct.outputs - channel {
                6 | 7 | 9.. if many => self.tile::<I, 6, V>(isa, channel, place, out),
                4.. => self.tile::<I, 4, V>(isa, channel, place, out),
                2 | 3 => self.tile::<I, 2, V>(isa, channel, place, out),
                _ => self.tile::<I, 1, V>(isa, channel, place, out),
            };
        }
        channel
    }

    /// Sums up and writes a tile, and gives the number of its channels.
    #[inline(always)]
    fn tile<I: Isa, const M: usize, const V: usize>(
        &self,
        isa: I,
        channel: usize,
        place: usize,
        out: &mut [f32],
    ) -> usize {
        let ops = isa.f32();
        let taps = &self.direct.taps[..];
        let weights: [&[f32]; M] =
            std::array::from_fn(|i| &self.weights[(channel + i) * taps.len()..][..taps.len()]);
        let room = &self.room[place..];
        let mut sums: [[I::F32; V]; M] = std::array::from_fn(|i| {
            let bias = self.bias.map_or(0.0, |bias| bias[channel + i]);
            [ops.splat(bias); V]
        });
        for (k, &tap) in taps.iter().enumerate() {
            let image = ops.load_many::<V>(&room[tap..]);
            for (sums, weights) in sums.iter_mut().zip(weights) {
                let weight = ops.splat(weights[k]);
                for (sum, image) in sums.iter_mut().zip(image) {
                    *sum = ops.mul_add(weight, image, *sum);
                }
            }
        }
        let result = self.direct.rows.positions * self.direct.cols.positions;
        for (sums, out) in sums
            .into_iter()
            .zip(out.chunks_exact_mut(result).skip(channel))
        {
            self.write(isa, sums, place, out);
        }
        M
    }

    /// Writes sums to the positions of their places in a channel of the result.
    #[inline(always)]
    fn write<I: Isa, const V: usize>(
        &self,
        isa: I,
        sums: [I::F32; V],
        place: usize,
        out: &mut [f32],
    ) {
        let ops = isa.f32();
        let (lanes, line) = (ops.len(), self.direct.cols.len());
        let (mut row, mut col) = (place / line, place % line);
        let all = V * lanes;
        let to = self.at + row * self.direct.cols.positions + col;
        let side_by_side = line == self.direct.cols.positions && place + all <= self.places;
        if side_by_side || col + all <= self.wide {
            for (sum, to) in sums.into_iter().zip(out[to..].chunks_exact_mut(lanes)) {
                ops.store(sum, to);
            }
            return;
        }
        let mut tile = [0.0; BEYOND];
        for (sum, to) in sums.into_iter().zip(tile.chunks_exact_mut(lanes)) {
            ops.store(sum, to);
        }
        let mut rest = &tile[..all.min(self.places - place)];
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(line - col));
            let inside = &now[..now.len().min(self.wide.saturating_sub(col))];
            let to = self.at + row * self.direct.cols.positions + col;
            if !inside.is_empty() {
                out[to..][..inside.len()].copy_from_slice(inside);
            }
            (rest, row, col) = (later, row + 1, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::window::each;
    use crate::kernels::window::tests::random;

    /// The sum at a position of an output channel, in float64.
    fn plain(windows: &Windows, p: &[usize], x: &[f32], weights: &[f32]) -> f64 {
        let area: usize = windows.image.iter().product();
        let mut weights = weights.iter();
        let mut sum = 0.0;
        for image in x.chunks_exact(area) {
            each(&windows.window, |k| {
                let weight = f64::from(*weights.next().unwrap());
                if let Some(place) = windows.place(p, k) {
                    sum += weight * f64::from(image[place]);
                }
            });
        }
        sum
    }

    /// Two images of two groups each, compared at each `step`-th position.
    fn check(windows: &Windows, sizes: [usize; 2], step: usize, rng: &mut fastrand::Rng) {
        let [inputs, outputs] = sizes;
        let area: usize = windows.image.iter().product();
        let depth: usize = inputs * windows.window.iter().product::<usize>();
        let mut numbers = |n: usize| -> Vec<f32> { (0..n).map(|_| rng.f32() - 0.5).collect() };
        let (x, w) = (numbers(4 * inputs * area), numbers(2 * outputs * depth));
        let bias = numbers(2 * outputs);
        let places: usize = windows.positions.iter().product();
        let mut out = vec![f32::NAN; 4 * outputs * places];
        let direct = Direct::new(inputs, outputs, windows).unwrap();
        // What earlier convolutions have left must not matter.
        ROOM.with_borrow_mut(|room| room.fill(f32::NAN));
        direct.run(&x, &w, Some(&bias), &mut out);
        assert!(out.iter().all(|x| x.is_finite()));
        for (number, out) in out.chunks_exact(places).enumerate() {
            let (image, channel) = (number / outputs, number % (2 * outputs));
            let x = &x[image * inputs * area..][..inputs * area];
            let w = &w[channel * depth..][..depth];
            let mut found = out.iter().enumerate();
            windows.each_position(|p| {
                let (at, &found) = found.next().unwrap();
                if at % step == 0 {
                    let wanted = f64::from(bias[channel]) + plain(windows, p, x, w);
                    let near = (f64::from(found) - wanted).abs() < 1e-4;
                    assert!(
                        near,
                        "{windows:?}, {sizes:?}, {number}: {found}, not {wanted}"
                    );
                }
            });
        }
    }

    #[test]
    fn sums_are_those_of_the_definition() {
        let mut rng = fastrand::Rng::with_seed(6);
        for number in 0..100 {
            let mut windows = random(&mut rng);
            if number % 5 == 0 {
                (windows.image[1], windows.window[1], windows.before[1]) = (1, 1, 0);
                windows.positions[1] = 1;
            }
            let sizes = [rng.usize(1..6), rng.usize(1..20)];
            check(&windows, sizes, 7, &mut rng);
        }
    }

    #[test]
    fn large_images_are_summed_up_block_by_block() {
        let mut rng = fastrand::Rng::with_seed(7);
        for (inputs, image) in [(3, [200, 150]), (200, [3, 131]), (400, [20, 64])] {
            for stride in [1, 2] {
                let mut windows = random(&mut rng);
                for (k, size) in image.into_iter().enumerate() {
                    (windows.window[k], windows.dilations[k], windows.before[k]) = (3, 1, 1);
                    (windows.image[k], windows.strides[k]) = (size, stride);
                    windows.positions[k] = (size - 1) / stride + 1;
                }
                let direct = Direct::new(inputs, 3, &windows).unwrap();
                assert!(!direct.is_one_block());
                check(&windows, [inputs, 3], 61, &mut rng);
            }
        }
    }

    #[test]
    fn holes_without_end_are_refused() {
        let mut windows = random(&mut fastrand::Rng::with_seed(8));
        (windows.window[0], windows.dilations[0]) = (2, usize::MAX / 2);
        assert!(Direct::new(1, 1, &windows).is_none());
        (windows.dilations[0], windows.strides[1]) = (1, usize::MAX);
        windows.positions[1] = 2;
        assert!(Direct::new(1, 1, &windows).is_none());
    }
}
