//! Copies between host, device and peer memory: which nodes a value needs to be somewhere else.
//!
//! | from → to | nodes | result is freed by | comes after |
//! | --- | --- | --- | --- |
//! | same → same | none | – | – |
//! | host → device, host → peer | size, copy | a guard | the producer: work on the host is done at once |
//! | device → host, peer → host | wait for the producer's stream, size, copy | a guard | the wait |
//! | device → peer | size, one that makes sure | a guard | – |
//! | peer → device | one that makes sure, and shares: peer memory can be used as device memory | a guard | – |
//! | unknown → device or peer | one that makes sure | a guard | – |
//! | unknown → host | one that makes sure, and waits only when it has to copy | whoever made it | – |
//!
//! A node that makes sure decides when it runs ([`copies_at_run`]). What was made for one request
//! serves all later ones of the same kind, and the wait for a stream all outputs of its node.

use std::collections::BTreeMap;

/// Where bytes lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// Memory of the host.
    Host,
    /// Memory of the device.
    Device,
    /// Memory of the device that others can reach.
    Peer,
    /// Not known before the run.
    Unknown,
    /// On the host, beside the shape.
    Following,
}

/// A node that is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Made {
    /// The host waits for the producer's stream.
    SyncStream,
    /// The bytes of a tensor on the device, as they are padded.
    TensorSize,
    /// The bytes of a tensor on the host, as they are.
    UnalignedTensorSize,
    /// The bytes of a tensor of strings: found from its contents.
    StringTensorSize,
    /// From the host.
    CopyToDevice,
    /// To the host.
    CopyToHost,
    /// Copies to device or peer memory if it has to.
    EnsureOnDevice,
    /// Waits and copies to the host if it has to.
    EnsureOnHost,
    /// The same for what no stream can have written.
    EnsureOnHostNoSync,
    /// A tensor on the host for whoever needs the contents to know a shape.
    BuildTensor,
    /// Frees the result when it is not needed any more.
    Free,
}

/// The graph that a node is made in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum When {
    /// Once, when the model is loaded.
    Load,
    /// In every run.
    Run,
}

/// A value, as far as copies are concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// Where its node leaves it.
    pub from: Place,
    /// Whether its elements are strings.
    pub strings: bool,
    /// Whether it is an input of the model as it is, which no stream has written.
    pub is_input: bool,
    /// Whether something writes in its memory.
    pub written_in_place: bool,
    /// Whether it is known when the model is loaded.
    pub at_load: bool,
    /// Whether its node has a rule of its own for how it gets to the device, as weights have: they
    /// go there in any case, and from there to where they are asked for.
    pub own_rule: bool,
    /// How many outputs its node has.
    pub outputs: usize,
}

/// What somebody asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Request {
    /// The output.
    pub output: usize,
    /// Where it is to be.
    pub to: Place,
    /// Whether its contents are needed to know a shape.
    pub data_dependent: bool,
}

/// What is given for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The node whose result it is; `None`: the value itself.
    pub node: Option<Made>,
    /// Where it is.
    pub place: Place,
    /// Whether a guard frees it.
    pub guarded: bool,
    /// When its node runs.
    pub when: When,
    /// Nodes that its node must come after.
    pub after: Vec<Made>,
}

/// Why something cannot be had somewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlaceError {
    /// There is no such output.
    #[error("output {output} is asked for, and there are {outputs}: ask for one of them")]
    Output {
        /// What is asked for.
        output: usize,
        /// How many there are.
        outputs: usize,
    },
    /// There is no way.
    #[error("there is no copy from {from:?} to {to:?}: ask for host, device or peer memory")]
    NoWay {
        /// Where it is.
        from: Place,
        /// Where it is to be.
        to: Place,
    },
}

/// How the size is found that a copy needs.
#[derive(Clone, Copy)]
enum Size {
    /// It is not needed.
    None,
    /// Of memory of the host.
    Unaligned,
    /// Of memory of the device.
    Padded,
}

/// A way from one place to another.
struct Way {
    from: &'static [Place],
    to: &'static [Place],
    waits: bool,
    size: Size,
    node: Made,
    guarded: bool,
}

