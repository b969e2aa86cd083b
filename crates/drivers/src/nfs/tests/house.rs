use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

use super::publishing::is_root;
use super::*;

/// The only record there is.
fn record(ground: &Ground) -> PathBuf {
    let volumes = ground.share().join(HOUSE).join("volumes");
    let folder = fs::read_dir(volumes).unwrap().next().unwrap().unwrap();
    let file = fs::read_dir(folder.path()).unwrap().next().unwrap();
    file.unwrap().path()
}

#[tokio::test]
async fn the_drivers_own_folder_is_its_own_again_when_it_was_opened_to_others() {
    if !is_root() {
        return;
    }
    let ground = Ground::new();
    let house = ground.share().join(HOUSE);
    let volume = ground.create("pvc-1", &[]).await.unwrap();
    for (uid, gid, mode) in [(0, 1000, 0o2770), (1000, 1000, 0o700), (0, 0, 0o777)] {
        chown(&house, Some(uid), Some(gid)).unwrap();
        fs::set_permissions(&house, fs::Permissions::from_mode(mode)).unwrap();
        ground.create("pvc-1", &[]).await.unwrap();
        let looks = fs::metadata(&house).unwrap();
        let found = (looks.uid(), looks.gid(), looks.mode() & 0o7777);
        assert_eq!(found, (0, 0, 0o700), "{uid} {gid} {mode:o}");
    }
    fs::set_permissions(&house, fs::Permissions::from_mode(0o777)).unwrap();
    ground.delete(&volume.volume_id).await.unwrap();
    assert_eq!(fs::metadata(&house).unwrap().mode() & 0o7777, 0o700);
}

#[tokio::test]
async fn what_lies_beside_a_record_keeps_no_volume_and_another_record_does() {
    let ground = Ground::new();
    let volume = ground.create("pvc-1", &[]).await.unwrap();
    let beside = record(&ground).with_file_name("core");
    fs::write(&beside, "x").unwrap();
    ground.delete(&volume.volume_id).await.unwrap();
    assert!(!ground.share().join("pvc-1").exists());
    // One that a crash cut short.
    let volume = ground.create("pvc-1", &[]).await.unwrap();
    fs::write(
        beside.with_file_name(format!("{}.json", "0".repeat(40))),
        "{",
    )
    .unwrap();
    ground.delete(&volume.volume_id).await.unwrap();
    assert!(ground.share().join("pvc-1").exists());
}

#[tokio::test]
async fn a_record_that_cannot_be_is_none() {
    let ground = Ground::new();
    let volume = ground.create("pvc-1", &[]).await.unwrap();
    let (file, size) = (record(&ground), (1_i64 << 30).to_string());
    let text = fs::read_to_string(&file).unwrap();
    for absurd in ["-5", "9223372036854775807"] {
        fs::write(&file, text.replace(&size, absurd)).unwrap();
        assert_eq!(ground.create("pvc-1", &[]).await.unwrap(), volume);
    }
    fs::write(&file, text.replace("pvc-1", "pvc-2")).unwrap();
    assert_eq!(ground.create("pvc-1", &[]).await.unwrap(), volume);
}
