//! What a killed driver leaves, the next one picks up.

use super::*;
use crate::local::volume::{Content, NodeRecord};

/// The directory of a volume.
fn volume_directory(bed: &Bed, id: &str) -> PathBuf {
    bed.path("pool-one").join("volumes").join(id)
}

fn record(bed: &Bed, id: &str) -> serde_json::Value {
    serde_json::from_str(&read(volume_directory(bed, id).join("meta.json"))).unwrap()
}

#[tokio::test]
async fn a_driver_restarted_between_all_steps_finishes_the_life() {
    if !is_root() {
        return;
    }
    let mut bed = Bed::new();
    let id = bed.volume("data", 64 * MIB).await;
    bed.restart();
    assert_eq!(bed.volume("data", 64 * MIB).await, id);
    bed.attach(&id, "one", false).await.unwrap();
    bed.restart();
    bed.attach(&id, "one", false).await.unwrap();
    assert_eq!(bed.attach(&id, "one", true).await, Err(Code::AlreadyExists));
    bed.stage(&id, files("")).await.unwrap();
    bed.restart();
    bed.stage(&id, files("")).await.unwrap();
    bed.publish(&id, "a", files("").into()).await.unwrap();
    fs::write(PathBuf::from(bed.target("a")).join("f"), "kept").unwrap();
    bed.restart();
    bed.publish(&id, "a", files("").into()).await.unwrap();
    assert_eq!(read(PathBuf::from(bed.target("a")).join("f")), "kept");
    assert_eq!(
        bed.publish(&id, "b", files("").into()).await,
        Err(Code::FailedPrecondition)
    );
    assert_eq!(bed.delete(&id).await, Err(Code::FailedPrecondition));
    bed.restart();
    bed.unpublish(&id, "a").await.unwrap();
    bed.restart();
    bed.unpublish(&id, "a").await.unwrap();
    bed.unstage(&id).await.unwrap();
    bed.restart();
    bed.unstage(&id).await.unwrap();
    bed.detach(&id, "one").await.unwrap();
    bed.restart();
    bed.delete(&id).await.unwrap();
    bed.restart();
    bed.delete(&id).await.unwrap();
    assert_eq!(bed.leftovers(), Vec::<String>::new());
}

#[tokio::test]
async fn half_made_and_half_removed_volumes_go_at_start() {
    let mut bed = Bed::new();
    let id = bed.volume("data", 64 * MIB).await;
    let pool = bed.path("pool-one");
    for half in ["unfinished/x", "doomed/y"] {
        fs::create_dir_all(pool.join(half)).unwrap();
        fs::write(pool.join(half).join("meta.json"), "{").unwrap();
    }
    let unfinished = volume_directory(&bed, &id).join(".unfinished-something");
    fs::write(&unfinished, "half an image").unwrap();
    bed.restart();
    assert!(!unfinished.exists());
    assert_eq!(bed.leftovers().len(), 1, "{:?}", bed.leftovers());
    bed.delete(&id).await.unwrap();
    assert_eq!(bed.leftovers(), Vec::<String>::new());
}

#[tokio::test]
async fn a_mkfs_cut_short_is_done_again() {
    if !is_root() {
        return;
    }
    let mut bed = Bed::new();
    let id = bed.volume("data", 64 * MIB).await;
    // Killed after the image was replaced and before the record said so, and the image is torn.
    let image = volume_directory(&bed, &id).join(format!("{id}.img"));
    orlop_host::filesystem::make(FsKind::Ext4, &image, &[]).unwrap();
    let torn = fs::OpenOptions::new().write(true).open(&image).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&torn, &[0xff; 65536], 8192).unwrap();
    bed.restart();
    bed.stage(&id, files("")).await.unwrap();
    fs::write(PathBuf::from(bed.staging(&id)).join("f"), "x").unwrap();
    assert_eq!(
        record(&bed, &id)["content"],
        serde_json::json!({"fileSystem": "ext4"})
    );
    bed.unstage(&id).await.unwrap();
}

#[tokio::test]
async fn a_volume_with_data_is_never_formatted() {
    if !is_root() {
        return;
    }
    let bed = Bed::new();
    let id = bed.volume("data", 512 * MIB).await;
    bed.stage(&id, files("ext4")).await.unwrap();
    bed.unstage(&id).await.unwrap();
    assert_eq!(
        bed.stage(&id, files("xfs")).await,
        Err(Code::FailedPrecondition)
    );
    assert_eq!(bed.stage(&id, block()).await, Err(Code::FailedPrecondition));
    // The superblock is gone: told, not papered over.
    let image = volume_directory(&bed, &id).join(format!("{id}.img"));
    let file = fs::OpenOptions::new().write(true).open(&image).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[0; 4096], 0).unwrap();
    assert_eq!(bed.stage(&id, files("ext4")).await, Err(Code::DataLoss));
    assert_eq!(bed.leftovers().len(), 1, "{:?}", bed.leftovers());
}