/// The table above.
const WAYS: &[Way] = &[
    Way {
        from: &[Place::Host],
        to: &[Place::Device, Place::Peer],
        waits: false,
        size: Size::Unaligned,
        node: Made::CopyToDevice,
        guarded: true,
    },
    Way {
        from: &[Place::Device, Place::Peer],
        to: &[Place::Host],
        waits: true,
        size: Size::Padded,
        node: Made::CopyToHost,
        guarded: true,
    },
    Way {
        from: &[Place::Device],
        to: &[Place::Peer],
        waits: false,
        size: Size::Padded,
        node: Made::EnsureOnDevice,
        guarded: true,
    },
    Way {
        from: &[Place::Peer],
        to: &[Place::Device],
        waits: false,
        size: Size::None,
        node: Made::EnsureOnDevice,
        guarded: true,
    },
    Way {
        from: &[Place::Unknown],
        to: &[Place::Device, Place::Peer],
        waits: false,
        size: Size::None,
        node: Made::EnsureOnDevice,
        guarded: true,
    },
    Way {
        from: &[Place::Unknown],
        to: &[Place::Host],
        waits: false,
        size: Size::None,
        node: Made::EnsureOnHost,
        guarded: false,
    },
];

/// Whether a node that makes sure of `to` copies what turns out to be at `found`; otherwise it
/// shares it.
#[must_use]
pub fn copies_at_run(found: Place, to: Place) -> bool {
    match to {
        Place::Device => !matches!(found, Place::Device | Place::Peer),
        _ => found != to,
    }
}

/// All that is made for the results of one node.
///
/// ```
/// use tenure_runtime::placement::{Made, Place, Placements, Request, Value};
///
/// let value = Value {
///     from: Place::Device,
///     strings: false,
///     is_input: false,
///     written_in_place: false,
///     at_load: false,
///     own_rule: false,
///     outputs: 1,
/// };
/// let mut placements = Placements::new(value);
/// let request = Request { output: 0, to: Place::Host, data_dependent: false };
/// let placed = placements.get(request)?;
/// // The host reads only when the stream has written.
/// assert_eq!(placed.after, [Made::SyncStream]);
/// assert_eq!(placements.get(request)?, placed);
/// assert_eq!(placements.made(Made::CopyToHost), 1);
/// # Ok::<(), tenure_runtime::placement::PlaceError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Placements {
    value: Value,
    made: Vec<Made>,
    /// Results that there are, by output and place.
    placed: BTreeMap<(usize, Place), Placed>,
    /// Outputs whose contents are built as a tensor on the host.
    built: std::collections::BTreeSet<usize>,
}

impl Placements {
    /// Nothing is made yet.
    #[must_use]
    pub fn new(value: Value) -> Self {
        Placements {
            value,
            made: Vec::new(),
            placed: BTreeMap::new(),
            built: std::collections::BTreeSet::new(),
        }
    }

    /// How many nodes of a type were made.
    #[must_use]
    pub fn made(&self, node: Made) -> usize {
        self.made.iter().filter(|&&made| made == node).count()
    }

    /// The value at a place; what it needs is made if it is not there yet.
    ///
    /// # Errors
    /// [`PlaceError`]; nothing is made then.
    pub fn get(&mut self, request: Request) -> Result<Placed, PlaceError> {
        let Request { output, to, .. } = request;
        let outputs = self.value.outputs;
        if output >= outputs {
            return Err(PlaceError::Output { output, outputs });
        }
        let placed = self.at(output, to)?;
        if request.data_dependent && self.built.insert(output) {
            if let Err(error) = self.at(output, Place::Host) {
                self.built.remove(&output);
                return Err(error);
            }
            self.made.push(Made::BuildTensor);
        }
        Ok(placed)
    }

    fn at(&mut self, output: usize, to: Place) -> Result<Placed, PlaceError> {
        if let Some(placed) = self.placed.get(&(output, to)) {
            return Ok(placed.clone());
        }
        let value = &self.value;
        let from = match value.own_rule && to != Place::Device {
            true => Place::Device,
            false => value.from,
        };
        let way = || {
            let mut ways = WAYS.iter();
            let way = ways.find(|w| w.from.contains(&from) && w.to.contains(&to));
            way.ok_or(PlaceError::NoWay { from, to })
        };
        let placed = if from == to {
            self.itself(to)
        } else {
            let way = way()?;
            if value.own_rule && to != Place::Device {
                self.at(output, Place::Device)?;
            }
            self.go(way, to)
        };
        self.placed.insert((output, to), placed.clone());
        Ok(placed)
    }

