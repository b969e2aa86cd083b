use super::*;

const DRIVER: &str = "d";
const FINALIZER: &str = "external-attacher/d";

fn attachment() -> VolumeAttachment {
    let mut attachment = VolumeAttachment::default();
    attachment.spec.attacher = DRIVER.into();
    attachment.spec.source.persistent_volume_name = Some("pv".into());
    attachment
}

fn with(mut a: VolumeAttachment, change: impl FnOnce(&mut VolumeAttachment)) -> VolumeAttachment {
    change(&mut a);
    a
}

fn recorded(a: VolumeAttachment, node_id: &str) -> VolumeAttachment {
    with(a, |a| {
        a.metadata.finalizers.push(FINALIZER.into());
        a.metadata
            .annotations
            .insert(ATTACHMENT_NODE_ID.into(), node_id.into());
    })
}

fn attached(a: VolumeAttachment) -> VolumeAttachment {
    with(a, |a| a.status.attached = true)
}

fn deleted(a: VolumeAttachment) -> VolumeAttachment {
    with(a, |a| {
        a.metadata.deletion_timestamp = Some(jiff::Timestamp::UNIX_EPOCH);
    })
}

fn volume() -> Volume {
    let mut volume = Volume::default();
    volume.spec.csi = Some(CsiSource {
        driver: DRIVER.into(),
        volume_handle: "h".into(),
        ..CsiSource::default()
    });
    volume
}

fn says(
    handling: Handling,
    attachment: &VolumeAttachment,
    volume: Option<&Volume>,
    node_id: Option<&str>,
) -> String {
    let view = View {
        driver: DRIVER,
        finalizer: FINALIZER,
        handling,
        attachment,
        volume,
        of_plugin: false,
        node_id,
        astray: false,
    };
    match decide(&view) {
        Step::Leave => "leave".into(),
        Step::MarkAttached => "mark".into(),
        Step::Release => "release".into(),
        Step::Attach(way, Intent::ToRecord) => format!("record, attach at {}", way.node_id),
        Step::Attach(way, Intent::OnRecord) => format!("attach at {}", way.node_id),
        Step::Detach(way) => format!("detach from {}", way.node_id),
        Step::Hindered(hindrance) => format!("{hindrance:?}"),
    }
}

fn real(attachment: &VolumeAttachment, node_id: Option<&str>) -> String {
    says(Handling::ByTheDriver, attachment, Some(&volume()), node_id)
}

#[test]
fn an_attachment_walks_from_record_to_attached_to_detached() {
    let id = Some("i1");
    let cases = [
        (attachment(), "record, attach at i1"),
        (recorded(attachment(), "i1"), "attach at i1"),
        // Registered anew under another id before anything was attached for sure.
        (recorded(attachment(), "i0"), "record, attach at i1"),
        (attached(recorded(attachment(), "i1")), "leave"),
        (
            deleted(attached(recorded(attachment(), "i1"))),
            "detach from i1",
        ),
        // The call may have had an effect that the status doesn't tell of.
        (deleted(recorded(attachment(), "i1")), "detach from i1"),
        // Where it was attached, not where the node is now.
        (deleted(recorded(attachment(), "i0")), "detach from i0"),
        (deleted(attachment()), "leave"),
        // No finalizer, yet the status says that it is attached.
        (deleted(attached(attachment())), "detach from i1"),
    ];
    for (attachment, expected) in cases {
        assert_eq!(real(&attachment, id), expected, "{attachment:#?}");
    }
}

#[test]
fn a_node_that_is_gone_can_be_detached_from_but_not_attached_to() {
    assert_eq!(real(&attachment(), None), "NoNodeId");
    assert_eq!(
        real(&deleted(recorded(attachment(), "i1")), None),
        "detach from i1"
    );
    assert_eq!(real(&deleted(attached(attachment())), None), "NoNodeId");
}

#[test]
fn what_is_in_the_way_is_named() {
    let real =
        |a: &VolumeAttachment, v: Option<&Volume>| says(Handling::ByTheDriver, a, v, Some("i1"));
    assert_eq!(real(&attachment(), None), "NoVolume");
    let inline = with(attachment(), |a| {
        a.spec.source.persistent_volume_name = None
    });
    assert_eq!(real(&inline, None), "NoVolumeNamed");
    let mut other = volume();
    other.spec.csi = None;
    assert_eq!(real(&attachment(), Some(&other)), "AnotherDriver");
    let mut doomed = volume();
    doomed.metadata.deletion_timestamp = Some(jiff::Timestamp::UNIX_EPOCH);
    assert_eq!(real(&attachment(), Some(&doomed)), "VolumeDeleted");
    let detaching = deleted(recorded(attachment(), "i1"));
    assert_eq!(real(&detaching, Some(&doomed)), "detach from i1");
}

#[test]
fn a_driver_that_does_not_attach_only_has_its_attachments_marked() {
    let named = |a: &VolumeAttachment| says(Handling::InNameOnly, a, None, None);
    assert_eq!(named(&attachment()), "mark");
    assert_eq!(named(&attached(attachment())), "leave");
    assert_eq!(named(&deleted(attached(attachment()))), "leave");
    assert_eq!(named(&deleted(recorded(attachment(), "i1"))), "release");
}

#[test]
fn another_drivers_attachment_is_left_alone() {
    let other = with(attachment(), |a| a.spec.attacher = "other".into());
    assert_eq!(real(&other, Some("i1")), "leave");
}

#[test]
fn what_the_drivers_list_misses_is_attached_again_but_never_detached() {
    let volume = volume();
    let look = |attachment: &VolumeAttachment| {
        let view = View {
            driver: DRIVER,
            finalizer: FINALIZER,
            handling: Handling::ByTheDriver,
            attachment,
            volume: Some(&volume),
            of_plugin: false,
            node_id: Some("i1"),
            astray: true,
        };
        format!("{:?}", decide(&view))
    };
    let again = look(&attached(recorded(attachment(), "i1")));
    assert!(
        again.starts_with("Attach(") && again.contains("OnRecord"),
        "{again}"
    );
    let going = look(&deleted(attached(recorded(attachment(), "i1"))));
    assert!(going.starts_with("Detach("), "{going}");
}

#[test]
fn a_pods_own_volume_is_attached_without_a_volume_object() {
    let inline = with(attachment(), |a| {
        a.spec.source.persistent_volume_name = None;
        a.spec.source.inline_volume_spec = Some(Box::new(volume().spec));
    });
    let view = |attachment: &VolumeAttachment, driver: &str| {
        let view = View {
            driver,
            finalizer: FINALIZER,
            handling: Handling::ByTheDriver,
            attachment,
            volume: None,
            of_plugin: false,
            node_id: Some("i1"),
            astray: false,
        };
        match decide(&view) {
            Step::Attach(way, _) | Step::Detach(way) => {
                assert!(way.volume.is_none());
                way.csi.volume_handle.clone()
            }
            other => format!("{other:?}"),
        }
    };
    assert_eq!(view(&inline, DRIVER), "h");
    let going = deleted(recorded(inline.clone(), "i1"));
    assert_eq!(view(&going, DRIVER), "h");
    let foreign = with(inline, |a| {
        let spec = a.spec.source.inline_volume_spec.as_mut().unwrap();
        spec.csi.as_mut().unwrap().driver = "other".into();
    });
    assert!(view(&foreign, DRIVER).contains("AnotherDriver"));
}
