//! The sidecars against the embedded API server, the real binder and a driver in memory.

mod attaching;
mod crashes;
mod driver;
mod fuse;
mod provisioning;
mod registering;
mod resizing;
mod world;
