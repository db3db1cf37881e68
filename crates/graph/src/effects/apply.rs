//! From a row to the effects of one node: conditions are decided, slots are looked up, and what
//! the model's file says of the node's own outputs is added.
//!
//! A row gives leave, a file states facts. So what a row says of shared memory is taken only
//! where output and input are known to have the same number of bytes; a reference or an alias of
//! the file is taken as it stands, unless the output could not fit.

use rustc_hash::FxHashSet;
use smallvec::SmallVec;

use super::expr::{Condition, Scope};
use super::row::{Alignment, Blocks, Entry, Pure, Row, Slots};
use super::{Alias, Effects, OpTable, Run, Scratch, demands, merges};
use crate::{Graph, Node, OutputHints, ValueId};

/// The effects of `node`, whose operator has the given row.
pub(super) fn effects(table: &OpTable, graph: &Graph, node: &Node, row: Option<&Row>) -> Effects {
    let class = table.class_of(node, row);
    let mut builder = Builder {
        site: Site { table, graph, node },
        settled: SmallVec::from_elem(false, node.outputs.len()),
        effects: Effects {
            class,
            known: row.is_some(),
            pure: false,
            views: SmallVec::new(),
            refs: SmallVec::new(),
            in_place: SmallVec::new(),
            aligned: SmallVec::new(),
            shape_only: SmallVec::new(),
            scratch: SmallVec::new(),
            unsized_scratch: 0,
            input_align: SmallVec::new(),
            output_align: SmallVec::new(),
            spoils: SmallVec::new(),
            merges: merges::is_merge(node, row.map(|row| row.traits).unwrap_or_default()),
            input_run: None,
            output_run: None,
            input_kinds: SmallVec::new(),
            output_kinds: SmallVec::new(),
        },
    };
    builder.take_demands();
    // Bodies that the row knows nothing of may do anything with the node's inputs.
    let row = row.filter(|row| row.class == class);
    builder.take_references(row);
    builder.write_what_is_spoilt();
    if let Some(row) = row {
        builder.take_row(row);
    }
    builder.take_in_place(row);
    if let Some(row) = row {
        builder.find_aligned(row);
    }
    builder.take_workspace();
    builder.effects
}

/// Effects that are being put together.
struct Builder<'a> {
    site: Site<'a>,
    /// For each output whether it is said already where it lives: it is a view or a reference.
    settled: SmallVec<[bool; 4]>,
    effects: Effects,
}

/// One node, and what is needed to look at it.
#[derive(Clone, Copy)]
struct Site<'a> {
    table: &'a OpTable,
    graph: &'a Graph,
    node: &'a Node,
}

