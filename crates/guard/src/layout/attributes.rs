//! What an anchor asks of its memory: fourteen attributes.
//!
//! An anchor has every attribute whose condition holds; the two *ordinary* ones only where no other
//! does.

use std::fmt;
use tenure_graph::effects::demands::{
    ANY_MEMORY, INPUT_KINDS, OUTPUT_KINDS, keeps_addresses, memory_kind,
};
use tenure_graph::effects::{OpClass, OpTable, Trait};
use tenure_graph::patch::Slot;
use tenure_graph::{Graph, NodeId, SubgraphId};

use crate::options::Options;
use crate::storage::{Anchor, Classes, SOURCE_VARIABLE, reference};

/// One thing that an anchor asks of its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Attribute {
    /// Output: the memory is the caller's input.
    UserInput,
    /// Input: the memory is the caller's output.
    UserOutput,
    /// Output of a constant or variable: the address never changes and ordinary nodes may not
    /// write there.
    Immutable,
    /// Output of a node that cannot be told a new address.
    FixedOutput,
    /// Input of such a node.
    FixedInput,
    /// The inputs must lie one after the other, each padded.
    ContiguousInput,
    /// The outputs must lie one after the other, each padded.
    ContiguousOutput,
    /// The inputs must lie one after the other without a gap.
    PackedInput,
    /// The outputs must lie one after the other without a gap.
    PackedOutput,
    /// Input that is read from memory of a special kind.
    SpecialInput,
    /// Output that is written to memory of a special kind.
    SpecialOutput,
    /// Output that is another anchor's memory by name or by reference.
    Reference,
    /// Input that asks nothing.
    OrdinaryInput,
    /// Output that asks nothing.
    OrdinaryOutput,
}

impl Attribute {
    /// Every attribute, in the order of the table.
    pub const ALL: [Attribute; 14] = [
        Attribute::UserInput,
        Attribute::UserOutput,
        Attribute::Immutable,
        Attribute::FixedOutput,
        Attribute::FixedInput,
        Attribute::ContiguousInput,
        Attribute::ContiguousOutput,
        Attribute::PackedInput,
        Attribute::PackedOutput,
        Attribute::SpecialInput,
        Attribute::SpecialOutput,
        Attribute::Reference,
        Attribute::OrdinaryInput,
        Attribute::OrdinaryOutput,
    ];

    /// In words.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Attribute::UserInput => "memory of the caller's input",
            Attribute::UserOutput => "memory of the caller's output",
            Attribute::Immutable => "memory of a constant or variable",
            Attribute::FixedOutput => "output at a fixed address",
            Attribute::FixedInput => "input at a fixed address",
            Attribute::ContiguousInput => "one of several inputs side by side",
            Attribute::ContiguousOutput => "one of several outputs side by side",
            Attribute::PackedInput => "one of several inputs without a gap",
            Attribute::PackedOutput => "one of several outputs without a gap",
            Attribute::SpecialInput => "input in special memory",
            Attribute::SpecialOutput => "output in special memory",
            Attribute::Reference => "reference",
            Attribute::OrdinaryInput => "ordinary input",
            Attribute::OrdinaryOutput => "ordinary output",
        }
    }
}

impl fmt::Display for Attribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())
    }
}

/// A set of attributes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttributeSet(u16);

impl AttributeSet {
    /// Whether the set has an attribute.
    #[must_use]
    pub const fn has(self, attribute: Attribute) -> bool {
        self.0 & (1 << attribute as u16) != 0
    }

    /// The attributes, in the order of the table.
    pub fn iter(self) -> impl Iterator<Item = Attribute> {
        Attribute::ALL.into_iter().filter(move |&a| self.has(a))
    }

    fn add(&mut self, attribute: Attribute, applies: bool) {
        if applies {
            self.0 |= 1 << attribute as u16;
        }
    }
}

/// All that the checkers need to know of an anchor. Anchors that are equal in this are alike to
/// every rule that does not look at the nodes themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Traits {
    /// What it asks.
    pub attributes: AttributeSet,
    /// Kind of memory; [`ANY_MEMORY`] if it is none of the special ones.
    pub memory: i64,
    /// Its node cannot be told a new address even where pages change.
    pub is_switch: bool,
    /// Its node is a variable.
    pub is_variable: bool,
    /// The variable whose memory the output is, by name.
    pub source: Option<NodeId>,
}

/// The part of a program that is analysed together.
#[derive(Clone, Copy)]
pub struct Scope<'a> {
    /// The program.
    pub graph: &'a Graph,
    /// What its operators do.
    pub table: &'a OpTable,
    /// The rules.
    pub options: &'a Options,
    /// The subgraph that is analysed with everything below it.
    pub top: SubgraphId,
}

