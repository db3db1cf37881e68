//! The table: for each pair of attributes, whether two anchors that have them may be one memory.
//!
//! The table is symmetric; its lower half is left out. Rules are read off with [`rule`]. Layout and
//! entries follow the memory layout pass of Graph Engine, whose document and code differ in places;
//! `docs/conflicts.md` tells each pair and where this table departs from either.

use super::attributes::Attribute;

/// What a pair of attributes says of two anchors of one class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// They can be one memory.
    Agree,
    /// They can never be one memory.
    Clash,
    /// It depends.
    Ask(Checker),
}

/// The question that decides a pair of attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Checker {
    /// Two sources that nobody may overwrite meet in one memory.
    TwoSources,
    /// One memory would have to lie between the neighbours of two readers.
    ContiguousReaders,
    /// Outputs side by side are read side by side, but not in a row that fits.
    RunsDoNotMeet,
    /// An output of a group is cut into a group again.
    GroupCutAgain,
    /// A member of a group lies in special memory, the group does not.
    GroupInSpecialMemory,
    /// The caller's input cannot be moved to its neighbours.
    UserInputInGroup,
    /// The caller's input meets an output at a fixed address.
    UserInputAtFixedOutput,
    /// The caller's input lies in ordinary memory.
    UserInputInSpecialMemory,
    /// The caller's output meets an output at a fixed address.
    UserOutputAtFixedOutput,
    /// The caller's output meets an input at a fixed address.
    UserOutputAtFixedInput,
    /// The caller's output would be a constant.
    UserOutputIsImmutable,
    /// The caller's output cannot be moved to its neighbours.
    UserOutputInGroup,
    /// A constant or variable lies in ordinary memory.
    ImmutableInSpecialMemory,
    /// A constant or variable cannot be moved to its neighbours in a packed group.
    ImmutableInPackedGroup,
    /// A constant or variable would be one of several outputs side by side.
    ImmutableInOutputGroup,
    /// Two packed groups of inputs want different neighbours.
    PackedReaders,
    /// A packed input is a piece of a packed group of outputs.
    PackedInputOfPackedOutput,
    /// A piece of a packed group is cut into a packed group again.
    PackedPieceCutAgain,
    /// Two readers want different kinds of memory.
    ReadersOfTwoKinds,
    /// Writer and reader want different kinds of memory.
    WriterAndReaderOfTwoKinds,
    /// Two writers want different kinds of memory.
    WritersOfTwoKinds,
    /// An input cannot be told the new address.
    FixedInputMoves,
    /// An output cannot be told the new address.
    FixedOutputMoves,
}