impl Builder<'_> {
    /// References and views, of the file first: it speaks of this one node.
    fn take_references(&mut self, row: Option<&Row>) {
        let site = self.site;
        let ref_is_view = row.is_some_and(|row| row.ref_is_view);
        for (output, hints) in site.hints() {
            let reference = hints.ref_input.map(|input| Alias { output, input });
            let reuse = hints.reuse_input.map(|input| Alias { output, input });
            match reference.filter(|&a| site.values(a).is_some()) {
                Some(a) if ref_is_view => self.add_view(a, site.fits(a)),
                Some(a) => self.add_ref(a),
                None => {}
            }
            if let Some(a) = reuse {
                self.add_view(a, site.fits(a));
            }
        }
        let Some(row) = row else { return };
        for entry in &row.refs {
            let mut aliases = site.aliases(entry);
            if let Some(a) = aliases.find(|&a| site.values(a).is_some() && site.holds(entry, a)) {
                self.add_ref(a);
            }
        }
        for entry in &row.views {
            let mut aliases = site.aliases(entry);
            if let Some(a) = aliases.find(|&a| site.same_bytes(a) && site.holds(entry, a)) {
                self.add_view(a, true);
            }
        }
        self.effects.views.sort_unstable();
        self.effects.refs.sort_unstable();
    }

    /// Where a node leaves garbage in an input, an output in that memory is written there: it is no
    /// other name of the input.
    fn write_what_is_spoilt(&mut self) {
        let effects = &mut self.effects;
        if effects.spoils.is_empty() {
            return;
        }
        let is_spoilt = |a: &Alias| effects.spoils.contains(&a.input);
        let written: SmallVec<[Alias; 1]> =
            effects.views.iter().copied().filter(is_spoilt).collect();
        effects.views.retain(|a| !is_spoilt(a));
        effects.refs.extend(written);
        effects.refs.sort_unstable();
    }

    fn add_view(&mut self, alias: Alias, fits: bool) {
        if fits && !self.settle(alias.output) {
            self.effects.views.push(alias);
        }
    }

    fn add_ref(&mut self, alias: Alias) {
        if !self.settle(alias.output) {
            self.effects.refs.push(alias);
        }
    }

    /// Notes that it is said where an output lives; whether it was so before.
    fn settle(&mut self, output: u32) -> bool {
        let place = usize::try_from(output)
            .ok()
            .and_then(|o| self.settled.get_mut(o));
        place.is_none_or(|settled| std::mem::replace(settled, true))
    }

    fn is_settled(&self, output: u32) -> bool {
        let place = usize::try_from(output).ok();
        place.is_none_or(|o| self.settled.get(o).copied().unwrap_or(true))
    }

    fn take_row(&mut self, row: &Row) {
        let Site { node, .. } = self.site;
        let scope = self.site.scope(0, 0);
        let effects = &mut self.effects;
        effects.pure = match &row.pure {
            Pure::Never => false,
            Pure::When(conditions) => conditions.iter().all(|c| c.holds(&scope)),
        };
        // Where a node writes in an input's memory, that input's bytes are used.
        let is_written = |i: &u32| effects.refs.iter().any(|a| a.input == *i);
        let shape_only = slots(&row.shape_only, node.inputs.len());
        effects.shape_only = shape_only.filter(|i| !is_written(i)).collect();
        for scratch in &row.scratch {
            let align = scratch.align;
            match scratch.size.eval(&scope).map(u64::try_from) {
                Some(Ok(size)) => effects.scratch.push(Scratch {
                    size,
                    align,
                    kind: demands::ANY_MEMORY,
                    alone: false,
                    cleared: false,
                }),
                _ => effects.unsized_scratch = effects.unsized_scratch.saturating_add(1),
            }
        }
        effects.input_align = alignments(&row.input_align, node.inputs.len());
        effects.output_align = alignments(&row.output_align, node.outputs.len());
    }

    /// Leave to write outputs over inputs: the row's first, in its order of preference.
    fn take_in_place(&mut self, row: Option<&Row>) {
        let site = self.site;
        let mut leave: Vec<Alias> = Vec::new();
        if let Some(row) = row {
            for entry in &row.in_place {
                leave.extend(site.aliases(entry).filter(|&a| site.holds(entry, a)));
            }
            if let Some(blocks) = &row.blocks {
                leave.extend(site.block_pairs(blocks));
            }
        }
        for (output, hints) in site.hints() {
            let inputs = hints.may_inplace.iter();
            leave.extend(inputs.map(|&input| Alias { output, input }));
        }
        let pairs = demands::in_place_ability(&site.node.attrs).into_iter();
        leave.extend(pairs.map(|(output, input)| Alias { output, input }));
        leave.retain(|&a| {
            !self.is_settled(a.output)
                && site.same_memory(a)
                && !demands::must_be_zero(site.node, a.output)
        });
        if leave.len() > 1 {
            let mut seen = FxHashSet::default();
            leave.retain(|&a| seen.insert(a));
        }
        self.effects.in_place = leave.into();
    }

    /// Which inputs may lie in the memory that an output is written over.
    ///
    /// An input that is broadcast is read again for later elements, so it may not. That it is not
    /// broadcast is told by its number of elements: broadcast aligns the axes at their ends (or,
    /// before opset 7, at attribute `axis`), and each axis of the input is 1 or that of the
    /// output. If the products of the axes agree and are not 0, all axes of the input are those
    /// of the output, and the output's further axes are 1. An axis of 1 adds nothing to the place
    /// of an element, so element `i` of the input, in row-major order, is the one that is used
    /// for element `i` of the output. The same bytes then mean the same width of an element.
    fn find_aligned(&mut self, row: &Row) {
        let site = self.site;
        let inputs = site.node.inputs.len();
        let mut aligned: Vec<Alias> = Vec::new();
        let written = |output| self.effects.in_place.iter().any(|a| a.output == output);
        for entry in row.in_place.iter().filter(|entry| written(entry.output)) {
            let output = entry.output;
            aligned.extend(slots(&entry.aligned, inputs).map(|input| Alias { output, input }));
        }
        if written(0) {
            aligned.extend(slots(&row.aligned, inputs).map(|input| Alias { output: 0, input }));
        }
        if let Some(blocks) = &row.blocks {
            for a in &self.effects.in_place {
                aligned.extend(site.block_row(blocks, a.output));
            }
        }
        aligned.sort_unstable();
        aligned.dedup();
        aligned.retain(|&a| site.same_bytes(a) && site.decide(&Condition::SameElements, a));
        self.effects.aligned = aligned.into();
    }

    /// Temporary memory that the file asks for; 0 and negative sizes ask for none, and what is on the
    /// chip is no arena's. Each keeps its number.
    fn take_workspace(&mut self) {
        let node = self.site.node;
        for (k, &size) in node.workspace.iter().enumerate() {
            let on_chip = demands::is_workspace_on_chip(&node.attrs, k);
            let size = u64::try_from(size).ok().filter(|_| !on_chip);
            self.effects.scratch.push(Scratch {
                size: size.unwrap_or(0),
                align: 1,
                kind: demands::workspace_kind(node, k),
                alone: demands::is_workspace_alone(node, k),
                cleared: demands::is_workspace_cleared(node, k),
            });
        }
    }

    /// What the file asks of the node's memory beyond its size.
    fn take_demands(&mut self) {
        let Site { graph, node, .. } = self.site;
        if self.effects.merges
            && let Some(settled) = self.settled.first_mut()
        {
            *settled = true;
        }
        // Few nodes ask for anything.
        if node.attrs.is_empty() {
            return;
        }
        let effects = &mut self.effects;
        effects.spoils = demands::spoils(node);
        if !demands::asks_for_places(node) {
            return;
        }
        effects.input_run = demands::input_run(graph, node);
        effects.output_run = demands::output_run(graph, node);
        effects.input_kinds = demands::kinds(node, demands::INPUT_KINDS);
        effects.output_kinds = demands::kinds(node, demands::OUTPUT_KINDS);
        // What has no task writes nothing: its output is its inputs side by side, or the reverse.
        let whole = |run: Option<Run>| run.is_some_and(|run| run.whole);
        if whole(effects.input_run) || whole(effects.output_run) {
            self.settled.fill(true);
        }
    }
}

