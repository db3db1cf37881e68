//! Plans and findings become documents: text for the terminal, one HTML file for the browser.
//!
//! ```text
//! PlanFile ──ReportModel::new──► ReportModel ──► text::summary
//!                                           └──► html::page
//! ```
//!
//! Functions here return strings; who writes them where is the caller's business.

#![forbid(unsafe_code)]

mod error;
pub mod html;
pub mod model;
mod size;
pub mod text;

pub use error::ReportError;
pub use model::ReportModel;