impl Checker {
    /// What would go wrong, in words.
    #[must_use]
    pub const fn harm(self) -> &'static str {
        match self {
            Checker::TwoSources => "one of two constants or caller's inputs would be overwritten",
            Checker::ContiguousReaders => {
                "one tensor cannot lie next to the neighbours of both readers"
            }
            Checker::RunsDoNotMeet => {
                "the tensors are written side by side in another order than they are read in"
            }
            Checker::GroupCutAgain => "a padded piece of a group would have to be a group itself",
            Checker::GroupInSpecialMemory => "the group lies in ordinary memory",
            Checker::UserInputInGroup => "the caller's memory cannot lie next to its neighbours",
            Checker::UserInputAtFixedOutput => {
                "the operator writes where the caller's memory was when the model was loaded"
            }
            Checker::UserInputInSpecialMemory => "the caller's memory is of the ordinary kind",
            Checker::UserOutputAtFixedOutput | Checker::UserOutputAtFixedInput => {
                "the operator uses the address that the caller's memory had at first"
            }
            Checker::UserOutputIsImmutable => "the caller's output would be a constant's memory",
            Checker::UserOutputInGroup => "the caller's memory cannot lie next to its neighbours",
            Checker::ImmutableInSpecialMemory => "a constant's memory is of the ordinary kind",
            Checker::ImmutableInPackedGroup | Checker::ImmutableInOutputGroup => {
                "a constant or variable cannot lie next to its neighbours"
            }
            Checker::PackedReaders => "two packed groups want different neighbours",
            Checker::PackedInputOfPackedOutput => {
                "a packed input would have to lie in the middle of another group"
            }
            Checker::PackedPieceCutAgain => "a piece of a group would have to be a group itself",
            Checker::ReadersOfTwoKinds
            | Checker::WriterAndReaderOfTwoKinds
            | Checker::WritersOfTwoKinds => "one tensor cannot lie in two kinds of memory",
            Checker::FixedInputMoves | Checker::FixedOutputMoves => {
                "the operator cannot be told that the address has changed"
            }
        }
    }

    /// The rule's name in findings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Checker::TwoSources => "two-sources",
            Checker::ContiguousReaders => "contiguous-readers",
            Checker::RunsDoNotMeet => "runs-do-not-meet",
            Checker::GroupCutAgain => "group-cut-again",
            Checker::GroupInSpecialMemory => "group-in-special-memory",
            Checker::UserInputInGroup => "user-input-in-group",
            Checker::UserInputAtFixedOutput => "user-input-at-fixed-output",
            Checker::UserInputInSpecialMemory => "user-input-in-special-memory",
            Checker::UserOutputAtFixedOutput => "user-output-at-fixed-output",
            Checker::UserOutputAtFixedInput => "user-output-at-fixed-input",
            Checker::UserOutputIsImmutable => "user-output-is-immutable",
            Checker::UserOutputInGroup => "user-output-in-group",
            Checker::ImmutableInSpecialMemory => "immutable-in-special-memory",
            Checker::ImmutableInPackedGroup => "immutable-in-packed-group",
            Checker::ImmutableInOutputGroup => "immutable-in-output-group",
            Checker::PackedReaders => "packed-readers",
            Checker::PackedInputOfPackedOutput => "packed-input-of-packed-output",
            Checker::PackedPieceCutAgain => "packed-piece-cut-again",
            Checker::ReadersOfTwoKinds => "readers-of-two-kinds",
            Checker::WriterAndReaderOfTwoKinds => "writer-and-reader-of-two-kinds",
            Checker::WritersOfTwoKinds => "writers-of-two-kinds",
            Checker::FixedInputMoves => "fixed-input-moves",
            Checker::FixedOutputMoves => "fixed-output-moves",
        }
    }

    /// Whether the answer depends on which two nodes it is asked of, and not only on what their
    /// anchors ask.
    #[must_use]
    pub const fn looks_at_both_nodes(self) -> bool {
        matches!(
            self,
            Checker::RunsDoNotMeet
                | Checker::GroupCutAgain
                | Checker::PackedInputOfPackedOutput
                | Checker::PackedPieceCutAgain
        )
    }
}

const OK: Rule = Rule::Agree;
const NO: Rule = Rule::Clash;
const SRC: Rule = Rule::Ask(Checker::TwoSources);
const CON: Rule = Rule::Ask(Checker::ContiguousReaders);
const RUN: Rule = Rule::Ask(Checker::RunsDoNotMeet);
const AGN: Rule = Rule::Ask(Checker::GroupCutAgain);
const GSP: Rule = Rule::Ask(Checker::GroupInSpecialMemory);
const UIG: Rule = Rule::Ask(Checker::UserInputInGroup);
const UIF: Rule = Rule::Ask(Checker::UserInputAtFixedOutput);
const UIS: Rule = Rule::Ask(Checker::UserInputInSpecialMemory);
const UOO: Rule = Rule::Ask(Checker::UserOutputAtFixedOutput);
const UOI: Rule = Rule::Ask(Checker::UserOutputAtFixedInput);
const UOM: Rule = Rule::Ask(Checker::UserOutputIsImmutable);
const UOG: Rule = Rule::Ask(Checker::UserOutputInGroup);
const IMS: Rule = Rule::Ask(Checker::ImmutableInSpecialMemory);
const IMP: Rule = Rule::Ask(Checker::ImmutableInPackedGroup);
const IMG: Rule = Rule::Ask(Checker::ImmutableInOutputGroup);
const PKR: Rule = Rule::Ask(Checker::PackedReaders);
const PKO: Rule = Rule::Ask(Checker::PackedInputOfPackedOutput);
const PKC: Rule = Rule::Ask(Checker::PackedPieceCutAgain);
const RR2: Rule = Rule::Ask(Checker::ReadersOfTwoKinds);
const WR2: Rule = Rule::Ask(Checker::WriterAndReaderOfTwoKinds);
const WW2: Rule = Rule::Ask(Checker::WritersOfTwoKinds);
const FIN: Rule = Rule::Ask(Checker::FixedInputMoves);
const FOU: Rule = Rule::Ask(Checker::FixedOutputMoves);

