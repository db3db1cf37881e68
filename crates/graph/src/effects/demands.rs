//! What a model's file asks of a node's memory beyond its size, in the attributes of Graph Engine:
//! runs of tensors side by side, kinds of memory, cleared memory, inputs that are left as garbage.
//!
//! The rules are those that Graph Engine assigns memory by. Files of other formats have none of
//! these attributes.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::borrow::Cow;

use super::{OpClass, OpTable, Trait};
use crate::plan::Item;
use crate::{Attr, Attrs, Graph, Node, NodeId, OutputHints, SubgraphId, ValueId};

/// The inputs lie one behind the other, each padded.
pub const CONTIGUOUS_INPUT: &str = "continuous_input";
/// The outputs lie one behind the other, each padded.
pub const CONTIGUOUS_OUTPUT: &str = "continuous_output";
/// The inputs lie one behind the other without a gap.
pub const PACKED_INPUT: &str = "_no_padding_continuous_input";
/// The outputs lie one behind the other without a gap.
pub const PACKED_OUTPUT: &str = "_no_padding_continuous_output";
/// The node has no task: output 0 is the inputs side by side, or the outputs are pieces of input 0.
pub const ONE_MEMORY: &str = "_output_reuse_input";
/// The axis along which pieces are joined.
const JOINED_AXIS: &str = "_reuse_input_on_dim_index";
/// Kinds of memory of the inputs, by position.
pub const INPUT_KINDS: &str = "_input_memory_type";
/// Kinds of memory of the outputs, by position.
pub const OUTPUT_KINDS: &str = "_output_memory_type";
/// The node may leave garbage in its inputs.
pub const INPUT_MUTABLE: &str = "_input_mutable";
/// Workspaces that must be zero when the node starts: a map for each part of the node, whose keys are
/// the places of the workspaces.
pub const CLEARS_WORKSPACES: &str = "sub_node_workspace_info";
/// Outputs that must be zero when the node starts.
pub const CLEARS_OUTPUTS: &str = "atomic_output_index";
/// Inputs whose memory must be zero before it is filled; -1 stands for all.
pub const CLEARS_INPUTS: &str = "atomic_input_index";
/// Outputs that a node can write over inputs.
pub const IN_PLACE_ABILITY: &str = "_output_inplace_ability";
/// Attribute of an output that names the variable in whose memory it is written.
const BOUND_VARIABLE: &str = "_assign_var_name";
/// All inputs and the first output are one memory, whichever of the inputs comes.
pub(super) const MERGE: &str = "merge";
/// What the node makes and uses shares memory with nobody.
const ALONE: &str = "no_reuse_mem_flag";
/// Which workspaces may share memory, by position.
const WORKSPACE_REUSE: &str = "workspace_reuse_flag";
/// For how long nobody else may have the bytes of each workspace: [`SESSION_SCOPE`] or [`GRAPH_SCOPE`].
const WORKSPACE_SCOPE: &str = "_workspace_memory_no_reuse_scope";
/// It is kept from run to run.
const SESSION_SCOPE: i64 = 1;
/// In the whole run.
const GRAPH_SCOPE: i64 = 2;

/// Kinds of memory of the workspaces, by position: of other devices, and on the chip.
const WORKSPACE_KINDS: [&str; 2] = ["_workspace_type", "tvm_workspace_type"];

/// No particular kind of memory.
pub const ANY_MEMORY: i64 = 0;
/// Memory that other devices reach.
pub const PEER_MEMORY: i64 = 17;
/// Memory of the host.
pub const HOST_MEMORY: i64 = 0x81;
/// Memory of the host that the device reaches as well.
pub const HOST_SHARED_MEMORY: i64 = 0x90;
/// Memory that is kept from run to run; a number that no file uses.
pub const SESSION_MEMORY: i64 = -2;

/// Kinds of memory that ordinary tensors live in: default, device memory, DDR.
const ORDINARY_KINDS: [i64; 3] = [ANY_MEMORY, 2, 4];

/// Kinds of memory on the chip: the unified buffer and the L1 buffer. What is there takes no memory
/// of any arena, and the compiler that put it there says where.
const CHIP_KINDS: [i64; 2] = [0x8000, 0x1_0000];

