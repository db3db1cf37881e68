//! Numbers for people: digits in groups, bytes in binary units, parts of a whole.
//!
//! Sizes stay integers: one decimal is worked out in tenths, so that no figure depends on how a
//! float rounds.

/// Digits in groups of three, with spaces between: `6 422 528`.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(' ');
        }
        out.push(digit);
    }
    out
}

/// Bytes in the greatest binary unit that leaves at least one: `512 B`, `6.1 MiB`.
pub(crate) fn human(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut unit = u128::from(bytes.ilog2() / 10);
    let mut tenths = in_tenths(bytes, unit);
    // 1023.97 KiB rounds to 1024.0 KiB, which is written 1.0 MiB.
    if tenths >= 10_240 {
        unit += 1;
        tenths = in_tenths(bytes, unit);
    }
    let name = usize::try_from(unit)
        .ok()
        .and_then(|u| UNITS.get(u - 1))
        .unwrap_or(&"EiB");
    format!("{}.{} {name}", tenths / 10, tenths % 10)
}

/// `part` of `whole` in percent with one decimal: `89.5 %`. 0 of 0 is `0.0 %`.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    let tenths = ratio_tenths(u128::from(part) * 100, u128::from(whole));
    format!("{}.{} %", tenths / 10, tenths % 10)
}

fn in_tenths(bytes: u64, unit: u128) -> u128 {
    ratio_tenths(u128::from(bytes), 1 << (10 * unit))
}

/// `a / b` in tenths, rounded half up.
fn ratio_tenths(a: u128, b: u128) -> u128 {
    (a * 20 + b).checked_div(b * 2).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_grouped_from_the_right() {
        for (n, text) in [
            (0, "0"),
            (999, "999"),
            (1000, "1 000"),
            (6_422_528, "6 422 528"),
        ] {
            assert_eq!(grouped(n), text);
        }
        assert_eq!(grouped(u64::MAX), "18 446 744 073 709 551 615");
    }

    #[test]
    fn bytes_take_the_unit_that_keeps_them_short() {
        let cases = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            ((1 << 20) - 1, "1.0 MiB"),
            (6_422_528, "6.1 MiB"),
            (u64::MAX, "16.0 EiB"),
        ];
        for (bytes, text) in cases {
            assert_eq!(human(bytes), text);
        }
    }

    #[test]
    fn ratios_round_half_up_and_survive_zero() {
        assert_eq!(percent(1, 3), "33.3 %");
        assert_eq!(percent(1, 2000), "0.1 %");
        assert_eq!(percent(u64::MAX, u64::MAX), "100.0 %");
        assert_eq!(percent(0, 0), "0.0 %");
    }
}
