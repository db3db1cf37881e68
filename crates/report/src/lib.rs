//! Plans and findings become documents: text for the terminal, one HTML file for the browser, a
//! picture of a packing.
//!
//! ```text
//! PlanFile ──ReportModel::new──► ReportModel ──► text::summary
//!                                           └──► html::page
//! buffers with offsets ──► Packing ──► svg::picture
//! findings ──► sarif::log
//! two PlanFiles ──diff::Diff::new──► diff::Diff ──► diff::text
//! ```
//!
//! Functions here return strings; who writes them where is the caller's business.

#![forbid(unsafe_code)]

pub mod diff;
mod error;
pub mod html;
pub mod model;
mod name;
pub mod sarif;
mod size;
pub mod svg;
pub mod text;

pub use error::ReportError;
pub use model::ReportModel;
pub use size::grouped;