/// Set in a kind of device memory that is kept from run to run.
const SESSION_FLAG: i64 = 0x1_0000_0000;

/// Attribute of an output whose memory is not the planner's if it is [`GLOBAL_SCOPE`].
const TENSOR_SCOPE: &str = "_tensor_memory_scope";
const GLOBAL_SCOPE: i64 = 2;

/// Attribute of an output that takes no memory if it is [`ALWAYS_EMPTY`].
const SIZE_RULE: &str = "_memory_size_calc_type";
const ALWAYS_EMPTY: i64 = 1;

/// Bytes to which a tensor of a padded run is rounded up.
pub const RUN_ALIGN: u64 = 512;

/// Tensors that lie one behind the other, in the order of their slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Without a gap; otherwise each tensor is rounded up to [`RUN_ALIGN`].
    pub packed: bool,
    /// The node does nothing in the run: its one tensor on the other side (output 0 for a run of
    /// inputs, input 0 for a run of outputs) is the memory of the whole run.
    pub whole: bool,
}

impl Run {
    /// How many bytes behind the start of a tensor the next one starts; `None` when 64 bits do not
    /// hold it.
    #[must_use]
    pub fn stride(self, bytes: u64) -> Option<u64> {
        if self.packed {
            Some(bytes)
        } else {
            bytes.checked_next_multiple_of(RUN_ALIGN)
        }
    }
}

/// Attributes that ask for tensors side by side or for memory of special kinds.
const OF_PLACES: [&str; 6] = [
    CONTIGUOUS_INPUT,
    CONTIGUOUS_OUTPUT,
    PACKED_INPUT,
    PACKED_OUTPUT,
    INPUT_KINDS,
    OUTPUT_KINDS,
];

/// Whether a node may ask for tensors side by side or for memory of special kinds: a short look, for
/// the many nodes that do not.
#[must_use]
pub fn asks_for_places(node: &Node) -> bool {
    !node.attrs.is_empty() && OF_PLACES.iter().any(|key| node.attrs.get(key).is_some())
}

/// The first attribute by which a node asks for a place of its tensors, or says that it leaves
/// garbage in its inputs; `None` if it does neither.
#[must_use]
pub fn asked(node: &Node) -> Option<&'static str> {
    let asks = |key: &&'static str| match node.attrs.get(key) {
        None => false,
        Some(Attr::List(kinds)) => {
            let kind = |i| memory_kind(node, key, i);
            let slots = u32::try_from(kinds.len()).unwrap_or(u32::MAX);
            (0..slots).any(|i| kind(i) != ANY_MEMORY)
        }
        Some(flag) => flag.as_bool() == Some(true),
    };
    OF_PLACES
        .into_iter()
        .chain([INPUT_MUTABLE])
        .find(|key| asks(key))
}

/// The kind of memory that a list of kinds states for a slot; past its end any.
#[must_use]
pub fn stated_kind(node: &Node, key: &str, index: u32) -> i64 {
    kind_in_list(&node.attrs, key, index as usize)
}

fn kind_in_list(attrs: &Attrs, key: &str, index: usize) -> i64 {
    let Some(Attr::List(kinds)) = attrs.get(key) else {
        return ANY_MEMORY;
    };
    let kind = kinds.get(index).and_then(Attr::as_int);
    kind.unwrap_or(ANY_MEMORY)
}

/// The same, where all kinds that ordinary tensors live in are one. Memory on the chip is none that
/// is asked for: it is no arena's.
#[must_use]
pub fn memory_kind(node: &Node, key: &str, index: u32) -> i64 {
    match stated_kind(node, key, index) {
        kind if ORDINARY_KINDS.contains(&kind) || CHIP_KINDS.contains(&kind) => ANY_MEMORY,
        kind if kind > 0 && kind & SESSION_FLAG != 0 => SESSION_MEMORY,
        kind => kind,
    }
}

/// Whether an output takes no memory of any arena, as its file says: it is on the chip, or always
/// empty, or somebody else's.
#[must_use]
pub fn takes_no_memory(node: &Node, output: u32, hints: Option<&OutputHints>) -> bool {
    let says = |key, what| hints.is_some_and(|hints| hints.attrs.int(key) == Some(what));
    is_on_chip(node, output) || says(TENSOR_SCOPE, GLOBAL_SCOPE) || says(SIZE_RULE, ALWAYS_EMPTY)
}

