//! Operators that work on each element of one tensor. Element `i` is read before element `i` of the
//! output is written, so the output may be the input's memory where elements are as large.

use bytemuck::Pod;
use half::{bf16, f16};
use rten_simd::SimdUnaryOp;
use rten_vecmath as simd;
use tenure_graph::DType;

use super::element::{Number, with_type};
use super::{Made, Make, Site, kernel, kernel_over};

/// Gives a kernel for the float types by one formula. `$x` is a float32 or a float64; the small
/// floats are computed in float32. Numbers of the node are named in front and have the same type.
macro_rules! real {
    ($site:expr, |$x:ident| $body:expr) => {
        real!($site, [], |$x| $body)
    };
    ($site:expr, [$($name:ident = $value:expr),*], |$x:ident| $body:expr) => {{
        let site: &Site<'_> = $site;
        $(let $name: f64 = $value;)*
        #[allow(clippy::cast_possible_truncation, reason = "attributes have the type of elements")]
        match site.input(0)?.dtype {
            DType::F64 => map(site, move |$x: f64| $body),
            DType::F32 => {
                $(let $name = $name as f32;)*
                map(site, move |$x: f32| $body)
            }
            DType::F16 => {
                $(let $name = $name as f32;)*
                map(site, move |x: f16| { let $x = x.to_f32(); f16::from_f32($body) })
            }
            DType::BF16 => {
                $(let $name = $name as f32;)*
                map(site, move |x: bf16| { let $x = x.to_f32(); bf16::from_f32($body) })
            }
            other => Err(format!("elements of type {other} are not supported here")),
        }
    }};
}

