//! A file system that is smaller than its volume follows when the volume is staged.
//!
//! So a volume that was expanded while nobody used it, one made larger than what it was copied
//! from, and an ext4 that could not be grown while mounted, all end up as large as they should be.

use orlop_host::FsKind;
use orlop_host::filesystem::{self, GrowError, Grown};

use super::StageError;
use crate::local::capability::Access;
use crate::local::node::Here;
use crate::local::node::observe::Use;
use crate::local::pools::Volume;
use crate::local::volume::{Content, Staged};

/// What there is to grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Growth {
    /// Nothing.
    None,
    /// This file system, to the size of its image.
    Follow(FsKind),
}

impl Growth {
    pub(super) fn of(volume: &Volume, wanted: &Staged, found: &Use) -> Self {
        plan(volume, wanted, found.devices.is_empty())
    }

    /// Grows what grows in its image.
    pub(super) fn before_mount(
        self,
        here: Here<'_>,
        volume: &mut Volume,
    ) -> Result<(), StageError> {
        let Self::Follow(kind) = self else {
            return Ok(());
        };
        let image = here.pools.pool_of(volume).image(&volume.record.id);
        match filesystem::grow_image(kind, &image) {
            Ok(Grown::Now) => done(here, volume),
            Ok(Grown::OnlyMounted) => Ok(()),
            Err(source) => Err(failed(volume, source)),
        }
    }

    /// Grows what grows while mounted.
    pub(super) fn after_mount(
        self,
        here: Here<'_>,
        volume: &mut Volume,
        staged: &Staged,
    ) -> Result<(), StageError> {
        let Self::Follow(kind) = self else {
            return Ok(());
        };
        if volume.record.file_system_bytes == volume.record.capacity_bytes {
            return Ok(());
        }
        let found = Use::observe(here.pools, volume).map_err(|source| StageError::Observe {
            id: volume.record.id.clone(),
            source,
        })?;
        let Some(device) = found.writable() else {
            return Ok(());
        };
        filesystem::grow(kind, &device.path(), &staged.path)
            .map_err(|source| failed(volume, source))?;
        done(here, volume)
    }
}

/// A volume that is read-only, or mounted already, is left as it is.
fn plan(volume: &Volume, wanted: &Staged, unused: bool) -> Growth {
    let record = &volume.record;
    match (wanted.publication.capability.access, record.content) {
        (Access::Mount(_), Content::FileSystem(kind))
            if unused
                && !wanted.publication.read_only
                && record.file_system_bytes < record.capacity_bytes =>
        {
            Growth::Follow(kind)
        }
        _ => Growth::None,
    }
}

fn done(here: Here<'_>, volume: &mut Volume) -> Result<(), StageError> {
    volume.record.file_system_bytes = volume.record.capacity_bytes;
    here.pools.save(volume).map_err(|source| StageError::Store {
        id: volume.record.id.clone(),
        source,
    })
}

fn failed(volume: &Volume, source: GrowError) -> StageError {
    StageError::Grow {
        id: volume.record.id.clone(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::capability::{Capability, Mode};
    use crate::local::tests::home;
    use crate::local::volume::{Publication, VolumeRecord};

    #[test]
    fn only_a_file_system_that_lags_behind_and_may_be_written_to_grows() {
        let staged = |access, read_only| Staged {
            path: "/s".into(),
            publication: Publication {
                capability: Capability {
                    access,
                    mode: Mode::SingleNodeWriter,
                },
                read_only,
            },
        };
        let files = Access::Mount(FsKind::Xfs);
        let volume = |content, file_system_bytes| Volume {
            home: home("n"),
            record: VolumeRecord {
                content,
                file_system_bytes,
                ..VolumeRecord::blank("a", 1, 2 << 30)
            },
        };
        let xfs = Content::FileSystem(FsKind::Xfs);
        let follow = Growth::Follow(FsKind::Xfs);
        let cases = [
            (volume(xfs, 1 << 30), staged(files, false), true, follow),
            (
                volume(xfs, 2 << 30),
                staged(files, false),
                true,
                Growth::None,
            ),
            (
                volume(xfs, 1 << 30),
                staged(files, true),
                true,
                Growth::None,
            ),
            (
                volume(xfs, 1 << 30),
                staged(files, false),
                false,
                Growth::None,
            ),
            (
                volume(Content::Raw, 0),
                staged(Access::Block, false),
                true,
                Growth::None,
            ),
        ];
        for (volume, staged, unused, expected) in cases {
            assert_eq!(
                plan(&volume, &staged, unused),
                expected,
                "{volume:?} {staged:?}"
            );
        }
    }
}
