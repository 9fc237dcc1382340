//! Clients, users, networks and files that are hostile, and the walls against them.

mod acl;
mod advisories;
mod advisories_network;
mod bad_input;
mod files;
mod network;
mod resources;
mod strangers;
#[cfg(feature = "tls")]
mod tls;
