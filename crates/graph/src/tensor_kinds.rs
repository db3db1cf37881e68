//! Kinds of memory that outputs say themselves, as the list of the node that makes them: the rest of
//! the program knows that list.

use crate::effects::demands::{ANY_MEMORY, OUTPUT_KINDS};
use crate::link::{NodeDef, OutputDef};
use crate::{Attr, Attrs};

/// The kind of memory that an output is in, as it says itself.
const TENSOR_KIND: &str = "_tensor_memory_type";

/// Gives a node the list of the kinds of memory that its outputs are in, where each of them says its
/// own and there is no list.
pub fn to_list(node: &mut NodeDef) {
    let kind = |output: &Option<OutputDef>| {
        let hints = output.as_ref()?.hints.as_deref();
        hints
            .map(|h| &h.attrs)
            .and_then(|a: &Attrs| a.int(TENSOR_KIND))
    };
    let kinds: Vec<Option<i64>> = node.outputs.iter().map(kind).collect();
    if kinds.iter().all(Option::is_none) || node.attrs.get(OUTPUT_KINDS).is_some() {
        return;
    }
    let kinds = kinds
        .into_iter()
        .map(|k| Attr::Int(k.unwrap_or(ANY_MEMORY)));
    node.attrs.set(OUTPUT_KINDS, Attr::List(kinds.collect()));
}

#[cfg(test)]
mod tests {
    use crate::effects::demands::{OUTPUT_KINDS, memory_kind};
    use crate::json;

    #[test]
    fn what_outputs_say_is_the_list_of_their_node() {
        let kinds = |attrs: &str| {
            let text = format!(
                r#"{{"format":"tenure.graph/1","graphs":[{{"name":"root","nodes":[
                    {{"name":"a","op":"Op","attrs":{{{attrs}}},"outputs":[
                        {{"dtype":"float32","shape":[4]}},
                        {{"dtype":"float32","shape":[4],"attrs":{{"_tensor_memory_type":17}}}}
                    ]}}]}}]}}"#
            );
            let graph = json::read(text.as_bytes()).unwrap();
            let node = graph.nodes.values().next().unwrap();
            [0, 1].map(|slot| memory_kind(node, OUTPUT_KINDS, slot))
        };
        assert_eq!(kinds(""), [0, 17]);
        assert_eq!(kinds(r#""_output_memory_type":[18,0]"#), [18, 0]);
    }
}