/// Whether an output is on the chip, as its file says.
#[must_use]
pub fn is_on_chip(node: &Node, output: u32) -> bool {
    CHIP_KINDS.contains(&stated_kind(node, OUTPUT_KINDS, output))
}

/// Whether a workspace is on the chip, and so takes no memory of any arena.
#[must_use]
pub fn is_workspace_on_chip(attrs: &Attrs, k: usize) -> bool {
    let mut kinds = WORKSPACE_KINDS.into_iter();
    kinds.any(|key| CHIP_KINDS.contains(&kind_in_list(attrs, key, k)))
}

/// Attributes that say yes or no of the memory of a node.
const FLAGS: [&str; 7] = [
    CONTIGUOUS_INPUT,
    CONTIGUOUS_OUTPUT,
    PACKED_INPUT,
    PACKED_OUTPUT,
    ONE_MEMORY,
    INPUT_MUTABLE,
    ALONE,
];

/// Attributes that say something of its memory by position.
const LISTS: [&str; 8] = [
    INPUT_KINDS,
    OUTPUT_KINDS,
    WORKSPACE_KINDS[0],
    WORKSPACE_KINDS[1],
    WORKSPACE_SCOPE,
    WORKSPACE_REUSE,
    CLEARS_OUTPUTS,
    CLEARS_INPUTS,
];

/// What a node asks of its memory and cannot be taken at its word, with the reason: read otherwise, it
/// might share what it must not.
pub(crate) fn misread(node: &Node) -> Option<String> {
    if node.attrs.is_empty() {
        return None;
    }
    for (name, attr) in node.attrs.iter() {
        if FLAGS.contains(&name) && attr.as_bool().is_none() {
            return Some(format!("{name} is neither true nor false"));
        }
        if LISTS.contains(&name) && attr.as_ints().is_none() {
            return Some(format!("{name} is no list of numbers"));
        }
    }
    let is_special = |kind: i64| ![ANY_MEMORY, SESSION_MEMORY].contains(&kind);
    let both = |what: &str, slot: usize| {
        format!(
            "{what} {slot} is asked to be in memory of the session and of another kind: none is both"
        )
    };
    for (key, what) in [(INPUT_KINDS, "input"), (OUTPUT_KINDS, "output")] {
        let kinds = node.attrs.ints(key).unwrap_or_default();
        let of_session = |kind: i64| kind > 0 && kind & SESSION_FLAG != 0;
        let is_both =
            |&kind: &i64| of_session(kind) && !ORDINARY_KINDS.contains(&(kind & !SESSION_FLAG));
        if let Some(slot) = kinds.iter().position(is_both) {
            return Some(both(what, slot));
        }
    }
    let is_both = |&k: &usize| {
        let slot = u32::try_from(k).unwrap_or(u32::MAX);
        let mut kinds = WORKSPACE_KINDS
            .map(|key| memory_kind(node, key, slot))
            .into_iter();
        workspace_scope(node, k) == Some(SESSION_SCOPE) && kinds.any(is_special)
    };
    let slot = (0..node.workspace.len()).find(is_both);
    slot.map(|slot| both("workspace", slot))
}

/// A list that says something of each workspace of a node, and is of another length than the list of
/// workspaces: which of them it speaks of is not certain.
pub(crate) fn uneven_workspaces(node: &Node) -> Option<(&'static str, usize)> {
    if node.workspace.is_empty() || node.attrs.is_empty() {
        return None;
    }
    let lists = WORKSPACE_KINDS.into_iter();
    let mut lists = lists.filter_map(|key| match node.attrs.get(key) {
        Some(Attr::List(kinds)) => Some((key, kinds.len())),
        _ => None,
    });
    lists.find(|&(_, entries)| entries != node.workspace.len())
}

/// The name of the arena in which memory of a kind lies.
#[must_use]
pub fn kind_name(kind: i64) -> Cow<'static, str> {
    match kind {
        ANY_MEMORY => "device".into(),
        PEER_MEMORY => "p2p".into(),
        HOST_MEMORY => "host".into(),
        HOST_SHARED_MEMORY => "host-svm".into(),
        SESSION_MEMORY => "session".into(),
        other => format!("type-{other}").into(),
    }
}

