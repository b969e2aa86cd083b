//! Attachments as they are now, for those who are about to detach.
//!
//! Each is asked for by itself, unless so many are at the same time that one list costs the API server
//! less: when a node is drained, or many are.

use std::sync::atomic::{AtomicUsize, Ordering};

use orlop_model::{Kind as _, VolumeAttachment};
use orlop_runtime::{ApiError, Cache, Cluster, Joint};

/// Fewer than this are each asked for by itself, however few there are in all.
const MANY: usize = 8;

/// An object costs the API server about as much by itself as so many in a list.
const WORTH: usize = 20;

/// Whether those who look share a list.
fn shared(looking: usize, all: usize) -> bool {
    looking >= MANY && looking.saturating_mul(WORTH) >= all
}

/// Who looks at attachments.
pub(super) struct Sight {
    cluster: Cluster,
    known: Cache<VolumeAttachment>,
    all: Joint<VolumeAttachment>,
    looking: AtomicUsize,
}

impl Sight {
    pub(super) fn new(cluster: &Cluster, known: Cache<VolumeAttachment>) -> Self {
        Self {
            cluster: cluster.clone(),
            known,
            all: Joint::new(cluster.clone()),
            looking: AtomicUsize::new(0),
        }
    }

    /// This very attachment as it is at some moment after the call; `None` if it is gone.
    pub(super) async fn of(
        &self,
        attachment: &VolumeAttachment,
    ) -> Result<Option<VolumeAttachment>, ApiError> {
        let look = Look::begin(&self.looking);
        let name = &attachment.metadata.name;
        let live = if shared(look.number, self.known.len()) {
            let all = self.all.list(None).await?;
            all.iter().find(|one| one.metadata.name == *name).cloned()
        } else {
            self.cluster.get(&attachment.key()).await?
        };
        if let Some(live) = &live {
            self.known.absorb(live.clone());
        }
        Ok(live.filter(|live| live.metadata.uid == attachment.metadata.uid))
    }
}

/// One who looks.
struct Look<'a> {
    all: &'a AtomicUsize,
    /// How many look, this one included.
    number: usize,
}

impl<'a> Look<'a> {
    fn begin(all: &'a AtomicUsize) -> Self {
        let number = all.fetch_add(1, Ordering::Relaxed) + 1;
        Self { all, number }
    }
}

impl Drop for Look<'_> {
    fn drop(&mut self) {
        self.all.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_shared_only_by_many_and_of_not_too_many() {
        for (looking, all, expected) in [
            (1, 1, false),
            (7, 7, false),
            (8, 8, true),
            (8, 160, true),
            (8, 161, false),
            (100, 2000, true),
            (100, 2001, false),
        ] {
            assert_eq!(shared(looking, all), expected, "{looking} of {all}");
        }
    }
}
