//! Elements of a byte or less: the 8-bit and 4-bit floats, and whole numbers of 4 and 2 bits, the
//! first of a byte in its low bits. Source: the ONNX specification of float8 and 4-bit types.

use tenure_graph::DType;

/// How a small float is made up.
#[derive(Clone, Copy, Debug)]
struct Float {
    exponent: u32,
    mantissa: u32,
    bias: i32,
    /// The greatest number.
    greatest: f64,
    special: Special,
}

/// What codes stand for no number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Special {
    /// None do.
    None,
    /// All bits set but the sign is NaN, and nothing is infinite.
    AllOnes,
    /// A negative zero is NaN, and nothing is infinite.
    NegativeZero,
    /// The greatest exponent is infinite, or NaN.
    Ieee,
}

fn float(dtype: DType) -> Option<Float> {
    let (exponent, mantissa, bias, greatest, special) = match dtype {
        DType::F8E4M3FN => (4, 3, 7, 448.0, Special::AllOnes),
        DType::F8E4M3FNUZ => (4, 3, 8, 240.0, Special::NegativeZero),
        DType::F8E5M2 => (5, 2, 15, 57344.0, Special::Ieee),
        DType::F8E5M2FNUZ => (5, 2, 16, 57344.0, Special::NegativeZero),
        DType::F4E2M1 => (2, 1, 1, 6.0, Special::None),
        _ => return None,
    };
    Some(Float {
        exponent,
        mantissa,
        bias,
        greatest,
        special,
    })
}

impl Float {
    fn sign_bit(&self) -> u8 {
        1 << (self.exponent + self.mantissa)
    }

    fn decode(&self, code: u8) -> f64 {
        let magnitude = code & (self.sign_bit() - 1);
        let negative = code & self.sign_bit() != 0;
        let exponent = i32::from(magnitude >> self.mantissa);
        let fraction = f64::from(magnitude & ((1 << self.mantissa) - 1));
        let top = (1 << self.exponent) - 1;
        match self.special {
            Special::AllOnes if magnitude == self.sign_bit() - 1 => return f64::NAN,
            Special::NegativeZero if negative && magnitude == 0 => return f64::NAN,
            Special::Ieee if exponent == top && fraction > 0.0 => return f64::NAN,
            Special::Ieee if exponent == top => {
                return if negative {
                    f64::NEG_INFINITY
                } else {
                    f64::INFINITY
                };
            }
            _ => {}
        }
        let fraction = fraction / f64::from(1u32 << self.mantissa);
        let number = if exponent == 0 {
            fraction * 2f64.powi(1 - self.bias)
        } else {
            (1.0 + fraction) * 2f64.powi(exponent - self.bias)
        };
        if negative { -number } else { number }
    }

    fn nan(&self) -> u8 {
        match self.special {
            Special::None => self.sign_bit(),
            Special::NegativeZero => self.sign_bit(),
            Special::AllOnes | Special::Ieee => self.sign_bit() - 1,
        }
    }

    /// The nearest number, an even one where two are as near. What is too large becomes the
    /// greatest number, or, without `saturate`, infinite or NaN.
    fn encode(&self, number: f64, saturate: bool) -> u8 {
        if number.is_nan() {
            return self.nan();
        }
        let sign = if number.is_sign_negative() {
            self.sign_bit()
        } else {
            0
        };
        let magnitude = number.abs();
        let least = 1 - self.bias;
        let mut exponent = least;
        while exponent < 64 && magnitude >= 2f64.powi(exponent + 1) {
            exponent += 1;
        }
        let unit = 2f64.powi(exponent - i32::try_from(self.mantissa).unwrap_or(0));
        let mut rounded = (magnitude / unit).round_ties_even() * unit;
        if rounded > self.greatest {
            let kept = saturate || self.special == Special::None;
            if !kept {
                return match self.special {
                    Special::Ieee => sign | ((1 << self.exponent) - 1) << self.mantissa,
                    Special::AllOnes => sign | self.nan(),
                    _ => self.nan(),
                };
            }
            rounded = self.greatest;
        }
        if rounded == 0.0 {
            return if self.special == Special::NegativeZero {
                0
            } else {
                sign
            };
        }
        // Rounding may have reached the next power of two.
        let codes = 0..self.sign_bit();
        let found = codes.into_iter().position(|c| self.decode(c) == rounded);
        sign | found.and_then(|c| u8::try_from(c).ok()).unwrap_or(0)
    }
}

/// Bits of the whole numbers, and whether they have a sign.
fn integer(dtype: DType) -> Option<(u32, bool)> {
    match dtype {
        DType::I4 => Some((4, true)),
        DType::U4 => Some((4, false)),
        DType::I2 => Some((2, true)),
        DType::U2 => Some((2, false)),
        _ => None,
    }
}

/// Whether elements of a type are read and written here.
pub(super) fn is_small(dtype: DType) -> bool {
    float(dtype).is_some() || integer(dtype).is_some() || dtype == DType::F8E8M0
}

/// Whether they are floats.
pub(super) fn is_float(dtype: DType) -> bool {
    integer(dtype).is_none()
}

fn bits(dtype: DType) -> usize {
    dtype.bits().map_or(8, |b| b as usize)
}

