//! Readers: model files and allocation tables become graphs and rows.
