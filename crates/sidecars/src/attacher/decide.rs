//! What moves one VolumeAttachment.

use orlop_model::{
    Volume, VolumeAttachment,
    volume::{CsiSource, VolumeSpec},
    well_known::ATTACHMENT_NODE_ID,
};

/// Whether the driver attaches at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Handling {
    /// It has ControllerPublishVolume.
    ByTheDriver,
    /// There is nothing to do; attachments are attached by being there.
    InNameOnly,
}

/// What is known of an attachment.
#[derive(Debug, Clone, Copy)]
pub(super) struct View<'a> {
    pub(super) driver: &'a str,
    pub(super) finalizer: &'a str,
    pub(super) handling: Handling,
    pub(super) attachment: &'a VolumeAttachment,
    /// In the driver's words.
    pub(super) volume: Option<&'a Volume>,
    /// Whether it is one of a plugin whose place the driver took.
    pub(super) of_plugin: bool,
    /// What the driver calls the node, as its registration says.
    pub(super) node_id: Option<&'a str>,
    /// Whether the driver's own list says that it isn't attached, whatever the status says.
    pub(super) astray: bool,
}

/// What to do about an attachment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Step<'a> {
    /// Nothing, until something changes.
    Leave,
    /// Say that it is attached.
    MarkAttached,
    /// Let it go: there is nothing to detach.
    Release,
    /// Put the intent on record, and attach.
    Attach(Way<'a>, Intent),
    /// Detach, and let it go.
    Detach(Way<'a>),
    /// Neither is possible now.
    Hindered(Hindrance),
}

/// From which volume to which node.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Way<'a> {
    /// The object that must be kept meanwhile; none for a pod's own volume.
    pub(super) volume: Option<&'a Volume>,
    pub(super) spec: &'a VolumeSpec,
    pub(super) csi: &'a CsiSource,
    pub(super) node_id: &'a str,
    /// Whether the volume is one of a plugin whose place the driver took.
    pub(super) of_plugin: bool,
}

/// Whether finalizer and node id stand on the attachment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Intent {
    /// They must be put there before the driver is asked.
    ToRecord,
    /// They do: an earlier call may have had an effect.
    OnRecord,
}

/// What is in the way.
#[derive(Debug, Clone, PartialEq, Eq, Copy)]
pub(super) enum Hindrance {
    NoVolumeNamed,
    NoVolume,
    AnotherDriver,
    VolumeDeleted,
    NoNodeId,
}

impl Hindrance {
    /// What is in an attachment's way, and who can help.
    pub(super) fn words(self, attachment: &VolumeAttachment, driver: &str) -> String {
        let (volume, node) = (attachment.volume_name(), &attachment.spec.node_name);
        match self {
            Self::NoVolumeNamed => {
                "the attachment names no volume in spec.source; delete it".to_owned()
            }
            Self::NoVolume => format!(
                "PersistentVolume {volume} does not exist, which says what is to be attached; create it \
                 again, or delete the attachment"
            ),
            Self::AnotherDriver => format!(
                "PersistentVolume {volume} is not one of driver {driver}, which spec.attacher names; \
                 delete the attachment"
            ),
            Self::VolumeDeleted => format!(
                "PersistentVolume {volume} is being deleted, and is attached nowhere any more; delete \
                 the attachment"
            ),
            Self::NoNodeId => format!(
                "driver {driver} is not registered on node {node}: CSINode {node} does not list it; see \
                 that the node is there and the driver's pod runs on it"
            ),
        }
    }
}

pub(super) fn decide<'a>(view: &View<'a>) -> Step<'a> {
    let attachment = view.attachment;
    if attachment.spec.attacher != view.driver {
        return Step::Leave;
    }
    let deleting = attachment.metadata.is_deleting();
    let ours = attachment.metadata.has_finalizer(view.finalizer);
    let attached = attachment.status.attached;
    match (view.handling, deleting) {
        (Handling::InNameOnly, true) if ours => Step::Release,
        (Handling::InNameOnly, false) if !attached => Step::MarkAttached,
        (Handling::InNameOnly, _) => Step::Leave,
        (Handling::ByTheDriver, false) if attached && !view.astray => Step::Leave,
        (Handling::ByTheDriver, false) => decide_attach(view, ours),
        // Without our finalizer the driver was never asked, unless the status says so.
        (Handling::ByTheDriver, true) if !ours && !attached => Step::Leave,
        (Handling::ByTheDriver, true) => decide_detach(view),
    }
}

fn decide_attach<'a>(view: &View<'a>, ours: bool) -> Step<'a> {
    let source = match source(view) {
        Ok(found) => found,
        Err(hindrance) => return Step::Hindered(hindrance),
    };
    if source.volume.is_some_and(|v| v.metadata.is_deleting()) {
        return Step::Hindered(Hindrance::VolumeDeleted);
    }
    let Some(node_id) = view.node_id else {
        return Step::Hindered(Hindrance::NoNodeId);
    };
    let recorded = ours && recorded_node_id(view.attachment) == Some(node_id);
    let intent = if recorded {
        Intent::OnRecord
    } else {
        Intent::ToRecord
    };
    Step::Attach(source.to(node_id), intent)
}

fn decide_detach<'a>(view: &View<'a>) -> Step<'a> {
    let source = match source(view) {
        Ok(found) => found,
        Err(hindrance) => return Step::Hindered(hindrance),
    };
    // What was written down when it was attached wins: the node may have registered anew
    // under another id since.
    match recorded_node_id(view.attachment).or(view.node_id) {
        Some(node_id) => Step::Detach(source.to(node_id)),
        None => Step::Hindered(Hindrance::NoNodeId),
    }
}

fn recorded_node_id(attachment: &VolumeAttachment) -> Option<&str> {
    let recorded = attachment.metadata.annotation(ATTACHMENT_NODE_ID);
    recorded.filter(|id| !id.is_empty())
}

/// What is to be attached or detached.
struct Source<'a> {
    volume: Option<&'a Volume>,
    spec: &'a VolumeSpec,
    csi: &'a CsiSource,
    of_plugin: bool,
}

impl<'a> Source<'a> {
    fn to(self, node_id: &'a str) -> Way<'a> {
        let Self {
            volume,
            spec,
            csi,
            of_plugin,
        } = self;
        Way {
            volume,
            spec,
            csi,
            node_id,
            of_plugin,
        }
    }
}

fn source<'a>(view: &View<'a>) -> Result<Source<'a>, Hindrance> {
    let named = &view.attachment.spec.source;
    let (volume, spec) = match &named.inline_volume_spec {
        Some(spec) => (None, &**spec),
        None if view.attachment.volume_name().is_empty() => return Err(Hindrance::NoVolumeNamed),
        None => {
            let volume = view.volume.ok_or(Hindrance::NoVolume)?;
            (Some(volume), &volume.spec)
        }
    };
    let csi = spec.csi.as_ref().filter(|c| c.driver == view.driver);
    let csi = csi.ok_or(Hindrance::AnotherDriver)?;
    Ok(Source {
        volume,
        spec,
        csi,
        // Only what was a plugin's is attached without an object of its own.
        of_plugin: view.of_plugin || volume.is_none(),
    })
}

#[cfg(test)]
mod tests;
