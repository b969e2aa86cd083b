//! Attach-detach alone, on the embedded API server, with nodes and an attacher that are played by
//! the test.

#![expect(clippy::unwrap_used, reason = "a test that can't go on says where")]

mod anew;
mod disks;
mod flex;
mod flex_crashes;
mod flex_crowds;
mod flex_drivers;
mod flex_mixed;
mod lanes;
mod stage;
mod stories;
mod thrift;
mod trouble;
