//! The sidecars against the embedded API server, the real binder and a driver in memory.

mod attaching;
mod capacity;
mod crashes;
mod driver;
mod fuse;
mod history;
mod provisioning;
mod registering;
mod requests;
mod resizing;
mod sources;
mod world;
