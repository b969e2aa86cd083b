//! Volumes that are copies of snapshots and of other volumes.

use std::os::unix::fs::FileExt as _;

use super::snapshots::{POOLS, from_snapshot, shown};
use super::*;

fn from_volume(name: &str, source: &str) -> proto::CreateVolumeRequest {
    use proto::volume_content_source::{Type, VolumeSource};
    let source = Type::Volume(VolumeSource {
        volume_id: source.to_owned(),
    });
    proto::CreateVolumeRequest {
        volume_content_source: Some(proto::VolumeContentSource {
            r#type: Some(source),
        }),
        ..from_snapshot(name, "")
    }
}

impl Bed {
    async fn create(&self, request: proto::CreateVolumeRequest) -> Result<proto::Volume, Code> {
        let reply = self.controller().create_volume(Request::new(request)).await;
        shown(reply).map(|reply| reply.volume.unwrap())
    }
}

#[tokio::test]
async fn a_copy_of_a_live_volume_is_mounted_beside_it_and_stays_apart() {
    for (pool, kind, size) in [
        ("xfs", "ext4", 64 * MIB),
        ("xfs", "xfs", 320 * MIB),
        ("xfs", "btrfs", 320 * MIB),
        ("ext4", "xfs", 320 * MIB),
    ] {
        let Some(bed) = Bed::on(pool) else { return };
        let request = proto::CreateVolumeRequest {
            volume_capabilities: vec![files(kind)],
            accessibility_requirements: Some(on(&["one"])),
            ..creation("data", size)
        };
        let id = bed.create(request).await.unwrap().volume_id;
        bed.stage(&id, files(kind)).await.unwrap();
        fs::write(bed.staged(&id).join("f"), "original").unwrap();
        // No file system is named: it is that of the source.
        let request = from_volume("copy", &id);
        let copy = bed.create(request.clone()).await.unwrap();
        assert_eq!(copy.capacity_bytes, size);
        assert_eq!(copy.content_source, request.volume_content_source);
        let copy_id = copy.volume_id.clone();
        bed.stage(&copy_id, files("")).await.unwrap();
        assert_eq!(
            read(bed.staged(&copy_id).join("f")),
            "original",
            "{pool} {kind}"
        );
        fs::write(bed.staged(&copy_id).join("f"), "changed").unwrap();
        assert_eq!(read(bed.staged(&id).join("f")), "original");
        assert_eq!(bed.create(request.clone()).await.unwrap(), copy);
        bed.unstage(&id).await.unwrap();
        bed.delete(&id).await.unwrap();
        // The source is gone, the answer is the same.
        assert_eq!(bed.create(request).await.unwrap(), copy);
        bed.unstage(&copy_id).await.unwrap();
        bed.stage(&copy_id, files(kind)).await.unwrap();
        assert_eq!(read(bed.staged(&copy_id).join("f")), "changed");
        bed.unstage(&copy_id).await.unwrap();
        bed.delete(&copy_id).await.unwrap();
        assert_eq!(bed.leftovers(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_larger_copy_has_a_larger_file_system() {
    for (kind, size) in [("ext4", 64 * MIB), ("xfs", 320 * MIB), ("btrfs", 320 * MIB)] {
        let Some(bed) = Bed::on("xfs") else { return };
        let request = proto::CreateVolumeRequest {
            volume_capabilities: vec![files(kind)],
            accessibility_requirements: Some(on(&["one"])),
            ..creation("data", size)
        };
        let id = bed.create(request).await.unwrap().volume_id;
        bed.stage(&id, files(kind)).await.unwrap();
        fs::write(bed.staged(&id).join("f"), "original").unwrap();
        let snapshot = bed.snapshot("s", &id).await.unwrap().snapshot_id;
        let request = proto::CreateVolumeRequest {
            capacity_range: Some(proto::CapacityRange {
                required_bytes: 4 * size,
                limit_bytes: 0,
            }),
            ..from_snapshot("larger", &snapshot)
        };
        let larger = bed.create(request).await.unwrap();
        assert_eq!(larger.capacity_bytes, 4 * size);
        bed.stage(&larger.volume_id, files(kind)).await.unwrap();
        let staged = bed.staged(&larger.volume_id);
        let usage = orlop_host::filesystem::usage(&staged).unwrap();
        let expected = u64::try_from(3 * size).unwrap();
        assert!(usage.total_bytes > expected, "{kind}: {usage:?}");
        assert_eq!(read(staged.join("f")), "original");
        // Beside its source, which is mounted too.
        assert_eq!(read(bed.staged(&id).join("f")), "original");
        bed.unstage(&larger.volume_id).await.unwrap();
        bed.stage(&larger.volume_id, files(kind)).await.unwrap();
        assert_eq!(read(staged.join("f")), "original");
    }
}

#[tokio::test]
async fn a_copy_that_cannot_be_is_refused_for_the_right_reason() {
    if !is_root() {
        return;
    }
    let bed = Bed::new();
    let id = bed.volume("data", 64 * MIB).await;
    bed.stage(&id, files("ext4")).await.unwrap();
    bed.unstage(&id).await.unwrap();
    let snapshot = bed.snapshot("s", &id).await.unwrap().snapshot_id;
    let small = proto::CapacityRange {
        required_bytes: 0,
        limit_bytes: 32 * MIB,
    };
    for request in [from_snapshot("a", &snapshot), from_volume("a", &id)] {
        let with = |change: fn(&mut proto::CreateVolumeRequest)| {
            let mut request = request.clone();
            change(&mut request);
            request
        };
        let mut too_small = request.clone();
        too_small.capacity_range = Some(small);
        let cases = [
            (too_small, Code::OutOfRange),
            (
                with(|it| it.volume_capabilities = vec![block()]),
                Code::InvalidArgument,
            ),
            (
                with(|it| it.volume_capabilities = vec![files("xfs")]),
                Code::InvalidArgument,
            ),
            (
                with(|it| {
                    let source = proto::VolumeContentSource { r#type: None };
                    it.volume_content_source = Some(source);
                }),
                Code::InvalidArgument,
            ),
            (from_snapshot("a", ""), Code::InvalidArgument),
            (from_volume("a", ""), Code::InvalidArgument),
            (from_snapshot("a", "nothing"), Code::NotFound),
            (from_volume("a", "nothing"), Code::NotFound),
        ];
        for (index, (request, expected)) in cases.into_iter().enumerate() {
            let refused = bed.create(request).await.unwrap_err();
            assert_eq!(refused, expected, "case {index}");
        }
        assert!(
            bed.path("pool-one/unfinished")
                .read_dir()
                .unwrap()
                .next()
                .is_none()
        );
    }
    // The name is taken by a volume from elsewhere.
    bed.create(from_snapshot("b", &snapshot)).await.unwrap();
    for request in [from_volume("b", &id), creation("b", 64 * MIB)] {
        assert_eq!(bed.create(request).await.unwrap_err(), Code::AlreadyExists);
    }
}

#[tokio::test]
async fn what_was_written_to_a_device_becomes_files_only_if_it_is_files() {
    if !is_root() {
        return;
    }
    let bed = Bed::new();
    let id = bed.volume("raw", 64 * MIB).await;
    bed.stage(&id, block()).await.unwrap();
    bed.unstage(&id).await.unwrap();
    let image = bed
        .path("pool-one/volumes")
        .join(&id)
        .join(format!("{id}.img"));
    let image = fs::File::options().write(true).open(image).unwrap();
    image.write_all_at(&[7; 4096], 0).unwrap();
    let mut request = from_volume("copy", &id);
    assert_eq!(
        bed.create(request.clone()).await.unwrap_err(),
        Code::InvalidArgument
    );
    request.volume_capabilities = vec![block()];
    bed.create(request).await.unwrap();
}

#[tokio::test]
async fn a_volume_that_was_never_used_can_be_copied_too() {
    for pool in POOLS {
        let Some(bed) = Bed::on(pool) else { return };
        let id = bed.volume("data", 64 * MIB).await;
        let snapshot = bed.snapshot("s", &id).await.unwrap().snapshot_id;
        let copy = bed.restore("copy", &snapshot).await;
        bed.stage(&copy, files("ext4")).await.unwrap();
        fs::write(bed.staged(&copy).join("f"), "x").unwrap();
        bed.unstage(&copy).await.unwrap();
    }
}

#[tokio::test]
async fn a_thick_copy_has_its_own_blocks() {
    let Some(bed) = Bed::on("xfs") else { return };
    let id = bed.volume("data", 64 * MIB).await;
    bed.stage(&id, files("ext4")).await.unwrap();
    fs::write(bed.staged(&id).join("f"), "original").unwrap();
    let snapshot = bed.snapshot("s", &id).await.unwrap().snapshot_id;
    let mut request = from_snapshot("thick", &snapshot);
    request
        .parameters
        .insert("allocation".to_owned(), "thick".to_owned());
    let copy = bed.create(request).await.unwrap().volume_id;
    let image = bed
        .path("pool-one/volumes")
        .join(&copy)
        .join(format!("{copy}.img"));
    let image = fs::File::open(image).unwrap();
    let extents: Vec<_> = orlop_host::extents::Extents::of(&image, 0)
        .map(Result::unwrap)
        .collect();
    assert!(extents.iter().all(|extent| !extent.shared));
    let bytes: u64 = extents.iter().map(|extent| extent.length).sum();
    assert_eq!(i64::try_from(bytes).unwrap(), 64 * MIB);
    bed.stage(&copy, files("ext4")).await.unwrap();
    assert_eq!(read(bed.staged(&copy).join("f")), "original");
}
