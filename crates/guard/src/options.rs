//! What the model's file and the caller say of the program as a whole.

use std::collections::BTreeSet;
use tenure_graph::{Attr, Graph};

/// The rules under which a program is guarded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Physical pages behind fixed virtual addresses may change (static memory policy 4).
    pub pages_may_change: bool,
    /// The program is built for another machine than this.
    pub offline: bool,
    /// The program is one operator, run on its own.
    pub single_op: bool,
    /// Devices of several kinds take part.
    pub heterogeneous: bool,
    /// The caller's input buffers may be overwritten.
    pub inputs_donated: bool,
    /// Copies are taken out even where something marks or surrounds them.
    pub force_identity_removal: bool,
    /// The device can hand over addresses instead of bytes.
    pub zero_copy_supported: bool,
    /// Each node clears its own memory, with its own task, right before it runs.
    pub nodes_clear_themselves: bool,
    /// The device has a node of its own for filling memory.
    pub memset_supported: bool,
    /// The program must give what it says. A loop is said to write what its body changes, and not,
    /// as the reference has it, all that it is given; copies of state are taken for what they are,
    /// and state that a branch writes is not parted from it.
    pub exact: bool,
    /// A collective that leaves out an input is refused, as by the reference's single steps; else
    /// an input that is not there cannot be overwritten, and is passed over.
    pub refuse_missing_inputs: bool,
    /// The host runs the operators itself.
    pub host_runs: bool,
    /// A planner follows that copies where memory needs it: an edge is put in where it is enough,
    /// and copies are left to the planner, who knows what lives how long.
    pub copies_are_planned: bool,
    /// The inputs of the program, by `index`, whose memory it may have when it needs them no more.
    pub donated_inputs: BTreeSet<i64>,
}

/// The static memory policy under which pages may change.
const CHANGING_PAGES: i64 = 4;

impl Default for Options {
    /// What holds where nobody says anything.
    fn default() -> Self {
        Options {
            pages_may_change: false,
            offline: false,
            single_op: false,
            heterogeneous: false,
            inputs_donated: false,
            force_identity_removal: false,
            zero_copy_supported: true,
            nodes_clear_themselves: false,
            memset_supported: false,
            exact: false,
            refuse_missing_inputs: false,
            host_runs: false,
            copies_are_planned: false,
            donated_inputs: BTreeSet::new(),
        }
    }
}

impl Options {
    /// What a graph's file says; everything else is as usual.
    #[must_use]
    pub fn of(graph: &Graph) -> Self {
        let options = &graph.options;
        let flag = |name| options.get(name).and_then(Attr::as_bool) == Some(true);
        Options {
            pages_may_change: options.int("static_memory_policy") == Some(CHANGING_PAGES),
            offline: flag("offline"),
            single_op: flag("single_op"),
            heterogeneous: flag("heterogeneous"),
            inputs_donated: flag("inputs_donated"),
            force_identity_removal: flag("identity_force"),
            zero_copy_supported: options.get("zero_copy_supported").and_then(Attr::as_bool)
                != Some(false),
            nodes_clear_themselves: matches!(
                options.get("atomic_clean_policy"),
                Some(Attr::Int(1)) | Some(Attr::Bool(true))
            ) || options.str("atomic_clean_policy") == Some("1"),
            memset_supported: flag("memset_supported"),
            exact: false,
            refuse_missing_inputs: false,
            host_runs: flag("host_exec"),
            copies_are_planned: false,
            donated_inputs: donated(
                options.str("input_reuse_mem_indexes"),
                options.str("output_reuse_input_mem_indexes"),
            ),
        }
    }
}

/// The inputs of a list (`"0,2"`), none if something in it is no number, and those of pairs of an
/// input and an output (`"0,0|1,1"`), of which those that are none are passed over.
fn donated(inputs: Option<&str>, pairs: Option<&str>) -> BTreeSet<i64> {
    let number = |text: &str| {
        u32::try_from(text.trim().parse::<i64>().ok()?)
            .ok()
            .map(i64::from)
    };
    let listed = inputs
        .filter(|text| !text.is_empty())
        .map(|text| text.split(',').map(number));
    let listed: Option<BTreeSet<i64>> = listed.and_then(Iterator::collect);
    let pairs = pairs.unwrap_or_default().split('|').filter_map(|pair| {
        let (input, output) = pair.split_once(',')?;
        number(output)?;
        number(input)
    });
    listed
        .unwrap_or_default()
        .into_iter()
        .chain(pairs)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn donated_inputs_are_listed_or_paired() {
        let of = |inputs, pairs| donated(inputs, pairs).into_iter().collect::<Vec<_>>();
        assert_eq!(of(Some("0,2"), None), [0, 2]);
        assert_eq!(of(Some("0,x"), Some("3,1")), [3]);
        assert_eq!(of(Some("999999999999999999999999"), None), [0i64; 0]);
        assert_eq!(of(None, Some("1,1|-2,0|5|0,0")), [0, 1]);
    }
}
