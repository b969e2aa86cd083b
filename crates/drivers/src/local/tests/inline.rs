//! Volumes that are written in a pod's own specification.

use super::*;

fn kubelet_id() -> String {
    format!("csi-{}", "5e".repeat(32))
}

async fn publish(bed: &Bed, target: &str, attributes: &[(&str, &str)]) -> Result<(), Code> {
    let mut volume_context: BTreeMap<String, String> = attributes
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect();
    volume_context.insert("csi.storage.k8s.io/ephemeral".into(), "true".into());
    volume_context.insert("csi.storage.k8s.io/pod.name".into(), "p".into());
    let request = proto::NodePublishVolumeRequest {
        volume_id: kubelet_id(),
        target_path: bed.target(target),
        volume_capability: Some(files("")),
        volume_context,
        ..Default::default()
    };
    code(
        bed.node("one")
            .node_publish_volume(Request::new(request))
            .await,
    )
}

#[tokio::test]
async fn an_inline_volume_lives_as_long_as_its_publication() {
    if !is_root() {
        return;
    }
    let mut bed = Bed::new();
    for _ in 0..2 {
        publish(&bed, "a", &[("size", "64Mi")]).await.unwrap();
    }
    let target = PathBuf::from(bed.target("a"));
    fs::write(target.join("f"), "scratch").unwrap();
    // Nobody else sees it, and it is there after a restart.
    let listed = bed
        .controller()
        .list_volumes(Request::new(proto::ListVolumesRequest::default()))
        .await
        .unwrap();
    assert_eq!(listed.into_inner().entries, []);
    bed.restart();
    publish(&bed, "a", &[("size", "64Mi")]).await.unwrap();
    assert_eq!(read(target.join("f")), "scratch");
    let request = proto::NodeGetVolumeStatsRequest {
        volume_id: kubelet_id(),
        volume_path: bed.target("a"),
        ..Default::default()
    };
    let stats = bed
        .node("one")
        .node_get_volume_stats(Request::new(request))
        .await
        .unwrap()
        .into_inner();
    assert!(stats.usage[0].total < 64 * MIB && stats.usage[0].total > 32 * MIB);
    bed.restart();
    for _ in 0..3 {
        bed.unpublish(&kubelet_id(), "a").await.unwrap();
    }
    assert!(!target.exists());
    assert_eq!(bed.leftovers(), Vec::<String>::new());
}

#[tokio::test]
async fn an_inline_volume_that_cannot_be_had_leaves_nothing() {
    if !is_root() {
        return;
    }
    let bed = Bed::new();
    let cases: [(&[(&str, &str)], Code); 5] = [
        (&[("size", "much")], Code::InvalidArgument),
        (&[("colour", "red")], Code::InvalidArgument),
        (&[("pool", "elsewhere")], Code::InvalidArgument),
        (&[("size", "9000Ti")], Code::ResourceExhausted),
        (&[("mkfsOptions", "-d /etc")], Code::InvalidArgument),
    ];
    for (attributes, expected) in cases {
        assert_eq!(publish(&bed, "a", attributes).await, Err(expected));
    }
    // Something else is where it should go.
    fs::write(bed.target("a"), "kept").unwrap();
    assert!(publish(&bed, "a", &[("size", "64Mi")]).await.is_err());
    assert_eq!(read(bed.target("a")), "kept");
    fs::remove_file(bed.target("a")).unwrap();
    assert_eq!(bed.leftovers(), Vec::<String>::new());
}

#[tokio::test]
async fn an_inline_volume_half_made_or_half_removed_is_finished() {
    if !is_root() {
        return;
    }
    let mut bed = Bed::new();
    publish(&bed, "a", &[("size", "64Mi")]).await.unwrap();
    // As if killed between the unmount and the removal.
    mount::unmount(&Place::at(Path::new(&bed.target("a"))).unwrap()).unwrap();
    bed.restart();
    publish(&bed, "a", &[("size", "64Mi")]).await.unwrap();
    mount::unmount(&Place::at(Path::new(&bed.target("a"))).unwrap()).unwrap();
    bed.restart();
    bed.unpublish(&kubelet_id(), "a").await.unwrap();
    assert_eq!(bed.leftovers(), Vec::<String>::new());
}