impl Scope<'_> {
    /// Whether a packed piece of the caller's input can be told where it lies in each run.
    #[must_use]
    pub fn can_split_user_input(self) -> bool {
        let Options {
            offline,
            single_op,
            heterogeneous,
            ..
        } = self.options;
        !(*offline || *single_op || *heterogeneous)
    }

    /// Whether the whole program has known sizes.
    #[must_use]
    pub fn root_is_static(self) -> bool {
        is_static(self.graph, self.graph.root)
    }

    /// What is to be known of an anchor of a class.
    #[must_use]
    pub fn traits(self, classes: &Classes, anchor: Anchor) -> Traits {
        let Scope { graph, table, .. } = self;
        let node = &graph.nodes[anchor.node];
        let class = table.class(graph, anchor.node);
        let known = table.traits(graph, anchor.node);
        let at_border = node.subgraph == self.top;
        let inputs = node.inputs.len();
        let outputs = node.outputs.len();
        let mut attributes = AttributeSet::default();
        let mut traits = Traits {
            is_switch: known.has(Trait::FixedAddress),
            is_variable: class == OpClass::Variable,
            ..Traits::default()
        };
        let fixed = keeps_addresses(graph, table, anchor.node);
        let kind = match anchor.slot {
            Slot::In(i) => {
                let is_result = graph.subgraphs[node.subgraph].output == Some(anchor.node);
                attributes.add(Attribute::UserOutput, at_border && is_result);
                attributes.add(Attribute::FixedInput, fixed);
                let side_by_side = flag(&node.attrs, CONTIGUOUS_INPUT) && inputs >= 2;
                attributes.add(Attribute::ContiguousInput, side_by_side);
                let packed = flag(&node.attrs, PACKED_INPUT) && inputs >= 2;
                attributes.add(Attribute::PackedInput, packed);
                memory_kind(node, INPUT_KINDS, i)
            }
            Slot::Out(o) => {
                let user = known.has(Trait::CallerMemory) && at_border;
                let immutable = class == OpClass::Constant
                    || (class == OpClass::Variable && !known.has(Trait::CallerMemory));
                attributes.add(Attribute::UserInput, user);
                attributes.add(Attribute::Immutable, immutable);
                attributes.add(Attribute::FixedOutput, fixed);
                let side_by_side = flag(&node.attrs, CONTIGUOUS_OUTPUT) && outputs >= 2;
                attributes.add(Attribute::ContiguousOutput, side_by_side);
                let packed = flag(&node.attrs, PACKED_OUTPUT) && outputs >= 2;
                attributes.add(Attribute::PackedOutput, packed);
                if !user {
                    traits.source = self.source(classes, anchor);
                    let refers = traits.source.is_some()
                        || classes.index(Anchor::input(anchor.node, 0)).is_some()
                            && self.refers(anchor.node, o);
                    attributes.add(Attribute::Reference, refers);
                }
                memory_kind(node, OUTPUT_KINDS, o)
            }
        };
        if kind != ANY_MEMORY {
            traits.memory = kind;
            let special = match anchor.slot {
                Slot::In(_) => Attribute::SpecialInput,
                Slot::Out(_) => Attribute::SpecialOutput,
            };
            attributes.add(special, true);
        }
        let none = attributes == AttributeSet::default();
        let ordinary = match anchor.slot {
            Slot::In(_) => Attribute::OrdinaryInput,
            Slot::Out(_) => Attribute::OrdinaryOutput,
        };
        attributes.add(ordinary, none);
        traits.attributes = attributes;
        traits
    }

    /// Whether output `o` is an input's memory.
    fn refers(self, node: NodeId, o: u32) -> bool {
        let Scope { graph, table, .. } = self;
        let is_inner_data = crate::storage::outer_input(graph, table, node).is_some() && o == 0;
        is_inner_data || reference(graph, table, node, o).is_some()
    }

    /// The node whose memory an output is by name, if it is in the same class.
    fn source(self, classes: &Classes, anchor: Anchor) -> Option<NodeId> {
        let graph = self.graph;
        let hints = graph.values[anchor.value(graph)?].hints.as_ref()?;
        let name = hints.attrs.str(SOURCE_VARIABLE)?;
        let class = classes.class_of(anchor)?;
        let members = classes.lists[class].iter().map(|&m| classes.anchors[m]);
        let mut outputs = members.filter(|m| m.slot == Slot::Out(0) && m.node != anchor.node);
        outputs
            .find(|m| graph.nodes[m.node].name == name)
            .map(|m| m.node)
    }
}

pub use tenure_graph::effects::demands::{
    COLLECTIVE_ENGINE, CONTIGUOUS_INPUT, CONTIGUOUS_OUTPUT, ENGINE, PACKED_INPUT, PACKED_OUTPUT,
    flag, is_static,
};
