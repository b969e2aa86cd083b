//! Claims with a class or a mode, and claims for which volumes are made.

use super::*;

pub(super) fn cases() -> Vec<Case> {
    vec![
        case(
            "13-1 and 13-3",
            |c| of_class(c, "gold"),
            &[
                ("one", FREE),
                ("silver", |v| v.spec.storage_class_name = "silver".into()),
                ("ten", |v| {
                    size(v, "10Gi");
                    v.spec.storage_class_name = "gold".into();
                }),
            ],
            Turn::Binds("ten", ALL),
        ),
        case(
            "13-2 and 13-4",
            PLAIN,
            &[
                ("one", |v| v.spec.storage_class_name = "gold".into()),
                ("ten", |v| size(v, "10Gi")),
            ],
            Turn::Binds("ten", ALL),
        ),
        case(
            "13-5",
            |c| c.spec.storage_class_name = None,
            &[("vol", FREE)],
            Turn::Binds("vol", ALL),
        ),
        case(
            "14-1",
            |c| c.spec.volume_mode = Some(VolumeMode::Block),
            &[("vol", |v| v.spec.volume_mode = Some(VolumeMode::Block))],
            Turn::Binds("vol", ALL),
        ),
        case(
            "14-2, and no mode means files",
            |c| c.spec.volume_mode = Some(VolumeMode::Filesystem),
            &[("vol", FREE)],
            Turn::Binds("vol", ALL),
        ),
        case(
            "14-3",
            |c| c.spec.volume_mode = Some(VolumeMode::Block),
            &[("vol", FREE)],
            nothing(),
        ),
        case(
            "14-4",
            PLAIN,
            &[("vol", |v| v.spec.volume_mode = Some(VolumeMode::Block))],
            nothing(),
        ),
        case(
            "14-5, 14-5-1 and 11-14: the class is missing",
            |c| of_class(c, "gold"),
            &[("vol", |v| {
                v.spec.storage_class_name = "gold".into();
                v.spec.volume_mode = Some(VolumeMode::Block);
            })],
            Turn::Waits("ProvisioningFailed", true),
        ),
        case(
            "14-7, 14-10 and 14-12",
            |c| c.spec.volume_mode = Some(VolumeMode::Block),
            &[("vol", |v| {
                reserve(v, "");
                v.spec.volume_mode = Some(VolumeMode::Block);
            })],
            Turn::Binds("vol", ALL),
        ),
        case(
            "14-8",
            |c| asks_for(c, "vol"),
            &[("vol", |v| v.spec.volume_mode = Some(VolumeMode::Block))],
            mismatch(),
        ),
        case(
            "14-8-1",
            PLAIN,
            &[("vol", |v| {
                reserve(v, "");
                v.spec.volume_mode = Some(VolumeMode::Block);
            })],
            nothing(),
        ),
        case(
            "a volume reserved by name that lacks an access mode",
            |c| c.spec.access_modes = vec![AccessMode::ReadWriteMany],
            &[("vol", |v| reserve(v, ""))],
            nothing(),
        ),
        case("11-15", PLAIN, &[], nothing()),
        case(
            "11-16",
            |c| c.spec.storage_class_name = None,
            &[],
            nothing(),
        ),
        Case {
            number: "11-17",
            claim: |c| of_class(c, "c"),
            volumes: &[],
            world: |v| v.class = shared(class("c", "Immediate")),
            turn: Turn::Waits("ExternalProvisioning", false),
        },
        Case {
            number: "11-2 and 11-18",
            claim: |c| of_class(c, "c"),
            volumes: &[],
            world: |v| {
                let mut class = class("c", "Immediate");
                class.provisioner = "kubernetes.io/unknown".into();
                v.class = shared(class);
            },
            turn: Turn::Waits("ProvisioningFailed", true),
        },
        Case {
            number: "11-6 and 11-22",
            claim: |c| of_class(c, "c"),
            volumes: &[("vol", |v| v.spec.storage_class_name = "c".into())],
            world: |v| v.class = shared(class("c", "Immediate")),
            turn: Turn::Binds("vol", ALL),
        },
        Case {
            number: "11-24",
            claim: |c| {
                of_class(c, "wait");
                let annotations = &mut c.metadata.annotations;
                annotations.insert(well_known::SELECTED_NODE.into(), "n1".into());
            },
            volumes: &[("vol", |v| v.spec.storage_class_name = "wait".into())],
            world: |v| v.class = shared(class("wait", "WaitForFirstConsumer")),
            turn: Turn::Waits("ExternalProvisioning", false),
        },
        case(
            "a claim that is deleted while it asks for a free volume",
            |c| {
                *c = deleting(c.clone());
                asks_for(c, "vol");
            },
            &[("vol", FREE)],
            Turn::Silent,
        ),
    ]
}
