//! Ids of volumes, snapshots and groups: what callers keep of them, for years perhaps.
//!
//! `v-1b0e4c2f-<32 digits>`: a letter for the kind, the pool that it is in, and a digest of its name.
//! The digest alone finds a thing, so that a repeated request finds what the first one made. The pool
//! tells what it means if nothing is found: in a pool that is here it is gone, and in one that is not
//! here nobody can know. Ids without a pool are of things that no caller keeps, or were made before
//! ids had one.

use std::fmt;

/// How ids and markers name a pool: the first eight digits of its marker.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolTag(String);

impl PoolTag {
    const DIGITS: usize = 8;

    /// The tag of the pool with this marker.
    pub(super) fn of_marker(marker: &str) -> Option<Self> {
        Self::parse(marker.get(..Self::DIGITS)?)
    }

    /// A marker of the pool with this tag: as another, but for its beginning.
    pub(super) fn marker(&self, like: &str) -> String {
        format!("{self}{}", like.get(Self::DIGITS..).unwrap_or_default())
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        (text.len() == Self::DIGITS && is_hex(text)).then(|| Self(text.to_owned()))
    }
}

impl fmt::Display for PoolTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether a text is made of digits as we write them.
pub(super) fn is_hex(text: &str) -> bool {
    text.bytes()
        .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Defines a kind of id.
macro_rules! hashed_id {
    ($(#[$doc:meta])+ $name:ident, $prefix:literal, $wrong:literal) => {
        $(#[$doc])+
        #[derive(
            Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
        )]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            const DIGITS: usize = 32;

            /// The id for this name, without a pool: the same name always gives the same id.
            #[must_use]
            pub fn of_name(name: &str) -> Self {
                use sha2::Digest;
                let digest = sha2::Sha256::digest(name.as_bytes());
                let mut id = String::from($prefix);
                for byte in &digest[..Self::DIGITS / 2] {
                    id.push_str(&format!("{byte:02x}"));
                }
                Self(id)
            }

            /// The same thing in this pool, if it is known which that is.
            #[must_use]
            pub fn in_pool(&self, pool: Option<&crate::local::ids::PoolTag>) -> Self {
                match pool {
                    None => self.anywhere(),
                    Some(pool) => Self(format!(concat!($prefix, "{}-{}"), pool, self.digest())),
                }
            }

            /// The same without a pool: what it is found by.
            #[must_use]
            pub fn anywhere(&self) -> Self {
                Self(format!(concat!($prefix, "{}"), self.digest()))
            }

            /// The pool that it is in, if it says so.
            #[must_use]
            pub fn pool(&self) -> Option<crate::local::ids::PoolTag> {
                let (pool, _) = self.0.strip_prefix($prefix)?.split_once('-')?;
                crate::local::ids::PoolTag::parse(pool)
            }

            /// Whether this is the id of that thing; one without a pool means it in any.
            #[must_use]
            pub fn means(&self, other: &Self) -> bool {
                self == other || (self.pool().is_none() && self.digest() == other.digest())
            }

            /// Recognises an id of ours.
            #[must_use]
            pub fn parse(text: &str) -> Option<Self> {
                use crate::local::ids::{PoolTag, is_hex};
                let rest = text.strip_prefix($prefix)?;
                let digest = match rest.split_once('-') {
                    None => rest,
                    Some((pool, digest)) => PoolTag::parse(pool).map(|_| digest)?,
                };
                (digest.len() == Self::DIGITS && is_hex(digest)).then(|| Self(text.to_owned()))
            }

            /// Its text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }

            fn digest(&self) -> &str {
                &self.0[self.0.len() - Self::DIGITS..]
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl TryFrom<String> for $name {
            type Error = &'static str;

            fn try_from(text: String) -> Result<Self, Self::Error> {
                Self::parse(&text).ok_or($wrong)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0
            }
        }
    };
}

pub(super) use hashed_id;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::snapshot::{GroupId, SnapshotId};
    use crate::local::volume::VolumeId;

    fn tag() -> PoolTag {
        PoolTag::of_marker("1b0e4c2f-aaaa-bbbb-cccc-dddddddddddd").unwrap()
    }

    #[test]
    fn the_same_name_always_has_the_same_id_in_the_same_pool() {
        let one = VolumeId::of_name("pvc-1");
        assert_eq!(one, VolumeId::of_name("pvc-1"));
        assert_ne!(one, VolumeId::of_name("pvc-2"));
        let there = one.in_pool(Some(&tag()));
        assert_eq!(there.pool(), Some(tag()));
        assert_eq!(there.anywhere(), one);
        assert_eq!(there.in_pool(None), one);
        assert_eq!(one.pool(), None);
    }

    #[test]
    fn an_id_without_a_pool_means_the_thing_in_any_and_one_with_a_pool_only_there() {
        let one = VolumeId::of_name("pvc-1");
        let here = one.in_pool(Some(&tag()));
        let there = one.in_pool(PoolTag::parse("00000000").as_ref());
        assert!(one.means(&here) && one.means(&there) && here.means(&here));
        assert!(!here.means(&there) && !here.means(&one));
    }

    #[test]
    fn only_ids_of_ours_are_recognised() {
        for id in [
            VolumeId::of_name("../../etc/passwd"),
            VolumeId::of_name("x").in_pool(Some(&tag())),
        ] {
            assert_eq!(VolumeId::parse(id.as_str()), Some(id.clone()));
            assert_eq!(VolumeId::parse(&format!("{id}0")), None);
            assert_eq!(VolumeId::parse(&id.as_str().to_uppercase()), None);
        }
        for text in [
            "",
            "v-",
            "..",
            "/etc",
            "v-../../../../../../../../../../../x",
            "v-../../..-00000000000000000000000000000000",
            "v-1b0e4c2f-",
        ] {
            assert_eq!(VolumeId::parse(text), None, "{text}");
        }
    }

    #[test]
    fn an_id_of_one_kind_is_none_of_another() {
        let snapshot = SnapshotId::of_name("a").in_pool(Some(&tag()));
        assert_eq!(GroupId::parse(snapshot.as_str()), None);
        assert_eq!(VolumeId::parse(snapshot.as_str()), None);
    }
}