/// The whole table. Rows and columns stand in the order of [`Attribute::ALL`].
#[rustfmt::skip]
const TABLE: [[Rule; 14]; 14] = [
    //               UI   UO   IM   FO   FI   CI   CO   PI   PO   SI   SO   RF   -I   -O
    /* user in   */ [SRC, OK,  SRC, UIF, NO,  UIG, UIG, UIG, UIG, NO,  UIS, OK,  OK,  OK ],
    /* user out  */ [OK,  OK,  UOM, UOO, UOI, UOG, NO,  UOG, NO,  NO,  NO,  OK,  OK,  OK ],
    /* immutable */ [OK,  OK,  SRC, FOU, FIN, NO,  IMG, IMP, IMG, NO,  IMS, OK,  OK,  OK ],
    /* fixed out */ [OK,  OK,  OK,  FOU, FIN, FOU, FOU, FOU, FOU, FOU, FOU, OK,  FOU, FOU],
    /* fixed in  */ [OK,  OK,  OK,  OK,  FIN, FIN, FIN, FIN, FIN, FIN, FIN, OK,  FIN, FIN],
    /* contig in */ [OK,  OK,  OK,  OK,  OK,  CON, RUN, CON, NO,  GSP, GSP, OK,  OK,  OK ],
    /* contig out*/ [OK,  OK,  OK,  OK,  OK,  OK,  AGN, NO,  AGN, GSP, GSP, OK,  OK,  OK ],
    /* packed in */ [OK,  OK,  OK,  OK,  OK,  OK,  OK,  PKR, PKO, GSP, GSP, OK,  OK,  OK ],
    /* packed out*/ [OK,  OK,  OK,  OK,  OK,  OK,  OK,  OK,  PKC, GSP, GSP, OK,  OK,  OK ],
    /* special in*/ [OK,  OK,  OK,  OK,  OK,  OK,  OK,  OK,  OK,  RR2, WR2, OK,  OK,  OK ],
    /* special ou*/ [OK,  OK,  OK,  OK,  OK,  OK,  OK,  OK,  OK,  OK,  WW2, OK,  OK,  OK ],
    /* reference */ [OK,  OK,  OK,  OK,  OK,  OK,  OK,  OK,  OK,  OK,  OK,  OK,  OK,  OK ],
    /* ord. in   */ [OK,  OK,  OK,  OK,  OK,  OK,  OK,  OK,  OK,  OK,  OK,  OK,  OK,  OK ],
    /* ord. out  */ [OK,  OK,  OK,  OK,  OK,  OK,  OK,  OK,  OK,  OK,  OK,  OK,  OK,  OK ],
];

/// What two attributes say of anchors that have them, in any order.
#[must_use]
pub const fn rule(one: Attribute, other: Attribute) -> Rule {
    let (one, other) = (one as usize, other as usize);
    if one <= other {
        TABLE[one][other]
    } else {
        TABLE[other][one]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lower_half_says_nothing() {
        for (i, row) in TABLE.iter().enumerate() {
            assert!(row[..i].iter().all(|&rule| rule == Rule::Agree), "row {i}");
        }
    }

    #[test]
    fn a_reference_agrees_with_everything() {
        for other in Attribute::ALL {
            assert_eq!(rule(Attribute::Reference, other), Rule::Agree);
        }
    }

    #[test]
    fn a_fixed_address_agrees_with_the_caller_and_references_alone() {
        for fixed in [Attribute::FixedInput, Attribute::FixedOutput] {
            let agrees = Attribute::ALL
                .into_iter()
                .filter(|&a| rule(fixed, a) == Rule::Agree);
            assert_eq!(agrees.collect::<Vec<_>>(), [Attribute::Reference]);
        }
    }

    #[test]
    fn names_and_order_hold() {
        assert_eq!(rule(Attribute::SpecialOutput, Attribute::UserInput), UIS);
        assert_eq!(rule(Attribute::UserInput, Attribute::SpecialOutput), UIS);
        for (i, attribute) in Attribute::ALL.into_iter().enumerate() {
            assert_eq!(attribute as usize, i);
        }
    }
}
