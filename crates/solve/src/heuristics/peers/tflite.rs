//! The orders in which TensorFlow Lite's two planners take the buffers.

use std::cmp::Reverse;

use crate::instance::Instance;

/// TensorFlow Lite: what lives through the whole inference, in the order of the instance; then by
/// falling size, equal ones by birth.
pub(super) fn arena_order(instance: &Instance) -> Vec<u32> {
    let buffers = instance.buffers();
    let held = || buffers.iter().filter(|buffer| buffer.size > 0);
    let start = held().map(|buffer| buffer.lower).min();
    let end = held().map(|buffer| buffer.upper).max();
    let mut order = sized(instance);
    order.sort_by_key(|&index| {
        let buffer = &buffers[index as usize];
        match Some(buffer.lower) == start && Some(buffer.upper) == end {
            true => (false, Reverse(0), 0),
            false => (true, Reverse(buffer.size), buffer.lower),
        }
    });
    order
}

/// TensorFlow Lite Micro: by falling size, equal ones in the order of the instance.
pub(super) fn micro_order(instance: &Instance) -> Vec<u32> {
    let mut order = sized(instance);
    order.sort_by_key(|&index| Reverse(instance.buffers()[index as usize].size));
    order
}

/// The buffers that take bytes, in the order of the instance.
fn sized(instance: &Instance) -> Vec<u32> {
    let indices = (0u32..).zip(instance.buffers());
    indices
        .filter(|(_, buffer)| buffer.size > 0)
        .map(|(index, _)| index)
        .collect()
}

#[cfg(test)]
mod tests {
    use crate::heuristics::peers::Peer;
    use crate::heuristics::peers::tests::placed;
    use crate::instance::Buffer;

    #[test]
    fn what_lives_all_the_time_lies_lowest_in_one_and_not_in_the_other() {
        let buffers = vec![
            Buffer::new(8, 0, 2),
            Buffer::new(4, 0, 6),
            Buffer::new(6, 2, 6),
            Buffer::new(2, 1, 3),
        ];
        // 4 bytes for ever, then 8 and 6 above them, then 2 on the 8.
        let lite = placed(Peer::TfliteGreedy, buffers.clone());
        assert_eq!(lite, (vec![4, 0, 4, 12], 14));
        // 8 and 6 at the bottom, 4 on the 8, 2 on the 4.
        let micro = placed(Peer::TflmGreedy, buffers);
        assert_eq!(micro, (vec![0, 8, 0, 12], 14));
    }

    #[test]
    fn one_takes_the_tightest_gap_and_the_other_the_lowest() {
        let buffers = vec![
            Buffer::new(20, 0, 1),
            Buffer::new(18, 0, 4),
            Buffer::new(17, 0, 1),
            Buffer::new(16, 0, 4),
            Buffer::new(15, 0, 1),
            Buffer::new(14, 0, 4),
            Buffer::new(13, 1, 4),
        ];
        // Beside the 18 at 20, the 16 at 55 and the 14 at 86 there is room at 0 (20 bytes), at 38
        // (17 bytes) and at 71 (15 bytes) for the 13.
        assert_eq!(placed(Peer::TfliteGreedy, shifted(&buffers)).0[6], 71);
        assert_eq!(placed(Peer::TflmGreedy, buffers).0[6], 0);
    }

    /// The same buffers, none of which lives all the time any more.
    fn shifted(buffers: &[Buffer]) -> Vec<Buffer> {
        let mut buffers = buffers.to_vec();
        buffers.push(Buffer::new(1, 4, 5));
        buffers
    }
}
