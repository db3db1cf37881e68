//! What the model's file and the caller say of the program as a whole.

use tenure_graph::{Attr, Graph};

/// The rules under which a program is guarded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Addresses of intermediate tensors may be others in each run, and operators are told.
    pub feature_map_refreshable: bool,
    /// Physical pages behind fixed virtual addresses may change (static memory policy 4).
    pub pages_may_change: bool,
    /// The program is built for another machine than this.
    pub offline: bool,
    /// The program is one operator, run on its own.
    pub single_op: bool,
    /// Devices of several kinds take part.
    pub heterogeneous: bool,
}

/// The static memory policy under which pages may change.
const CHANGING_PAGES: i64 = 4;

impl Options {
    /// What a graph's file says; everything else is as usual.
    #[must_use]
    pub fn of(graph: &Graph) -> Self {
        let options = &graph.options;
        let flag = |name| options.get(name).and_then(Attr::as_bool) == Some(true);
        Options {
            feature_map_refreshable: flag("feature_map_refreshable"),
            pages_may_change: options.int("static_memory_policy") == Some(CHANGING_PAGES),
            offline: flag("offline"),
            single_op: flag("single_op"),
            heterogeneous: flag("heterogeneous"),
        }
    }
}
