//! Convolutions. In float32 they are products of the weights with a matrix of image patches that is
//! never made as a whole (`rten_gemm::Im2Col`), or direct loops where each channel is alone; in
//! other types, and in three dimensions, the patches of one image are laid out first.
//! Source: the ONNX operator specification, `Conv` and `ConvTranspose`.

use rten_gemm::{BiasVector, ColOffsets, GemmInputA, GemmInputB, GemmOptions, Im2Col, RowOffsets};
use rten_tensor::NdTensorView;
use tenure_graph::DType;

use super::element::with_type;
use super::matmul::{Finish, Matrix, Product, with_gemm};
use super::window::{Windows, each};
use super::{Call, Made, Make, Site, Type, kernel, product};

/// The kernels of this family.
pub(super) const KERNELS: &[(&str, Make)] = &[("Conv", conv), ("ConvTranspose", transposed)];

/// The sizes of a convolution.
#[derive(Clone, Debug)]
pub(super) struct Sizes {
    pub(super) batch: usize,
    pub(super) groups: usize,
    /// Channels of the image in a group.
    pub(super) inputs: usize,
    /// Channels of the result in a group.
    pub(super) outputs: usize,
    pub(super) windows: Windows,
}

impl Sizes {
    pub(super) fn new(site: &Site<'_>, x: &Type, w: &Type, y: &Type) -> Result<Self, String> {
        let groups = usize::try_from(site.int("group", 1)).unwrap_or(0);
        let ([batch, channels, image @ ..], [outputs, inputs, window @ ..], [n, m, positions @ ..]) =
            (&x.dims[..], &w.dims[..], &y.dims[..])
        else {
            return Err("image, weights and output need two axes or more".to_owned());
        };
        let split = groups > 0 && inputs.checked_mul(groups) == Some(*channels);
        if !split || outputs % groups != 0 || (n, m) != (batch, outputs) {
            return Err(format!(
                "image {:?}, weights {:?} and output {:?} do not fit {groups} groups",
                x.dims, w.dims, y.dims
            ));
        }
        Ok(Sizes {
            batch: *batch,
            groups,
            inputs: *inputs,
            outputs: outputs / groups,
            windows: Windows::new(site, image, window, positions)?,
        })
    }

    /// Elements of one channel of the image.
    pub(super) fn area(&self) -> usize {
        product(&self.windows.image)
    }

    /// Elements of one channel of the result.
    pub(super) fn places(&self) -> usize {
        product(&self.windows.positions)
    }

    /// Elements of a window.
    pub(super) fn window(&self) -> usize {
        product(&self.windows.window)
    }

    /// Whether every window is one element, and every element has one.
    fn is_pointwise(&self) -> bool {
        let w = &self.windows;
        let ones = |list: &[usize]| list.iter().all(|&n| n == 1);
        ones(&w.window) && ones(&w.strides) && w.image == w.positions
    }
}

fn conv(site: &Site<'_>) -> Made {
    let (x, w, y) = (site.input(0)?, site.input(1)?, site.output(0)?);
    if x.dtype != w.dtype || x.dtype != y.dtype {
        return Err("image, weights and output have not one type".to_owned());
    }
    let sizes = Sizes::new(site, &x, &w, &y)?;
    let bias = site.optional(2)?;
    if bias.is_some_and(|b| b.elements() != sizes.groups * sizes.outputs) {
        return Err("there is not a bias for each channel".to_owned());
    }
    let small = sizes.windows.image.len() <= 2 && sizes.area() > 0;
    if x.dtype == DType::F32 && small && sizes.area() < i32::MAX as usize / (sizes.inputs + 1) {
        if sizes.inputs == 1 && sizes.outputs == 1 {
            return depthwise(sizes);
        }
        return if sizes.is_pointwise() {
            pointwise(sizes)
        } else {
            virtual_patches(sizes)
        };
    }
    with_type!(x.dtype, floats, T => patches::<T>(sizes))
}

/// One bias for each channel of a group.
fn bias_of<'a, T: bytemuck::Pod>(call: &Call<'a>, sizes: &Sizes, group: usize) -> Option<&'a [T]> {
    let bias = call.read::<T>(2);
    let from = group * sizes.outputs;
    bias.get(from..from + sizes.outputs)
}

