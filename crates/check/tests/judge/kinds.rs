//! Small plans, one for each way of sharing that is easily judged wrong. The checker, the execution
//! in symbols and the expectation written here must agree.

use crate::support::agree::agree;
use crate::support::graphs::describe;
use crate::support::planner::{Style, bytes, place, plan};
use tenure_graph::effects::OpTable;
use tenure_graph::plan::{Copy, Item, Life, Member, Place, Plan, PlanOptions, Span, Storage};
use tenure_graph::{Graph, text};

/// A graph, and what its plan puts in one place or holds for less than all steps.
struct Case {
    name: &'static str,
    graph: &'static str,
    /// Inputs that read a copy: labels of nodes and slots.
    copies: &'static [(&'static str, u32)],
    /// Labels of values that share a storage; `copy N` is copy number N.
    together: &'static [&'static [&'static str]],
    /// First and last steps at which the storages of values are held, by the values' labels.
    held: &'static [(&'static str, &'static [(u32, u32)])],
    right: bool,
}

/// The plan in which nothing shares memory but what the case says, and all is held throughout.
fn planned(case: &Case, graph: &Graph, table: &OpTable) -> Plan {
    let options = PlanOptions {
        align: 1,
        ..PlanOptions::default()
    };
    let mut plan = plan(graph, table, options, Style::Naive);
    for &(reader, input) in case.copies {
        let is_it = |&n: &tenure_graph::NodeId| graph.node_label(n) == reader;
        let reader = graph.nodes.keys().find(is_it).expect(reader);
        let k = u32::try_from(plan.copies.len()).unwrap();
        plan.copies.push(Copy {
            value: graph.nodes[reader].input(input as usize).unwrap(),
            reader,
            input,
            reason: String::new(),
        });
        let bytes = bytes(graph, table, &plan.copies, Item::Copy(k));
        let last = u32::try_from(plan.steps.len()).unwrap() - 1;
        plan.storages.push(Storage {
            place: Place::Arena {
                arena: 0,
                offset: 0,
            },
            size: bytes,
            align: 1,
            life: Life::from_elem(Span { first: 0, last }, 1),
            members: [Member {
                item: Item::Copy(k),
                offset: 0,
                bytes,
            }]
            .into_iter()
            .collect(),
        });
    }
    let label = |item: Item| match item {
        Item::Value(v) => graph.value_label(v),
        Item::Copy(k) => format!("copy {k}"),
        Item::Workspace(node, k) => format!("{} {k}", graph.node_label(node)),
    };
    for group in case.together {
        let mut gathered: Vec<Member> = Vec::new();
        let mut home = None;
        for &name in *group {
            let holds = |s: &Storage| s.members.iter().any(|m| label(m.item) == name);
            let mut all = plan.storages.iter();
            let (id, _) = all.find(|(_, s)| holds(s)).expect(name);
            gathered.extend(std::mem::take(&mut plan.storages[id].members));
            home.get_or_insert(id);
        }
        let home = &mut plan.storages[home.expect("a group names something")];
        home.size = gathered.iter().map(|m| m.bytes).max().unwrap_or(0);
        home.members = gathered.into_iter().collect();
    }
    for &(name, spans) in case.held {
        let mut all = plan.storages.values_mut();
        let holds = |s: &&mut Storage| s.members.iter().any(|m| label(m.item) == name);
        let storage = all.find(holds).expect(name);
        let spans = spans.iter().map(|&(first, last)| Span { first, last });
        storage.life = spans.collect();
    }
    let used = plan.storages.values().filter(|s| !s.members.is_empty());
    plan.storages = used.cloned().collect();
    place(&mut plan);
    plan
}

fn judge(cases: &[Case]) {
    for case in cases {
        let graph = text::parse(case.graph).unwrap_or_else(|e| panic!("{}: {e}", case.name));
        let table = OpTable::builtin(graph.dialect);
        let plan = planned(case, &graph, &table);
        let right = agree(&graph, &table, &plan, case.name, 1);
        assert_eq!(
            right,
            case.right,
            "{}\n{}",
            case.name,
            describe(&graph, &plan)
        );
    }
}

