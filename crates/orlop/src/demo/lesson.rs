//! What each step means, for somebody who has only read about CSI.

use orlop_csi::Method;

use crate::life::{Answer, Step};

/// The explanation of a step, told the first time that it happens.
pub(super) fn of(step: Step) -> Option<&'static str> {
    Some(match step {
        Step::ClaimCreated => {
            "A PersistentVolumeClaim asks for a size and a class, not for a disk. This class \
             waits for the first consumer: nothing is made before a pod needs it."
        }
        Step::NodeSelected => {
            "A pod wants the claim. The scheduler found a node that can hold the volume and \
             wrote the node's name on the claim."
        }
        Step::Call(Method::CreateVolume, Answer::Ok) => {
            "The provisioner called the driver, by gRPC on a unix socket. The local driver made \
             an image file in that node's pool. The call is idempotent: its name is the claim's uid."
        }
        Step::VolumeCreated => {
            "The provisioner recorded the driver's volume as a PersistentVolume, with the node \
             that it can be reached from."
        }
        Step::Bound => {
            "The binder tied claim and volume to each other. From here on nobody else can have it."
        }
        Step::PodPlaced => "The claim is bound, so the scheduler placed the pod.",
        Step::AttachmentWanted => {
            "The attach-detach controller saw a pod on a node and a volume that isn't there yet: \
             a VolumeAttachment says what shall be."
        }
        Step::Call(Method::ControllerPublishVolume, Answer::Ok) => {
            "The attacher asked the driver to make the volume available to that node. A cloud \
             driver would now plug a disk into a machine; the local one takes a note."
        }
        Step::Attached => "The VolumeAttachment says so, and the node may go on.",
        Step::Call(Method::NodeStageVolume, Answer::Ok) => {
            "Once per node: the driver put a loop device on the image, made a file system on it \
             (only ever on an empty one) and mounted it."
        }
        Step::Call(Method::NodePublishVolume, Answer::Ok) => {
            "Once per pod: the driver bind-mounted the volume into the pod's own folder."
        }
        Step::PodRunning => {
            "The pod's process runs in its own mount namespace, with the volume at its mountPath."
        }
        Step::Call(Method::ControllerExpandVolume, Answer::Ok) => {
            "The resizer asked the driver for more room: the image file grew."
        }
        Step::Call(Method::NodeExpandVolume, Answer::Ok) => {
            "The file system grew too, mounted and in use."
        }
        Step::Resized => "The claim's status shows the new size.",
        Step::PodDeleting => "The process gets SIGTERM, then a grace period.",
        Step::Call(Method::NodeUnpublishVolume, Answer::Ok) => {
            "The process has ended; the bind mount is gone."
        }
        Step::Call(Method::NodeUnstageVolume, Answer::Ok) => {
            "No pod of this node uses the volume any more: unmounted, loop device free again."
        }
        Step::PodGone => {
            "Only now, with its processes ended and its mounts gone, does the pod leave the API server."
        }
        Step::Call(Method::ControllerUnpublishVolume, Answer::Ok) => {
            "The node reported that it no longer uses the volume; the driver takes it away."
        }
        Step::Detached => "The VolumeAttachment is gone.",
        Step::ClaimGone => {
            "A finalizer kept the claim as long as a pod used it. None does, so it may go."
        }
        Step::Released => {
            "The volume has lost its claim. Its reclaim policy says what becomes of the data."
        }
        Step::Call(Method::DeleteVolume, Answer::Ok) => {
            "Policy Delete, no claim, no attachment, each checked on the API server: the driver \
             deletes the image file."
        }
        Step::VolumeGone => "The PersistentVolume goes last, after the driver's volume.",
        Step::PodEnded
        | Step::ClaimDeleting
        | Step::VolumeAdded
        | Step::VolumeRemoved
        | Step::Call(..) => return None,
    })
}