    fn when(&self) -> When {
        if self.value.at_load {
            When::Load
        } else {
            When::Run
        }
    }

    fn itself(&self, place: Place) -> Placed {
        Placed {
            node: None,
            place,
            guarded: false,
            when: self.when(),
            after: Vec::new(),
        }
    }

    /// Makes the nodes of a way.
    fn go(&mut self, way: &Way, to: Place) -> Placed {
        let value = &self.value;
        let node = match way.node {
            Made::EnsureOnHost if value.is_input && !value.written_in_place => {
                Made::EnsureOnHostNoSync
            }
            node => node,
        };
        let size = match way.size {
            Size::None => None,
            _ if value.strings => Some(Made::StringTensorSize),
            Size::Unaligned => Some(Made::UnalignedTensorSize),
            Size::Padded => Some(Made::TensorSize),
        };
        // A copy of weights must outlive what is done when the model is loaded.
        let guarded = way.guarded && !(value.own_rule && to == Place::Host);
        let mut after = Vec::new();
        if way.waits {
            if self.made(Made::SyncStream) == 0 {
                self.made.push(Made::SyncStream);
            }
            after.push(Made::SyncStream);
        }
        self.made.extend(size);
        self.made.push(node);
        if guarded {
            self.made.push(Made::Free);
        }
        Placed {
            node: Some(node),
            place: to,
            guarded,
            when: self.when(),
            after,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACES: [Place; 5] = [
        Place::Host,
        Place::Device,
        Place::Peer,
        Place::Unknown,
        Place::Following,
    ];

    fn value(from: Place) -> Value {
        Value {
            from,
            strings: false,
            is_input: false,
            written_in_place: false,
            at_load: false,
            own_rule: false,
            outputs: 2,
        }
    }

    fn request(output: usize, to: Place, data_dependent: bool) -> Request {
        Request {
            output,
            to,
            data_dependent,
        }
    }

    #[test]
    fn one_way_from_each_place_to_each_other() {
        for from in PLACES {
            for to in PLACES {
                let ways = WAYS.iter();
                let ways = ways.filter(|w| w.from.contains(&from) && w.to.contains(&to));
                let known = |p| !matches!(p, Place::Unknown | Place::Following);
                let wanted = from != to && from != Place::Following && known(to);
                assert_eq!(ways.count(), usize::from(wanted), "{from:?} {to:?}");
                let got = Placements::new(value(from)).get(request(0, to, false));
                assert_eq!(got.is_ok(), wanted || from == to, "{from:?} {to:?}");
            }
        }
    }

    #[test]
    fn every_copy_from_the_device_comes_after_a_wait() {
        for from in [Place::Device, Place::Peer] {
            for own_rule in [false, true] {
                let mut placements = Placements::new(Value {
                    own_rule,
                    ..value(from)
                });
                for output in [0, 1, 0] {
                    let placed = placements.get(request(output, Place::Host, true)).unwrap();
                    assert_eq!(placed.after, [Made::SyncStream]);
                    assert_eq!(placed.guarded, !own_rule);
                }
                assert_eq!(placements.made(Made::SyncStream), 1);
                assert_eq!(placements.made(Made::CopyToHost), 2);
                assert_eq!(placements.made(Made::BuildTensor), 2);
            }
        }
    }

    #[test]
    fn weights_go_to_the_device_first() {
        let mut placements = Placements::new(Value {
            own_rule: true,
            at_load: true,
            ..value(Place::Host)
        });
        let placed = placements.get(request(0, Place::Host, false)).unwrap();
        assert_eq!(
            (placed.node, placed.when),
            (Some(Made::CopyToHost), When::Load)
        );
        assert_eq!(placements.made(Made::CopyToDevice), 1);
        placements.get(request(0, Place::Device, false)).unwrap();
        assert_eq!(placements.made(Made::CopyToDevice), 1);
    }

    #[test]
    fn a_refused_request_makes_nothing() {
        let mut placements = Placements::new(value(Place::Following));
        assert!(placements.get(request(0, Place::Following, true)).is_err());
        assert!(placements.get(request(2, Place::Following, false)).is_err());
        assert!(placements.made.is_empty() && placements.built.is_empty());
    }
}
