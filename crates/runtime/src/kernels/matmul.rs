//! Products of matrices. Those of float32 are computed by `rten-gemm`; the small floats are
//! widened to float32, and the other types are summed up in their own.

use rten_gemm::{BiasVector, GemmExecutor, GemmInputA, GemmInputB, GemmOptions};
use rten_tensor::NdTensorView;
use tenure_graph::DType;

use super::element::{Number, with_type};
use super::strided::{Loop, Strides, at, broadcast, common};
use super::{Made, Make, Site, Type, kernel, kernel_over};

/// The kernels of this family.
pub(super) const KERNELS: &[(&str, Make)] = &[
    ("MatMul", |s| matmul(s, 1.0, [false; 2])),
    ("Gemm", gemm),
    ("com.microsoft:FusedMatMul", |s| {
        if s.flag("transBatchA", false) || s.flag("transBatchB", false) {
            return Err("products with batches turned round are not supported".to_owned());
        }
        matmul(
            s,
            s.float("alpha", 1.0),
            [s.flag("transA", false), s.flag("transB", false)],
        )
    }),
];

/// A matrix in a slice: rows, columns, and the steps between them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Matrix {
    pub(super) rows: usize,
    pub(super) cols: usize,
    pub(super) steps: [usize; 2],
}

impl Matrix {
    /// A matrix of so many rows and columns, row by row, or the other way round.
    pub(super) fn new(rows: usize, cols: usize, transposed: bool) -> Self {
        let steps = if transposed { [1, rows] } else { [cols, 1] };
        Matrix { rows, cols, steps }
    }

    /// Number of elements.
    pub(super) fn len(&self) -> usize {
        self.rows.saturating_mul(self.cols)
    }

    fn view<'a, T>(&self, of: &'a [T]) -> Result<NdTensorView<'a, T, 2>, String> {
        let shape = [self.rows, self.cols];
        NdTensorView::from_slice_with_strides(shape, of, self.steps)
            .map_err(|e| format!("a matrix does not fit its memory: {e:?}"))
    }
}

/// What is done to the product of two matrices.
#[derive(Clone, Copy, Debug)]
pub(super) struct Finish<'a, T> {
    pub(super) alpha: f32,
    /// How much of what is there stays.
    pub(super) beta: T,
    pub(super) bias: Option<BiasVector<'a, T>>,
}

impl<T: Number> Default for Finish<'_, T> {
    fn default() -> Self {
        Finish {
            alpha: 1.0,
            beta: T::default(),
            bias: None,
        }
    }
}

/// Elements whose matrices can be multiplied.
pub(super) trait Product: Number {
    /// Memory that is kept from run to run.
    type Room: Default + Send + 'static;

    /// `out = alpha * a b + beta * out + bias`
    fn product(
        room: &mut Self::Room,
        out: &mut [Self],
        a: (&[Self], Matrix),
        b: (&[Self], Matrix),
        finish: Finish<'_, Self>,
    ) -> Result<(), String>;
}

impl Product for f32 {
    type Room = ();

    fn product(
        (): &mut (),
        out: &mut [f32],
        a: (&[f32], Matrix),
        b: (&[f32], Matrix),
        finish: Finish<'_, f32>,
    ) -> Result<(), String> {
        if a.1.cols == 0 {
            plain(out, a, b, finish);
            return Ok(());
        }
        let left = GemmInputA::Unpacked(a.1.view(a.0)?);
        let right = GemmInputB::Unpacked(b.1.view(b.0)?);
        let options = GemmOptions {
            alpha: finish.alpha,
            beta: finish.beta,
            bias: finish.bias,
            ..GemmOptions::default()
        };
        let done = with_gemm(|gemm| gemm.gemm(out, left, right, options));
        done.map_err(|e| format!("a product of matrices cannot be computed: {e:?}"))
    }
}

