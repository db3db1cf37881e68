//! What changed between two plans: arenas, places, sizes, lives, and who shares memory with whom.
//!
//! Plans are compared by the names of what lives in them, so they may be of two versions of a model.
//! Lives are compared where both plans run the same steps; otherwise their numbers mean nothing to
//! each other.

use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use tenure_graph::plan::Span;
use tenure_graph::plan_file::{FileStorage, PlanFile};

use crate::name::{self, harmless};
use crate::size::{grouped, percent};
use crate::text::Style;

/// Rows of each list that are written out on a terminal.
const ROWS: usize = 12;
/// Columns that a name takes on a terminal.
const NAME: usize = 40;

/// What changed from plan `a` to plan `b`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Diff {
    /// Whether both are of one model.
    pub same_model: bool,
    /// Whether both run the same steps in the same order.
    pub same_steps: bool,
    /// Sizes of all arenas, by kind.
    pub arenas: Vec<ArenaChange>,
    /// Storages of each plan.
    pub storages: [usize; 2],
    /// Names that both plans place.
    pub common: usize,
    /// What lies elsewhere.
    pub moved: Vec<Change<Spot>>,
    /// What gets another number of bytes.
    pub resized: Vec<Change<u64>>,
    /// What is in memory that is held at other steps.
    pub lives: Vec<Change<Vec<[u32; 2]>>>,
    /// What shares memory in `b` and does not in `a`: a name of each piece that was joined.
    pub joined: Vec<Vec<String>>,
    /// What shares memory in `a` and does not in `b`.
    pub parted: Vec<Vec<String>>,
    /// What only `a` places.
    pub only_a: Vec<String>,
    /// What only `b` places.
    pub only_b: Vec<String>,
}

/// The sizes of an arena; `None` where a plan has none of that kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ArenaChange {
    /// Its kind of memory.
    pub kind: String,
    /// Bytes in `a`.
    pub a: Option<u64>,
    /// Bytes in `b`.
    pub b: Option<u64>,
}

/// Something that is one way in `a` and another in `b`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change<T> {
    /// Name of the value, or `NODE#K` for a workspace.
    pub name: String,
    /// How it is in `a`.
    pub a: T,
    /// How it is in `b`.
    pub b: T,
}

/// A place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Spot {
    /// Kind of the arena; empty for memory of the caller.
    pub arena: String,
    /// First byte.
    pub offset: u64,
}

/// A member of a storage, and the storage.
struct Placed<'a> {
    spot: Spot,
    bytes: u64,
    storage: usize,
    file: &'a FileStorage,
}

impl Diff {
    /// Compares two plans.
    #[must_use]
    pub fn new(a: &PlanFile, b: &PlanFile) -> Self {
        let (in_a, in_b) = (placed(a), placed(b));
        let mut diff = Diff {
            same_model: a.model.sha256 == b.model.sha256,
            same_steps: a.steps == b.steps,
            arenas: arenas(a, b),
            storages: [a.storages.len(), b.storages.len()],
            ..Diff::default()
        };
        let only = |one: &BTreeMap<&str, Placed<'_>>, other: &BTreeMap<&str, Placed<'_>>| {
            let missing = one.keys().filter(|name| !other.contains_key(*name));
            missing.map(|&name| name.to_owned()).collect()
        };
        diff.only_a = only(&in_a, &in_b);
        diff.only_b = only(&in_b, &in_a);
        // Pieces of storages: names that are together in both plans.
        let mut pieces: BTreeMap<(usize, usize), &str> = BTreeMap::new();
        for (&name, one) in &in_a {
            let Some(other) = in_b.get(name) else {
                continue;
            };
            diff.common += 1;
            pieces.entry((one.storage, other.storage)).or_insert(name);
            if one.spot != other.spot {
                diff.moved.push(Change {
                    name: name.to_owned(),
                    a: one.spot.clone(),
                    b: other.spot.clone(),
                });
            }
            if one.bytes != other.bytes {
                diff.resized.push(Change {
                    name: name.to_owned(),
                    a: one.bytes,
                    b: other.bytes,
                });
            }
            let (before, after) = (life(one.file), life(other.file));
            if diff.same_steps && before != after {
                diff.lives.push(Change {
                    name: name.to_owned(),
                    a: before,
                    b: after,
                });
            }
        }
        diff.joined = split(&pieces, |&(_, b)| b);
        diff.parted = split(&pieces, |&(a, _)| a);
        diff
    }

    /// Whether nothing changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let lists = [&self.only_a, &self.only_b];
        self.same_steps
            && self.arenas.iter().all(|arena| arena.a == arena.b)
            && self.moved.is_empty()
            && self.resized.is_empty()
            && self.lives.is_empty()
            && self.joined.is_empty()
            && self.parted.is_empty()
            && lists.into_iter().all(Vec::is_empty)
    }
}

