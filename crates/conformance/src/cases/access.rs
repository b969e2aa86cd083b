//! Access modes: where a volume may be, and how often.

use orlop_csi::proto;
use proto::volume_capability::access_mode::Mode;
use tonic::Code;

use super::{CREATE, MODES};
use crate::case::{Case, Outcome, Trouble, ensure};
use crate::make::Placed;
use crate::spec;
use crate::trial::Trial;

/// What a second path on the node gets, by the table of NodePublishVolume.
#[derive(Clone, Copy, PartialEq)]
enum Second {
    Allowed,
    Refused,
    /// Older modes, where the table says no but the text lets drivers be generous.
    RefusedOrAllowed,
}

fn second(mode: Mode) -> Second {
    match mode {
        Mode::SingleNodeSingleWriter => Second::Refused,
        Mode::SingleNodeWriter | Mode::SingleNodeReaderOnly | Mode::Unknown => {
            Second::RefusedOrAllowed
        }
        Mode::MultiNodeReaderOnly
        | Mode::MultiNodeSingleWriter
        | Mode::MultiNodeMultiWriter
        | Mode::SingleNodeMultiWriter => Second::Allowed,
    }
}

fn reads_only(mode: Mode) -> bool {
    matches!(mode, Mode::SingleNodeReaderOnly | Mode::MultiNodeReaderOnly)
}

/// A volume of the mode at one path, or a skip for a driver that has no such mode.
async fn placed(t: &Trial, mode: Mode) -> Result<Placed, Trouble> {
    let (volume, capability) = t.volume_for("v", mode).await?;
    t.staged(volume, capability).await
}

fn request(placed: &Placed, mode: Mode, target: &str) -> proto::NodePublishVolumeRequest {
    proto::NodePublishVolumeRequest {
        readonly: reads_only(mode),
        ..placed.publish_request(target)
    }
}

async fn first(t: &Trial, mode: Mode) -> Result<(Placed, String), Trouble> {
    let placed = placed(t, mode).await?;
    let target = t.target("one")?;
    t.call(request(&placed, mode, &target)).await.ok()?;
    Ok((placed, target))
}

pub(super) fn cases() -> Vec<Case> {
    let of = |(id, mode)| match reads_only(mode) {
        true => [of(id, mode), vec![reader(id, mode)]].concat(),
        false => of(id, mode),
    };
    MODES.into_iter().flat_map(of).collect()
}

/// A mode for readers means what it says, whatever the flag beside it.
fn reader(id: &'static str, mode: Mode) -> Case {
    let name = mode.as_str_name();
    Case::should(
        format!("access.{id}_refuses_writes"),
        spec::PUBLISH,
        format!(
            "a volume published for {name} without readonly can't be written, or isn't published"
        ),
        &[CREATE],
        move |t| async move {
            let placed = placed(&t, mode).await?;
            let target = t.target("one")?;
            let published = t.call(placed.publish_request(&target)).await.ok_or_any(
                &[Code::InvalidArgument, Code::FailedPrecondition],
                "the mode is for readers only, and readonly isn't set",
            )?;
            match published {
                Some(_) => {
                    let why = format!("the access mode is {name}");
                    super::read_only::refuses_writes_because(&why, &target).await
                }
                None => Ok(()),
            }
        },
    )
}