/// Element `i` as a number.
pub(super) fn get(bytes: &[u8], dtype: DType, i: usize) -> f64 {
    let bits = bits(dtype);
    let byte = bytes[i * bits / 8];
    let code = (u32::from(byte) >> (i * bits % 8)) & ((1 << bits) - 1);
    let code = u8::try_from(code).unwrap_or(0);
    if dtype == DType::F8E8M0 {
        return match code {
            0xff => f64::NAN,
            code => 2f64.powi(i32::from(code) - 127),
        };
    }
    if let Some(float) = float(dtype) {
        return float.decode(code);
    }
    let signed = integer(dtype).is_some_and(|(_, signed)| signed);
    let negative = signed && code >> (bits - 1) != 0;
    let number = i32::from(code);
    f64::from(if negative {
        number - (1 << bits)
    } else {
        number
    })
}

/// How numbers become small ones.
#[derive(Clone, Copy, Debug)]
pub(super) struct Writer {
    pub(super) dtype: DType,
    /// What is too large becomes the greatest number.
    pub(super) saturate: bool,
    /// How powers of two are rounded: -1 down, 0 to the nearest, 1 up.
    pub(super) round: i8,
    /// Whole numbers are brought into their range, and not cut to their bits.
    pub(super) clamp: bool,
}

impl Writer {
    fn code(&self, number: f64) -> u8 {
        if self.dtype == DType::F8E8M0 {
            return self.power(number);
        }
        if let Some(float) = float(self.dtype) {
            return float.encode(number, self.saturate);
        }
        let (bits, signed) = integer(self.dtype).unwrap_or((8, false));
        let number = if self.clamp {
            let top = f64::from((1u32 << bits) - 1);
            let (low, high) = if signed {
                (-(top + 1.0) / 2.0, (top - 1.0) / 2.0)
            } else {
                (0.0, top)
            };
            number.clamp(low, high)
        } else {
            number
        };
        #[expect(
            clippy::cast_possible_truncation,
            reason = "only the low bits are kept"
        )]
        let low = (number as i64).to_le_bytes()[0];
        low & ((1 << bits) - 1)
    }

    /// The power of two for a number above 0.
    fn power(&self, number: f64) -> u8 {
        if number.is_nan() {
            return 0xff;
        }
        let exponent = number.abs().log2();
        let exponent = match self.round {
            -1 => exponent.floor(),
            1 => exponent.ceil(),
            _ => {
                // Halfway between two powers in value, not in exponent.
                let low = exponent.floor();
                if number.abs() >= 1.5 * low.exp2() {
                    low + 1.0
                } else {
                    low
                }
            }
        };
        let code = exponent + 127.0;
        if code > 254.0 {
            return if self.saturate { 254 } else { 0xff };
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is between 0 and 254"
        )]
        let code = code.max(0.0) as u8;
        code
    }

    /// Writes element `i`; those before it in its byte have been written.
    pub(super) fn set(&self, bytes: &mut [u8], i: usize, number: f64) {
        let bits = bits(self.dtype);
        let (at, shift) = (i * bits / 8, i * bits % 8);
        let code = self.code(number) << shift;
        let before = if shift == 0 {
            0
        } else {
            bytes[at] & ((1 << shift) - 1)
        };
        bytes[at] = before | code;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writer(dtype: DType, saturate: bool) -> Writer {
        Writer {
            dtype,
            saturate,
            round: 0,
            clamp: false,
        }
    }

    #[test]
    fn every_code_stands_for_a_number_that_becomes_it_again() {
        for dtype in [
            DType::F8E4M3FN,
            DType::F8E4M3FNUZ,
            DType::F8E5M2,
            DType::F8E5M2FNUZ,
            DType::F8E8M0,
            DType::F4E2M1,
            DType::I4,
            DType::U4,
            DType::I2,
            DType::U2,
        ] {
            let codes = 1u32 << dtype.bits().unwrap();
            for code in (0..codes).map(|c| u8::try_from(c).unwrap()) {
                let number = get(&[code], dtype, 0);
                let mut again = [0];
                writer(dtype, false).set(&mut again, 0, number);
                if !number.is_nan() {
                    assert_eq!(again, [code], "{dtype} {number}");
                } else {
                    assert!(get(&again, dtype, 0).is_nan());
                }
            }
        }
    }

    #[test]
    fn small_numbers_lie_side_by_side() {
        let mut bytes = [0xff; 2];
        for (i, number) in [1.0, -2.0, 7.0].into_iter().enumerate() {
            writer(DType::I4, true).set(&mut bytes, i, number);
        }
        assert_eq!(bytes, [0xe1, 0x07]);
        assert_eq!(
            [0, 1, 2].map(|i| get(&bytes, DType::I4, i)),
            [1.0, -2.0, 7.0]
        );
    }

    #[test]
    fn what_is_too_large_is_the_greatest_or_none() {
        let code = |dtype, saturate, x| writer(dtype, saturate).code(x);
        assert_eq!(code(DType::F8E4M3FN, true, 1e9), 0x7e);
        assert_eq!(code(DType::F8E4M3FN, false, -1e9), 0xff);
        assert_eq!(code(DType::F8E5M2, false, f64::INFINITY), 0x7c);
        assert_eq!(code(DType::F8E5M2, true, f64::INFINITY), 0x7b);
        assert_eq!(code(DType::F8E5M2FNUZ, false, 1e9), 0x80);
        // 2.5 lies halfway between 2 and 3, and the code of 2 is even.
        assert_eq!(
            get(&[code(DType::F4E2M1, true, 2.5)], DType::F4E2M1, 0),
            2.0
        );
    }
}
