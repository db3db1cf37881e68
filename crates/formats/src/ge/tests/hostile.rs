//! Bytes that are no models, or nearly: an error with a place or a sound graph, never a crash.

use super::{error, read, sample};
use crate::testing::check;
use crate::testing::ge::Container;
use crate::wire::put_bytes;

/// The sample in every encoding.
fn samples() -> [Vec<u8>; 6] {
    let model = sample();
    [
        model.proto(),
        model.om(Container::Narrow),
        model.clone().coded().om(Container::Wide),
        model.om_of_2019(),
        model.proto_text(),
        model.onnx_text(),
    ]
}

#[test]
fn a_flipped_bit_or_a_cut_end_is_no_crash() {
    for sample in samples() {
        read(sample.clone());
        for end in 0..sample.len() {
            check(&sample[..end]);
        }
        for at in 0..sample.len() {
            let mut bytes = sample.clone();
            bytes[at] ^= 1 << (at % 8);
            check(&bytes);
        }
    }
}

#[test]
fn a_container_that_is_cut_short_says_so() {
    for container in [Container::Narrow, Container::Wide] {
        let whole = sample().om(container);
        for end in 4..whole.len() {
            let message = error(whole[..end].to_vec());
            assert!(message.contains("byte "), "{end}: {message}");
        }
        // The length in the header may be that of the file, and the partition's may not.
        let mut short = whole[..whole.len() - 1].to_vec();
        short[0x4c..0x50].fill(0);
        short[0xb8..0xc0].fill(0);
        if container == Container::Wide {
            short[0xb8] = 1;
        }
        let message = error(short);
        assert!(message.contains("behind the table"), "{message}");
    }
    let mut encrypted = sample().om(Container::Wide);
    encrypted[0x50] = 1;
    assert!(error(encrypted).contains("encrypted"));
    let mut none = sample().om(Container::Narrow);
    none[256 + 4 + 12] = 9;
    assert!(error(none).contains("no partition of type 0"));
    let mut many = sample().om(Container::Narrow);
    many[256..260].fill(0xff);
    assert!(error(many).contains("4294967295 partitions"));
}

#[test]
fn mutated_bytes_are_no_crash() {
    let samples = samples();
    arbtest::arbtest(|u| {
        let mut bytes = u.choose(&samples)?.clone();
        for _ in 0..u.int_in_range(1..=8)? {
            let at = u.choose_index(bytes.len())?;
            match u.int_in_range(0..=2)? {
                0 => bytes[at] = u.arbitrary()?,
                1 => bytes.insert(at, u.arbitrary()?),
                _ if bytes.len() > 1 => drop(bytes.remove(at)),
                _ => {}
            }
        }
        check(&bytes);
        Ok(())
    })
    .budget_ms(1000);
}

#[test]
fn deep_nesting_is_refused() {
    // An attribute that holds attributes under a name, 1000 deep.
    let mut value = Vec::new();
    for _ in 0..1000 {
        let (mut entry, mut named, mut around) = (Vec::new(), Vec::new(), Vec::new());
        put_bytes(&mut entry, 2, &value);
        put_bytes(&mut named, 2, &entry);
        put_bytes(&mut around, 10, &named);
        value = around;
    }
    let (mut entry, mut op, mut graph, mut model) = Default::default();
    put_bytes(&mut entry, 2, &value);
    put_bytes(&mut op, 10, &entry);
    put_bytes(&mut graph, 6, &op);
    put_bytes(&mut model, 7, &graph);
    let message = error(model);
    assert!(message.contains("nested more than 32 deep"), "{message}");

    let text = format!("graph {{ op {{ {}", "a {".repeat(1000));
    let message = error(text.into_bytes());
    assert!(message.contains("nested more than 100 deep"), "{message}");
    let text = format!("graph {{ op {{ id: {}", "[".repeat(1000));
    error(text.into_bytes());
}