/// What computes products of float32, which each thread has for itself: it cannot be handed to
/// another one.
pub(super) fn with_gemm<R>(f: impl FnOnce(&GemmExecutor) -> R) -> R {
    thread_local! {
        static GEMM: GemmExecutor = GemmExecutor::default();
    }
    GEMM.with(f)
}

macro_rules! plain_products {
    ($($ty:ty),*) => {$(
        impl Product for $ty {
            type Room = ();

            fn product(
                (): &mut (),
                out: &mut [$ty],
                a: (&[$ty], Matrix),
                b: (&[$ty], Matrix),
                finish: Finish<'_, $ty>,
            ) -> Result<(), String> {
                plain(out, a, b, finish);
                Ok(())
            }
        }
    )*};
}

plain_products!(f64, i8, i16, i32, i64, u8, u16, u32, u64);

macro_rules! wide_products {
    ($($ty:ty),*) => {$(
        impl Product for $ty {
            type Room = [Vec<f32>; 4];

            fn product(
                [left, right, result, bias]: &mut Self::Room,
                out: &mut [$ty],
                a: (&[$ty], Matrix),
                b: (&[$ty], Matrix),
                finish: Finish<'_, $ty>,
            ) -> Result<(), String> {
                let widen = |from: &[$ty], to: &mut Vec<f32>| {
                    to.clear();
                    to.extend(from.iter().map(|x| x.to_f32()));
                };
                widen(a.0, left);
                widen(b.0, right);
                widen(out, result);
                let bias = finish.bias.map(|given| match given {
                    BiasVector::Column(b) => {
                        widen(b, bias);
                        BiasVector::Column(&bias[..])
                    }
                    BiasVector::Row(b) => {
                        widen(b, bias);
                        BiasVector::Row(&bias[..])
                    }
                });
                let finish = Finish { alpha: finish.alpha, beta: finish.beta.to_f32(), bias };
                f32::product(&mut (), result, (left, a.1), (right, b.1), finish)?;
                for (to, from) in out.iter_mut().zip(result) {
                    *to = <$ty>::from_f32(*from);
                }
                Ok(())
            }
        }
    )*};
}

wide_products!(half::f16, half::bf16);

/// The product, summed up row by row.
fn plain<T: Number>(
    out: &mut [T],
    (a, left): (&[T], Matrix),
    (b, right): (&[T], Matrix),
    finish: Finish<'_, T>,
) {
    #[expect(clippy::float_cmp, reason = "1 stands for nothing to do")]
    let as_is = finish.alpha == 1.0;
    let scale = |x: T| {
        if as_is {
            x
        } else {
            T::of(x.f64() * f64::from(finish.alpha))
        }
    };
    for (i, row) in out
        .chunks_exact_mut(right.cols.max(1))
        .take(left.rows)
        .enumerate()
    {
        for (j, to) in row.iter_mut().enumerate() {
            let kept = if finish.beta == T::default() {
                T::default()
            } else {
                finish.beta.mul(*to)
            };
            *to = match finish.bias {
                Some(BiasVector::Column(bias)) => kept.add(bias[i]),
                Some(BiasVector::Row(bias)) => kept.add(bias[j]),
                None => kept,
            };
        }
        for k in 0..left.cols {
            let x = scale(a[i * left.steps[0] + k * left.steps[1]]);
            let from = k * right.steps[0];
            for (j, to) in row.iter_mut().enumerate() {
                *to = to.add(x.mul(b[from + j * right.steps[1]]));
            }
        }
    }
}

/// Products of stacks of matrices: which lie where.
pub(super) struct Stacks {
    pub(super) left: Matrix,
    pub(super) right: Matrix,
    /// The matrices, by the place of each one's first element.
    pub(super) each: Loop<2>,
}

