//! From a parsed request to its reply: the checks in Redis's order, the locks and the handler. Also
//! the parts of the work that come later: queued transactions and long commands in slices.

pub mod admission;
pub mod elsewhere;
pub mod execute;
pub mod monitor;
pub mod rights;
pub mod run;
pub mod slices;
pub mod transaction;
