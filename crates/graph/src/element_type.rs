//! What a file says of the elements of a sequence or an optional.
//!
//! It stands under the key `element` beside a value's type, in the form that JSON has for types:
//! `{"dtype": "float32", "shape": [3, null]}`. Names of dimensions are left out, since elements of
//! one sequence may differ where a file has one name.

use crate::{Attr, Attrs, DType, Dim, OutputHints, Shape, Value};

/// The key among [`OutputHints::extra`].
const KEY: &str = "element";

/// Deepest nesting that is kept: sequences of sequences, in an optional.
const MAX_DEPTH: usize = 3;

/// Type and shape of what is in a sequence or an optional.
#[derive(Clone, Debug, PartialEq)]
pub struct ElementType {
    /// Type of the elements of a tensor, or what kind of container it is.
    pub dtype: DType,
    /// The dimensions; `None` when not even the rank is known, and for containers.
    pub shape: Option<Shape>,
    /// What is in it, if it is a container itself.
    pub element: Option<Box<ElementType>>,
}

impl Value {
    /// What its file says of its elements, if it is a sequence or an optional.
    #[must_use]
    pub fn element(&self) -> Option<ElementType> {
        from_attr(self.hints.as_ref()?.extra.get(KEY)?, MAX_DEPTH)
    }

    /// Notes what its elements are.
    pub fn set_element(&mut self, element: &ElementType) {
        let hints = self.hints.get_or_insert_with(Box::<OutputHints>::default);
        hints.extra.set(KEY, to_attr(element, MAX_DEPTH));
    }
}

fn to_attr(ty: &ElementType, depth: usize) -> Attr {
    let mut keys = Attrs::new();
    keys.set("dtype", Attr::Str(ty.dtype.name().to_owned()));
    if let Some(shape) = &ty.shape {
        let dim = |dim: &Dim| match dim.known().map(i64::try_from) {
            Some(Ok(n)) => Attr::Int(n),
            _ => Attr::Null,
        };
        keys.set("shape", Attr::List(shape.0.iter().map(dim).collect()));
    }
    if let Some(element) = ty.element.as_deref().filter(|_| depth > 1) {
        keys.set(KEY, to_attr(element, depth - 1));
    }
    Attr::Map(keys)
}

/// `None` for an attribute of another form: it is the user's own.
fn from_attr(attr: &Attr, depth: usize) -> Option<ElementType> {
    let Attr::Map(keys) = attr else { return None };
    let dim = |attr: &Attr| match attr {
        Attr::Int(n) => u64::try_from(*n).map_or(Dim::Unknown, Dim::Known),
        _ => Dim::Unknown,
    };
    let shape = match keys.get("shape") {
        Some(Attr::List(dims)) => Some(dims.iter().map(dim).collect()),
        _ => None,
    };
    let element = keys.get(KEY).filter(|_| depth > 1);
    Some(ElementType {
        dtype: keys.str("dtype")?.parse().ok()?,
        shape,
        element: element.and_then(|e| from_attr(e, depth - 1)).map(Box::new),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Dialect, Graph, json, text};

    #[test]
    fn formats_carry_it() {
        let tensor = ElementType {
            dtype: DType::F32,
            shape: Some([Dim::Known(3), Dim::Unknown].into_iter().collect()),
            element: None,
        };
        let sequence = ElementType {
            dtype: DType::Sequence,
            shape: None,
            element: Some(Box::new(tensor)),
        };
        let mut graph = Graph::new("g", Dialect::Onnx, "main");
        let x = graph.add_input(graph.root, "x", DType::Optional, None);
        graph.values[x].set_element(&sequence);
        graph.add_results(graph.root, "results", [Some(x)]);
        assert_eq!(graph.values[x].element().as_ref(), Some(&sequence));
        let again = [
            json::read(json::write(&graph).as_bytes()).unwrap(),
            text::parse(&text::print(&graph)).unwrap(),
        ];
        for graph in again {
            let value = graph.values.values().next().unwrap();
            assert_eq!(value.element().as_ref(), Some(&sequence));
        }
    }

    #[test]
    fn other_things_under_the_key_are_no_types() {
        let mut graph = Graph::new("g", Dialect::Onnx, "main");
        let x = graph.add_input(graph.root, "x", DType::Sequence, None);
        let mut deep = Attr::Null;
        for _ in 0..1000 {
            let keys = [("dtype", Attr::Str("sequence".to_owned())), (KEY, deep)];
            deep = Attr::Map(keys.into_iter().collect());
        }
        for (attr, is_type) in [
            (Attr::Int(1), false),
            (Attr::Map(Attrs::new()), false),
            (deep, true),
        ] {
            let mut hints = OutputHints::default();
            hints.extra.set(KEY, attr);
            graph.values[x].hints = Some(Box::new(hints));
            assert_eq!(graph.values[x].element().is_some(), is_type);
        }
    }
}