impl Stacks {
    /// Multiplies all matrices of two stacks.
    pub(super) fn multiply<T: Product>(
        &self,
        room: &mut T::Room,
        mut rest: &mut [T],
        a: &[T],
        b: &[T],
        alpha: f32,
    ) -> Result<(), String> {
        let mut done = Ok(());
        self.each.each(|[i, j]| {
            let (out, after) = std::mem::take(&mut rest).split_at_mut(self.result());
            rest = after;
            if done.is_err() || out.is_empty() {
                return;
            }
            let left = &a[at(i)..at(i) + self.left.len()];
            let right = &b[at(j)..at(j) + self.right.len()];
            let finish = Finish {
                alpha,
                ..Finish::default()
            };
            done = T::product(room, out, (left, self.left), (right, self.right), finish);
        });
        done
    }

    /// As NumPy multiplies: a vector is a row on the left, a column on the right; stacks are
    /// repeated to fit each other.
    pub(super) fn new(a: &[usize], b: &[usize], turned: [bool; 2]) -> Result<Self, String> {
        let ([.., _], [.., _]) = (a, b) else {
            return Err("a single number is no matrix".to_owned());
        };
        let (mut a, mut b) = (a.to_vec(), b.to_vec());
        if a.len() == 1 {
            a.insert(0, 1);
        }
        if b.len() == 1 {
            b.push(1);
        }
        let [stack_a @ .., a0, a1] = &a[..] else {
            return Err("a vector is no matrix".to_owned());
        };
        let [stack_b @ .., b0, b1] = &b[..] else {
            return Err("a vector is no matrix".to_owned());
        };
        let (rows, inner) = if turned[0] { (*a1, *a0) } else { (*a0, *a1) };
        let (inner_b, cols) = if turned[1] { (*b1, *b0) } else { (*b0, *b1) };
        if inner != inner_b {
            return Err(format!("matrices {a:?} and {b:?} do not fit each other"));
        }
        let stack = common(&[stack_a, stack_b])?;
        let mut left = Matrix::new(rows, inner, turned[0]);
        let right = Matrix::new(inner, cols, turned[1]);
        let times = |strides: Strides, len: usize| -> Strides {
            let len = isize::try_from(len).unwrap_or(isize::MAX);
            strides.iter().map(|s| s.saturating_mul(len)).collect()
        };
        let steps_a = times(broadcast(stack_a, &stack)?, left.len());
        let steps_b = times(broadcast(stack_b, &stack)?, right.len());
        let mut each = Loop::new(&stack, [&steps_a, &steps_b]);
        // One matrix for a whole stack: the stack is one tall matrix.
        if stack_b.iter().all(|&d| d == 1) && !turned[0] && stack_a.len() == stack.len() {
            left = Matrix::new(rows.saturating_mul(super::product(&stack)), inner, false);
            each = Loop::new(&[], [&[], &[]]);
        }
        Ok(Stacks { left, right, each })
    }

    /// Elements of one product.
    pub(super) fn result(&self) -> usize {
        self.left.rows.saturating_mul(self.right.cols)
    }
}

fn same_type(types: &[&Type]) -> Result<DType, String> {
    let first = types.first().map_or(DType::Unknown, |t| t.dtype);
    match types.iter().find(|t| t.dtype != first) {
        Some(other) => Err(format!(
            "its tensors are of types {first} and {}",
            other.dtype
        )),
        None => Ok(first),
    }
}

fn matmul(site: &Site<'_>, alpha: f64, turned: [bool; 2]) -> Made {
    let (a, b, c) = (site.input(0)?, site.input(1)?, site.output(0)?);
    let dtype = same_type(&[&a, &b, &c])?;
    let stacks = Stacks::new(&a.dims, &b.dims, turned)?;
    with_type!(dtype, numbers, T => multiply::<T>(stacks, alpha))
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "attributes are float32 in the model"
)]
fn multiply<T: Product>(stacks: Stacks, alpha: f64) -> Made {
    let mut room = T::Room::default();
    kernel(move |call| {
        let (a, b) = (call.read::<T>(0), call.read::<T>(1));
        stacks.multiply(&mut room, call.write::<T>(0), a, b, alpha as f32)
    })
}

