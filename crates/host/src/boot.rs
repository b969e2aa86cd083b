//! Which boot of the machine this is.
//!
//! State that describes mounts and devices is void after a reboot; whoever writes such state puts
//! the boot beside it.

use std::io;

/// The kernel's random name for the current boot.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct BootId(String);

impl BootId {
    /// The boot that we run in.
    pub fn current() -> io::Result<Self> {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        Ok(Self(text.trim().to_owned()))
    }
}

impl std::fmt::Display for BootId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}
