//! The names by which the caller knows the results stay: a copy in front of a result takes the name
//! of what it copies, unless that is an input or still a result itself.

use rustc_hash::FxHashMap;
use tenure_graph::effects::{OpClass, OpTable};
use tenure_graph::{Graph, ValueId};

/// Gives the results of `after` the names that they have in `before`.
pub(crate) fn keep_result_names(before: &Graph, after: &mut Graph, table: &OpTable) {
    let (old, new) = (results(before), results(after));
    let changed = |(old, new): (&Option<ValueId>, &Option<ValueId>)| {
        let name = &before.values[(*old)?].name;
        let new = (*new)?;
        (after.values[new].name != *name && !is_by_nature(before, (*old)?)).then_some((name, new))
    };
    let changed: Vec<_> = old.iter().zip(new).filter_map(changed).collect();
    if changed.is_empty() {
        return;
    }
    let root = after.subgraphs[after.root].nodes.iter();
    let made = root.flat_map(|&n| after.nodes[n].outputs.iter().flatten());
    let by_name: FxHashMap<&str, ValueId> = made.map(|&v| (&*after.values[v].name, v)).collect();
    let swaps = changed.into_iter().filter_map(|(name, result)| {
        let holder = *by_name.get(&**name)?;
        let class = table.class(after, after.values[holder].producer);
        let is_known = class == OpClass::Input || new.contains(&Some(holder));
        (!is_known).then_some((holder, result))
    });
    for (holder, result) in swaps.collect::<Vec<_>>() {
        let name = std::mem::take(&mut after.values[result].name);
        let known = std::mem::replace(&mut after.values[holder].name, name);
        after.values[result].name = known;
    }
}

fn results(graph: &Graph) -> &[Option<ValueId>] {
    let output = graph.subgraphs[graph.root].output;
    output.map_or(&[], |output| &graph.nodes[output].inputs)
}

/// Whether a value is called by its node and slot, so that the name says nothing else.
fn is_by_nature(graph: &Graph, value: ValueId) -> bool {
    let value = &graph.values[value];
    let node = &graph.nodes[value.producer].name;
    value.name == format!("{node}:{}", value.output)
}

#[cfg(test)]
mod tests {
    use crate::testing::graph;
    use crate::{Options, compile};
    use tenure_graph::effects::OpTable;
    use tenure_graph::text::parse;

    /// The names of the results of a guarded program.
    fn results(text: &str) -> Vec<String> {
        let graph = match text.starts_with("model") {
            true => parse(text).unwrap(),
            false => graph(text),
        };
        let table = OpTable::builtin(graph.dialect);
        let guarded = compile::run(&graph, &table, &Options::of(&graph)).unwrap();
        let safe = guarded.graph(&graph);
        let results = super::results(safe).iter().flatten();
        results.map(|&v| safe.values[v].name.clone()).collect()
    }

    const LINES: &str = "%x: float32[4] = Data()\n%c: float32[4] = Const()\n\
                         %y: float32[4] = Relu(%x)\n\
                         %w: float32[4] <ref_input = 0> = AddInplace(%y)\n\
                         NetOutput(%c, %y, %w) @results";

    #[test]
    fn a_copy_before_a_result_takes_its_name() {
        assert_eq!(results(LINES), ["c", "y", "w"]);
    }

    #[test]
    fn in_onnx_too_where_addresses_are_copied() {
        let text = "model m onnx\ngraph ^g {\n  %x: float32[4] = Data()\n  \
                    %c: float32[4] = Const()\n  %y: float32[4] = Relu(%x)\n  \
                    NetOutput(%c, %y, %x) @results\n}\n";
        assert_eq!(results(text), ["c", "y", "x"]);
    }
}
