//! Tensors side by side: whether two rows of them fit into one.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::storage::Anchor;

/// Whether two rows are the same, one is a run inside the other, or the tail of one is the head of
/// the other; and share nothing beyond that.
#[must_use]
pub fn ends_meet(one: &[Anchor], other: &[Anchor]) -> bool {
    if one == other {
        return !one.is_empty();
    }
    let mut place: FxHashMap<Anchor, usize> = FxHashMap::default();
    for (j, &anchor) in other.iter().enumerate() {
        place.entry(anchor).or_insert(j);
    }
    let common = one
        .iter()
        .enumerate()
        .find_map(|(i, a)| Some((i, *place.get(a)?)));
    let Some((i, j)) = common else {
        return false;
    };
    if i != 0 && j != 0 {
        return false;
    }
    let (rest, other_rest) = (&one[i..], &other[j..]);
    let common = rest.len().min(other_rest.len());
    if rest[..common] != other_rest[..common] {
        return false;
    }
    let seen: FxHashSet<Anchor> = one.iter().copied().collect();
    let left_over = rest[common..].iter().all(|a| !place.contains_key(a));
    left_over && other_rest[common..].iter().all(|a| !seen.contains(a))
}

/// Whether `part` is a run inside `whole`.
#[must_use]
pub fn is_run_of(part: &[Anchor], whole: &[Anchor]) -> bool {
    let members: FxHashSet<Anchor> = part.iter().copied().collect();
    let first = whole.iter().position(|a| members.contains(a));
    first.is_some_and(|first| whole[first..].starts_with(part))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_graph::NodeId;

    fn row(numbers: &[u32]) -> Vec<Anchor> {
        let anchor = |&n| Anchor::output(NodeId::from_u32(n), 0);
        numbers.iter().map(anchor).collect()
    }

    #[test]
    fn rows_that_meet_and_rows_that_do_not() {
        let cases: [(&[u32], &[u32], bool); 9] = [
            (&[1, 2, 3], &[1, 2, 3], true),
            (&[1, 2, 3, 4], &[2, 3], true),
            (&[2, 3], &[1, 2, 3, 4], true),
            (&[1, 2, 3, 4], &[3, 4, 5], true),
            (&[1, 2], &[2, 1], false),
            (&[1, 2, 3, 4], &[2, 4], false),
            (&[1, 2, 3, 4], &[2, 5], false),
            (&[1, 2, 3, 4], &[5, 2], false),
            (&[1, 2, 3, 4], &[5, 6, 3, 4], false),
        ];
        for (one, other, meet) in cases {
            assert_eq!(ends_meet(&row(one), &row(other)), meet, "{one:?} {other:?}");
        }
    }

    #[test]
    fn runs_are_found_in_order_and_whole() {
        assert!(is_run_of(&row(&[2, 3]), &row(&[1, 2, 3])));
        assert!(!is_run_of(&row(&[3, 4]), &row(&[1, 2, 3])));
        assert!(!is_run_of(&row(&[3, 2]), &row(&[1, 2, 3])));
    }
}