impl<'a> Site<'a> {
    fn hints(self) -> impl Iterator<Item = (u32, &'a OutputHints)> {
        let hints = move |value: Option<ValueId>| self.graph.values[value?].hints.as_deref();
        let outputs = (0u32..).zip(&self.node.outputs);
        outputs.filter_map(move |(output, &value)| Some((output, hints(value)?)))
    }

    /// Tensors in each list; `None` when the slots cannot be cut into such lists.
    fn block_length(self, blocks: &Blocks) -> Option<u32> {
        let inputs = u32::try_from(self.node.inputs.len()).ok()?;
        let outputs = u32::try_from(self.node.outputs.len()).ok()?;
        let listed = inputs.checked_sub(blocks.from)?;
        let output_lists = u32::try_from(blocks.over.len()).ok()?;
        let length = listed / blocks.inputs;
        let fits = length * blocks.inputs == listed
            && length
                .checked_mul(output_lists)
                .is_some_and(|n| n == outputs);
        fits.then_some(length)
    }

    /// Each tensor of a list of outputs with its counterpart in the list of inputs.
    fn block_pairs(self, blocks: &Blocks) -> impl Iterator<Item = Alias> {
        let length = self.block_length(blocks).unwrap_or(0);
        (0u32..).zip(&blocks.over).flat_map(move |(list, &over)| {
            (0..length).map(move |i| Alias {
                output: list * length + i,
                input: blocks.from + over * length + i,
            })
        })
    }

