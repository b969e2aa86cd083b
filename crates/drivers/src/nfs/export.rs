//! A server and one of its shares.

use std::fmt;
use std::net::Ipv6Addr;

use serde::{Deserialize, Serialize};

use super::HOUSE;

/// Where volumes are.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Export {
    /// A name or an address, without brackets.
    pub(crate) server: String,
    /// The path on the server, without slashes at its ends: empty for the root.
    pub(crate) share: String,
}

/// Why a server or share cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ExportError {
    #[error("server {0:?} is neither a host name nor an address")]
    Server(String),
    #[error("share {0:?} is not a path of plain names")]
    Share(String),
    #[error("share {0:?} leads into {HOUSE:?}, which is the driver's own")]
    House(String),
}

impl Export {
    /// Understands both.
    pub(crate) fn parse(server: &str, share: &str) -> Result<Self, ExportError> {
        let bare = server.trim_matches('/');
        let bare = bare
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
            .unwrap_or(bare);
        let letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
        let named = bare.bytes().all(letter) && !bare.starts_with(['-', '.']);
        // An address may name the link that it is on.
        let (address, link) = bare.split_once('%').unwrap_or((bare, "x"));
        let address = address.parse::<Ipv6Addr>().is_ok() && link.bytes().all(letter);
        if bare.is_empty() || bare.len() > 255 || !(named || address) {
            return Err(ExportError::Server(server.to_owned()));
        }
        let path = share.trim_matches('/');
        let plain = |name: &str| !matches!(name, "" | "." | "..");
        let plain = path.is_empty() || path.split('/').all(plain);
        if !plain || path.len() > 1024 || path.contains(['#', '\\']) || has_control(path) {
            return Err(ExportError::Share(share.to_owned()));
        }
        if path.split('/').any(|name| name == HOUSE) {
            return Err(ExportError::House(share.to_owned()));
        }
        Ok(Self {
            server: bare.to_owned(),
            share: path.to_owned(),
        })
    }

    /// The share as the server knows it.
    pub(crate) fn path(&self) -> String {
        format!("/{}", self.share)
    }

    /// What the kernel calls the source of a mount.
    pub(crate) fn source(&self) -> String {
        if self.server.contains(':') {
            format!("[{}]:/{}", self.server, self.share)
        } else {
            format!("{}:/{}", self.server, self.share)
        }
    }
}

fn has_control(text: &str) -> bool {
    text.chars().any(char::is_control)
}

impl fmt::Display for Export {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.source())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_addresses_are_servers() {
        for (server, source) in [
            ("nfs.example.com", "nfs.example.com:/a/b"),
            ("10.0.0.1", "10.0.0.1:/a/b"),
            ("fd00::1", "[fd00::1]:/a/b"),
            ("[fd00::1]", "[fd00::1]:/a/b"),
        ] {
            assert_eq!(Export::parse(server, "/a/b/").unwrap().source(), source);
        }
        for server in ["", "a b", "a#b", "a,b", "a:/x", "-o", "..", "a\n"] {
            assert!(Export::parse(server, "/").is_err(), "{server:?}");
        }
    }

    #[test]
    fn a_share_is_the_root_or_a_path_of_plain_names() {
        assert_eq!(Export::parse("s", "/").unwrap().path(), "/");
        assert_eq!(Export::parse("s", "a").unwrap().path(), "/a");
        for share in [
            "/data/.orlop-csi",
            ".orlop-csi/x",
            "/a/../b",
            "..",
            "/a//b",
            "/a/.",
            "a#b",
            "a\\..\\b",
            "a\0",
        ] {
            assert!(Export::parse("s", share).is_err(), "{share:?}");
        }
    }
}