/// Sizes of the arenas of both plans, in the order in which they come.
fn arenas(a: &PlanFile, b: &PlanFile) -> Vec<ArenaChange> {
    let mut changes: Vec<ArenaChange> = Vec::new();
    for (is_b, arena) in
        (a.arenas.iter().map(|x| (false, x))).chain(b.arenas.iter().map(|x| (true, x)))
    {
        let known = changes.iter().position(|c| c.kind == arena.kind);
        let at = known.unwrap_or_else(|| {
            changes.push(ArenaChange {
                kind: arena.kind.clone(),
                a: None,
                b: None,
            });
            changes.len() - 1
        });
        let side = if is_b {
            &mut changes[at].b
        } else {
            &mut changes[at].a
        };
        *side = Some(arena.size);
    }
    changes
}

/// Everything that a plan places, by name.
fn placed(plan: &PlanFile) -> BTreeMap<&str, Placed<'_>> {
    let mut all = BTreeMap::new();
    for (number, storage) in plan.storages.iter().enumerate() {
        let arena = storage
            .arena
            .and_then(|k| plan.arenas.get(usize::try_from(k).ok()?));
        for member in &storage.values {
            all.insert(
                &*member.name,
                Placed {
                    spot: Spot {
                        arena: arena.map(|a| a.kind.clone()).unwrap_or_default(),
                        offset: storage.offset.saturating_add(member.offset),
                    },
                    bytes: member.bytes,
                    storage: number,
                    file: storage,
                },
            );
        }
    }
    all
}

/// The steps at which a storage is held.
fn life(storage: &FileStorage) -> Vec<[u32; 2]> {
    if storage.spans.is_empty() {
        return vec![[storage.first, storage.last]];
    }
    let pair = |s: &Span| [s.first, s.last];
    storage.spans.iter().map(pair).collect()
}

/// The storages of one plan that are several pieces in the other, each piece by a name.
fn split(
    pieces: &BTreeMap<(usize, usize), &str>,
    storage: impl Fn(&(usize, usize)) -> usize,
) -> Vec<Vec<String>> {
    let mut groups: BTreeMap<usize, BTreeSet<&str>> = BTreeMap::new();
    for (key, name) in pieces {
        groups.entry(storage(key)).or_default().insert(name);
    }
    let several = groups.into_values().filter(|group| group.len() > 1);
    several
        .map(|group| group.into_iter().map(str::to_owned).collect())
        .collect()
}

/// The changes for a terminal. Lines end with `\n`.
#[must_use]
pub fn text(diff: &Diff, style: Style) -> String {
    let mut out = Vec::new();
    if !diff.same_model {
        out.push("The plans are of two models; they are compared by names.".to_owned());
    }
    for arena in &diff.arenas {
        out.push(arena_line(arena, style));
    }
    if diff.is_empty() {
        out.push("Nothing else changed.".to_owned());
        return out.join("\n") + "\n";
    }
    let arrow = arrow(style);
    let [a, b] = diff.storages;
    out.push(format!("storages  {a} {arrow} {b}"));
    if !diff.same_steps {
        out.push("The plans run other steps, so lives are not compared.".to_owned());
    }
    let spot = |s: &Spot| match &*s.arena {
        "" => "caller".to_owned(),
        arena => format!("{arena} {}", grouped(s.offset)),
    };
    let of = |n: usize| format!("{n} of {}", diff.common);
    changes(
        &mut out,
        "moved",
        &of(diff.moved.len()),
        &diff.moved,
        spot,
        style,
    );
    let size = |n: &u64| format!("{} bytes", grouped(*n));
    let count = diff.resized.len().to_string();
    changes(&mut out, "resized", &count, &diff.resized, size, style);
    let count = diff.lives.len().to_string();
    let steps = |spans: &Vec<[u32; 2]>| {
        let spans: Vec<String> = spans.iter().map(|[a, b]| format!("{a}-{b}")).collect();
        spans.join(" ")
    };
    changes(&mut out, "lives", &count, &diff.lives, steps, style);
    for (title, groups) in [("joined", &diff.joined), ("parted", &diff.parted)] {
        let rows = groups.iter().map(|group| {
            let shown = group.iter().take(3).map(|n| short(n, style));
            let more = match group.len().saturating_sub(3) {
                0 => String::new(),
                n => format!(" and {n} more"),
            };
            shown.collect::<Vec<_>>().join(", ") + &more
        });
        list(
            &mut out,
            title,
            &groups.len().to_string(),
            rows,
            groups.len(),
        );
    }
    for (title, names) in [
        ("only in the first", &diff.only_a),
        ("only in the second", &diff.only_b),
    ] {
        let rows = names.iter().map(|n| short(n, style));
        list(&mut out, title, &names.len().to_string(), rows, names.len());
    }
    out.join("\n") + "\n"
}

fn arrow(style: Style) -> &'static str {
    if style.unicode { "→" } else { "->" }
}

fn short(text: &str, style: Style) -> String {
    name::shorten(&harmless(text, style), NAME, style)
}

fn arena_line(arena: &ArenaChange, style: Style) -> String {
    let size = |n: Option<u64>| n.map_or("none".to_owned(), grouped);
    let kind = harmless(&arena.kind, style);
    if arena.a == arena.b {
        return format!("{kind}  {} bytes in both", size(arena.a));
    }
    let change = match (arena.a, arena.b) {
        (Some(a), Some(b)) if b < a => {
            format!(", {} less ({})", grouped(a - b), percent(a - b, a))
        }
        (Some(a), Some(b)) => format!(", {} more ({})", grouped(b - a), percent(b - a, a)),
        _ => String::new(),
    };
    let (a, b) = (size(arena.a), size(arena.b));
    format!("{kind}  {a} {} {b} bytes{change}", arrow(style))
}

