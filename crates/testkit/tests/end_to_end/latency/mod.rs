//! What other clients wait for while one has much to do.

mod heavy;
mod leaving;
mod long_strings;
mod relief;
mod repeated;
mod slices;
mod slow_scripts;
mod turns;