/// A value whose memory must be zero when it is first written, or a workspace that must be when its
/// node starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cleared {
    /// What is cleared.
    pub item: Item,
    /// The node that clears its memory.
    pub cleaner: NodeId,
}

/// The memory that is cleared for a node, by the nodes that clear memory and that it waits for. Only
/// what a node makes in memory of its own can be cleared for it; where no node clears, the node does
/// it itself.
#[must_use]
pub fn cleared(graph: &Graph, table: &OpTable, node: NodeId) -> Vec<Cleared> {
    let n = &graph.nodes[node];
    let asks = |key| n.attrs.get(key).is_some();
    const ASKS: [&str; 3] = [CLEARS_OUTPUTS, CLEARS_INPUTS, CLEARS_WORKSPACES];
    if n.attrs.is_empty() || !ASKS.into_iter().any(asks) {
        return Vec::new();
    }
    let zeroes = |&&n: &&NodeId| table.traits(graph, n).has(Trait::Zeroes);
    let Some(&cleaner) = n.control.iter().find(zeroes) else {
        return Vec::new();
    };
    let outputs = listed(&n.attrs, CLEARS_OUTPUTS, n.outputs.len());
    let inputs = listed(&n.attrs, CLEARS_INPUTS, n.inputs.len());
    let outputs = outputs.into_iter().filter_map(|o| n.output(o));
    let inputs = inputs.into_iter().filter_map(|i| n.input(i));
    let all = outputs.chain(inputs);
    let fresh = all.filter(|&v| is_fresh(graph, table, v, n.subgraph));
    let mut values: Vec<ValueId> = fresh.collect();
    values.sort_unstable();
    values.dedup();
    let effects = asks(CLEARS_WORKSPACES).then(|| table.effects(graph, node));
    let scratch = effects.iter().flat_map(|effects| effects.workspaces());
    let scratch = scratch.filter(|(_, s)| s.cleared);
    let workspaces = scratch.map(|(k, _)| Item::Workspace(node, k));
    let items = values.into_iter().map(Item::Value).chain(workspaces);
    items.map(|item| Cleared { item, cleaner }).collect()
}

/// Whether an output must be zero when its node starts. So it is not over an input, which would be
/// zero as well.
#[must_use]
pub fn must_be_zero(node: &Node, output: u32) -> bool {
    let output = usize::try_from(output).unwrap_or(usize::MAX);
    listed(&node.attrs, CLEARS_OUTPUTS, node.outputs.len()).contains(&output)
}

/// Whether a node of the subgraph makes the value in memory of its own.
fn is_fresh(graph: &Graph, table: &OpTable, value: ValueId, subgraph: SubgraphId) -> bool {
    let made = &graph.values[value];
    if graph.nodes[made.producer].subgraph != subgraph {
        return false;
    }
    let effects = table.effects(graph, made.producer);
    effects.class == OpClass::Compute
        && effects.view_of(made.output).is_none()
        && effects.refs.iter().all(|a| a.output != made.output)
        && !effects.input_run.is_some_and(|run| run.whole)
        && !effects.output_run.is_some_and(|run| run.whole)
}

/// The slots that a list of indices names, of `slots`.
fn listed(attrs: &Attrs, key: &str, slots: usize) -> Vec<usize> {
    let indices = attrs.ints(key).unwrap_or_default();
    if indices.contains(&-1) {
        return (0..slots).collect();
    }
    let slot = |i: i64| usize::try_from(i).ok().filter(|&i| i < slots);
    indices.into_iter().filter_map(slot).collect()
}

/// Outputs that are written in the memory of a variable which their node does not read, with that
/// variable: their file names it.
#[must_use]
pub fn bound_variables(graph: &Graph, table: &OpTable) -> FxHashMap<ValueId, ValueId> {
    let named = |value: ValueId| {
        let hints = graph.values[value].hints.as_ref()?;
        hints.attrs.str(BOUND_VARIABLE).filter(|n| !n.is_empty())
    };
    let bound: Vec<(ValueId, &str)> = (graph.values.keys())
        .filter_map(|v| Some((v, named(v)?)))
        .collect();
    if bound.is_empty() {
        return FxHashMap::default();
    }
    let nodes = graph.nodes.iter();
    let variables = nodes.filter(|&(id, _)| table.class(graph, id) == OpClass::Variable);
    let variables: FxHashMap<&str, ValueId> = variables
        .filter_map(|(_, n)| Some((n.name.as_str(), n.output(0)?)))
        .collect();
    let is_compute = |v: ValueId| {
        let producer = graph.values[v].producer;
        graph.nodes[producer].bodies.is_empty() && table.class(graph, producer) == OpClass::Compute
    };
    let pairs = bound.into_iter().filter(|&(value, _)| is_compute(value));
    pairs
        .filter_map(|(value, name)| Some((value, *variables.get(name)?)))
        .collect()
}

