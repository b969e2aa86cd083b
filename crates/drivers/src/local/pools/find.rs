//! What an id means: something that is here, nothing, or something that nobody can know of now.

use tonic::Code;

use super::index::Entry;
use super::{Pools, Volume};
use crate::local::home::Home;
use crate::local::ids::PoolTag;
use crate::local::pool::Pool;
use crate::local::snapshot::{Group, GroupId, Snapshot, SnapshotId};
use crate::local::snapshots;
use crate::local::volume::VolumeId;

/// Why a volume cannot be worked with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FindError {
    /// There is none.
    #[error("there is no volume {id:?}")]
    Unknown {
        /// The id as it was asked for.
        id: String,
    },
    /// Its record is damaged.
    #[error("the record of volume {id} is damaged; restore its meta.json and restart the driver")]
    Broken {
        /// The volume.
        id: VolumeId,
    },
    /// It may be in a pool that is not here.
    #[error("volume {id} cannot be looked up")]
    Away {
        /// The volume.
        id: VolumeId,
        /// Why.
        #[source]
        source: Elsewhere,
    },
}

/// Why nobody can know whether something exists: its pool is not here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Elsewhere {
    /// This driver has no such pool.
    #[error(
        "its pool, whose pool.json begins with {0}, is not here; mount its disk where it was, or \
         name its folder with --pool; if the disk is gone for good, remove the finalizers of what \
         was on it by hand"
    )]
    Unknown(PoolTag),
    /// A pool could not be read since the driver started.
    #[error("the {home} cannot be read: {why}")]
    Unread {
        /// The pool.
        home: Home,
        /// Why.
        why: String,
    },
}

impl FindError {
    /// The volume, if there may be one of which nothing can be read.
    pub(in crate::local) fn unread(&self) -> Option<&VolumeId> {
        match self {
            Self::Unknown { .. } => None,
            Self::Broken { id } | Self::Away { id, .. } => Some(id),
        }
    }

    /// How callers should take it.
    pub(in crate::local) fn code(&self) -> Code {
        match self {
            Self::Unknown { .. } => Code::NotFound,
            Self::Broken { .. } => Code::DataLoss,
            Self::Away { .. } => Code::Unavailable,
        }
    }
}

impl Pools {
    /// The volume with this id.
    pub(in crate::local) fn find(&self, id: &str) -> Result<Volume, FindError> {
        let unknown = || FindError::Unknown {
            id: id.chars().take(64).collect(),
        };
        let id = VolumeId::parse(id).ok_or_else(unknown)?;
        match self.index().get(&id) {
            Some(Entry::Sound(volume)) => Ok(volume.clone()),
            Some(Entry::Broken { id, .. }) => Err(FindError::Broken { id: id.clone() }),
            None => Err(match self.elsewhere(id.pool().as_ref()) {
                None => unknown(),
                Some(source) => FindError::Away { id, source },
            }),
        }
    }

    /// Whether something that we do not know of may exist nevertheless, by the pool of its id.
    pub(in crate::local) fn elsewhere(&self, pool: Option<&PoolTag>) -> Option<Elsewhere> {
        let unread = |(home, pool): (&Home, &Pool)| match pool.check() {
            Err(error) if !pool.is_held() => Some(Elsewhere::Unread {
                home: home.clone(),
                why: error.to_string(),
            }),
            _ => None,
        };
        let Some(tag) = pool else {
            return self.pools.iter().find_map(unread);
        };
        match self
            .pools
            .iter()
            .find(|it| it.1.tag().as_ref() == Some(tag))
        {
            Some(found) => unread(found),
            // Perhaps it is one that does not tell who it is.
            None => {
                let nameless = self.pools.iter().filter(|it| it.1.tag().is_none());
                let nameless = nameless.into_iter().find_map(unread);
                Some(nameless.unwrap_or_else(|| Elsewhere::Unknown(tag.clone())))
            }
        }
    }

    /// The first of these pools that was not read since the driver started, so that nobody can know
    /// what is in it.
    pub(in crate::local) fn first_unread<'a>(&self, homes: &'a [Home]) -> Option<&'a Home> {
        let index = self.index();
        homes.iter().find(|home| !index.is_read(home))
    }

    /// The snapshot with this id.
    pub(in crate::local) fn find_snapshot(
        &self,
        id: &str,
    ) -> Result<Snapshot, snapshots::FindError> {
        let found = self.snapshots.find(id);
        found.map_err(|error| self.or_away(error, SnapshotId::parse(id).map(|id| id.pool())))
    }

    /// The group with this id.
    pub(in crate::local) fn find_group(&self, id: &str) -> Result<Group, snapshots::FindError> {
        let found = self.snapshots.find_group(id);
        found.map_err(|error| self.or_away(error, GroupId::parse(id).map(|id| id.pool())))
    }

    /// What is not known may be elsewhere, if it has an id of ours.
    fn or_away(
        &self,
        error: snapshots::FindError,
        pool: Option<Option<PoolTag>>,
    ) -> snapshots::FindError {
        let elsewhere = pool.and_then(|pool| self.elsewhere(pool.as_ref()));
        match (error, elsewhere) {
            (snapshots::FindError::Unknown { what, id }, Some(source)) => {
                let source = Box::new(source);
                snapshots::FindError::Away { what, id, source }
            }
            (other, _) => other,
        }
    }
}
