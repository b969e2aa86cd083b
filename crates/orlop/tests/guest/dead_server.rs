//! A server that is gone blocks nothing, and everything settles when it is back.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use tonic::Code;

use crate::client::{Driver, On, nfs_mounts, timed};
use crate::two_nodes::Node;
use crate::{in_guest, server};

/// Threads of ours that wait where no signal reaches them, and for what: the kernel's own words.
pub(crate) fn stuck() -> Vec<String> {
    waiting(&["orlop"])
}

/// The same of programs, and of the kernel's own threads, with these names.
pub(crate) fn waiting(names: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for process in fs::read_dir("/proc").unwrap().filter_map(Result::ok) {
        // The name that it was started by, which one has that is ending, too. Not its words: there may be an
        // "orlop" in the path of this very program.
        let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
        if !names.iter().any(|known| name.starts_with(known)) {
            continue;
        }
        let words = fs::read(process.path().join("cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words).replace('\0', " ");
        let threads = fs::read_dir(process.path().join("task"));
        for thread in threads.into_iter().flatten().filter_map(Result::ok) {
            let read = |file: &str| {
                let text = fs::read_to_string(thread.path().join(file));
                text.unwrap_or_default()
            };
            let state = read("status");
            let state = state.lines().find_map(|line| line.strip_prefix("State:"));
            if state.is_some_and(|state| state.trim_start().starts_with('D')) {
                let number = thread.file_name();
                let number = number.to_string_lossy();
                found.push(format!("{name}{number} {words}\n{}", read("stack")));
            }
        }
    }
    found
}

#[tokio::test]
async fn calls_to_a_server_that_is_gone_end_in_time_and_work_when_it_is_back() {
    in_guest!();
    server::kernel();
    let node = Node::new("gone", 7);
    let driver = node
        .driver(&["--vol-stats-cache-expire-in-minutes=0"])
        .await;
    let on = On {
        server: &node.server(),
        share: "/data",
        options: "timeo=20,retrans=1",
    };
    let target = driver.folder.path().join("target");
    let volume = driver.create("pvc-gone", &on).await.unwrap();
    driver.publish(&volume, &on, &target).await.unwrap();
    fs::write(target.join("before"), "x").unwrap();
    node.cut();

    // A process of a pod, which waits for its server.
    let mut writer = Command::new("dd")
        .args(["if=/dev/zero", "bs=4096", "count=4", "conv=fsync"])
        .arg(format!("of={}", target.join("after").display()))
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();

    let begin = Instant::now();
    let short = Duration::from_secs(15);
    let refused = driver
        .create_from("pvc-late", &on, None, short)
        .await
        .unwrap_err();
    assert!(
        matches!(refused.code(), Code::DeadlineExceeded | Code::Unavailable),
        "{refused}"
    );
    assert!(refused.message().contains(&node.server()), "{refused}");
    assert!(refused.message().contains("/data"), "{refused}");
    let told = driver.stats(&volume, &target).await.unwrap();
    assert!(told.volume_condition.unwrap().abnormal);
    let elsewhere = driver.folder.path().join("elsewhere");
    let refused = driver
        .publish_within(&volume, &on, &elsewhere, short)
        .await
        .unwrap_err();
    assert!(refused.message().contains("/data"), "{refused}");
    assert!(
        begin.elapsed() < Duration::from_secs(75),
        "{:?}",
        begin.elapsed()
    );
    // The driver answers all the while.
    let probe = timed(
        orlop_csi::proto::NodeGetInfoRequest {},
        Duration::from_secs(5),
    );
    driver.node().node_get_info(probe).await.unwrap();

    node.mend();
    let begin = Instant::now();
    loop {
        if let Some(status) = writer.try_wait().unwrap() {
            assert!(status.success(), "the pod's write failed");
            break;
        }
        assert!(
            begin.elapsed() < Duration::from_secs(120),
            "the pod's write hangs"
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert_eq!(fs::read(target.join("after")).unwrap().len(), 4 * 4096);
    // What was refused can be repeated.
    let begin = Instant::now();
    let late = loop {
        match driver.create("pvc-late", &on).await {
            Ok(late) => break late,
            Err(status) => assert!(begin.elapsed() < Duration::from_secs(120), "{status}"),
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    };
    driver.unpublish(&volume, &target).await.unwrap();
    for id in [&volume.volume_id, &late.volume_id] {
        driver.delete(id, &on).await.unwrap();
    }
    assert_eq!(nfs_mounts(), Vec::<String>::new());
    // Workers that tidy up wait for the server for a moment, too.
    let begin = Instant::now();
    while !stuck().is_empty() {
        let waits = stuck().join("\n");
        assert!(begin.elapsed() < Duration::from_secs(60), "{waits}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test]
async fn a_volume_is_unpublished_though_its_server_is_gone() {
    in_guest!();
    server::kernel();
    let node = Node::new("left", 8);
    let driver = node.driver(&[]).await;
    let on = On {
        server: &node.server(),
        share: "/data",
        options: "timeo=20,retrans=1",
    };
    let target = driver.folder.path().join("target");
    let volume = driver.create("pvc-left", &on).await.unwrap();
    driver.publish(&volume, &on, &target).await.unwrap();
    node.cut();
    let begin = Instant::now();
    driver.unpublish(&volume, &target).await.unwrap();
    assert!(
        begin.elapsed() < Duration::from_secs(60),
        "{:?}",
        begin.elapsed()
    );
    assert!(!target.exists());
    node.mend();
    driver.delete(&volume.volume_id, &on).await.unwrap();
}

#[tokio::test]
async fn a_server_that_is_started_anew_loses_nothing() {
    in_guest!();
    server::kernel();
    let driver = Driver::start().await;
    let on = On {
        server: "127.0.0.1",
        share: "/data",
        options: "",
    };
    let target = driver.folder.path().join("target");
    let volume = driver.create("pvc-anew", &on).await.unwrap();
    driver.publish(&volume, &on, &target).await.unwrap();
    fs::write(target.join("file"), "before").unwrap();
    server::stop();
    let short = Duration::from_secs(10);
    let refused = driver
        .create_from("pvc-anew-2", &on, None, short)
        .await
        .unwrap_err();
    assert!(
        refused.message().contains("refuses connections"),
        "{refused}"
    );
    server::start();
    assert_eq!(fs::read_to_string(target.join("file")).unwrap(), "before");
    let second = driver.create("pvc-anew-2", &on).await.unwrap();
    driver.unpublish(&volume, &target).await.unwrap();
    for id in [&volume.volume_id, &second.volume_id] {
        driver.delete(id, &on).await.unwrap();
    }
}
