//! The order of a graph's nodes: that of their ids once the model is compiled, else that of the
//! file; and where a node stands before what it waits for, the order nearest to that in which it
//! does not.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};

use crate::error::{Problem, quoted};

/// How many nodes of a cycle are named.
const SHOWN: usize = 8;

/// Positions of nodes by their ids; in the order of the file where two have the same one.
pub(super) fn by_id(ids: &[i64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..ids.len()).collect();
    let distinct: HashSet<i64> = ids.iter().copied().collect();
    if distinct.len() == ids.len() {
        order.sort_by_key(|&n| ids[n]);
    }
    order
}

/// The order nearest to that of the nodes in which every one comes after those that it waits for.
/// `waits[n]` are the positions of what node `n` waits for, and `names` are what nodes are called.
///
/// # Errors
/// A cycle.
pub(super) fn after_waits(waits: &[Vec<usize>], names: &[&str]) -> Result<Vec<usize>, Problem> {
    let nodes = waits.len();
    let in_order = |n: usize| waits[n].iter().all(|&w| w < n);
    if (0..nodes).all(in_order) {
        return Ok((0..nodes).collect());
    }
    let mut waiting: Vec<Vec<usize>> = vec![Vec::new(); nodes];
    let mut left = vec![0usize; nodes];
    for (n, before) in waits.iter().enumerate() {
        left[n] = before.len();
        for &w in before {
            waiting[w].push(n);
        }
    }
    let mut ready: BinaryHeap<Reverse<usize>> =
        (0..nodes).filter(|&n| left[n] == 0).map(Reverse).collect();
    let mut sorted = Vec::with_capacity(nodes);
    while let Some(Reverse(n)) = ready.pop() {
        sorted.push(n);
        for &next in &waiting[n] {
            left[next] -= 1;
            if left[next] == 0 {
                ready.push(Reverse(next));
            }
        }
    }
    if sorted.len() == nodes {
        Ok(sorted)
    } else {
        Err(Problem::Cycle(cycle(waits, &left, names)))
    }
}

/// The names of nodes that wait for one another, in the order in which they would run.
fn cycle(waits: &[Vec<usize>], left: &[usize], names: &[&str]) -> Vec<String> {
    // A node that still waits does so for one that still waits: going back must come round.
    let mut path: Vec<usize> = Vec::new();
    let mut place = vec![None; left.len()];
    let mut at = left.iter().position(|&l| l > 0);
    while let Some(n) = at {
        if let Some(first) = place[n] {
            path.drain(..first);
            break;
        }
        place[n] = Some(path.len());
        path.push(n);
        at = waits[n].iter().copied().find(|&w| left[w] > 0);
    }
    path.reverse();
    let first = (0..path.len()).min_by_key(|&i| path[i]).unwrap_or(0);
    path.rotate_left(first);
    let shown = path.iter().take(SHOWN).map(|&n| quoted(names[n]));
    let mut shown: Vec<String> = shown.collect();
    if path.len() > SHOWN {
        shown.push(format!("{} more", path.len() - SHOWN));
    }
    shown.extend(shown.first().cloned());
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_order_where_they_are_distinct() {
        assert_eq!(by_id(&[2, 0, 1]), [1, 2, 0]);
        assert_eq!(by_id(&[0, 0, 0]), [0, 1, 2]);
    }

    #[test]
    fn nodes_come_after_what_they_wait_for_and_move_no_further() {
        let names = ["a", "b", "c", "d"];
        let order = |waits: &[Vec<usize>]| after_waits(waits, &names);
        let waits = [vec![2], vec![], vec![], vec![0]];
        assert_eq!(order(&waits), Ok(vec![1, 2, 0, 3]));
        assert_eq!(order(&vec![vec![]; 4]), Ok(vec![0, 1, 2, 3]));
        let round = order(&[vec![1], vec![0], vec![], vec![]]).unwrap_err();
        assert_eq!(
            round.to_string(),
            "the nodes form a cycle: \"a\" -> \"b\" -> \"a\""
        );
    }
}
