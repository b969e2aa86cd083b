//! What a pod is told that should go and does not get away. Pure.

use jiff::{SignedDuration, Timestamp};

use super::later;

/// How long a pod may take to leave before an event says what keeps it.
pub(super) const SAID_AFTER: SignedDuration = SignedDuration::from_secs(10);

/// What keeps a pod here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kept {
    /// Something of it may still run.
    Running(String),
    /// Something of its volumes is left.
    Mounted(String),
    /// CSI volumes, by their names, that are taken away by others; and why that fails, if it does.
    Volumes(Vec<(String, Option<String>)>),
    /// What is left of its folder.
    Folder(String),
}

impl Kept {
    /// The event's reason; the kubelet's.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Running(_) => "FailedKillPod",
            Self::Mounted(_) | Self::Volumes(_) | Self::Folder(_) => "FailedUnMount",
        }
    }

    pub(super) fn words(&self) -> String {
        match self {
            Self::Running(why) => format!("error killing pod: {why}"),
            Self::Mounted(why) => format!("Unable to unmount volumes: {why}"),
            Self::Folder(why) => format!("Unable to remove the pod's folder: {why}"),
            Self::Volumes(volumes) => {
                let names: Vec<&str> = volumes.iter().map(|(name, _)| name.as_str()).collect();
                let each = volumes.iter().map(|(name, why)| match why {
                    Some(why) => format!("volume {name:?}: {why}"),
                    None => format!("volume {name:?} is being unmounted"),
                });
                let each: Vec<String> = each.collect();
                format!(
                    "Unable to unmount volumes: mounted volumes=[{}]: {}",
                    names.join(" "),
                    each.join("; ")
                )
            }
        }
    }
}

/// How long a pod has been kept, and what was said of it.
#[derive(Debug, Default)]
pub(super) struct Leaving {
    since: Option<Timestamp>,
    said: Option<Kept>,
}

impl Leaving {
    /// What to say now, if anything: once after a while, and again when the reason is another.
    pub(super) fn hear(&mut self, kept: Kept, now: Timestamp) -> Option<Kept> {
        self.since.get_or_insert(now);
        let due = self.say_at().is_some_and(|at| at <= now);
        if !due || self.said.as_ref() == Some(&kept) {
            return None;
        }
        self.said = Some(kept.clone());
        Some(kept)
    }

    /// From when on something is said.
    pub(super) fn say_at(&self) -> Option<Timestamp> {
        Some(later(self.since?, SAID_AFTER))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: fn(i64) -> Timestamp = |s| Timestamp::from_second(s).expect("a time");

    #[test]
    fn what_keeps_a_pod_is_said_after_a_while_and_again_when_it_is_something_else() {
        let mut leaving = Leaving::default();
        let busy = || Kept::Mounted("it is busy".into());
        let away = || Kept::Volumes(vec![("a".into(), None), ("b".into(), Some("away".into()))]);
        assert_eq!(leaving.hear(busy(), T(100)), None);
        assert_eq!(leaving.say_at(), Some(T(110)));
        assert_eq!(leaving.hear(busy(), T(109)), None);
        assert_eq!(leaving.hear(busy(), T(110)), Some(busy()));
        assert_eq!(leaving.hear(busy(), T(111)), None);
        assert_eq!(leaving.hear(away(), T(112)), Some(away()));
        assert_eq!(
            away().words(),
            "Unable to unmount volumes: mounted volumes=[a b]: volume \"a\" is being unmounted; \
             volume \"b\": away"
        );
        assert_eq!(away().reason(), "FailedUnMount");
        assert_eq!(Kept::Running("x".into()).reason(), "FailedKillPod");
    }
}
