//! One row of an operator table: its form in TOML, and what it is read into.
//!
//! `docs/adding-an-operator.md` describes the format for people who write rows.

use serde::Deserialize;
use smallvec::SmallVec;
use std::sync::Arc;
use toml::{Spanned, Table};

use super::expr::{Condition, Expr};
use super::{OpClass, Trait, Traits};
use crate::ir::domain_key;

/// What is wrong with a table of operators.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// The text is no TOML, or not a list of `[[op]]` tables.
    #[error("line {line}: {message}")]
    Format {
        /// Line of the text, counted from 1.
        line: usize,
        /// What is wrong.
        message: String,
    },
    /// A row cannot be used.
    #[error("row of {op} (line {line}): {message}")]
    Row {
        /// The first operator that the row names, or `?`.
        op: String,
        /// Line at which the row begins, counted from 1.
        line: usize,
        /// Which key is wrong, and how.
        message: String,
    },
}

/// A row that is ready for use.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    pub(super) class: OpClass,
    pub(super) pure: Pure,
    pub(super) views: Vec<Entry>,
    pub(super) refs: Vec<Entry>,
    pub(super) in_place: Vec<Entry>,
    pub(super) aligned: Slots,
    pub(super) blocks: Option<Blocks>,
    pub(super) shape_only: Slots,
    pub(super) scratch: Vec<ScratchSize>,
    pub(super) input_align: Alignment,
    pub(super) output_align: Alignment,
    pub(super) ref_is_view: bool,
    pub(super) roles: Vec<String>,
    pub(super) traits: Traits,
}

/// Whether a node is pure: when all conditions hold, unless never.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Pure {
    Never,
    When(Vec<Condition>),
}

/// One output and the inputs whose memory it may or does share.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    pub(super) output: u32,
    pub(super) inputs: Slots,
    pub(super) aligned: Slots,
    pub(super) when: Vec<Condition>,
}

/// Input slots.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Slots {
    These(SmallVec<[u32; 2]>),
    All,
}

/// Lists of tensors that stand one after the other in the slots of a node, as in an optimizer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Blocks {
    /// The first input slot that belongs to a list.
    pub(super) from: u32,
    /// Into how many lists of the same length the inputs from there on are cut.
    pub(super) inputs: u32,
    /// For each list of outputs the list of inputs that it may be written over.
    pub(super) over: Vec<u32>,
}

/// A scratch buffer.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ScratchSize {
    pub(super) size: Expr,
    pub(super) align: u64,
}

/// Alignment of slots in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Alignment {
    Same(u64),
    Each(Vec<u64>),
}

/// A row under each name that it has: domain and operator.
pub(super) type NamedRows = Vec<(Arc<str>, Arc<str>, Arc<Row>)>;

/// Reads the rows of a table.
pub(super) fn parse(text: &str) -> Result<NamedRows, TableError> {
    let file: FileText = toml::from_str(text).map_err(|e| TableError::Format {
        line: line_of(text, e.span().map_or(0, |s| s.start)),
        message: e.message().to_owned(),
    })?;
    let mut rows = NamedRows::new();
    let mut seen = rustc_hash::FxHashSet::default();
    for spanned in file.op {
        let line = line_of(text, spanned.span().start);
        let table = spanned.into_inner();
        let op = first_name(&table).unwrap_or("?").to_owned();
        let fail = |message: String| TableError::Row {
            op: op.clone(),
            line,
            message,
        };
        let text = RowText::deserialize(table).map_err(|e| fail(one_line(&e)))?;
        let domain: Arc<str> = domain_key(text.domain.as_ref().unwrap_or(&file.domain)).into();
        let names = text.ops.clone();
        let row = Arc::new(text.compile().map_err(fail)?);
        for name in names {
            let name: Arc<str> = name.into();
            if !seen.insert((domain.clone(), name.clone())) {
                return Err(fail(format!(
                    "`ops`: {name} has a row already in this file"
                )));
            }
            rows.push((domain.clone(), name, row.clone()));
        }
    }
    Ok(rows)
}

fn first_name(row: &Table) -> Option<&str> {
    row.get("ops")?.as_array()?.first()?.as_str()
}

/// Errors of the deserializer put the path of the key on a line of its own.
fn one_line(error: &toml::de::Error) -> String {
    error.to_string().trim().replace('\n', " ")
}

fn line_of(text: &str, offset: usize) -> usize {
    let before = text.as_bytes().iter().take(offset);
    1 + before.filter(|&&b| b == b'\n').count()
}

/// A table as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileText {
    /// The domain of rows that name none.
    #[serde(default)]
    domain: String,
    #[serde(default)]
    op: Vec<Spanned<Table>>,
}

/// A row as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RowText {
    domain: Option<String>,
    ops: Vec<String>,
    #[serde(default = "compute")]
    class: OpClass,
    pure: Option<PureText>,
    #[serde(default)]
    views: Vec<EntryText>,
    #[serde(default)]
    refs: Vec<EntryText>,
    #[serde(default)]
    in_place: Vec<EntryText>,
    elementwise: Option<SlotsText>,
    aligned: Option<SlotsText>,
    blocks: Option<BlocksText>,
    shape_only: Option<SlotsText>,
    #[serde(default)]
    scratch: Vec<ScratchText>,
    input_align: Option<AlignText>,
    output_align: Option<AlignText>,
    #[serde(default)]
    ref_is_view: bool,
    #[serde(default)]
    roles: Vec<String>,
    #[serde(default)]
    traits: Vec<Trait>,
}