#[tokio::test]
async fn a_staging_meant_but_not_done_is_done_or_undone() {
    if !is_root() {
        return;
    }
    let mut bed = Bed::new();
    let id = bed.volume("data", 64 * MIB).await;
    bed.stage(&id, files("")).await.unwrap();
    bed.publish(&id, "a", files("").into()).await.unwrap();
    // As if killed before the mounts: the record says so, the kernel does not.
    for path in [bed.target("a"), bed.staging(&id)] {
        mount::unmount(&Place::at(Path::new(&path)).unwrap()).unwrap();
    }
    bed.restart();
    assert_eq!(
        bed.publish(&id, "a", files("").into()).await,
        Err(Code::FailedPrecondition)
    );
    bed.stage(&id, files("")).await.unwrap();
    bed.publish(&id, "a", files("").into()).await.unwrap();
    for path in [bed.target("a"), bed.staging(&id)] {
        mount::unmount(&Place::at(Path::new(&path)).unwrap()).unwrap();
    }
    bed.restart();
    bed.unpublish(&id, "a").await.unwrap();
    assert!(!Path::new(&bed.target("a")).exists());
    bed.unstage(&id).await.unwrap();
    bed.delete(&id).await.unwrap();
    assert_eq!(bed.leftovers(), Vec::<String>::new());
}

#[tokio::test]
async fn what_was_mounted_in_another_boot_is_forgotten() {
    if !is_root() {
        return;
    }
    let mut bed = Bed::new();
    let id = bed.volume("raw", 64 * MIB).await;
    bed.stage(&id, block()).await.unwrap();
    let path = volume_directory(&bed, &id).join("node.json");
    let mut record: NodeRecord = serde_json::from_str(&read(&path)).unwrap();
    record.boot = serde_json::from_str("\"another boot\"").unwrap();
    fs::write(&path, serde_json::to_vec(&record).unwrap()).unwrap();
    for device in loopdev::list().unwrap() {
        if device.backing_path.starts_with(bed.path("")) {
            LoopDevice::open(device.number)
                .unwrap()
                .unwrap()
                .detach()
                .unwrap();
        }
    }
    bed.restart();
    assert_eq!(
        bed.publish(&id, "a", block().into()).await,
        Err(Code::FailedPrecondition)
    );
    bed.delete(&id).await.unwrap();
    assert_eq!(bed.leftovers(), Vec::<String>::new());
}

#[tokio::test]
async fn a_promise_outlives_a_kill_before_the_image_grew() {
    if !is_root() {
        return;
    }
    let mut bed = Bed::new();
    let id = bed.volume("raw", 64 * MIB).await;
    let mut written = record(&bed, &id);
    written["capacityBytes"] = serde_json::json!(128 * MIB);
    let path = volume_directory(&bed, &id).join("meta.json");
    fs::write(path, serde_json::to_vec(&written).unwrap()).unwrap();
    bed.restart();
    bed.stage(&id, block()).await.unwrap();
    let image = volume_directory(&bed, &id).join(format!("{id}.img"));
    assert_eq!(fs::metadata(image).unwrap().len(), 128 << 20);
    bed.unstage(&id).await.unwrap();
}

#[tokio::test]
async fn a_damaged_record_harms_no_other_volume_and_nothing_is_lost() {
    let mut bed = Bed::new();
    let (bad, good) = (
        bed.volume("bad", 64 * MIB).await,
        bed.volume("good", 64 * MIB).await,
    );
    let path = volume_directory(&bed, &bad).join("meta.json");
    let sound = read(&path);
    fs::write(&path, "{ not json").unwrap();
    bed.restart();
    assert_eq!(bed.delete(&bad).await, Err(Code::DataLoss));
    assert_eq!(bed.stage(&bad, files("")).await, Err(Code::DataLoss));
    bed.delete(&good).await.unwrap();
    fs::write(&path, sound).unwrap();
    bed.restart();
    assert_eq!(bed.volume("bad", 64 * MIB).await, bad);
    bed.delete(&bad).await.unwrap();
}

#[test]
fn two_drivers_never_share_a_pool() {
    let bed = Bed::new();
    let error = LocalDriver::open(bed.config()).unwrap_err();
    assert!(
        matches!(error, StartError::Pool(OpenError::Locked { .. })),
        "{error}"
    );
}

#[test]
fn a_blank_volume_is_recorded_as_blank() {
    let text = serde_json::to_string(&Content::Blank).unwrap();
    assert_eq!(text, "\"blank\"");
}
