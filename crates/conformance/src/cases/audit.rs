//! What must hold for every answer of the run, and for the host after it. Runs last.

use crate::case::{Case, Need, Outcome, ensure};
use crate::observed::Clause;
use crate::spec;
use crate::trial::Trial;

fn kept(t: &Trial, clause: Clause) -> Outcome {
    let remarks = t.bench().observed.remarks(clause);
    ensure!(remarks.is_empty(), "{}", remarks.join("; "));
    Ok(())
}

fn always(id: &'static str, spec: &'static str, title: &'static str, clause: Clause) -> Case {
    Case::must(
        format!("audit.{id}"),
        spec,
        title,
        &[],
        move |t| async move { kept(&t, clause) },
    )
}

pub(super) fn cases() -> Vec<Case> {
    vec![
        always(
            "messages_are_not_empty",
            spec::ERRORS,
            "every refusal says why",
            Clause::MessageNotEmpty,
        ),
        always(
            "details_are_empty",
            spec::ERRORS,
            "no refusal has details: the specification reserves them",
            Clause::DetailsEmpty,
        ),
        always(
            "no_crash_in_a_message",
            spec::ERRORS,
            "no message looks like a crash",
            Clause::NoPanic,
        ),
        Case::should(
            "audit.no_unknown_code",
            spec::ERRORS,
            "no refusal has the code UNKNOWN, which a caller can't act on",
            &[],
            |t| async move { kept(&t, Clause::CodeOfTheDriver) },
        ),
        always(
            "replies_can_be_read",
            spec::ERRORS,
            "every reply is a message of its type",
            Clause::ReadableReply,
        ),
        Case::must(
            "audit.connection_stays",
            spec::ERRORS,
            "the driver never hung up, but for the restarts that were asked for",
            &[],
            |t| async move {
                if t.bench().settings.restart.is_some() {
                    return Err(crate::case::Trouble::Skip(
                        "the driver was restarted on purpose".into(),
                    ));
                }
                kept(&t, Clause::StaysConnected)
            },
        ),
        always(
            "volumes_are_valid",
            spec::CREATE_VOLUME,
            "every volume in a reply has an id within its bounds and no negative size",
            Clause::VolumeValid,
        ),
        always(
            "contexts_are_small",
            spec::NAME_RULES,
            "every volume_context and publish_context is at most 4 KiB",
            Clause::ContextValid,
        ),
        always(
            "topologies_are_valid",
            spec::CREATE_VOLUME,
            "every accessible_topology has keys and values in their form",
            Clause::TopologyValid,
        ),
        always(
            "snapshots_are_valid",
            spec::CREATE_SNAPSHOT,
            "every snapshot in a reply has its required fields",
            Clause::SnapshotValid,
        ),
        always(
            "groups_are_valid",
            spec::CREATE_GROUP,
            "every group in a reply has its required fields, and its members name it",
            Clause::GroupValid,
        ),
        always(
            "usage_is_valid",
            spec::STATS,
            "every usage has a unit and no negative figure",
            Clause::UsageValid,
        ),
        Case::must(
            "audit.nothing_is_left",
            spec::LIST_VOLUMES,
            "no volume of this run is still listed",
            &[Need::Controller(
                orlop_csi::client::ControllerCapability::ListVolumes,
            )],
            |t| async move {
                let listed = super::volumes_listed(&t).await?;
                let made = t.bench().made();
                let left: Vec<_> = listed
                    .into_iter()
                    .map(|volume| volume.volume_id)
                    .filter(|id| made.contains(id))
                    .collect();
                ensure!(
                    left.is_empty(),
                    "these volumes were made by this run and deleted, but are still listed: {}",
                    left.join(", ")
                );
                Ok(())
            },
        ),
        Case::must(
            "audit.no_more_volumes_than_before",
            spec::LIST_VOLUMES,
            "the list is as long as before the run, and holds the same",
            &[Need::Controller(
                orlop_csi::client::ControllerCapability::ListVolumes,
            )],
            |t| async move {
                let now: std::collections::BTreeSet<_> = super::volumes_listed(&t)
                    .await?
                    .into_iter()
                    .map(|volume| volume.volume_id)
                    .collect();
                let new: Vec<_> = now.difference(&t.bench().volumes_before).cloned().collect();
                if !new.is_empty() {
                    t.warn(format!("volumes that were not there before the run are listed; if nobody else uses the driver it leaks them: {}", new.join(", ")));
                }
                Ok(())
            },
        ),
        Case::must(
            "audit.no_mount_is_left",
            spec::UNPUBLISH,
            "no mount is left in the run's folders",
            &[],
            |t| async move {
                let table = orlop_host::MountTable::read()
                    .map_err(crate::make::io("could not read the mount table"))?;
                let left: Vec<_> = table
                    .iter()
                    .filter(|mount| t.bench().folder.holds(&mount.point))
                    .map(|mount| mount.point.display().to_string())
                    .collect();
                ensure!(
                    left.is_empty(),
                    "these are still mounted: {}",
                    left.join(", ")
                );
                Ok(())
            },
        ),
    ]
}
