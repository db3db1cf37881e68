//! What a run works on: the contents of inputs and weights, given or random.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use fastrand::Rng;
use tenure_formats::weights::Weights;
use tenure_graph::shapes::{Bindings, bind};
use tenure_graph::{Attr, DType, Dim, Graph, Shape, TensorData};
use tenure_runtime::kernels::sizes::KNOWN_UP_TO;

use crate::args::FeedArgs;
use crate::exit::Failure;
use crate::files;
use crate::npy::Array;
use crate::pipeline::Given;

/// Maps the contents of constants that are in other files.
pub fn fetch(graph: &mut Graph, args: &FeedArgs, model: &Path) -> Result<(), Failure> {
    let mut weights = Weights::beside(model);
    let mut rng = Rng::with_seed(!args.seed);
    for node in graph.nodes.values_mut() {
        let Some(Attr::Tensor(tensor)) = node.attrs.get("value") else {
            continue;
        };
        let TensorData::External { location, .. } = &tensor.data else {
            continue;
        };
        let is_missing = || {
            model
                .parent()
                .is_some_and(|folder| !folder.join(location).exists())
        };
        let bytes = if args.random_weights && is_missing() {
            // Small, and of either sign, so that deep models stay in range.
            random(
                &node.name,
                tensor.dtype,
                &tensor.shape,
                [-0.05, 0.05],
                &mut rng,
            )?
            .bytes
            .into()
        } else {
            weights.contents(tensor).map_err(|e| {
                Failure::bad(format!("{}: {:?}: {e}", model.display(), node.name))
                    .hint("--random-weights runs a model without its weights")
            })?
        };
        let mut here = tensor.as_ref().clone();
        here.data = TensorData::Bytes(bytes);
        node.attrs.set("value", Attr::Tensor(Arc::new(here)));
    }
    Ok(())
}

/// The graph's inputs: name, type and shape.
fn formals(graph: &Graph) -> impl Iterator<Item = &tenure_graph::Value> {
    let inputs = graph.subgraphs[graph.root].inputs.iter();
    inputs.filter_map(|&node| Some(&graph.values[graph.nodes[node].output(0)?]))
}

/// What `--input` gives, by the name of the input: a list where it is given several times, for one
/// run after the other.
pub fn arrays(graph: &Graph, args: &FeedArgs) -> Result<BTreeMap<String, Vec<Array>>, Failure> {
    let mut arrays: BTreeMap<String, Vec<Array>> = BTreeMap::new();
    for text in &args.input {
        // A name may hold a `=`, and so may a path: the longest name that there is wins.
        let names: Vec<&str> = formals(graph).map(|v| &*v.name).collect();
        let splits = text
            .match_indices('=')
            .map(|(at, _)| (&text[..at], &text[at + 1..]));
        let Some((name, file)) = splits.clone().rfind(|(n, _)| names.contains(n)) else {
            let known = names.join(", ");
            return Err(if splits.count() == 0 {
                Failure::bad(format!("--input {text:?}: expected NAME=FILE.npy"))
            } else {
                Failure::bad(format!("--input {text:?}: the model has no such input"))
            }
            .hint(format!("its inputs are {known}")));
        };
        let value = formals(graph).find(|v| v.name == name);
        let dtype = value.map_or(DType::Unknown, |v| v.dtype);
        let bytes = files::read(Path::new(file))?;
        let array = Array::read(&bytes, dtype)
            .map_err(|e| Failure::bad(format!("{file}: cannot be input {name:?}: {e}")))?;
        arrays.entry(name.to_owned()).or_default().push(array);
    }
    Ok(arrays)
}

/// What each run is given: an input that is given once is the same in all runs.
pub fn runs(arrays: BTreeMap<String, Vec<Array>>) -> Result<Vec<BTreeMap<String, Array>>, Failure> {
    let most = arrays.values().map(Vec::len).max().unwrap_or(1).max(1);
    if let Some((name, list)) = arrays.iter().find(|(_, l)| l.len() > 1 && l.len() < most) {
        return Err(Failure::bad(format!(
            "--input {name} is given {} times, and another input {most} times",
            list.len()
        ))
        .hint("give an input once for all runs, or once for each run"));
    }
    let mut runs = vec![BTreeMap::new(); most];
    for (name, list) in arrays {
        for (run, array) in runs.iter_mut().zip(list.iter().cycle()) {
            run.insert(name.clone(), array.clone());
        }
    }
    Ok(runs)
}