/// Windows of one element: the image is the matrix.
fn pointwise(sizes: Sizes) -> Made {
    kernel(move |call| {
        let left = Matrix::new(sizes.outputs, sizes.inputs, false);
        let right = Matrix::new(sizes.inputs, sizes.area(), false);
        each_group(&sizes, call, |x: &[f32], w, out, bias| {
            let finish = Finish {
                bias: bias.map(BiasVector::Column),
                ..Finish::default()
            };
            f32::product(&mut (), out, (w, left), (x, right), finish)
        })
    })
}

/// Calls `f` for each group of each image of a batch: image, weights, result, bias.
fn each_group<T: bytemuck::Pod>(
    sizes: &Sizes,
    call: &mut Call<'_>,
    mut f: impl FnMut(&[T], &[T], &mut [T], Option<&[T]>) -> Result<(), String>,
) -> Result<(), String> {
    let (x, w) = (call.read::<T>(0), call.read::<T>(1));
    let image = sizes.inputs * sizes.area();
    let weights = sizes.outputs * sizes.inputs * sizes.window();
    let result = sizes.outputs * sizes.places();
    for n in 0..sizes.batch {
        for group in 0..sizes.groups {
            let k = n * sizes.groups + group;
            let x = &x[k * image..(k + 1) * image];
            let w = &w[group * weights..(group + 1) * weights];
            let bias = bias_of(call, sizes, group);
            let out = &mut call.write::<T>(0)[k * result..(k + 1) * result];
            if !out.is_empty() {
                f(x, w, out, bias)?;
            }
        }
    }
    Ok(())
}

/// Windows in an image of two axes, as a matrix that is packed piece by piece when it is needed.
fn virtual_patches(sizes: Sizes) -> Made {
    let steps = with_gemm(|gemm| [gemm.im2col_row_count_step(), gemm.im2col_col_count_step()]);
    let windows = sizes.windows.with_rank(2);
    let (rows, cols) = (sizes.inputs * sizes.window(), sizes.places());
    let [high, wide] = [windows.image[0], windows.image[1]];
    let offset = |n: usize| i32::try_from(n).map_err(|_| "the image is too large".to_owned());
    let mut row = RowOffsets {
        chan: Vec::new(),
        y: Vec::new(),
        x: Vec::new(),
    };
    for channel in 0..sizes.inputs {
        for y in 0..windows.window[0] {
            for x in 0..windows.window[1] {
                row.chan.push(offset(channel * high * wide)?);
                row.y.push(offset(y * windows.dilations[0] * wide)?);
                row.x.push(offset(x * windows.dilations[1])?);
            }
        }
    }
    let mut col = ColOffsets {
        y: Vec::new(),
        x: Vec::new(),
    };
    for y in 0..windows.positions[0] {
        for x in 0..windows.positions[1] {
            let place = |p: usize, axis: usize| {
                Ok::<i32, String>(
                    offset(p * windows.strides[axis])? - offset(windows.before[axis])?,
                )
            };
            col.y.push(place(y, 0)?.saturating_mul(offset(wide)?));
            col.x.push(place(x, 1)?);
        }
    }
    // Behind the last row and column lies padding.
    for list in [&mut row.chan, &mut row.y, &mut row.x] {
        list.resize(rows.next_multiple_of(steps[0]), i32::MAX);
    }
    for list in [&mut col.y, &mut col.x] {
        list.resize(cols.next_multiple_of(steps[1]), i32::MAX);
    }
    let last = [offset((high - 1) * wide)?, offset(wide - 1)?];
    let mut offsets = Some((row, col));
    let inputs = sizes.inputs;
    kernel(move |call| {
        each_group(&sizes, call, |x: &[f32], w, out, bias| {
            // The lists go into the matrix and come back, so that they are made once.
            let (row_offsets, col_offsets) = offsets.take().ok_or("an earlier run failed")?;
            let matrix = Im2Col {
                image: NdTensorView::from_data([inputs, high, wide], x),
                row_offsets,
                col_offsets,
                n_cols: cols,
                n_rows: rows,
                max_y_offset: last[0],
                max_x_offset: last[1],
            };
            let weights = NdTensorView::from_data([sizes.outputs, rows], w);
            let options = GemmOptions {
                bias: bias.map(BiasVector::Column),
                ..GemmOptions::default()
            };
            let (left, right) = (GemmInputA::Unpacked(weights), GemmInputB::Im2Col(&matrix));
            let done = with_gemm(|gemm| gemm.gemm(out, left, right, options));
            offsets = Some((matrix.row_offsets, matrix.col_offsets));
            done.map_err(|e| format!("the convolution cannot be computed: {e:?}"))
        })
    })
}

