//! What the layers above the engine keep for the whole server.

use std::any::Any;

/// State that belongs to a layer above: each finds its own by its type.
///
/// So the engine need not know of snapshots or of files of the log. Looking takes a few
/// comparisons; code that looks with every command keeps what it found.
#[derive(Default)]
pub struct ServerParts(Vec<Box<dyn Any + Send + Sync>>);

impl ServerParts {
    pub fn with(mut self, part: impl Any + Send + Sync) -> Self {
        self.0.push(Box::new(part));
        self
    }

    /// The part of this type. Every server is made with all of them.
    pub fn get<T: Any>(&self) -> &T {
        let found = self.0.iter().find_map(|part| part.downcast_ref());
        found.expect("every server is made with all parts")
    }
}
