//! Why a plan cannot be run.

/// Why a plan cannot be run.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum RuntimeError {
    /// Nodes that cannot be run, all of them.
    #[error("{} cannot be run: {}", count(.0.len()), list(.0))]
    Unsupported(Vec<Unsupported>),
    /// The plan names something that the graph does not have: it was made for another graph.
    #[error(
        "the plan does not fit the graph: {0}; run a plan with the very graph that it was checked with"
    )]
    Mismatch(String),
    /// The machine has not so much memory.
    #[error("{bytes} bytes of memory cannot be had: plan with smaller dimensions")]
    OutOfMemory {
        /// Bytes asked for.
        bytes: u64,
    },
    /// A constant whose contents are not here, or not as many as its shape says.
    #[error("the contents of {node:?} cannot be used: {reason}")]
    Contents {
        /// Label of the node.
        node: String,
        /// What is wrong.
        reason: String,
    },
    /// Parts of the model for several sizes of a batch, of which one alone may run.
    #[error(
        "the model has {0} gears (`_batch_label`), of which one runs at a time: take the nodes of the others out"
    )]
    Gears(u32),
    /// The caller gives another number of inputs than the graph has.
    #[error("the graph has {expected} inputs, and {given} are given")]
    InputCount {
        /// Inputs of the graph.
        expected: usize,
        /// Inputs that are given.
        given: usize,
    },
    /// The caller's input has another number of bytes than the graph's.
    #[error("input {input:?} has {expected} bytes, and {given} are given")]
    InputSize {
        /// Label of the value.
        input: String,
        /// Bytes of the graph's input.
        expected: usize,
        /// Bytes that are given.
        given: usize,
    },
    /// An input has other dimensions than the graph's, or needs some and has none.
    #[error("input {input:?} has shape {expected}, and {given} is given")]
    InputShape {
        /// Label of the value.
        input: String,
        /// Shape of the graph's input.
        expected: String,
        /// The dimensions that are given.
        given: String,
    },
    /// A node cannot work on the values that it reads.
    #[error("node {node:?} cannot go on: {reason}")]
    Values {
        /// Label of the node.
        node: String,
        /// What is wrong.
        reason: String,
    },
    /// A loop runs another number of times than its outputs have slices for.
    #[error(
        "a loop at step {step} runs another number of times than the {planned} that were planned for its outputs"
    )]
    Passes {
        /// Passes that were planned.
        planned: usize,
        /// Step of the plan.
        step: u32,
    },
    /// A fault is asked for at a node or output that there is not.
    #[error("there is no output {output} of a node {node:?} to make a fault at")]
    NoSuchOutput {
        /// The node as it was named.
        node: String,
        /// The output.
        output: usize,
    },
    /// Streams cannot have threads of their own, or one of these has failed.
    #[error("the streams cannot run side by side: {0}; run without threads, or on one stream")]
    Streams(String),
    /// The run was given a number of instructions and did not end within it.
    #[error(
        "the run did not end within {0} instructions: a loop goes on for longer, or for ever; raise the limit, or look at its condition"
    )]
    TooLong(u64),
}

/// One node that cannot be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsupported {
    /// Label of the node.
    pub node: String,
    /// Type of its operator.
    pub op: String,
    /// Why.
    pub reason: String,
}

fn count(nodes: usize) -> String {
    if nodes == 1 {
        "1 node".to_owned()
    } else {
        format!("{nodes} nodes")
    }
}

fn list(nodes: &[Unsupported]) -> String {
    let one = |n: &Unsupported| format!("{:?} of type {}: {}", n.node, n.op, n.reason);
    nodes.iter().map(one).collect::<Vec<_>>().join("; ")
}