#[test]
fn a_variable_has_other_bytes_at_each_moment() {
    // `Strange` is of unknown kind: it may look at its inputs at any time.
    let taken_by_value = "model m ge graph ^root {
        %var: float32[8] = Variable()
        %x: float32[8] = Data() {index = 0}
        %y: float32[8] = PartitionedCall(%var, %x)
          body ^body {
            %a: float32[8] = Data() {parent_index = 0}
            %b: float32[8] = Data() {parent_index = 1}
            %set: float32[8] <ref_input = 0> = Assign(%var^root, %b)
            %inner: float32[8] = PartitionedCall(%var^root)
              body ^innermost {
                %c: float32[8] = Data() {parent_index = 0}
                %d: float32[8] = Relu(%c)
                NetOutput(%d) @out2
              }
            %e: float32[8] = Add(%a, %inner)
            NetOutput(%e) @out1
          }
        NetOutput(%y) @out
      }";
    let copied = "model m ge graph ^root {
        %var: float32[8] = Variable()
        %x: float32[8] = Data() {index = 0}
        %y: float32[8] = Strange(%var)
          body ^body {
            %set: float32[8] <ref_input = 0> = Assign(%var^root, %x^root)
            %a: float32[8] = Relu(%var^root)
            NetOutput(%a) @out1
          }
        NetOutput(%y) @out
      }";
    judge(&[
        Case {
            name: "named at two times, and never placed",
            graph: taken_by_value,
            copies: &[],
            together: &[],
            held: &[],
            right: true,
        },
        Case {
            name: "copied at two times, each to its place",
            graph: copied,
            copies: &[("y", 0), ("body/a", 0)],
            together: &[],
            held: &[],
            right: true,
        },
        Case {
            name: "copied at two times to one place",
            graph: copied,
            copies: &[("y", 0), ("body/a", 0)],
            together: &[&["copy 0", "copy 1"]],
            held: &[],
            right: false,
        },
    ]);
}

#[test]
fn a_state_that_never_changes_is_its_start_value_inside_as_well() {
    // Whatever is chosen is `x`, since every pass hands `s` on as it got it.
    let graph = |result: &str| -> &'static str {
        let text = format!(
            "model m onnx graph ^root {{
              %n: int64[] = Data()
              %c: bool[] = Data()
              %x: float32[8] = Data()
              %t: float32[8] = Data()
              %last: float32[8], %all: float32[4, 8] = Loop(%n, %c, %x) @loop
                body ^body {{
                  %i: int64[] = Data()
                  %k: bool[] = Data()
                  %s: float32[8] = Data()
                  %q: float32[8] = If(%k) @if
                    then ^then {{
                      %p: float32[8] = If(%k^body) @inner
                        then ^then_inner {{
                          NetOutput(%s^body) @out4
                        }}
                        else ^else_inner {{
                          NetOutput(%x^root) @out5
                        }}
                      NetOutput(%p) @out2
                    }}
                    else ^else {{
                      NetOutput(%x^root) @out3
                    }}
                  %r: float32[8] = Relu(%q)
                  NetOutput(%k, {result}, %r) @out1
                }}
              %e: float32[8] = Add(%x, %t)
              NetOutput(%last, %all, %e) @out
            }}"
        );
        text.leak()
    };
    judge(&[
        Case {
            name: "a choice between a state and its start value, in the start value's place",
            graph: graph("%s"),
            copies: &[],
            together: &[&["x", "body/q"]],
            held: &[],
            right: true,
        },
        Case {
            name: "the same when the state changes",
            graph: graph("%r"),
            copies: &[],
            together: &[&["x", "body/q"]],
            held: &[],
            right: false,
        },
    ]);
}

#[test]
fn what_is_taken_over_is_read_through_no_other_input_out_of_step() {
    // Either input may be taken over. Only `Add` reads the other one in step with its writes.
    let graph = |op: &str| -> &'static str {
        let text = format!(
            "model m ge graph ^root {{
              %x: float32[8] = Data() {{index = 0}}
              %a: float32[8] = Relu(%x)
              %b: float32[8] <ref_input = 0> = Reshape(%a)
              %y: float32[8] <may_inplace = [0, 1]> = {op}(%a, %b)
              NetOutput(%y) @out
            }}"
        );
        text.leak()
    };
    judge(&[
        Case {
            name: "over one of two places",
            graph: graph("Cross"),
            copies: &[("y", 1)],
            together: &[&["a", "b", "y"]],
            held: &[],
            right: true,
        },
        Case {
            name: "over both",
            graph: graph("Cross"),
            copies: &[],
            together: &[&["a", "b", "y"]],
            held: &[],
            right: false,
        },
        Case {
            name: "over both, in step",
            graph: graph("Add"),
            copies: &[],
            together: &[&["a", "b", "y"]],
            held: &[],
            right: true,
        },
    ]);
}

