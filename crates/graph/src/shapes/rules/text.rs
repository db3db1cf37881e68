//! Strings, and the operators of classical machine learning.

use super::arithmetic::{count, num};
use super::elementwise::{binary, same, test};
use crate::dim_expr::constant;
use crate::shapes::context::{Answer, Context, Rule, impossible};
use crate::{Attr, DType};

pub(super) fn find(op: &str) -> Option<Rule> {
    Some(match op {
        "StringConcat" => binary,
        "StringNormalizer" => string_normalizer,
        "StringSplit" => string_split,
        "RegexFullMatch" => test,
        "TfIdfVectorizer" => tf_idf,
        _ => return None,
    })
}

pub(super) fn find_ml(op: &str) -> Option<Rule> {
    Some(match op {
        "Binarizer" | "Imputer" => same,
        "Normalizer" | "Scaler" => same_float,
        "ArrayFeatureExtractor" => array_features,
        "CategoryMapper" => category_mapper,
        "LabelEncoder" => label_encoder,
        "LinearClassifier" | "SVMClassifier" | "TreeEnsembleClassifier" => classifier,
        "LinearRegressor" => linear_regressor,
        "TreeEnsemble" | "TreeEnsembleRegressor" => tree_regressor,
        "SVMRegressor" => svm_regressor,
        "OneHotEncoder" => one_hot_encoder,
        "ZipMap" => zip_map,
        _ => return None,
    })
}

fn string_normalizer(c: &mut Context<'_>) -> Answer {
    let rank = c.dims(0)?.len();
    let n = c.unknown();
    let dims = if rank == 2 { vec![num(1), n] } else { vec![n] };
    c.set_dims(0, DType::String, dims);
    Ok(())
}

fn string_split(c: &mut Context<'_>) -> Answer {
    c.set_dtype(0, DType::String);
    c.set_like(1, DType::I64, 0)?;
    let mut dims = c.dims(0)?;
    dims.push(c.unknown());
    c.set_dims(0, DType::String, dims);
    Ok(())
}

fn tf_idf(c: &mut Context<'_>) -> Answer {
    c.set_dtype(0, DType::F32);
    let indices = c.int_list("ngram_indexes").unwrap_or_default();
    let n = num(indices.iter().max().map_or(0, |&n| i128::from(n) + 1));
    match &c.dims(0)?[..] {
        [_] => c.set_dims(0, DType::F32, vec![n]),
        [batch, _] => {
            let batch = batch.clone();
            c.set_dims(0, DType::F32, vec![batch, n]);
        }
        dims => return impossible(format!("input of rank {}, expected 1 or 2", dims.len())),
    }
    Ok(())
}

fn zip_map(c: &mut Context<'_>) -> Answer {
    c.set_dtype(0, DType::Sequence);
    Ok(())
}

fn same_float(c: &mut Context<'_>) -> Answer {
    c.set_like(0, DType::F32, 0)
}

fn array_features(c: &mut Context<'_>) -> Answer {
    let dtype = c.dtype(0);
    c.set_dtype(0, dtype);
    let (mut dims, indices) = (c.dims(0)?, c.dims(1)?);
    let Some(n) = indices.last() else {
        return impossible("the indices are a scalar");
    };
    if dims.len() == 1 {
        dims.insert(0, num(1));
    }
    if let Some(last) = dims.last_mut() {
        *last = n.clone();
    }
    c.set_dims(0, dtype, dims);
    Ok(())
}

fn category_mapper(c: &mut Context<'_>) -> Answer {
    let dtype = match c.dtype(0) {
        DType::String => DType::I64,
        DType::I64 => DType::String,
        _ => DType::Unknown,
    };
    c.set_like(0, dtype, 0)
}

fn label_encoder(c: &mut Context<'_>) -> Answer {
    let attrs = &c.node.attrs;
    let dtype = match attrs.get("values_tensor") {
        Some(Attr::Tensor(values)) => values.dtype,
        _ if attrs.get("values_strings").is_some() => DType::String,
        _ if attrs.get("values_int64s").is_some() => DType::I64,
        _ if attrs.get("values_floats").is_some() => DType::F32,
        // Version 1 maps between strings and numbers.
        _ if c.dtype(0) == DType::String => DType::I64,
        _ => DType::String,
    };
    c.set_like(0, dtype, 0)
}

/// Number of elements of a list attribute.
fn list_len(c: &Context<'_>, name: &str) -> usize {
    match c.node.attrs.get(name) {
        Some(Attr::List(list)) => list.len(),
        _ => 0,
    }
}

fn classifier(c: &mut Context<'_>) -> Answer {
    // Labels are listed as strings or as integers, under names that differ by operator.
    let strings = list_len(c, "classlabels_strings");
    let ints = list_len(c, "classlabels_ints").max(list_len(c, "classlabels_int64s"));
    let dtype = if strings > 0 {
        DType::String
    } else {
        DType::I64
    };
    c.set_dtype(0, dtype);
    c.set_dtype(1, DType::F32);
    let rows = match &c.dims(0)?[..] {
        [_] => num(1),
        [rows, ..] => rows.clone(),
        [] => return impossible("the input is a scalar"),
    };
    c.set_dims(0, dtype, vec![rows.clone()]);
    c.set_dims(1, DType::F32, vec![rows, count(strings.max(ints))]);
    Ok(())
}

fn regressor(c: &mut Context<'_>, dtype: DType, targets: i64) -> Answer {
    c.set_dtype(0, dtype);
    let rows = match &c.dims(0)?[..] {
        [_] => num(1),
        [rows, ..] => rows.clone(),
        [] => return impossible("the input is a scalar"),
    };
    c.set_dims(0, dtype, vec![rows, num(targets)]);
    Ok(())
}

fn linear_regressor(c: &mut Context<'_>) -> Answer {
    regressor(c, DType::F32, c.int("targets", 1))
}

fn tree_regressor(c: &mut Context<'_>) -> Answer {
    let dtype = match c.node.attrs.get("leaf_weights") {
        Some(Attr::Tensor(weights)) => weights.dtype,
        _ => DType::F32,
    };
    regressor(c, dtype, c.int("n_targets", 1))
}

fn svm_regressor(c: &mut Context<'_>) -> Answer {
    regressor(c, DType::F32, 1)
}

fn one_hot_encoder(c: &mut Context<'_>) -> Answer {
    c.set_dtype(0, DType::F32);
    let categories = list_len(c, "cats_int64s").max(list_len(c, "cats_strings"));
    let mut dims = c.dims(0)?;
    // A vector of one column is that column.
    if dims.len() == 2 && constant(&dims[1]) == Some(1) {
        dims.pop();
    }
    dims.push(count(categories));
    c.set_dims(0, DType::F32, dims);
    Ok(())
}
