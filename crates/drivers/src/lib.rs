//! CSI drivers that come with the house.
//!
//! Each driver is a backend with the protocol's services around it; it runs in a process of its own
//! or inside another, and trusts nothing that arrives over its socket.

pub mod local;
pub mod nfs;
