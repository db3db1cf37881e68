//! Random graphs and options, from a seed.

use arbitrary::Unstructured;
use tenure_graph::Graph;
use tenure_graph::arbitrary_graph::{Size, decorate, ge, onnx};
use tenure_graph::plan::{Placement, PlanOptions, Sharing};

/// A random graph with static shapes, of a dialect by the seed's parity.
///
/// # Panics
/// Never for a seed: the generators ask for fewer bytes than they get.
#[must_use]
pub fn graph(seed: u64, size: Size) -> Graph {
    let mut rng = fastrand::Rng::with_seed(seed);
    let bytes: Vec<u8> = (0..size.nodes * 64 + 256).map(|_| rng.u8(..)).collect();
    let mut u = Unstructured::new(&bytes);
    let made = if seed.is_multiple_of(2) {
        onnx(&mut u, size)
    } else {
        ge(&mut u, size)
    };
    made.expect("the generators take what is left when bytes run out")
}

/// Gives a graph what its file might say beyond its operators: sizes that are not known before the
/// run, sizes that differ from the shapes, references and scratch where the operator has none.
///
/// # Panics
/// Never for a seed, as in [`graph`].
pub fn say_more(seed: u64, graph: &mut Graph) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let bytes: Vec<u8> = (0..graph.nodes.len() * 64).map(|_| rng.u8(..)).collect();
    decorate(&mut Unstructured::new(&bytes), graph)
        .expect("the generators take what is left when bytes run out");
}

/// Random options.
#[must_use]
pub fn options(seed: u64) -> PlanOptions {
    let mut rng = fastrand::Rng::with_seed(!seed);
    let placement = |user| {
        if user {
            Placement::User
        } else {
            Placement::Planned
        }
    };
    PlanOptions {
        align: 1 << rng.u8(0..8),
        inputs: placement(rng.bool()),
        outputs: placement(rng.bool()),
        keep_inputs: rng.bool(),
        fold: rng.bool(),
        sharing: [Sharing::None, Sharing::Views, Sharing::Full][rng.usize(..3)],
        no_reuse: Vec::new(),
    }
}
