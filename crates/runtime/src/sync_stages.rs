//! The events that a run on several streams needs besides the graph's own.
//!
//! A graph orders its streams with events of its own: each has one node that sends it and one that
//! receives it. Three stages are added around it, so that nothing of a run begins before or goes on
//! after it:
//!
//! | stage | one event from → to | for |
//! | --- | --- | --- |
//! | first | main → the node's stream | each node of another stream that nothing comes before |
//! | last | the node's stream → main | each node of another stream that nothing comes after |
//! | clean | each other stream → main | always: after it all memory of the run is free |
//!
//! What comes before a node are its inputs and the events that it receives. Stream 0 is the main
//! stream. Numbers of events go on from those of the graph, in the order of the stages.

/// A node, as far as order among streams is concerned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamNode {
    /// Its label, for messages.
    pub name: String,
    /// The stream that it runs on.
    pub stream: u32,
    /// Whether it has inputs of any kind.
    pub has_inputs: bool,
    /// Whether anything takes something from it.
    pub has_outputs: bool,
    /// Events that it sends.
    pub sends: Vec<u32>,
    /// Events that it receives.
    pub receives: Vec<u32>,
}

/// Streams that an event orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventStreams {
    /// The stream that records it.
    pub from: u32,
    /// The stream that waits for it.
    pub to: u32,
}

/// All events of a run, by number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SyncStages {
    /// The graph's own events, then those of the stages.
    pub events: Vec<EventStreams>,
    /// Numbers of the events of the stage before the graph.
    pub first: std::ops::Range<usize>,
    /// Numbers of the events of the stage after the graph.
    pub last: std::ops::Range<usize>,
    /// Numbers of the events after which memory is cleaned.
    pub clean: std::ops::Range<usize>,
}

/// Why the events of a graph make no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SyncError {
    /// A node runs on a stream that the run does not have.
    #[error("{node:?} runs on stream {stream}, and there are {streams}: use a smaller number")]
    Stream {
        /// Label of the node.
        node: String,
        /// Its stream.
        stream: u32,
        /// How many there are.
        streams: u32,
    },
    /// A node names an event that the graph does not declare.
    #[error("{node:?} names event {event}, and the graph declares {events}: declare more")]
    Event {
        /// Label of the node.
        node: String,
        /// The event.
        event: u32,
        /// How many there are.
        events: u32,
    },
    /// An event is sent or received by two nodes.
    #[error("event {event} is {what} by {first:?} and again by {second:?}: give one another event")]
    Twice {
        /// The event.
        event: u32,
        /// `sent` or `received`.
        what: &'static str,
        /// Label of the first node.
        first: String,
        /// Label of the second node.
        second: String,
    },
    /// An event is sent or received by no node.
    #[error("event {event} is {what} by no node: remove it, or let a node do it")]
    Never {
        /// The event.
        event: u32,
        /// `sent` or `received`.
        what: &'static str,
    },
}