/// Outputs that a node can write over inputs, as pairs of their slots. Where a file has no lists of
/// lists, each pair is an attribute with a number of its own.
#[must_use]
pub fn in_place_ability(attrs: &Attrs) -> Vec<(u32, u32)> {
    if !attrs
        .iter()
        .any(|(name, _)| name.starts_with(IN_PLACE_ABILITY))
    {
        return Vec::new();
    }
    let rows: Vec<Vec<i64>> = match attrs.get(IN_PLACE_ABILITY) {
        Some(Attr::List(rows)) => rows.iter().filter_map(Attr::as_ints).collect(),
        _ => (0..attrs.len())
            .map_while(|row| attrs.ints(&format!("{IN_PLACE_ABILITY}_{row}")))
            .collect(),
    };
    let slot = |&i: &i64| u32::try_from(i).ok();
    rows.iter()
        .filter_map(|row| match &row[..] {
            [output, input] => Some((slot(output)?, slot(input)?)),
            _ => None,
        })
        .collect()
}

/// Whether an attribute is there and true.
#[must_use]
pub fn flag(attrs: &Attrs, name: &str) -> bool {
    attrs.get(name).and_then(Attr::as_bool) == Some(true)
}

/// The inputs that a node may leave as garbage.
pub(super) fn spoils(node: &Node) -> SmallVec<[u32; 1]> {
    if !flag(&node.attrs, INPUT_MUTABLE) {
        return SmallVec::new();
    }
    let inputs = (0u32..).zip(&node.inputs);
    inputs
        .filter(|(_, v)| v.is_some())
        .map(|(i, _)| i)
        .collect()
}

pub(super) fn kinds(node: &Node, key: &str) -> SmallVec<[i64; 1]> {
    let slots = if key == INPUT_KINDS {
        node.inputs.len()
    } else {
        node.outputs.len()
    };
    if node.attrs.get(key).is_none() {
        return SmallVec::new();
    }
    let slots = u32::try_from(slots).unwrap_or(u32::MAX);
    (0..slots).map(|i| memory_kind(node, key, i)).collect()
}

/// Key of a node under which its file names the engine that runs it.
pub const ENGINE: &str = "kernel_lib";
/// The engine that runs collectives.
pub const COLLECTIVE_ENGINE: &str = "ops_kernel_info_hccl";

/// The engine that runs operators of the user's own.
const CUSTOM_ENGINE: &str = "DNN_VM_CUSTOM_OP_STORE";

/// Option of a graph: addresses of intermediate tensors may be others in each run, and operators are
/// told.
pub const REFRESHABLE: &str = "feature_map_refreshable";

/// Whether all sizes in a subgraph are known before the run, as its file says.
#[must_use]
pub fn is_static(graph: &Graph, subgraph: SubgraphId) -> bool {
    let attrs = &graph.subgraphs[subgraph].attrs;
    !flag(attrs, "dynamic_shape") && !flag(attrs, "_dynamic_shape_partitioned")
}

/// Whether operators of a subgraph can be told new addresses, and have to be.
#[must_use]
pub fn is_refreshable(graph: &Graph, subgraph: SubgraphId) -> bool {
    flag(&graph.options, REFRESHABLE) || !is_static(graph, graph.root) && is_static(graph, subgraph)
}

/// Whether a node keeps the addresses that it was loaded with: its operator does, or its engine, and
/// nobody tells it new ones.
#[must_use]
pub fn keeps_addresses(graph: &Graph, table: &OpTable, id: NodeId) -> bool {
    let node = &graph.nodes[id];
    let by_engine = match node.extra.str(ENGINE) {
        Some(COLLECTIVE_ENGINE) => !is_refreshable(graph, node.subgraph),
        Some(CUSTOM_ENGINE) => !flag(&node.attrs, "address_refreshable"),
        _ => false,
    };
    by_engine || table.traits(graph, id).has(Trait::FixedAddress)
}

