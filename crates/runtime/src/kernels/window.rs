//! Windows that slide over the spatial axes of images: convolutions and pools.
//! Source: the ONNX operator specification, `Conv` and `MaxPool`.

use smallvec::SmallVec;

use super::{Dims, Site};

/// A list with an entry a spatial axis.
pub(super) type Axes = SmallVec<[usize; 3]>;

/// Where windows lie.
#[derive(Clone, Debug)]
pub(super) struct Windows {
    /// Sizes of the image.
    pub(super) image: Axes,
    /// Sizes of the window.
    pub(super) window: Axes,
    /// Number of positions.
    pub(super) positions: Axes,
    pub(super) strides: Axes,
    pub(super) dilations: Axes,
    /// Positions before the image begins.
    pub(super) before: Axes,
    /// Positions behind its end that count as padding.
    pub(super) after: Axes,
}

fn list(site: &Site<'_>, name: &str, rank: usize) -> Result<Axes, String> {
    let Some(given) = site.ints(name) else {
        return Ok(SmallVec::from_elem(1, rank));
    };
    let sizes: Option<Axes> = given
        .iter()
        .map(|&n| usize::try_from(n).ok().filter(|&n| n > 0))
        .collect();
    sizes
        .filter(|s| s.len() == rank)
        .ok_or_else(|| format!("attribute {name:?} is not {rank} sizes above 0"))
}

impl Windows {
    /// The windows of a node over an image of spatial sizes `image`; `positions` are those of the
    /// output.
    pub(super) fn new(
        site: &Site<'_>,
        image: &[usize],
        window: &[usize],
        positions: &[usize],
    ) -> Result<Self, String> {
        let rank = image.len();
        let strides = list(site, "strides", rank)?;
        let dilations = list(site, "dilations", rank)?;
        if window.len() != rank || positions.len() != rank {
            return Err(format!(
                "image, window and output have not all {rank} spatial axes"
            ));
        }
        let mut windows = Windows {
            image: image.iter().copied().collect(),
            window: window.iter().copied().collect(),
            positions: positions.iter().copied().collect(),
            strides,
            dilations,
            before: SmallVec::from_elem(0, rank),
            after: SmallVec::from_elem(0, rank),
        };
        match site.text("auto_pad", "NOTSET") {
            "NOTSET" | "" => windows.pads(site.ints("pads"))?,
            "VALID" => {}
            kind @ ("SAME_UPPER" | "SAME_LOWER") => windows.same(kind == "SAME_LOWER"),
            other => return Err(format!("attribute \"auto_pad\" is {other:?}")),
        }
        Ok(windows)
    }

    fn pads(&mut self, pads: Option<Vec<i64>>) -> Result<(), String> {
        let Some(pads) = pads else { return Ok(()) };
        let rank = self.image.len();
        let pads: Option<Vec<usize>> = pads.iter().map(|&p| usize::try_from(p).ok()).collect();
        let pads = pads
            .filter(|p| p.len() == 2 * rank)
            .ok_or_else(|| format!("attribute \"pads\" is not {} sizes", 2 * rank))?;
        self.before = pads[..rank].iter().copied().collect();
        self.after = pads[rank..].iter().copied().collect();
        Ok(())
    }

    /// As many positions as the stride needs to cover the image.
    fn same(&mut self, more_before: bool) {
        for axis in 0..self.image.len() {
            let positions = self.image[axis].div_ceil(self.strides[axis]);
            let needed = positions.saturating_sub(1) * self.strides[axis] + self.reach(axis);
            let pad = needed.saturating_sub(self.image[axis]);
            let half = if more_before {
                pad.div_ceil(2)
            } else {
                pad / 2
            };
            self.before[axis] = half;
            self.after[axis] = pad - half;
        }
    }

    /// How far a window reaches, holes included.
    pub(super) fn reach(&self, axis: usize) -> usize {
        match self.window[axis] {
            0 => 0,
            n => (n - 1)
                .saturating_mul(self.dilations[axis])
                .saturating_add(1),
        }
    }