/// The kernels of this family.
pub(super) const KERNELS: &[(&str, Make)] = &[
    (
        "Abs",
        |s| with_type!(s.input(0)?.dtype, numbers, T => map(s, |x: T| x.abs())),
    ),
    ("Acos", |s| real!(s, |x| x.acos())),
    ("Acosh", |s| real!(s, |x| x.acosh())),
    ("Asin", |s| real!(s, |x| x.asin())),
    ("Asinh", |s| real!(s, |x| x.asinh())),
    ("Atan", |s| real!(s, |x| x.atan())),
    ("Atanh", |s| real!(s, |x| x.atanh())),
    (
        "BitwiseNot",
        |s| with_type!(s.input(0)?.dtype, integers, T => map(s, |x: T| !x)),
    ),
    ("Ceil", |s| real!(s, |x| x.ceil())),
    ("Celu", |s| {
        real!(s, [a = s.float("alpha", 1.0)], |x| x.max(0.0)
            + (a * (x / a).exp_m1()).min(0.0))
    }),
    ("Cos", |s| {
        fast(s, simd::Cos::new(), |s| real!(s, |x| x.cos()))
    }),
    ("Cosh", |s| real!(s, |x| x.cosh())),
    ("Elu", |s| {
        real!(s, [a = s.float("alpha", 1.0)], |x| if x < 0.0 {
            a * x.exp_m1()
        } else {
            x
        })
    }),
    ("Erf", |s| {
        fast(s, simd::Erf {}, |s| {
            real!(s, |x| libm::erf(x.f64()).same(x))
        })
    }),
    ("Exp", |s| fast(s, simd::Exp {}, |s| real!(s, |x| x.exp()))),
    ("Floor", |s| real!(s, |x| x.floor())),
    ("Gelu", gelu),
    ("com.microsoft:Gelu", gelu),
    ("com.microsoft:QuickGelu", |s| {
        real!(s, [a = s.float("alpha", 1.702)], |x| x
            / (1.0 + (-a * x).exp()))
    }),
    ("HardSigmoid", |s| {
        let (a, b) = (s.float("alpha", 0.2), s.float("beta", 0.5));
        real!(s, [a = a, b = b], |x| (a * x + b).clamp(0.0, 1.0))
    }),
    ("HardSwish", |s| {
        real!(s, |x| x * (x / 6.0 + 0.5).clamp(0.0, 1.0))
    }),
    ("IsInf", is_infinite),
    (
        "IsNaN",
        |s| with_type!(s.input(0)?.dtype, floats, T => map(s, |x: T| u8::from(Number::is_nan(x)))),
    ),
    ("LeakyRelu", |s| {
        real!(s, [a = s.float("alpha", 0.01)], |x| if x < 0.0 {
            a * x
        } else {
            x
        })
    }),
    ("Log", |s| real!(s, |x| x.ln())),
    ("Mish", |s| {
        real!(s, |x| x
            * (if x > 20.0 { x } else { x.exp().ln_1p() }).tanh())
    }),
    (
        "Neg",
        |s| with_type!(s.input(0)?.dtype, numbers, T => map(s, |x: T| Number::neg(x))),
    ),
    ("Not", |s| map(s, |x: u8| u8::from(x == 0))),
    ("Reciprocal", |s| real!(s, |x| 1.0 / x)),
    (
        "Relu",
        |s| with_type!(s.input(0)?.dtype, numbers, T => map(s, |x: T| if x < T::default() { T::default() } else { x })),
    ),
    ("Round", |s| real!(s, |x| x.round_ties_even())),
    ("Selu", |s| {
        let (a, g) = (
            s.float("alpha", 1.673_263_192_176_818_8),
            s.float("gamma", 1.050_701_022_148_132_3),
        );
        real!(s, [a = a, g = g], |x| g * if x > 0.0 {
            x
        } else {
            a * x.exp_m1()
        })
    }),
    ("Shrink", shrink),
    ("Sigmoid", |s| {
        fast(s, simd::Sigmoid {}, |s| {
            real!(s, |x| 1.0 / (1.0 + (-x).exp()))
        })
    }),
    ("Sign", |s| {
        with_type!(s.input(0)?.dtype, numbers, T => map(s, |x: T| {
            let (zero, one) = (T::default(), T::ONE);
            if x > zero { one } else if x < zero { Number::neg(one) } else { x }
        }))
    }),
    ("Sin", |s| {
        fast(s, simd::Sin::new(), |s| real!(s, |x| x.sin()))
    }),
    ("Sinh", |s| real!(s, |x| x.sinh())),
    ("Softplus", |s| {
        real!(s, |x| x.max(0.0) + (-x.abs()).exp().ln_1p())
    }),
    ("Softsign", |s| real!(s, |x| x / (1.0 + x.abs()))),
    ("Sqrt", |s| real!(s, |x| x.sqrt())),
    ("Swish", |s| {
        real!(s, [a = s.float("alpha", 1.0)], |x| x
            / (1.0 + (-a * x).exp()))
    }),
    ("Tan", |s| real!(s, |x| x.tan())),
    ("Tanh", |s| {
        fast(s, simd::Tanh {}, |s| real!(s, |x| x.tanh()))
    }),
    ("ThresholdedRelu", |s| {
        real!(s, [a = s.float("alpha", 1.0)], |x| if x > a {
            x
        } else {
            0.0
        })
    }),
    ("Clip", clip),
    ("Affine", |s| {
        let (a, b) = (s.float("alpha", 1.0), s.float("beta", 0.0));
        real!(s, [a = a, b = b], |x| a * x + b)
    }),
    ("Scale", |s| {
        real!(s, [a = s.float("scale", 1.0)], |x| a * x)
    }),
    ("ScaledTanh", |s| {
        let (a, b) = (s.float("alpha", 1.0), s.float("beta", 1.0));
        real!(s, [a = a, b = b], |x| a * (b * x).tanh())
    }),
    ("ParametricSoftplus", |s| {
        let (a, b) = (s.float("alpha", 1.0), s.float("beta", 1.0));
        real!(s, [a = a, b = b], |x| a * (b * x).exp().ln_1p())
    }),
];

/// A kernel that takes each element of input 0 to one of output 0.
pub(super) fn map<T: Pod, U: Pod>(
    site: &Site<'_>,
    f: impl Fn(T) -> U + Copy + Send + 'static,
) -> Made {
    has_one_each(site)?;
    site.output(0)?.holds::<U>()?;
    if size_of::<T>() != size_of::<U>() {
        return kernel(move |call| {
            let x = call.read::<T>(0);
            for (y, &x) in call.write::<U>(0).iter_mut().zip(x) {
                *y = f(x);
            }
            Ok(())
        });
    }
    kernel_over(&[0], move |call| {
        if call.over(0).is_some() {
            for v in call.write::<T>(0) {
                // The two types are as large as each other.
                *v = bytemuck::try_cast(f(*v)).unwrap_or(*v);
            }
        } else {
            let x = call.read::<T>(0);
            for (y, &x) in call.write::<U>(0).iter_mut().zip(x) {
                *y = f(x);
            }
        }
        Ok(())
    })
}

