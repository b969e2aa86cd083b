//! Kubernetes' access modes as the protocol's.
//!
//! Kubernetes lists the modes that a volume may be used in; the protocol wants
//! one. The mapping is that of csi-lib-utils, so that drivers see what they see
//! from the Go sidecars.

pub use crate::proto::volume_capability::access_mode::Mode;

use crate::client::{ControllerCapability, DriverInfo, NodeCapability};

/// Whether a driver tells one writer on a node from several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SingleNode {
    /// It knows one mode for a single node.
    Undivided,
    /// It has `SINGLE_NODE_MULTI_WRITER` and knows the two newer modes.
    Divided,
}

impl SingleNode {
    /// What the driver's controller knows.
    pub fn of_controller(info: &DriverInfo) -> Self {
        Self::told(info.can(ControllerCapability::SingleNodeMultiWriter))
    }

    /// What the driver's node service knows.
    pub fn of_node(info: &DriverInfo) -> Self {
        Self::told(info.node_can(NodeCapability::SingleNodeMultiWriter))
    }

    fn told(capable: bool) -> Self {
        if capable {
            Self::Divided
        } else {
            Self::Undivided
        }
    }
}

/// Modes that make no single mode of the protocol.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AccessModeError {
    /// There is none.
    #[error("the volume has no access mode; set one")]
    None,
    /// A word that Kubernetes does not have.
    #[error(
        "{mode:?} is not an access mode; use ReadWriteOnce, ReadWriteOncePod, ReadOnlyMany or ReadWriteMany"
    )]
    Unknown {
        /// The word.
        mode: String,
    },
    /// It stands alone by definition.
    #[error("ReadWriteOncePod cannot be combined with other access modes; leave one of them out")]
    OncePodWithOthers,
    /// The protocol has nothing between the two.
    #[error("ReadOnlyMany and ReadWriteOnce cannot be combined for a CSI volume; leave one out")]
    ManyReadersOneWriter,
}

/// The protocol's mode for a list of Kubernetes' modes.
pub fn mode<S: AsRef<str>>(modes: &[S], single: SingleNode) -> Result<Mode, AccessModeError> {
    let mut found = Found::default();
    for mode in modes {
        match mode.as_ref() {
            "ReadWriteOnce" => found.once = true,
            "ReadWriteOncePod" => found.once_pod = true,
            "ReadOnlyMany" => found.read_many = true,
            "ReadWriteMany" => found.write_many = true,
            other => {
                return Err(AccessModeError::Unknown {
                    mode: other.to_owned(),
                });
            }
        }
    }
    match found {
        Found {
            once_pod: true,
            once: false,
            read_many: false,
            write_many: false,
        } => Ok(match single {
            SingleNode::Undivided => Mode::SingleNodeWriter,
            SingleNode::Divided => Mode::SingleNodeSingleWriter,
        }),
        Found { once_pod: true, .. } => Err(AccessModeError::OncePodWithOthers),
        Found {
            write_many: true, ..
        } => Ok(Mode::MultiNodeMultiWriter),
        Found {
            read_many: true,
            once: true,
            ..
        } => Err(AccessModeError::ManyReadersOneWriter),
        Found {
            read_many: true, ..
        } => Ok(Mode::MultiNodeReaderOnly),
        Found { once: true, .. } => Ok(match single {
            SingleNode::Undivided => Mode::SingleNodeWriter,
            SingleNode::Divided => Mode::SingleNodeMultiWriter,
        }),
        Found { .. } => Err(AccessModeError::None),
    }
}

/// Which modes a list holds.
#[derive(Default)]
struct Found {
    once: bool,
    once_pod: bool,
    read_many: bool,
    write_many: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    type Mapped = Result<Mode, AccessModeError>;

    const RWO: &str = "ReadWriteOnce";
    const RWOP: &str = "ReadWriteOncePod";
    const ROX: &str = "ReadOnlyMany";
    const RWX: &str = "ReadWriteMany";

    #[test]
    fn every_combination_maps_as_the_go_sidecars_map_it() {
        use SingleNode::{Divided, Undivided};
        let apart = Err(AccessModeError::OncePodWithOthers);
        let between = Err(AccessModeError::ManyReadersOneWriter);
        #[rustfmt::skip]
        let cases: &[(&[&str], Mapped, Mapped)] = &[
            (&[], Err(AccessModeError::None), Err(AccessModeError::None)),
            (&[RWO], Ok(Mode::SingleNodeWriter), Ok(Mode::SingleNodeMultiWriter)),
            (&[RWOP], Ok(Mode::SingleNodeWriter), Ok(Mode::SingleNodeSingleWriter)),
            (&[ROX], Ok(Mode::MultiNodeReaderOnly), Ok(Mode::MultiNodeReaderOnly)),
            (&[RWX], Ok(Mode::MultiNodeMultiWriter), Ok(Mode::MultiNodeMultiWriter)),
            (&[RWO, RWX], Ok(Mode::MultiNodeMultiWriter), Ok(Mode::MultiNodeMultiWriter)),
            (&[ROX, RWX], Ok(Mode::MultiNodeMultiWriter), Ok(Mode::MultiNodeMultiWriter)),
            (&[RWO, ROX, RWX], Ok(Mode::MultiNodeMultiWriter), Ok(Mode::MultiNodeMultiWriter)),
            (&[RWO, ROX], between.clone(), between),
            (&[RWOP, RWO], apart.clone(), apart.clone()),
            (&[RWOP, RWX], apart.clone(), apart),
        ];
        for (modes, undivided, divided) in cases {
            assert_eq!(&mode(modes, Undivided), undivided, "{modes:?}, undivided");
            assert_eq!(&mode(modes, Divided), divided, "{modes:?}, divided");
        }
    }

    #[test]
    fn an_unknown_word_is_refused_by_name() {
        let error = mode(&["ReadWriteTwice"], SingleNode::Undivided).unwrap_err();
        assert_eq!(
            error,
            AccessModeError::Unknown {
                mode: "ReadWriteTwice".to_owned()
            }
        );
    }
}