    /// The inputs that stand in the same place of their lists as an output in its own: an
    /// optimizer works on them together, element by element.
    fn block_row(self, blocks: &Blocks, output: u32) -> impl Iterator<Item = Alias> {
        let length = self.block_length(blocks).unwrap_or(0);
        let place = output.checked_rem(length).unwrap_or(0);
        let lists = if length == 0 { 0 } else { blocks.inputs };
        (0..lists).map(move |list| Alias {
            output,
            input: blocks.from + list * length + place,
        })
    }

    fn aliases(self, entry: &Entry) -> impl Iterator<Item = Alias> {
        let output = entry.output;
        slots(&entry.inputs, self.node.inputs.len()).map(move |input| Alias { output, input })
    }

    fn holds(self, entry: &Entry, alias: Alias) -> bool {
        entry.when.iter().all(|c| self.decide(c, alias))
    }

    fn decide(self, condition: &Condition, alias: Alias) -> bool {
        condition.holds(&self.scope(alias.output, alias.input))
    }

    fn scope(self, output: u32, input: u32) -> Scope<'a> {
        Scope {
            table: self.table,
            graph: self.graph,
            node: self.node,
            output,
            input,
        }
    }

    /// The output's value and the input's, if both are there.
    fn values(self, alias: Alias) -> Option<(ValueId, ValueId)> {
        let output = self.node.output(usize::try_from(alias.output).ok()?)?;
        let input = self.node.input(usize::try_from(alias.input).ok()?)?;
        Some((output, input))
    }

    fn same_bytes(self, alias: Alias) -> bool {
        self.values(alias).is_some_and(|(output, input)| {
            let bytes = self.graph.bytes(output);
            bytes.is_some() && bytes == self.graph.bytes(input)
        })
    }

    /// Whether output and input have the same number of bytes, and the file asks for as many for both.
    fn same_memory(self, alias: Alias) -> bool {
        let same = |(output, input)| self.held(output) == self.held(input);
        self.same_bytes(alias) && self.values(alias).is_some_and(same)
    }

    /// Bytes that a value has, or that the file asks for if that is more.
    fn held(self, value: ValueId) -> Option<u64> {
        self.graph.bytes(value).max(self.graph.asked_bytes(value))
    }

    /// Whether the output is not known to be larger than the input.
    fn fits(self, alias: Alias) -> bool {
        self.values(alias).is_some_and(|(output, input)| {
            match (self.held(output), self.held(input)) {
                (Some(output), Some(input)) => output <= input,
                _ => true,
            }
        })
    }
}

fn slots(slots: &Slots, inputs: usize) -> impl Iterator<Item = u32> + use<> {
    let (these, all) = match slots {
        Slots::These(list) => (list.clone(), 0),
        Slots::All => (SmallVec::new(), u32::try_from(inputs).unwrap_or(u32::MAX)),
    };
    these.into_iter().chain(0..all)
}

fn alignments(align: &Alignment, slots: usize) -> SmallVec<[u64; 1]> {
    match align {
        Alignment::Same(1) => SmallVec::new(),
        Alignment::Same(n) => SmallVec::from_elem(*n, slots),
        Alignment::Each(list) => list.iter().copied().take(slots).collect(),
    }
}
