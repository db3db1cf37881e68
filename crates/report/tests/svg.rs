//! The picture of a small packing, byte for byte.

use tenure_report::svg::{PackedBuffer, Packing, picture};

#[test]
fn a_small_packing() {
    let buffer = |id, size, offset, life| PackedBuffer {
        id,
        size,
        offset,
        life,
    };
    let packing = Packing {
        title: "small & <made by hand>.csv",
        height: 4 << 10,
        lower_bound: 4072,
        buffers: vec![
            buffer("input", 1024, 0, vec![(0, 3)]),
            buffer("conv", 2048, 1024, vec![(1, 900)]),
            buffer("lent", 1000, 3096, vec![(1, 4), (700, 1_000_000)]),
            buffer("scratch", 64, 0, vec![(4, 5)]),
            buffer("empty", 0, 0, vec![(0, 9)]),
        ],
    };
    insta::assert_snapshot!("packing", picture(&packing));
}