/// Whether the output has an element for each of the input.
fn has_one_each(site: &Site<'_>) -> Result<(), String> {
    let (x, y) = (site.input(0)?.elements(), site.output(0)?.elements());
    if x == y {
        return Ok(());
    }
    Err(format!("input 0 has {x} elements, and the output has {y}"))
}

/// Elements that fit into the cache twice.
const PART: usize = 2048;

/// A kernel with a vectorised function for float32, and another for the rest.
fn fast(
    site: &Site<'_>,
    op: impl SimdUnaryOp<f32> + Send + 'static,
    rest: fn(&Site<'_>) -> Made,
) -> Made {
    let (x, y) = (site.input(0)?, site.output(0)?);
    if x.dtype != DType::F32 || y.dtype != DType::F32 || x.elements() != y.elements() {
        return rest(site);
    }
    kernel_over(&[0], move |call| {
        call.settle_parts(0, 0, PART, |part| op.map_mut(part));
        Ok(())
    })
}

/// A float64 that becomes the type of another number.
trait Same<T> {
    fn same(self, like: T) -> T;
}

impl Same<f32> for f64 {
    #[expect(clippy::cast_possible_truncation, reason = "rounds to the nearest")]
    fn same(self, _: f32) -> f32 {
        self as f32
    }
}

impl Same<f64> for f64 {
    fn same(self, _: f64) -> f64 {
        self
    }
}

fn gelu(site: &Site<'_>) -> Made {
    if site.text("approximate", "none") == "tanh" {
        return fast(site, simd::ApproxGelu {}, |s| {
            real!(s, [c = (2.0 / std::f64::consts::PI).sqrt()], |x| {
                0.5 * x * (1.0 + (c * (x + 0.044_715 * x * x * x)).tanh())
            })
        });
    }
    fast(site, simd::Gelu {}, |s| {
        real!(s, [r = std::f64::consts::FRAC_1_SQRT_2], |x| {
            0.5 * x * (1.0 + libm::erf((x * r).f64()).same(x))
        })
    })
}

fn is_infinite(site: &Site<'_>) -> Made {
    let positive = site.flag("detect_positive", true);
    let negative = site.flag("detect_negative", true);
    with_type!(site.input(0)?.dtype, floats, T => map(site, move |x: T| {
        let up = positive && x == T::GREATEST;
        u8::from(up || (negative && x == T::LEAST))
    }))
}

fn shrink(site: &Site<'_>) -> Made {
    let (bias, bound) = (site.float("bias", 0.0), site.float("lambd", 0.5));
    with_type!(site.input(0)?.dtype, numbers, T => map(site, move |x: T| {
        let number = x.f64();
        T::of(if number < -bound {
            number + bias
        } else if number > bound {
            number - bias
        } else {
            0.0
        })
    }))
}

/// Bounds are attributes before opset 11, and inputs since.
fn clip(site: &Site<'_>) -> Made {
    let x = site.input(0)?;
    if x.elements() != site.output(0)?.elements() {
        return Err("the output has other elements than input 0".to_owned());
    }
    let given = ["min", "max"].map(|name| site.attrs().get(name).and_then(|a| a.as_float()));
    with_type!(x.dtype, numbers, T => kernel_over(&[0], move |call| {
        let bound = |i: usize, default: T| {
            let input = call.read::<T>(i).first().copied();
            input.or(given[i - 1].map(T::of)).unwrap_or(default)
        };
        let (low, high) = (bound(1, T::LEAST), bound(2, T::GREATEST));
        call.settle(0, 0);
        for x in call.write::<T>(0) {
            let above = if *x < low { low } else { *x };
            *x = if above > high { high } else { above };
        }
        Ok(())
    }))
}
