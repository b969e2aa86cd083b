//! The host: mounts, loop devices, file systems, programs, paths.
//!
//! The only crate with `unsafe` code, and the only one that knows how the kernel is asked for these
//! things. It decides nothing: what to mount, format or remove, and whether that is allowed, is for
//! the callers to know. Everything here is a plain blocking call; async callers move whole steps to
//! a blocking thread.
//!
//! Invariants: no shell, no symlink followed in a name that came from outside, no removal across a
//! mount, no lazy unmount, no file replaced other than atomically.

pub mod allocate;
pub mod block;
pub mod boot;
pub mod cleaner;
pub mod disk;
pub mod durable;
pub mod extents;
pub mod filesystem;
pub mod filesystem_unit;
pub mod flex;
pub mod folder;
pub mod folder_watch;
pub mod foreign;
pub mod freeze;
pub mod group;
pub mod identity;
pub mod image;
pub mod keeper;
pub mod lock;
pub mod loopdev;
pub mod memory;
pub mod mount;
pub mod mount_space;
pub mod mount_watch;
pub mod mountinfo;
pub mod place;
pub mod process;
pub mod program;
pub mod reserved_port;
pub mod sandbox;
pub mod scrub;
pub mod selinux;
#[doc(hidden)]
pub mod testing;
pub mod tree;

pub use block::BlockDevice;
pub use boot::BootId;
pub use disk::DiskId;
pub use durable::{write_atomic, write_volatile};
pub use filesystem::{FsKind, Usage};
pub use folder::Folder;
pub use lock::{Lock, LockError};
pub use loopdev::LoopDevice;
pub use mount::Restrictions;
pub use mount_watch::MountWatch;
pub use mountinfo::{DeviceNumber, Mount, MountId, MountTable};
pub use place::{Occupant, Place, Root};
pub use tree::remove_tree_one_fs;