#[test]
fn the_condition_of_a_loop_is_not_taken_to_put_bytes_back() {
    // `c` would bring the bytes of `x` back before they are read at the end. That a loop's
    // condition is always computed is a coincidence that the checker does not look for.
    let graph = "model m ge graph ^root {
        %x: float32[8] = Data() {index = 0}
        %z: float32[8] = Relu(%x)
        %s: float32[8] = While(%x)
          cond ^cond {
            %c: float32[8] = Data() {parent_index = 0}
            NetOutput(%c) @out1
          }
          body ^body {
            %b: float32[8] = Data() {parent_index = 0}
            NetOutput(%b) @out2 inputs [{parent_index = 0}]
          }
        NetOutput(%s, %x) @out
      }";
    judge(&[Case {
        name: "a copy comes back",
        graph,
        copies: &[("s", 0)],
        together: &[&["x", "z", "cond/c"]],
        held: &[],
        right: false,
    }]);
}

#[test]
fn what_is_given_back_in_a_gap_is_lost() {
    // Steps: 0 a, 1 If, 2 then, 3 b, 4 its results, 5 else, 6 c, 7 d, 8 its results, 9 end,
    // 10 results.
    let branches = "model m onnx graph ^root {
        %go: bool[] = Data()
        %x: float32[8] = Data()
        %a: float32[8] = Relu(%x)
        %y: float32[8] = If(%go)
          then ^then { %b: float32[8] = Relu(%x^root) NetOutput(%b) @out1 }
          else ^else {
            %c: float32[8] = Relu(%x^root)
            %d: float32[8] = Add(%c, %a^root)
            NetOutput(%d) @out2
          }
        NetOutput(%y) @out
      }";
    // Steps: 0 a, 1 Loop, 2 body, 3 b, 4 c, 5 its results, 6 end, 7 results.
    let passes = "model m onnx graph ^root {
        %n: int64[] = Data()
        %x: float32[8] = Data()
        %a: float32[8] = Relu(%x)
        %y: float32[8], %all: float32[4, 8] = Loop(%n, _, %x)
          body ^body {
            %i: int64[] = Data()
            %k: bool[] = Data()
            %s: float32[8] = Data()
            %b: float32[8] = Add(%s, %a^root)
            %c: float32[8] = Relu(%b)
            NetOutput(%k, %c, %b) @out1
          }
        NetOutput(%y, %all) @out
      }";
    let case = |name, graph, held, right| Case {
        name,
        graph,
        copies: &[],
        together: &[],
        held,
        right,
    };
    judge(&[
        case(
            "not held in the branch that does not read it",
            branches,
            &[("a", &[(0, 1), (5, 7)])],
            true,
        ),
        case(
            "given back in the branch that reads it",
            branches,
            &[("a", &[(0, 5), (7, 7)])],
            false,
        ),
        case(
            "taken when it is read",
            branches,
            &[("a", &[(0, 1), (7, 7)])],
            false,
        ),
        case(
            "the output is not held before the branch that gives it",
            branches,
            &[("y", &[(4, 4), (8, 10)])],
            true,
        ),
        case(
            "the output of one branch is given back",
            branches,
            &[("y", &[(4, 4), (8, 8), (10, 10)])],
            false,
        ),
        case(
            "the output of the first branch is given back before the end",
            branches,
            &[("y", &[(4, 4), (8, 8), (9, 10)])],
            true,
        ),
        case("held for all passes", passes, &[("a", &[(0, 5)])], true),
        case(
            "given back where the first pass has read it",
            passes,
            &[("a", &[(0, 3)])],
            false,
        ),
        case(
            "not held from one pass to the next",
            passes,
            &[("a", &[(0, 4)])],
            false,
        ),
        case(
            "a state while its pass runs",
            passes,
            &[("y", &[(1, 2), (5, 7)])],
            true,
        ),
        case(
            "a state between the passes",
            passes,
            &[("y", &[(1, 1), (5, 7)])],
            false,
        ),
        case("slices are kept", passes, &[("all", &[(1, 7)])], true),
        case(
            "slices are given back after each pass",
            passes,
            &[("all", &[(1, 1), (5, 7)])],
            false,
        ),
    ]);
}