/// Each channel alone: rows of the window are added to rows of the result.
fn depthwise(sizes: Sizes) -> Made {
    let windows = sizes.windows.with_rank(2);
    kernel(move |call| {
        each_group(&sizes, call, |x: &[f32], w, out, bias| {
            out.fill(bias.and_then(|b| b.first().copied()).unwrap_or(0.0));
            let (wide, wide_out) = (windows.image[1], windows.positions[1]);
            for (p, row) in out.chunks_exact_mut(wide_out).enumerate() {
                for ky in 0..windows.window[0] {
                    let Some(y) = windows.source(0, p, ky) else {
                        continue;
                    };
                    let image = &x[y * wide..(y + 1) * wide];
                    for kx in 0..windows.window[1] {
                        let weight = w[ky * windows.window[1] + kx];
                        add_row(&windows, kx, weight, image, row);
                    }
                }
            }
            Ok(())
        })
    })
}

/// Adds a row of an image, from the place of window column `kx` on, times a weight.
#[inline]
fn add_row(windows: &Windows, kx: usize, weight: f32, image: &[f32], row: &mut [f32]) {
    let stride = windows.strides[1];
    let shift = kx * windows.dilations[1];
    let before = windows.before[1];
    // The first position that is not in the padding, and where it lies.
    let first = before.saturating_sub(shift).div_ceil(stride);
    let start = (first * stride + shift).saturating_sub(before);
    let (Some(row), Some(image)) = (row.get_mut(first..), image.get(start..)) else {
        return;
    };
    if stride == 1 {
        for (to, &from) in row.iter_mut().zip(image) {
            *to += weight * from;
        }
    } else {
        for (to, &from) in row.iter_mut().zip(image.iter().step_by(stride)) {
            *to += weight * from;
        }
    }
}

/// Any type and number of axes: the patches of one image and group are laid out as a matrix.
fn patches<T: Product>(sizes: Sizes) -> Made {
    let rows = sizes.inputs * sizes.window();
    let cols = sizes.places();
    let mut room = T::Room::default();
    let mut matrix = vec![T::default(); rows.saturating_mul(cols)];
    kernel(move |call| {
        each_group(&sizes, call, |x: &[T], w, out, bias| {
            lay_out(&sizes, x, T::default(), &mut matrix);
            let left = Matrix::new(sizes.outputs, rows, false);
            let right = Matrix::new(rows, cols, false);
            let finish = Finish {
                bias: bias.map(BiasVector::Column),
                ..Finish::default()
            };
            T::product(&mut room, out, (w, left), (&matrix, right), finish)
        })
    })
}

/// Writes the patches of an image: a row for each channel and element of the window, a column for
/// each position.
pub(super) fn lay_out<T: Copy>(sizes: &Sizes, image: &[T], padding: T, matrix: &mut [T]) {
    let windows = &sizes.windows;
    let cols = sizes.places();
    let mut rows = matrix.chunks_exact_mut(cols.max(1));
    for channel in image.chunks_exact(sizes.area().max(1)).take(sizes.inputs) {
        each(&windows.window, |k| {
            let Some(row) = rows.next() else { return };
            let mut row = row.iter_mut();
            windows.each_position(|p| {
                let place = windows.place(p, k);
                if let Some(to) = row.next() {
                    *to = place.map_or(padding, |place| channel[place]);
                }
            });
        });
    }
}

/// The transposed convolution: each element of the image adds the weights to the result.
fn transposed(site: &Site<'_>) -> Made {
    let (x, w, y) = (site.input(0)?, site.input(1)?, site.output(0)?);
    if x.dtype != w.dtype || x.dtype != y.dtype {
        return Err("image, weights and output have not one type".to_owned());
    }
    let sizes = transposed_sizes(site, &x, &w, &y)?;
    with_type!(x.dtype, floats, T => scatter::<T>(sizes))
}