fn of(id: &'static str, mode: Mode) -> Vec<Case> {
    let name = mode.as_str_name();
    vec![
        Case::must(
            format!("access.{id}_works"),
            spec::PUBLISH,
            format!("a volume for {name} is published"),
            &[CREATE],
            move |t| async move { first(&t, mode).await.map(drop) },
        ),
        Case::must(
            format!("access.{id}_same_path"),
            spec::PUBLISH,
            format!("{name}: the same path and arguments again succeed"),
            &[CREATE],
            move |t| async move {
                let (placed, target) = first(&t, mode).await?;
                t.call(request(&placed, mode, &target))
                    .await
                    .ok_because("NodePublishVolume is idempotent")
                    .map(drop)
            },
        ),
        Case::must(
            format!("access.{id}_same_path_other_arguments"),
            spec::PUBLISH,
            format!("{name}: the same path with another readonly is ALREADY_EXISTS"),
            &[CREATE],
            move |t| async move {
                let (placed, target) = first(&t, mode).await?;
                let mut other = request(&placed, mode, &target);
                other.readonly = !other.readonly;
                let answer = t.call(other).await;
                if reads_only(mode) && answer.is_ok() {
                    // It reads only either way, so the two requests ask for the same.
                    return super::read_only::refuses_writes(&target).await;
                }
                answer.refused_with_any(
                    &other_arguments(mode),
                    "the volume is at this path with other arguments",
                )
            },
        ),
        Case::must(
            format!("access.{id}_other_path"),
            spec::PUBLISH,
            format!("{name}: a second path is answered by the table of NodePublishVolume"),
            &[CREATE],
            move |t| async move {
                let (placed, target) = first(&t, mode).await?;
                let other = t.target("two")?;
                let answer = t.call(request(&placed, mode, &other)).await;
                judge(&t, mode, &answer)?;
                if answer.is_ok() {
                    let shared = !reads_only(mode);
                    if shared {
                        crate::data::write(&target, 1).await?;
                        ensure!(
                            crate::data::holds(&other, 1).await?,
                            "what is written at one path of the volume is not seen at the other"
                        );
                    }
                    t.call(placed.unpublish_request(&other)).await.ok()?;
                    if shared {
                        ensure!(
                            crate::data::holds(&target, 1).await?,
                            "unpublishing one path of the volume took its data from the other"
                        );
                    }
                }
                Ok(())
            },
        ),
        Case::must(
            format!("access.{id}_other_path_other_arguments"),
            spec::PUBLISH,
            format!(
                "{name}: a second path with another readonly is answered by the table of NodePublishVolume"
            ),
            &[CREATE],
            move |t| async move {
                let (placed, _) = first(&t, mode).await?;
                let target = t.target("two")?;
                let mut other = request(&placed, mode, &target);
                if reads_only(mode) {
                    // Asking a reader-only volume for writing is refused for that reason alone.
                    return Ok(());
                }
                other.readonly = !other.readonly;
                let answer = t.call(other).await;
                judge(&t, mode, &answer)
            },
        ),
        Case::must(
            format!("access.{id}_path_is_free_again"),
            spec::PUBLISH,
            format!("{name}: once unpublished, the volume may go to another path"),
            &[CREATE],
            move |t| async move {
                let (placed, target) = first(&t, mode).await?;
                t.call(placed.unpublish_request(&target)).await.ok()?;
                let other = t.target("two")?;
                t.call(request(&placed, mode, &other))
                    .await
                    .ok_because("the volume is at no path")
                    .map(drop)
            },
        ),
    ]
}

/// A reader-only volume asked for writing is also simply invalid.
fn other_arguments(mode: Mode) -> Vec<Code> {
    if reads_only(mode) {
        vec![
            Code::AlreadyExists,
            Code::InvalidArgument,
            Code::FailedPrecondition,
        ]
    } else {
        vec![Code::AlreadyExists]
    }
}

fn judge(
    t: &Trial,
    mode: Mode,
    answer: &crate::answer::Answer<proto::NodePublishVolumeRequest>,
) -> Outcome {
    match (second(mode), answer.is_ok()) {
        (Second::Allowed, true) => Ok(()),
        (Second::Allowed, false) => Err(answer.against("this access mode allows several paths")),
        (Second::RefusedOrAllowed, true) => {
            if mode == Mode::SingleNodeWriter {
                // Kubernetes relies on it: ReadWriteOnce is per node, not per pod.
                return Ok(());
            }
            t.warn(format!(
                "{} is at a second path; the table of NodePublishVolume says FAILED_PRECONDITION",
                mode.as_str_name()
            ));
            Ok(())
        }
        (Second::Refused | Second::RefusedOrAllowed, _) => answer.refused(
            Code::FailedPrecondition,
            "the access mode allows one path on one node",
        ),
    }
}