    /// Where element `k` of the window at position `p` lies in the image; `None` in the padding.
    #[inline(always)]
    pub(super) fn source(&self, axis: usize, p: usize, k: usize) -> Option<usize> {
        let from_pad = p * self.strides[axis] + k * self.dilations[axis];
        from_pad
            .checked_sub(self.before[axis])
            .filter(|&x| x < self.image[axis])
    }

    /// The first position at which element `k` of the window is not in the padding in front, and
    /// where in the image it lies there.
    pub(super) fn first_inside(&self, axis: usize, k: usize) -> (usize, usize) {
        let (stride, shift) = (self.strides[axis], k.saturating_mul(self.dilations[axis]));
        let first = self.before[axis].saturating_sub(shift).div_ceil(stride);
        let from = first.saturating_mul(stride).saturating_add(shift);
        (first, from.saturating_sub(self.before[axis]))
    }

    /// The element of a channel of the image at which element `k` of the window at position `p`
    /// lies; `None` in the padding.
    #[inline(always)]
    pub(super) fn place(&self, p: &[usize], k: &[usize]) -> Option<usize> {
        let mut place = 0;
        for axis in 0..p.len() {
            place = place * self.image[axis] + self.source(axis, p[axis], k[axis])?;
        }
        Some(place)
    }

    /// Calls `f` for all positions, in order: position by axis.
    pub(super) fn each_position(&self, f: impl FnMut(&[usize])) {
        each(&self.positions, f);
    }

    /// The same with axes of size 1 in front, up to `rank` of them.
    pub(super) fn with_rank(&self, rank: usize) -> Self {
        let front = |list: &Axes, fill: usize| {
            let missing = rank.saturating_sub(list.len());
            std::iter::repeat_n(fill, missing)
                .chain(list.iter().copied())
                .collect::<Axes>()
        };
        Windows {
            image: front(&self.image, 1),
            window: front(&self.window, 1),
            positions: front(&self.positions, 1),
            strides: front(&self.strides, 1),
            dilations: front(&self.dilations, 1),
            before: front(&self.before, 0),
            after: front(&self.after, 0),
        }
    }
}

/// Calls `f` for all index tuples below some sizes, the last index fastest.
pub(super) fn each(sizes: &[usize], mut f: impl FnMut(&[usize])) {
    if sizes.contains(&0) {
        return;
    }
    let mut index: Dims = SmallVec::from_elem(0, sizes.len());
    loop {
        f(&index);
        let mut axis = sizes.len();
        loop {
            if axis == 0 {
                return;
            }
            axis -= 1;
            index[axis] += 1;
            if index[axis] < sizes[axis] {
                break;
            }
            index[axis] = 0;
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Random windows over an image of two axes, some of them in the padding alone.
    pub(in super::super) fn random(rng: &mut fastrand::Rng) -> Windows {
        let mut windows = Windows {
            image: Axes::new(),
            window: Axes::new(),
            positions: Axes::new(),
            strides: Axes::new(),
            dilations: Axes::new(),
            before: Axes::new(),
            after: Axes::new(),
        };
        for _ in 0..2 {
            let image = rng.usize(1..40);
            let (stride, dilation) = (rng.usize(1..5), rng.usize(1..4));
            let (before, after) = (rng.usize(0..6), rng.usize(0..6));
            let all = image + before + after;
            let window = rng.usize(1..=((all - 1) / dilation + 1).min(8));
            windows.image.push(image);
            windows.window.push(window);
            windows.strides.push(stride);
            windows.dilations.push(dilation);
            windows.before.push(before);
            windows.after.push(after);
            let reach = (window - 1) * dilation + 1;
            windows.positions.push((all - reach) / stride + 1);
        }
        windows
    }

    #[test]
    fn the_first_position_inside_is_the_first_that_has_a_source() {
        let mut rng = fastrand::Rng::with_seed(0);
        for _ in 0..500 {
            let windows = random(&mut rng);
            for k in 0..windows.window[1] {
                let (first, from) = windows.first_inside(1, k);
                let inside = (0..1000).find_map(|p| Some((p, windows.source(1, p, k)?)));
                // In a narrow image a stride may step over all of it.
                if from < windows.image[1] {
                    assert_eq!(inside, Some((first, from)), "{windows:?}, {k}");
                } else {
                    assert_eq!(inside, None, "{windows:?}, {k}");
                }
            }
        }
    }
}
