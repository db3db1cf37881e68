//! Texts that many nodes share, kept once: names of operators and domains. Whoever looks at all nodes
//! reads them in one place.

use rustc_hash::FxHashSet;
use std::sync::Arc;

/// The texts that there are.
///
/// ```
/// let mut words = tenure_graph::Words::default();
/// let (one, other) = (words.word("Relu"), words.word("Relu"));
/// assert!(std::sync::Arc::ptr_eq(&one, &other));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Words(FxHashSet<Arc<str>>);

impl Words {
    /// A text, the same for all who ask for it.
    pub fn word(&mut self, text: &str) -> Arc<str> {
        if let Some(word) = self.0.get(text) {
            return Arc::clone(word);
        }
        let word: Arc<str> = Arc::from(text);
        self.0.insert(Arc::clone(&word));
        word
    }
}