/// `alpha * A' B' + beta * C`; C is repeated to fit, and the output may be its memory.
fn gemm(site: &Site<'_>) -> Made {
    let (a, b, y) = (site.input(0)?, site.input(1)?, site.output(0)?);
    let c = site.optional(2)?;
    let dtype = same_type(&[&a, &b, &y])?;
    let turned = [site.flag("transA", false), site.flag("transB", false)];
    if a.rank() != 2 || b.rank() != 2 {
        return Err("it needs two matrices".to_owned());
    }
    let stacks = Stacks::new(&a.dims, &b.dims, turned)?;
    let added = match &c {
        Some(c) => Some(Loop::over(&y.dims, [&c.dims])?),
        None => None,
    };
    let (alpha, beta) = (site.float("alpha", 1.0), site.float("beta", 1.0));
    with_type!(dtype, numbers, T => gemm_of::<T>(stacks, added, alpha, beta))
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "attributes are float32 in the model"
)]
fn gemm_of<T: Product>(stacks: Stacks, added: Option<Loop<1>>, alpha: f64, beta: f64) -> Made {
    let mut room = T::Room::default();
    kernel_over(&[2], move |call| {
        let (a, b) = (call.read::<T>(0), call.read::<T>(1));
        let mut finish = Finish {
            alpha: alpha as f32,
            ..Finish::default()
        };
        if let Some(added) = &added {
            finish.beta = T::of(beta);
            if call.over(2).is_none() {
                let c = call.read::<T>(2);
                let mut out = call.write::<T>(0).iter_mut();
                added.each(|[i]| {
                    if let Some(out) = out.next() {
                        *out = c[at(i)];
                    }
                });
            }
        }
        let out = call.write::<T>(0);
        if out.is_empty() {
            return Ok(());
        }
        let integer = !T::IS_FLOAT && (alpha != 1.0 || beta != 1.0);
        if integer {
            return Err("whole numbers can only be taken as they are".to_owned());
        }
        T::product(&mut room, out, (a, stacks.left), (b, stacks.right), finish)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_are_repeated_to_fit() {
        let s = Stacks::new(&[2, 1, 3, 4], &[5, 4, 6], [false; 2]).unwrap();
        assert_eq!((s.left.rows, s.right.cols, s.result()), (3, 6, 18));
        let mut starts = Vec::new();
        s.each.each(|p| starts.push(p));
        assert_eq!(
            starts[..6],
            [[0, 0], [0, 24], [0, 48], [0, 72], [0, 96], [12, 0]]
        );
        let tall = Stacks::new(&[2, 5, 3, 4], &[4, 6], [false; 2]).unwrap();
        assert_eq!(tall.left.rows, 30);
        let dot = Stacks::new(&[4], &[4], [false; 2]).unwrap();
        assert_eq!(dot.result(), 1);
        assert!(Stacks::new(&[2, 3], &[2, 3], [false; 2]).is_err());
        assert!(Stacks::new(&[2, 3], &[2, 3], [false, true]).is_ok());
        assert!(Stacks::new(&[], &[2, 3], [false; 2]).is_err());
    }

    #[test]
    fn the_types_agree() {
        let (a, b) = ([1, 2, 3, 4, 5, 6], [1, 0, -1, 2, 1, 1]);
        let (left, right) = (Matrix::new(2, 3, false), Matrix::new(3, 2, false));
        let mut whole = [0i32; 4];
        i32::product(
            &mut (),
            &mut whole,
            (&a, left),
            (&b, right),
            Finish::default(),
        )
        .unwrap();
        assert_eq!(whole, [2, 7, 5, 16]);
        let wide = |x: [i32; 6]| x.map(|x| half::f16::from_f32(x as f32));
        let mut small = [half::f16::ONE; 4];
        let room = &mut Default::default();
        let finish = Finish {
            beta: half::f16::ONE,
            ..Finish::default()
        };
        half::f16::product(
            room,
            &mut small,
            (&wide(a), left),
            (&wide(b), right),
            finish,
        )
        .unwrap();
        assert_eq!(small.map(|x| x.to_f32()), [3.0, 8.0, 6.0, 17.0]);
    }
}