/// Finds all events of a run of `nodes` on `streams` streams with `events` events of its own.
///
/// ```
/// use tenure_runtime::sync_stages::{StreamNode, plan};
///
/// let alone = StreamNode { name: "a".to_owned(), stream: 1, ..StreamNode::default() };
/// let stages = plan(&[alone], 2, 0)?;
/// // 0 → 1 before it, 1 → 0 after it, and 1 → 0 to clean.
/// assert_eq!((stages.first, stages.last, stages.clean), (0..1, 1..2, 2..3));
/// # Ok::<(), tenure_runtime::sync_stages::SyncError>(())
/// ```
///
/// # Errors
/// [`SyncError`]: every event has exactly one node that sends it and one that receives it.
pub fn plan(nodes: &[StreamNode], streams: u32, events: u32) -> Result<SyncStages, SyncError> {
    for node in nodes {
        if node.stream >= streams {
            return Err(SyncError::Stream {
                node: node.name.clone(),
                stream: node.stream,
                streams,
            });
        }
    }
    let from = ends(nodes, events, "sent", |n| &n.sends)?;
    let to = ends(nodes, events, "received", |n| &n.receives)?;
    let own = from.into_iter().zip(to);
    let mut all: Vec<EventStreams> = own.map(|(from, to)| EventStreams { from, to }).collect();
    let others = || nodes.iter().filter(|n| n.stream > 0);
    let mut stage = |added: &mut dyn Iterator<Item = EventStreams>| {
        let start = all.len();
        all.extend(added);
        start..all.len()
    };
    let to_main = |from| EventStreams { from, to: 0 };
    let begins = others().filter(|n| !n.has_inputs && n.receives.is_empty());
    let ends = others().filter(|n| !n.has_outputs && n.sends.is_empty());
    let first = stage(&mut begins.map(|n| EventStreams {
        from: 0,
        to: n.stream,
    }));
    let last = stage(&mut ends.map(|n| to_main(n.stream)));
    let clean = stage(&mut (1..streams).map(to_main));
    Ok(SyncStages {
        events: all,
        first,
        last,
        clean,
    })
}

/// The stream of the one node that does something with each event.
fn ends(
    nodes: &[StreamNode],
    events: u32,
    what: &'static str,
    of: impl Fn(&StreamNode) -> &Vec<u32>,
) -> Result<Vec<u32>, SyncError> {
    // Not as many places as the graph declares: that is only a number in a file.
    let mut found = std::collections::BTreeMap::new();
    for node in nodes {
        for &event in of(node) {
            if event >= events {
                return Err(SyncError::Event {
                    node: node.name.clone(),
                    event,
                    events,
                });
            }
            if let Some(first) = found.insert(event, node) {
                return Err(SyncError::Twice {
                    event,
                    what,
                    first: first.name.clone(),
                    second: node.name.clone(),
                });
            }
        }
    }
    match (0..events).find(|event| !found.contains_key(event)) {
        Some(event) => Err(SyncError::Never { event, what }),
        None => Ok(found.into_values().map(|node| node.stream).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, stream: u32, sends: &[u32], receives: &[u32]) -> StreamNode {
        StreamNode {
            name: name.to_owned(),
            stream,
            has_inputs: true,
            has_outputs: true,
            sends: sends.to_vec(),
            receives: receives.to_vec(),
        }
    }

    #[test]
    fn events_have_two_ends() {
        let a = node("a", 0, &[0], &[]);
        let b = node("b", 1, &[], &[0]);
        let stages = plan(&[a.clone(), b.clone()], 2, 1).unwrap();
        assert_eq!(stages.events[0], EventStreams { from: 0, to: 1 });
        assert_eq!((stages.first, stages.last), (1..1, 1..1));
        let both = [a.clone(), b.clone()];
        assert!(matches!(plan(&both, 1, 1), Err(SyncError::Stream { .. })));
        assert!(matches!(plan(&both, 2, 0), Err(SyncError::Event { .. })));
        let never = plan(&both, 2, u32::MAX);
        assert!(matches!(never, Err(SyncError::Never { event: 1, .. })));
        let lost = plan(std::slice::from_ref(&a), 2, 1);
        let what = "received";
        assert_eq!(lost, Err(SyncError::Never { event: 0, what }));
        let twice = plan(&[a.clone(), a, b], 2, 1);
        assert!(matches!(twice, Err(SyncError::Twice { what: "sent", .. })));
    }

    #[test]
    fn nodes_that_only_events_tie_need_no_stage() {
        let a = StreamNode {
            has_inputs: false,
            has_outputs: false,
            ..node("a", 1, &[1], &[0])
        };
        let b = node("b", 0, &[0], &[1]);
        let stages = plan(&[a, b], 2, 2).unwrap();
        assert_eq!((stages.first.len(), stages.last.len()), (0, 0));
        assert_eq!(stages.clean, 2..3);
    }
}
