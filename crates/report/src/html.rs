//! The report as one HTML file that needs nothing else: no network, no fonts, no other file.
//!
//! The page is a template, a style sheet and a script from `assets/`; the data of the report
//! stands in it as JSON, which other programs may read as well:
//! `<script type="application/json" id="report">`.
//!
//! Names in the data are hostile until shown otherwise. In the file, `<` is written `\u003c`
//! inside the JSON, so that no name can end the script element; in the page, the script only ever
//! sets text, never markup.

use crate::model::ReportModel;

const PAGE: &str = include_str!("../assets/report.html");
const STYLE: &str = include_str!("../assets/report.css");
const SCRIPT: &str = include_str!("../assets/report.js");

/// The page. The same model gives the same bytes.
///
/// ```
/// use tenure_report::{ReportModel, html};
/// let model = ReportModel::default();
/// assert!(html::page(&model).starts_with("<!doctype html>"));
/// ```
#[must_use]
pub fn page(model: &ReportModel) -> String {
    let title = escape(&model.model.name);
    let parts = [
        ("{{title}}", title.as_str()),
        ("{{style}}", STYLE),
        ("{{data}}", &data(model)),
        ("{{script}}", SCRIPT),
    ];
    fill(PAGE, &parts)
}

/// The model as JSON that can stand inside a script element.
fn data(model: &ReportModel) -> String {
    // The model has string keys and integers only, which always can be written.
    let json = serde_json::to_string(model).unwrap_or_else(|_| "null".to_owned());
    json.replace('<', "\\u003c")
}

/// Text that can stand in an element or a quoted attribute.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// Puts each part in the place of its mark. One pass over the template, so that a mark inside a
/// part stays what it is.
fn fill(template: &str, parts: &[(&str, &str)]) -> String {
    let mut out = String::with_capacity(
        template.len() + parts.iter().map(|(_, part)| part.len()).sum::<usize>(),
    );
    let mut rest = template;
    while let Some((at, mark, part)) = parts
        .iter()
        .filter_map(|&(mark, part)| Some((rest.find(mark)?, mark, part)))
        .min_by_key(|&(at, ..)| at)
    {
        out.push_str(&rest[..at]);
        out.push_str(part);
        rest = &rest[at + mark.len()..];
    }
    out.push_str(rest);
    out
}