const fn compute() -> OpClass {
    OpClass::Compute
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected true, false or a list of conditions")]
enum PureText {
    Always(bool),
    When(Vec<String>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EntryText {
    #[serde(default)]
    out: u32,
    r#in: Option<SlotsText>,
    aligned: Option<SlotsText>,
    #[serde(default)]
    when: Vec<String>,
}

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "expected an input slot, a list of input slots or \"all\""
)]
enum SlotsText {
    One(u32),
    List(Vec<u32>),
    Word(All),
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum All {
    All,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BlocksText {
    from: u32,
    inputs: u32,
    over: Vec<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ScratchText {
    size: SizeText,
    #[serde(default = "one")]
    align: u64,
}

const fn one() -> u64 {
    1
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a number of bytes or an expression")]
enum SizeText {
    Bytes(u64),
    Expression(String),
}

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "expected an alignment in bytes or a list of them by slot"
)]
enum AlignText {
    Same(u64),
    Each(Vec<u64>),
}

impl RowText {
    fn compile(self) -> Result<Row, String> {
        if self.ops.is_empty() {
            return Err("`ops`: names no operator".to_owned());
        }
        let pure = match self.pure {
            None if matches!(self.class, OpClass::Compute | OpClass::Constant) => {
                Pure::When(Vec::new())
            }
            Some(PureText::Always(true)) => Pure::When(Vec::new()),
            None | Some(PureText::Always(false)) => Pure::Never,
            Some(PureText::When(list)) => Pure::When(conditions(&list, "pure")?),
        };
        let mut in_place = entries(self.in_place, "in_place")?;
        if let Some(text) = self.elementwise {
            let inputs = text.compile();
            in_place.push(Entry {
                output: 0,
                aligned: inputs.clone(),
                inputs,
                when: vec![Condition::SameElements],
            });
        }
        let scratch = self.scratch.into_iter().enumerate();
        Ok(Row {
            class: self.class,
            pure,
            views: entries(self.views, "views")?,
            refs: entries(self.refs, "refs")?,
            in_place,
            aligned: slots(self.aligned),
            blocks: self.blocks.map(BlocksText::compile).transpose()?,
            shape_only: slots(self.shape_only),
            scratch: scratch
                .map(|(i, s)| s.compile().map_err(|e| format!("`scratch[{i}].{e}")))
                .collect::<Result<_, _>>()?,
            input_align: align(self.input_align, "input_align")?,
            output_align: align(self.output_align, "output_align")?,
            ref_is_view: self.ref_is_view,
            roles: self.roles,
            traits: self.traits.into_iter().collect(),
        })
    }
}

fn entries(list: Vec<EntryText>, key: &str) -> Result<Vec<Entry>, String> {
    let compile = |(i, text): (usize, EntryText)| {
        Ok(Entry {
            output: text.out,
            inputs: text.r#in.map_or_else(first, SlotsText::compile),
            aligned: slots(text.aligned),
            when: conditions(&text.when, &format!("{key}[{i}].when"))?,
        })
    };
    list.into_iter().enumerate().map(compile).collect()
}

fn conditions(list: &[String], key: &str) -> Result<Vec<Condition>, String> {
    let parse = |(i, text): (usize, &String)| {
        Condition::parse(text).map_err(|e| format!("`{key}[{i}]`: {e}"))
    };
    list.iter().enumerate().map(parse).collect()
}

fn slots(text: Option<SlotsText>) -> Slots {
    text.map_or(Slots::These(SmallVec::new()), SlotsText::compile)
}

fn first() -> Slots {
    Slots::These(SmallVec::from_slice(&[0]))
}

impl SlotsText {
    fn compile(self) -> Slots {
        match self {
            SlotsText::One(slot) => Slots::These(SmallVec::from_slice(&[slot])),
            SlotsText::List(list) => Slots::These(list.into()),
            SlotsText::Word(All::All) => Slots::All,
        }
    }
}

impl BlocksText {
    fn compile(self) -> Result<Blocks, String> {
        if self.inputs == 0 || self.over.is_empty() {
            return Err("`blocks`: `inputs` is 0 or `over` is empty".to_owned());
        }
        if let Some(list) = self.over.iter().find(|&&list| list >= self.inputs) {
            return Err(format!(
                "`blocks.over`: there is no list {list}, only {} lists of inputs",
                self.inputs
            ));
        }
        Ok(Blocks {
            from: self.from,
            inputs: self.inputs,
            over: self.over,
        })
    }
}

impl ScratchText {
    fn compile(self) -> Result<ScratchSize, String> {
        let size = match self.size {
            SizeText::Bytes(n) => Expr::Number(i128::from(n)),
            SizeText::Expression(text) => Expr::parse(&text).map_err(|e| format!("size`: {e}"))?,
        };
        power_of_two(self.align).map_err(|e| format!("align`: {e}"))?;
        Ok(ScratchSize {
            size,
            align: self.align,
        })
    }
}

fn align(text: Option<AlignText>, key: &str) -> Result<Alignment, String> {
    let check = |n| power_of_two(n).map_err(|e| format!("`{key}`: {e}"));
    Ok(match text {
        None => Alignment::Same(1),
        Some(AlignText::Same(n)) => {
            check(n)?;
            Alignment::Same(n)
        }
        Some(AlignText::Each(list)) => {
            list.iter().copied().try_for_each(check)?;
            Alignment::Each(list)
        }
    })
}

fn power_of_two(align: u64) -> Result<(), String> {
    if align.is_power_of_two() {
        Ok(())
    } else {
        Err(format!("{align} is no power of two"))
    }
}
