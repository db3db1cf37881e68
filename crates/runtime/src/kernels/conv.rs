//! Convolutions. In float32 they are sums over shifted rows (`direct`), or a product of matrices where
//! a window is one element; in other types, and in three dimensions, the patches of one image are
//! laid out as a matrix first.
//! Source: the ONNX operator specification, `Conv` and `ConvTranspose`.

use rten_gemm::BiasVector;
use tenure_graph::DType;

use super::direct::Direct;
use super::element::with_type;
use super::matmul::{Finish, Matrix, Product};
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

    /// The convolution without a matrix of patches, where there is one.
    fn direct(&self) -> Option<Direct> {
        let planar = self.windows.image.len() <= 2;
        let direct = || Direct::new(self.inputs, self.outputs, &self.windows);
        planar.then(direct).flatten()
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
    if x.dtype == DType::F32 {
        if sizes.is_pointwise() && sizes.outputs > 1 {
            return pointwise(sizes);
        }
        if let Some(direct) = sizes.direct() {
            return kernel(move |call| {
                let (x, w, bias) = (call.read(0), call.read(1), call.read(2));
                let bias = (!bias.is_empty()).then_some(bias);
                direct.run(x, w, bias, call.write(0));
                Ok(())
            });
        }
    }
    with_type!(x.dtype, floats, T => patches::<T>(sizes))
}

/// One bias for each channel of a group.
fn bias_of<'a, T: bytemuck::Pod>(call: &Call<'a>, sizes: &Sizes, group: usize) -> Option<&'a [T]> {
    let bias = call.read::<T>(2);
    let from = group * sizes.outputs;
    bias.get(from..from + sizes.outputs)
}

/// Windows of one element: the image is the matrix, or a vector where it has one element.
fn pointwise(sizes: Sizes) -> Made {
    let (inputs, outputs, area) = (sizes.inputs, sizes.outputs, sizes.area());
    kernel(move |call| {
        each_group(&sizes, call, |x: &[f32], w, out, bias| {
            let is_vector = area == 1;
            let finish = Finish {
                bias: bias.map(if is_vector {
                    BiasVector::Row
                } else {
                    BiasVector::Column
                }),
                ..Finish::default()
            };
            if is_vector {
                let x = (x, Matrix::new(1, inputs, false));
                let w = (w, Matrix::new(inputs, outputs, true));
                return f32::product(&mut (), out, x, w, finish);
            }
            let x = (x, Matrix::new(inputs, area, false));
            let w = (w, Matrix::new(outputs, inputs, false));
            f32::product(&mut (), out, w, x, finish)
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
