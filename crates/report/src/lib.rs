//! Plans and findings become documents: text, HTML.
