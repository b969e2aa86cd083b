use super::export::Export;
use super::*;

/// A wish with a mount option.
fn by(option: &str, name: &str, share: &str) -> proto::CreateVolumeRequest {
    let mut request = wish(name);
    request.parameters.insert("share".into(), share.into());
    request.volume_capabilities[0].access_type = Some(AccessType::Mount(MountVolume {
        mount_flags: vec![option.to_owned()],
        ..Default::default()
    }));
    request
}

#[tokio::test]
async fn the_options_of_a_call_that_failed_are_nobody_elses() {
    let ground = Ground::new();
    let controller = ground.controller();
    let create = |request| controller.create_volume(Request::new(request));
    let port = |share: &str| {
        let export = Export::parse("nfs.example", share).unwrap();
        let plan = ground.shared.options.of(&export);
        plan.value("port").map(str::to_owned)
    };
    create(by("port=1", "pvc-1", "/missing")).await.unwrap_err();
    assert_eq!(port("/missing"), None);
    let made = create(by("port=2", "pvc-1", "/share")).await.unwrap();
    let volume_id = made.into_inner().volume.unwrap().volume_id;
    let mut larger = by("port=3", "pvc-1", "/share");
    larger.capacity_range = Some(proto::CapacityRange {
        required_bytes: 1 << 40,
        limit_bytes: 0,
    });
    create(larger).await.unwrap_err();
    assert_eq!(port("/share").as_deref(), Some("2"));
    // A copy in another share doesn't tell how its source's is mounted.
    let mut copy = by("port=4", "pvc-2", "/other");
    copy.volume_content_source = Some(proto::VolumeContentSource {
        r#type: Some(Source::Volume(VolumeSource { volume_id })),
    });
    create(copy).await.unwrap();
    assert_eq!(port("/share").as_deref(), Some("2"));
    assert_eq!(port("/other").as_deref(), Some("4"));
}
