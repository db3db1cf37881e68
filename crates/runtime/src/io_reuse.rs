//! Outputs of the caller that are to lie in inputs of the caller: what a model declares, and the
//! check of addresses before each run.
//!
//! The attribute is text: pairs `input,output`, separated by `|`. A kernel of such a model writes
//! its output where the input is, so when the caller gives another address the run would write
//! where nobody looks; nothing runs then.

/// An output that lies in an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Number of the input.
    pub input: usize,
    /// Number of the output.
    pub output: usize,
}

/// Why the caller's memory cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReuseError {
    /// The model declares more than the caller gives.
    #[error(
        "output {} is declared to lie in input {}, and {inputs} inputs and {outputs} outputs are given: give all of them",
        pair.output, pair.input
    )]
    Missing {
        /// What is declared.
        pair: Pair,
        /// Inputs that are given.
        inputs: usize,
        /// Outputs that are given.
        outputs: usize,
    },
    /// The addresses differ.
    #[error(
        "output {} is declared to lie in input {} at {wanted:#x}, and is given at {given:#x}: give the same address for both",
        pair.output, pair.input
    )]
    Address {
        /// What is declared.
        pair: Pair,
        /// Address of the input.
        wanted: u64,
        /// Address of the output.
        given: u64,
    },
}

/// The pairs of an attribute, and the pieces of text that are none.
///
/// ```
/// use tenure_runtime::io_reuse::{Pair, check, parse};
///
/// let (pairs, bad) = parse("0,1||2;3");
/// assert_eq!(pairs, [Pair { input: 0, output: 1 }]);
/// assert_eq!(bad, ["2;3"]);
/// assert!(check(&pairs, Some(&[64]), Some(&[0, 64])).is_ok());
/// assert!(check(&pairs, Some(&[64]), Some(&[0, 128])).is_err());
/// ```
#[must_use]
pub fn parse(text: &str) -> (Vec<Pair>, Vec<&str>) {
    let (mut pairs, mut bad) = (Vec::new(), Vec::new());
    for piece in text.split('|').map(str::trim).filter(|p| !p.is_empty()) {
        match pair(piece) {
            Some(pair) => pairs.push(pair),
            None => bad.push(piece),
        }
    }
    (pairs, bad)
}

fn pair(piece: &str) -> Option<Pair> {
    let (input, output) = piece.split_once(',')?;
    // `parse` would take a sign.
    let number = |text: &str| {
        let text = text.trim();
        let digits = text.bytes().all(|b| b.is_ascii_digit());
        digits.then(|| text.parse().ok()).flatten()
    };
    Some(Pair {
        input: number(input)?,
        output: number(output)?,
    })
}

/// Compares the addresses that the caller gives for a run, by the first byte. Where it gives no
/// inputs or no outputs there is nothing to compare.
///
/// # Errors
/// [`ReuseError`] of the first pair that does not hold.
pub fn check(
    pairs: &[Pair],
    inputs: Option<&[u64]>,
    outputs: Option<&[u64]>,
) -> Result<(), ReuseError> {
    let (inputs, outputs) = (inputs.unwrap_or_default(), outputs.unwrap_or_default());
    if inputs.is_empty() || outputs.is_empty() {
        return Ok(());
    }
    for &pair in pairs {
        match (inputs.get(pair.input), outputs.get(pair.output)) {
            (Some(wanted), Some(given)) if wanted == given => {}
            (Some(&wanted), Some(&given)) => {
                return Err(ReuseError::Address {
                    pair,
                    wanted,
                    given,
                });
            }
            _ => {
                return Err(ReuseError::Missing {
                    pair,
                    inputs: inputs.len(),
                    outputs: outputs.len(),
                });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_two_plain_numbers_are_a_pair() {
        for bad in [
            "1",
            "1,",
            ",1",
            "+1,1",
            "-1,1",
            "1,1,1",
            "1x,1",
            "1,0x1",
            "1,99999999999999999999",
        ] {
            assert_eq!(parse(bad), (vec![], vec![bad]));
        }
        let (pairs, bad) = parse(" 3 , 4 |");
        assert_eq!((pairs[0].input, pairs[0].output, bad.len()), (3, 4, 0));
    }

    #[test]
    fn the_first_pair_that_does_not_hold_is_named() {
        let (pairs, _) = parse("0,0|1,1|2,2");
        let both = |n| vec![0u64; n];
        let missing = check(&pairs, Some(&both(2)), Some(&both(3)));
        assert_eq!(
            missing,
            Err(ReuseError::Missing {
                pair: pairs[2],
                inputs: 2,
                outputs: 3
            })
        );
        assert_eq!(check(&pairs, None, Some(&both(3))), Ok(()));
        assert_eq!(check(&pairs, Some(&[]), Some(&both(3))), Ok(()));
        let differs = check(&pairs, Some(&[0, 8, 8]), Some(&[0, 0, 0]));
        assert!(differs.unwrap_err().to_string().contains("0x8"));
    }
}
