//! Local functions: which there are, what calls them, and how much their bodies may grow.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use super::domain;
use crate::error::{Problem, quoted};
use crate::generated::onnx as pb;

/// Domain, name and overload.
type Key<'m> = (&'m str, &'m str, &'m str);

/// Versions of operator sets, each domain once.
pub(super) type Opsets = Rc<[(Arc<str>, i64)]>;

/// Operator sets of which each domain counts once, with the highest version.
pub(super) fn opsets<'p>(
    imports: impl IntoIterator<Item = &'p pb::OperatorSetIdProto>,
) -> Vec<(Arc<str>, i64)> {
    let mut all: Vec<(Arc<str>, i64)> = Vec::new();
    for import in imports {
        let (domain, version) = (domain(import.domain()), import.version());
        match all.iter_mut().find(|(d, _)| **d == *domain) {
            None => all.push((Arc::from(domain), version)),
            Some((_, highest)) => *highest = version.max(*highest),
        }
    }
    all
}

/// The functions of a model.
pub(super) struct Functions<'m> {
    by_key: HashMap<Key<'m>, Rc<Function<'m>>>,
    /// Bytes that inlined bodies may take, and what is left of them.
    limit: u64,
    bytes_left: u64,
}

/// A local function.
pub(super) struct Function<'m> {
    pub(super) proto: &'m pb::FunctionProto,
    /// Values of attributes that a call leaves out.
    pub(super) defaults: Vec<Rc<pb::AttributeProto>>,
    /// Its operator sets, as far as they are not the model's.
    pub(super) opsets: Opsets,
}

/// The calls around a place, innermost first.
pub(super) struct Call<'m> {
    function: Rc<Function<'m>>,
    around: Option<Rc<Call<'m>>>,
}

impl<'m> Functions<'m> {
    /// `model` are the operator sets of the model.
    pub(super) fn new(
        functions: &'m [pb::FunctionProto],
        model: &[(Arc<str>, i64)],
        limit: u64,
    ) -> Result<Self, Problem> {
        let mut by_key = HashMap::new();
        for proto in functions {
            let key = (domain(proto.domain()), proto.name(), proto.overload());
            let function = Function {
                proto,
                defaults: proto.attribute_proto.iter().cloned().map(Rc::new).collect(),
                opsets: (opsets(&proto.opset_import).into_iter())
                    .filter(|import| !model.contains(import))
                    .collect(),
            };
            if by_key.insert(key, Rc::new(function)).is_some() {
                return Err(Problem::DuplicateFunction(proto.name().to_owned()));
            }
        }
        Ok(Functions {
            by_key,
            limit,
            bytes_left: limit,
        })
    }

    /// The function that a node calls, if it does.
    pub(super) fn called_by(&self, node: &pb::NodeProto) -> Option<Rc<Function<'m>>> {
        if self.by_key.is_empty() {
            return None;
        }
        let key = (domain(node.domain()), node.op_type(), node.overload());
        self.by_key.get(&key).cloned()
    }

    /// Takes `items` of about `size` bytes from what inlined bodies may take.
    pub(super) fn charge(&mut self, items: usize, size: usize) -> Result<(), Problem> {
        let bytes = u64::try_from(items.saturating_mul(size)).unwrap_or(u64::MAX);
        self.bytes_left =
            (self.bytes_left.checked_sub(bytes)).ok_or(Problem::TooManyInlined(self.limit))?;
        Ok(())
    }

    /// Takes a copy of a node whose names get a prefix of `prefix` bytes.
    pub(super) fn charge_node(
        &mut self,
        node: &pb::NodeProto,
        prefix: usize,
    ) -> Result<(), Problem> {
        self.charge(1, 256 + prefix + node.name().len())?;
        self.charge(node.input.len() + node.output.len(), 32)?;
        for name in &node.output {
            self.charge(1, 128 + prefix + name.len())?;
        }
        for a in &node.attribute {
            let texts = a.s().len() + a.strings.iter().map(|s| s.len()).sum::<usize>();
            let contents =
                a.t.as_deref().map_or(0, size) + a.tensors.iter().map(size).sum::<usize>();
            self.charge(1, 64 + texts + contents)?;
            self.charge(
                a.ints.len() + a.floats.len() + a.strings.len() + a.tensors.len(),
                64,
            )?;
        }
        Ok(())
    }

    /// Takes a copy of a subgraph, its nodes apart.
    pub(super) fn charge_graph(&mut self, graph: &pb::GraphProto) -> Result<(), Problem> {
        self.charge(1, 256 + graph.name().len())?;
        self.charge(
            graph.input.len() + graph.output.len() + graph.value_info.len(),
            256,
        )?;
        for info in graph.input.iter().chain(&graph.output) {
            self.charge(1, info.name().len())?;
        }
        for t in &graph.initializer {
            self.charge(1, 512 + t.name().len() + size(t))?;
        }
        self.charge(graph.sparse_initializer.len(), 512)
    }
}

/// Bytes that reading a tensor takes, beside the slice of the file.
fn size(t: &pb::TensorProto) -> usize {
    let strings = t.string_data.len().saturating_mul(32);
    let wide = t.int64_data.len() + t.uint64_data.len() + t.double_data.len();
    let narrow = t.int32_data.len() + t.float_data.len();
    128 + t.dims.len() * 8 + strings + wide * 8 + narrow * 4
}

impl<'m> Call<'m> {
    /// A call of `function` inside the calls `around`.
    ///
    /// # Errors
    /// [`Problem::Recursion`] when `function` is being called already.
    pub(super) fn enter(
        function: &Rc<Function<'m>>,
        around: Option<&Rc<Call<'m>>>,
    ) -> Result<Rc<Self>, Problem> {
        let calls = || std::iter::successors(around, |c| c.around.as_ref());
        if let Some(depth) = calls().position(|c| Rc::ptr_eq(&c.function, function)) {
            let mut names: Vec<String> = calls()
                .take(depth + 1)
                .map(|c| quoted(c.function.proto.name()))
                .collect();
            names.reverse();
            names.push(quoted(function.proto.name()));
            return Err(Problem::Recursion(names));
        }
        Ok(Rc::new(Call {
            function: Rc::clone(function),
            around: around.cloned(),
        }))
    }
}