/// A dimension that `--dim` gives a range for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// Its name, as `--dim` has it.
    pub name: String,
    least: u64,
    /// The value that is planned for.
    pub greatest: u64,
}

/// The values that `--dim` gives, and the ranges.
pub fn ranges(dims: &[String]) -> (Vec<String>, Vec<Range>) {
    let (mut values, mut ranges) = (Vec::new(), Vec::new());
    for text in dims {
        let range = text.rsplit_once('=').and_then(|(name, value)| {
            let (least, greatest) = value.split_once("..")?;
            Some(Range {
                name: name.trim().to_owned(),
                least: least.trim().parse().ok()?,
                greatest: greatest.trim().parse().ok()?,
            })
        });
        match range.filter(|r| r.least <= r.greatest) {
            Some(range) => ranges.push(range),
            // What is wrong with a text is said when it is read as a value.
            None => values.push(text.clone()),
        }
    }
    (values, ranges)
}

/// Gives the dimensions of ranges that the inputs leave open their greatest values.
///
/// # Errors
/// A value outside of its range.
pub fn within(given: &mut Given, ranges: &[Range]) -> Result<(), Failure> {
    for range in ranges {
        let values = given.dims.iter().filter_map(|text| text.rsplit_once('='));
        let value = values.filter(|(name, _)| name.trim() == range.name);
        let value = value
            .filter_map(|(_, n)| n.trim().parse::<u64>().ok())
            .next();
        let Range {
            name,
            least,
            greatest,
        } = range;
        match value {
            None => given.dims.push(format!("{name}={greatest}")),
            Some(n) if !(*least..=*greatest).contains(&n) => {
                return Err(Failure::bad(format!(
                    "dimension {name:?} is {n}, and the range is {least}..{greatest}"
                )));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// The values of dimensions with those of `text`, `NAME=N,NAME=N`, in place of others.
pub fn instead(dims: &[String], text: &str) -> Result<Vec<String>, Failure> {
    let mut dims = dims.to_vec();
    for one in text.split(',') {
        let Some((name, _)) = one.rsplit_once('=') else {
            return Err(Failure::bad(format!(
                "--also {text:?}: expected NAME=N,NAME=N"
            )));
        };
        let is_same = |dim: &String| {
            let other = dim.rsplit_once('=').map(|(name, _)| name.trim());
            other == Some(name.trim())
        };
        dims.retain(|dim| !is_same(dim));
        dims.push(one.trim().to_owned());
    }
    Ok(dims)
}

/// Size that a dimension of an input without a value gets along axis 0, and along the others.
const USUAL: [u64; 2] = [1, 64];

/// Gives dimensions that are still free usual values; returns what was given, as `--dim` takes it.
pub fn usual(graph: &Graph, given: &mut Given) -> Result<Vec<String>, Failure> {
    let mut taken = Vec::new();
    // A name gives values to formulas of it, so one round may be enough; a formula that is no size for
    // them is an error of the second.
    let mut bound = graph.clone();
    let bindings = Bindings::parse(&given.dims).map_err(Failure::bad)?;
    for free in bind(&mut bound, &bindings).map_err(Failure::bad)? {
        let usual = USUAL[usize::from(free.axis > 0)];
        let text = match &free.name {
            Some(name) => format!("{name}={usual}"),
            None => format!("{}@{}={usual}", free.input, free.axis),
        };
        given.dims.push(text.clone());
        taken.push(text);
    }
    Ok(taken)
}

/// What the given inputs say of dimensions and contents, beside the values of `dims`. Inputs whose
/// rank is not known take the shape that is given.
pub fn given(
    graph: &mut Graph,
    dims: &[String],
    ranges: &[Range],
    arrays: &BTreeMap<String, Array>,
) -> Result<Given, Failure> {
    let mut given = Given::default();
    let mut names: BTreeMap<String, u64> = BTreeMap::new();
    let set: BTreeSet<String> = dims
        .iter()
        .filter_map(|text| Some(text.rsplit_once('=')?.0.trim().to_owned()))
        .collect();
    for (name, array) in arrays {
        let Some(value) = graph.values.values_mut().find(|v| v.name == *name) else {
            continue;
        };
        let Some(shape) = &value.shape else {
            value.shape = Some(Shape::of(&array.dims));
            continue;
        };
        let fits = shape.0.len() == array.dims.len()
            && (shape.0.iter().zip(&array.dims)).all(|(d, &n)| d.known().is_none_or(|k| k == n));
        if !fits {
            return Err(Failure::bad(format!(
                "input {name:?} has shape {shape}, and {:?} is given",
                array.dims
            )));
        }
        for (axis, (dim, &n)) in shape.0.iter().zip(&array.dims).enumerate() {
            if let Dim::Known(_) = dim {
                continue;
            }
            let key = match dim {
                Dim::Formula(_) => dim.to_string(),
                _ => String::new(),
            };
            let by_axis = format!("{name}@{axis}");
            if set.contains(&by_axis) || set.contains(&key) {
                continue;
            }
            if ranges.iter().any(|range| range.name == by_axis) {
                given.dims.push(format!("{by_axis}={n}"));
                continue;
            }
            // Exporters use one name for dimensions that differ: then each axis has its own.
            if !key.is_empty() && names.get(&key).is_none_or(|&first| first == n) {
                names.insert(key, n);
            } else {
                given.dims.push(format!("{by_axis}={n}"));
            }
        }
    }
    given
        .dims
        .extend(names.iter().map(|(name, n)| format!("{name}={n}")));
    given.dims.extend(dims.iter().cloned());
    for (name, array) in arrays {
        if let Some(items) = integers(array) {
            given.contents.insert(name.clone(), items);
        }
    }
    Ok(given)
}

/// The integers in a small array of integers or truth values.
fn integers(array: &Array) -> Option<Vec<i64>> {
    let tensor = tenure_graph::Tensor {
        dtype: array.dtype,
        shape: array.dims.clone(),
        data: TensorData::Bytes(array.bytes.clone().into()),
    };
    tensor.to_ints(KNOWN_UP_TO)
}

/// Contents of all inputs, in the order of the graph's: those that are given, and random ones of the
/// shapes that the dimensions give.
pub fn inputs(
    graph: &Graph,
    given: &Given,
    mut arrays: BTreeMap<String, Array>,
    seed: u64,
) -> Result<Vec<Array>, Failure> {
    let mut rng = Rng::with_seed(seed);
    let mut inputs = Vec::new();
    let mut bound = graph.clone();
    let bindings = Bindings::parse(&given.dims).map_err(Failure::bad)?;
    bind(&mut bound, &bindings).map_err(Failure::bad)?;
    for value in formals(&bound) {
        let array = match arrays.remove(&value.name) {
            Some(array) => array,
            None => {
                let shape = value.shape.as_ref().and_then(|s| s.known());
                let dims = shape.ok_or_else(|| {
                    Failure::bad(format!("input {:?} has no known shape", value.name))
                        .hint(format!("give it with --input {}=FILE.npy", value.name))
                })?;
                random(&value.name, value.dtype, &dims, [0.0, 1.0], &mut rng)?
            }
        };
        inputs.push(array);
    }
    Ok(inputs)
}

/// Most bytes of random contents of one tensor.
const MOST_RANDOM: u64 = 4 << 30;

/// Numbers of a range, and whole ones that are 0 or 1, which every table has a row for.
fn random(
    name: &str,
    dtype: DType,
    dims: &[u64],
    [low, high]: [f64; 2],
    rng: &mut Rng,
) -> Result<Array, Failure> {
    let no = || {
        Failure::bad(format!(
            "{name:?}: there are no random numbers of type {dtype}"
        ))
        .hint(format!("give it with --input {name}=FILE.npy"))
    };
    let needed = tenure_graph::Shape::of(dims).bytes(dtype);
    if needed.is_none_or(|bytes| bytes > MOST_RANDOM) {
        let bytes = needed.map_or("more bytes than can be counted".to_owned(), |b| {
            format!("{b} bytes")
        });
        let message = format!("{name:?} of shape {dims:?} needs {bytes}");
        return Err(Failure::bad(message).hint(format!(
            "random contents are made of up to {MOST_RANDOM} bytes: give a smaller --dim, or --input {name}=FILE.npy"
        )));
    }
    let elements = dims.iter().product::<u64>();
    let is_float = matches!(dtype, DType::F32 | DType::F64 | DType::F16 | DType::BF16);
    let mut bytes = Vec::new();
    for _ in 0..elements {
        let number = if is_float {
            low + (high - low) * rng.f64()
        } else {
            f64::from(rng.u8(..2))
        };
        let element = tenure_runtime::numbers::encode(dtype, [number]);
        bytes.extend(element.ok_or_else(no)?);
    }
    let dims = dims.to_vec();
    Ok(Array { dtype, dims, bytes })
}