/// The sizes of the convolution that this one is the transpose of: its image is the result, and
/// its positions are the elements of the image.
fn transposed_sizes(site: &Site<'_>, x: &Type, w: &Type, y: &Type) -> Result<Sizes, String> {
    let groups = usize::try_from(site.int("group", 1)).unwrap_or(0);
    let ([batch, channels, image @ ..], [inputs, outputs, window @ ..], [n, m, result @ ..]) =
        (&x.dims[..], &w.dims[..], &y.dims[..])
    else {
        return Err("image, weights and output need two axes or more".to_owned());
    };
    let fits = groups > 0 && inputs % groups == 0 && outputs.checked_mul(groups) == Some(*m);
    if !fits || channels != inputs || n != batch {
        return Err(format!(
            "image {:?}, weights {:?} and output {:?} do not fit {groups} groups",
            x.dims, w.dims, y.dims
        ));
    }
    let mut windows = Windows::new(site, result, window, image)?;
    let is_lower = site.text("auto_pad", "NOTSET") == "SAME_LOWER";
    let automatic = is_lower || site.text("auto_pad", "NOTSET") == "SAME_UPPER";
    // The size of the result is given: padding is what is over.
    let given = site.ints("output_shape").is_some();
    if automatic || given {
        for axis in 0..result.len() {
            let whole = image[axis].saturating_sub(1) * windows.strides[axis] + windows.reach(axis);
            let extra = site.ints("output_padding");
            let extra = extra.and_then(|e| usize::try_from(*e.get(axis)?).ok());
            let whole = whole + extra.unwrap_or(0);
            let over = whole.saturating_sub(result[axis]);
            // With an odd number, SAME_UPPER cuts one more off the end, and else the start.
            let upper = site.text("auto_pad", "NOTSET") == "SAME_UPPER";
            windows.before[axis] = if upper { over / 2 } else { over.div_ceil(2) };
        }
    }
    Ok(Sizes {
        batch: *batch,
        groups,
        inputs: *outputs,
        outputs: inputs / groups,
        windows,
    })
}

fn scatter<T: Product>(sizes: Sizes) -> Made {
    let rows = sizes.inputs * sizes.window();
    let cols = sizes.places();
    let mut room = T::Room::default();
    let mut matrix = vec![T::default(); rows.saturating_mul(cols)];
    kernel(move |call| {
        let (x, w) = (call.read::<T>(0), call.read::<T>(1));
        let bias = call.read::<T>(2);
        let image = sizes.outputs * cols;
        let weights = sizes.outputs * rows;
        let result = sizes.inputs * sizes.area();
        for k in 0..sizes.batch * sizes.groups {
            let group = k % sizes.groups;
            let x = &x[k * image..(k + 1) * image];
            let w = &w[group * weights..(group + 1) * weights];
            let out = &mut call.write::<T>(0)[k * result..(k + 1) * result];
            let left = Matrix::new(rows, sizes.outputs, true);
            let right = Matrix::new(sizes.outputs, cols, false);
            T::product(
                &mut room,
                &mut matrix,
                (w, left),
                (x, right),
                Finish::default(),
            )?;
            let area = sizes.area();
            for (channel, out) in out.chunks_exact_mut(area.max(1)).enumerate() {
                let bias = bias.get(group * sizes.inputs + channel);
                out.fill(bias.copied().unwrap_or_default());
            }
            add_back(&sizes, &matrix, out);
        }
        Ok(())
    })
}

/// Adds the patches of a matrix to the places of the image that they come from.
fn add_back<T: Product>(sizes: &Sizes, matrix: &[T], image: &mut [T]) {
    let windows = &sizes.windows;
    let mut rows = matrix.chunks_exact(sizes.places().max(1));
    for channel in image.chunks_exact_mut(sizes.area().max(1)) {
        each(&windows.window, |k| {
            let Some(row) = rows.next() else { return };
            let mut row = row.iter();
            windows.each_position(|p| {
                let place = windows.place(p, k);
                if let (Some(place), Some(&add)) = (place, row.next()) {
                    channel[place] = channel[place].add(add);
                }
            });
        });
    }
}