fn changes<T>(
    out: &mut Vec<String>,
    title: &str,
    count: &str,
    all: &[Change<T>],
    show: impl Fn(&T) -> String,
    style: Style,
) {
    let rows = all.iter().map(|c| {
        let (a, b) = (show(&c.a), show(&c.b));
        let name = short(&c.name, style);
        let pad = " ".repeat(NAME.saturating_sub(name::width(&name)));
        format!("{name}{pad}  {a} {} {b}", arrow(style))
    });
    list(out, title, count, rows, all.len());
}

/// A title with a number, and the first rows.
fn list(
    out: &mut Vec<String>,
    title: &str,
    count: &str,
    rows: impl Iterator<Item = String>,
    length: usize,
) {
    if length == 0 {
        return;
    }
    out.push(String::new());
    out.push(format!("{title}: {count}"));
    out.extend(rows.take(ROWS).map(|row| format!("  {row}")));
    if length > ROWS {
        out.push(format!("  and {} more (--json has all)", length - ROWS));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const PLAIN: Style = Style {
        color: false,
        unicode: false,
    };

    /// Offset, first and last step, and the members with their places inside.
    type Stored<'a> = (u64, u32, u32, &'a [(&'a str, u64)]);

    /// A plan of storages in an arena of a size.
    fn plan(size: u64, storages: &[Stored<'_>]) -> PlanFile {
        let storages: Vec<_> = (storages.iter())
            .map(|&(offset, first, last, members)| {
                let values: Vec<_> = (members.iter())
                    .map(|(name, at)| {
                        json!({"name": name, "kind": "intermediate", "offset": at, "bytes": 64})
                    })
                    .collect();
                json!({"name": members[0].0, "arena": 0, "offset": offset, "size": 64,
                       "align": 64, "first": first, "last": last, "values": values})
            })
            .collect();
        let file = json!({
            "format": "tenure.plan/1",
            "model": {"name": "m", "format": "ge", "nodes": 2, "values": 3, "sha256": "0"},
            "options": {"align": 64, "inputs": "planned", "outputs": "planned",
                        "keep_inputs": false, "fold": true, "sharing": "full", "no_reuse": []},
            "arenas": [{"kind": "device", "size": size, "align": 64, "lower_bound": size,
                        "proven_optimal": true, "no_reuse": size}],
            "steps": [{"node": "n", "phase": "run", "stream": 0}],
            "storages": storages,
            "copies": [], "folded": [], "dynamic": [], "strategy": "s",
            "check": {"passed": true, "accesses": 1}
        });
        PlanFile::read(file.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn every_kind_of_change_is_found() {
        let a = plan(
            256,
            &[
                (0, 0, 1, &[("x", 0)]),
                (64, 1, 2, &[("y", 0)]),
                (128, 2, 3, &[("z", 0), ("w", 0)]),
                (192, 0, 0, &[("gone", 0)]),
            ],
        );
        let b = plan(
            128,
            &[
                (0, 0, 2, &[("x", 0), ("y", 0)]),
                (64, 2, 3, &[("z", 0)]),
                (0, 3, 3, &[("w", 0)]),
                (64, 0, 0, &[("new", 0)]),
            ],
        );
        let diff = Diff::new(&a, &b);
        let names = |list: &[Change<Spot>]| {
            let all: Vec<_> = list.iter().map(|c| c.name.clone()).collect();
            all.join(" ")
        };
        assert_eq!(names(&diff.moved), "w y z");
        let lives: Vec<_> = diff.lives.iter().map(|c| &*c.name).collect();
        assert_eq!(lives, ["w", "x", "y"]);
        assert_eq!(diff.joined, [["x", "y"]]);
        assert_eq!(diff.parted, [["w", "z"]]);
        assert_eq!(
            (&*diff.only_a, &*diff.only_b),
            (&["gone".to_owned()][..], &["new".to_owned()][..])
        );
        insta::assert_snapshot!(text(&diff, PLAIN));
        assert!(Diff::new(&a, &a).is_empty());
        let same = text(&Diff::new(&a, &a), PLAIN);
        assert_eq!(same, "device  256 bytes in both\nNothing else changed.\n");
    }

    #[test]
    fn plans_of_other_steps_are_not_compared_by_lives() {
        let a = plan(64, &[(0, 0, 0, &[("x", 0)])]);
        let mut b = plan(64, &[(0, 0, 1, &[("x", 0)])]);
        b.steps.push(b.steps[0].clone());
        b.model.sha256 = "1".to_owned();
        let diff = Diff::new(&a, &b);
        assert!(diff.lives.is_empty() && !diff.is_empty());
        let shown = text(&diff, PLAIN);
        assert!(
            shown.contains("two models") && shown.contains("other steps"),
            "{shown}"
        );
    }
}
