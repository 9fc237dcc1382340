//! The libraries that scripts find beside `redis`: those of Redis, and those of Lua's own functions
//! that work through a large value in one go.

pub(crate) mod bits;
pub(crate) mod json;
pub(crate) mod msgpack;
pub(crate) mod pattern;
pub(crate) mod structs;
pub(crate) mod tables;
