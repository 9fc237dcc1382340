//! What the machine provides, independent of any configuration: cores, clocks, files, memory,
//! random numbers.

pub mod allocator;
pub(crate) mod bits;
pub mod clock;
pub mod cores;
pub(crate) mod files;
pub mod glob;
pub mod json;
pub(crate) mod kept;
pub mod locale;
pub mod memory;
pub mod random;
pub mod usage;
pub mod watch;
