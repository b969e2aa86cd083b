//! A driver that is killed while it cuts, copies and removes.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use super::groups::members;
use super::*;

const AT: &str = "ORLOP_TEST_WORK_AT";
const PATIENCE: Duration = Duration::from_secs(60);

impl Bed {
    /// A driver over what another process' bed has.
    fn over(directory: &Path) -> Self {
        Self::at(TempDir::with_prefix_in("over-", directory).unwrap(), None)
    }
}

/// Not a test by itself: the process that the next one kills.
#[tokio::test]
async fn works_until_killed_if_told_to() {
    let Ok(at) = std::env::var(AT) else { return };
    let (directory, volumes) = at.split_once('|').unwrap();
    let (one, two) = volumes.split_once('|').unwrap();
    let pool = |node: &str| {
        let path = Path::new(directory).join(format!("pool-{node}"));
        (NodeName::from(node), path)
    };
    let driver = LocalDriver::open(LocalConfig::new(BTreeMap::from([pool("one"), pool("two")])));
    let mut bed = Bed::over(Path::new(directory));
    bed.driver = Some(driver.unwrap());
    println!("\nworking");
    for round in 0.. {
        let snapshot = bed.snapshot(&format!("s{round}"), one).await.unwrap();
        let copy = bed
            .restore(&format!("c{round}"), &snapshot.snapshot_id)
            .await;
        let group = bed.group(&format!("g{round}"), &[one, two]).await.unwrap();
        bed.delete_snapshot(&snapshot.snapshot_id).await.unwrap();
        bed.delete_group(&group.group_snapshot_id, &members(&group))
            .await
            .unwrap();
        bed.delete(&copy).await.unwrap();
    }
}

#[tokio::test]
async fn a_driver_killed_at_any_moment_leaves_nothing_half_and_nothing_frozen() {
    let Some(mut bed) = Bed::on("xfs") else {
        return;
    };
    let (one, two) = (
        bed.volume("one", 64 * MIB).await,
        bed.volume("two", 64 * MIB).await,
    );
    for id in [&one, &two] {
        bed.stage(id, files("ext4")).await.unwrap();
        fs::write(bed.staged(id).join("f"), "kept").unwrap();
    }
    for round in 0..12u64 {
        bed.driver = None;
        let at = format!("{}|{one}|{two}", bed.path("").display());
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["works_until_killed_if_told_to", "--nocapture"])
            .env(AT, at)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let began = lines.map_while(Result::ok).any(|line| line == "working");
        // Another moment of its work each time.
        std::thread::sleep(Duration::from_millis(7 + round * 13));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(began);

        bed.restart();
        for part in ["unfinished", "doomed", "frozen"] {
            for pool in ["pool-one", "pool-two"] {
                let left: Vec<_> = fs::read_dir(bed.path(pool).join(part)).unwrap().collect();
                assert!(left.is_empty(), "round {round}: {left:?}");
            }
        }
        writable(bed.staged(&one).join("f"));
        writable(bed.staged(&two).join("f"));
        let (snapshots, _) = bed.list(|_| {}).await.unwrap();
        for (number, snapshot) in snapshots.iter().enumerate() {
            // Whatever is there is whole.
            let copy = bed.restore(&format!("r{round}-{number}"), snapshot).await;
            bed.stage(&copy, files("ext4")).await.unwrap();
            assert_eq!(read(bed.staged(&copy).join("f")), "kept");
            bed.unstage(&copy).await.unwrap();
            bed.delete(&copy).await.unwrap();
        }
        clear(&bed, &[&one, &two]).await;
    }
    for id in [&one, &two] {
        bed.unstage(id).await.unwrap();
        bed.delete(id).await.unwrap();
    }
    assert_eq!(bed.leftovers(), Vec::<String>::new());
}

/// Deletes everything but these volumes.
async fn clear(bed: &Bed, kept: &[&String]) {
    let (snapshots, _) = bed.list(|_| {}).await.unwrap();
    let mut groups = BTreeMap::<String, Vec<String>>::new();
    for id in snapshots {
        let snapshot = bed.pools().snapshots().find(&id).unwrap();
        match snapshot.record.group {
            None => bed.delete_snapshot(&id).await.unwrap(),
            Some(membership) => groups.entry(membership.group.into()).or_default().push(id),
        }
    }
    for (group, members) in groups {
        assert_eq!(members.len(), 2, "a group is whole");
        bed.delete_group(&group, &members).await.unwrap();
    }
    let (volumes, _) = bed.pools().page(0, usize::MAX);
    for volume in volumes {
        let id = volume.record.id.as_str().to_owned();
        if !kept.contains(&&id) {
            bed.delete(&id).await.unwrap();
        }
    }
}

/// Fails, rather than waits for ever, if the file system is frozen.
fn writable(path: PathBuf) {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        fs::write(path, "kept").unwrap();
        let _ = sender.send(());
    });
    receiver.recv_timeout(PATIENCE).unwrap();
}

#[tokio::test]
async fn what_was_left_frozen_thaws_at_start() {
    let Some(mut bed) = Bed::on("xfs") else {
        return;
    };
    let id = bed.volume("data", 64 * MIB).await;
    bed.stage(&id, files("ext4")).await.unwrap();
    // As if the keeper had been killed with its driver.
    fs::write(bed.path("pool-one/frozen").join(&id), "").unwrap();
    let frozen = Command::new("/usr/sbin/fsfreeze")
        .arg("-f")
        .arg(bed.staged(&id))
        .status();
    assert!(frozen.unwrap().success());
    bed.restart();
    writable(bed.staged(&id).join("f"));
    assert!(!bed.path("pool-one/frozen").join(&id).exists());
}

#[tokio::test]
async fn a_volume_that_somebody_else_froze_is_not_cut_and_not_thawed() {
    let Some(bed) = Bed::on("xfs") else { return };
    let id = bed.volume("data", 64 * MIB).await;
    bed.stage(&id, files("ext4")).await.unwrap();
    let fsfreeze = |how: &str| {
        let status = Command::new("/usr/sbin/fsfreeze")
            .arg(how)
            .arg(bed.staged(&id))
            .status();
        status.unwrap().success()
    };
    assert!(fsfreeze("-f"));
    let refused = bed.snapshot("s", &id).await.unwrap_err();
    assert_eq!(refused, Code::FailedPrecondition);
    assert!(fsfreeze("-u"), "it was thawed by us");
    bed.snapshot("s", &id).await.unwrap();
}
