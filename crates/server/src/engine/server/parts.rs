//! State of the layers above the engine that belongs to the whole server.

use std::any::Any;

/// State of the layers above the engine. Each layer finds its own part by the part's type.
///
/// So the engine need not know of snapshots or files of the log. Finding a part takes a few
/// comparisons; code that needs a part for every command keeps the reference.
#[derive(Default)]
pub struct ServerParts(Vec<Box<dyn Any + Send + Sync>>);

impl ServerParts {
    pub fn with(mut self, part: impl Any + Send + Sync) -> Self {
        self.0.push(Box::new(part));
        self
    }

    /// The part of this type. Every server is made with all parts.
    pub fn get<T: Any>(&self) -> &T {
        let found = self.0.iter().find_map(|part| part.downcast_ref());
        found.expect("every server is made with all parts")
    }
}
