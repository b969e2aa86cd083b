//! What a case is: a claim about every driver, and the way to check it.

use std::fmt;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use orlop_csi::client::{
    ControllerCapability, GroupCapability, NodeCapability, PluginService, VolumeExpansion,
};

use crate::trial::Trial;

/// How much the specification wants it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// A driver without it doesn't conform.
    Must,
    /// A driver without it is warned of it.
    Should,
}

/// What a driver, or the run, must have for a case to make sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// A service or trait of the plugin as a whole.
    Plugin(PluginService),
    /// The plugin lacks a service or trait.
    NoPlugin(PluginService),
    /// Something that the controller can do.
    Controller(ControllerCapability),
    /// Something that the controller does not claim to do.
    NoController(ControllerCapability),
    /// Something that the group controller can do.
    Group(GroupCapability),
    /// Something that the node service can do.
    Node(NodeCapability),
    /// Something that the node service does not claim to do.
    NoNode(NodeCapability),
    /// A way to grow.
    Expansion(VolumeExpansion),
    /// Growing is announced as possible only while not in use.
    OfflineExpansionOnly,
    /// The driver makes file system volumes.
    MountVolumes,
    /// The driver makes raw block volumes.
    BlockVolumes,
    /// `--mutable-parameters` were given.
    MutableParameters,
    /// `--restart-command` was given.
    Restart,
    /// `--driver-log` was given.
    DriverLog,
    /// `--other-node-id` was given.
    OtherNode,
    /// The driver listens at a socket file.
    SocketFile,
    /// The driver announces how many volumes fit a node, at most this many.
    VolumeLimit(i64),
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plugin(what) => write!(f, "plugin capability {}", what.as_str_name()),
            Self::NoPlugin(what) => {
                write!(f, "a plugin without capability {}", what.as_str_name())
            }
            Self::Controller(what) => write!(f, "controller capability {}", what.as_str_name()),
            Self::NoController(what) => {
                write!(f, "a controller without capability {}", what.as_str_name())
            }
            Self::Group(what) => write!(f, "group controller capability {}", what.as_str_name()),
            Self::Node(what) => write!(f, "node capability {}", what.as_str_name()),
            Self::NoNode(what) => write!(f, "a node service without {}", what.as_str_name()),
            Self::Expansion(how) => write!(f, "volume expansion {}", how.as_str_name()),
            Self::OfflineExpansionOnly => f.write_str("volume expansion OFFLINE and not ONLINE"),
            Self::MountVolumes => f.write_str("file system volumes"),
            Self::BlockVolumes => f.write_str("raw block volumes"),
            Self::MutableParameters => f.write_str("--mutable-parameters"),
            Self::Restart => f.write_str("--restart-command"),
            Self::DriverLog => f.write_str("--driver-log"),
            Self::OtherNode => f.write_str("--other-node-id"),
            Self::SocketFile => f.write_str("a socket file"),
            Self::VolumeLimit(most) => {
                write!(f, "max_volumes_per_node between 1 and {most}")
            }
        }
    }
}

/// Why a case did not simply pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The driver did something against the specification.
    Against(String),
    /// It turned out on the way that the case makes no sense here.
    Skip(String),
}

pub(crate) type Outcome = Result<(), Trouble>;

/// Ends the case unless something holds.
macro_rules! ensure {
    ($holds:expr, $($words:tt)+) => {
        if !$holds {
            return Err($crate::case::Trouble::Against(format!($($words)+)));
        }
    };
}
pub(crate) use ensure;

type Body = Arc<dyn Fn(Trial) -> BoxFuture<'static, Outcome> + Send + Sync>;

/// One check of one clause.
#[derive(Clone)]
pub struct Case {
    /// Its name, `group.what_holds`.
    pub id: String,
    /// What must hold, in a sentence.
    pub title: String,
    /// The section of the specification that says so.
    pub spec: &'static str,
    /// How strongly it says so.
    pub level: Level,
    /// Without these the case is skipped.
    pub needs: Vec<Need>,
    body: Body,
}

impl Case {
    pub(crate) fn must<F>(
        id: impl Into<String>,
        spec: &'static str,
        title: impl Into<String>,
        needs: &[Need],
        body: impl Fn(Trial) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Outcome> + Send + 'static,
    {
        Self {
            id: id.into(),
            title: title.into(),
            spec,
            level: Level::Must,
            needs: needs.to_vec(),
            body: Arc::new(move |trial| body(trial).boxed()),
        }
    }

    pub(crate) fn should<F>(
        id: impl Into<String>,
        spec: &'static str,
        title: impl Into<String>,
        needs: &[Need],
        body: impl Fn(Trial) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Outcome> + Send + 'static,
    {
        Self {
            level: Level::Should,
            ..Self::must(id, spec, title, needs, body)
        }
    }

    pub(crate) fn run(&self, trial: Trial) -> BoxFuture<'static, Outcome> {
        (self.body)(trial)
    }

    /// The group: what stands before the dot.
    pub fn group(&self) -> &str {
        self.id.split('.').next().unwrap_or(&self.id)
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}
