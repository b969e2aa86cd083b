//! The sidecars against the embedded API server, the real binder and a driver in memory.

mod attaching;
mod away;
mod bad_input;
mod capacity;
mod crashes;
mod cuts;
mod driver;
mod fuse;
mod history;
mod inherited;
mod leading;
mod lies;
mod log;
mod no_room;
mod provisioning;
mod registering;
mod requests;
mod resizing;
mod snapshot_history;
mod snapshots;
mod sources;
mod world;