/// Whether what a node makes and uses shares memory with nobody at any time, as its file says.
#[must_use]
pub fn is_alone(node: &Node) -> bool {
    flag(&node.attrs, ALONE)
}

/// Whether an output is kept from run to run, so that nobody else has its bytes at any time.
#[must_use]
pub fn is_output_kept(node: &Node, output: u32) -> bool {
    memory_kind(node, OUTPUT_KINDS, output) == SESSION_MEMORY
}

/// Whether a workspace shares memory with nobody at any time: its kernel keeps something there, or
/// is not done with it when the node is.
pub(super) fn is_workspace_alone(node: &Node, k: usize) -> bool {
    let may_share = match node.attrs.get(WORKSPACE_REUSE) {
        Some(Attr::List(flags)) => flags.get(k).and_then(Attr::as_bool),
        _ => None,
    };
    may_share == Some(false)
        || is_alone(node)
        || workspace_scope(node, k) == Some(GRAPH_SCOPE)
        || workspace_kind(node, k) == SESSION_MEMORY
}

/// Whether a workspace must be zero when the node starts.
pub(super) fn is_workspace_cleared(node: &Node, k: usize) -> bool {
    let Some(Attr::Map(parts)) = node.attrs.get(CLEARS_WORKSPACES) else {
        return false;
    };
    let is_named = |key: &str| key.parse() == Ok(k);
    parts.iter().any(|(_, part)| match part {
        Attr::Map(places) => places.iter().any(|(key, _)| is_named(key)),
        _ => false,
    })
}

/// For how long nobody else may have a workspace's bytes, as its file says.
fn workspace_scope(node: &Node, k: usize) -> Option<i64> {
    node.attrs.ints(WORKSPACE_SCOPE)?.get(k).copied()
}

/// The kind of memory that a workspace is.
pub(super) fn workspace_kind(node: &Node, k: usize) -> i64 {
    if workspace_scope(node, k) == Some(SESSION_SCOPE) {
        return SESSION_MEMORY;
    }
    let slot = u32::try_from(k).unwrap_or(u32::MAX);
    let kinds = WORKSPACE_KINDS.map(|key| memory_kind(node, key, slot));
    let special = kinds.into_iter().find(|&kind| kind != ANY_MEMORY);
    special.unwrap_or(ANY_MEMORY)
}

pub(super) fn input_run(graph: &Graph, node: &Node) -> Option<Run> {
    let packed = flag(&node.attrs, PACKED_INPUT);
    let whole = packed && joins(graph, node, node.output(0), &node.inputs);
    let is_run = node.inputs.len() >= 2 && (packed || flag(&node.attrs, CONTIGUOUS_INPUT));
    is_run.then_some(Run { packed, whole })
}

pub(super) fn output_run(graph: &Graph, node: &Node) -> Option<Run> {
    let packed = flag(&node.attrs, PACKED_OUTPUT);
    let whole = packed && joins(graph, node, node.input(0), &node.outputs);
    let is_run = node.outputs.len() >= 2 && (packed || flag(&node.attrs, CONTIGUOUS_OUTPUT));
    is_run.then_some(Run { packed, whole })
}

/// Whether the tensor on the other side is the memory of the pieces: the node says so, and all axes
/// before the one along which they are joined are 1, so that nothing has to be moved.
fn joins(graph: &Graph, node: &Node, whole: Option<ValueId>, pieces: &[Option<ValueId>]) -> bool {
    let Some(whole) = whole.filter(|_| flag(&node.attrs, ONE_MEMORY)) else {
        return false;
    };
    let axis = node.attrs.int(JOINED_AXIS).unwrap_or(0);
    let before = usize::try_from(axis).unwrap_or(usize::MAX);
    let shape = graph.values[whole].shape.as_ref().and_then(|s| s.known());
    let is_first = shape.is_some_and(|s| s.iter().take(before).all(|&d| d == 1));
    let mut pieces = pieces.iter().flatten();
    is_first && pieces.all(|&piece| graph.bytes(piece).is_some())
}
