//! Real scripts as drivers.

use std::os::unix::fs::PermissionsExt as _;

use super::*;

const WELL: &str = r#"
case $1 in
  init) echo '{"status":"Success"}' ;;
  attach) echo "{\"status\":\"Success\",\"device\":\"/dev/of-$3\"}" ;;
  detach) echo '{"status":"Success"}' ;;
  *) echo '{"status":"Not supported"}'; exit 1 ;;
esac
"#;

/// Knows nothing but its name.
const BARE: &str = r#"
case $1 in
  init) echo '{"status":"Success"}' ;;
  *) echo '{"status":"Not supported"}'; exit 1 ;;
esac
"#;

/// What can't be detached isn't attached.
const GONE: &str = r#"
case $1 in
  isattached) echo '{"status":"Success","attached":false}' ;;
  *) echo '{"status":"Failure","message":"no such disk"}'; exit 1 ;;
esac
"#;

struct Bench {
    root: tempfile::TempDir,
    drivers: Drivers,
}

impl Bench {
    fn new() -> Self {
        let root = tempfile::tempdir().expect("a folder");
        let (folder, calls) = (root.path().join("exec"), root.path().join("calls"));
        Self {
            root,
            drivers: Drivers::new(folder, calls, Duration::from_secs(20)),
        }
    }

    /// A driver as people are told to install it: under another name first.
    fn install(&self, body: &str) {
        let folder = self.root.path().join("exec/example.org~disk");
        std::fs::create_dir_all(&folder).expect("a folder");
        let said = self.root.path().join("said");
        let script = format!("#!/bin/sh\necho \"$*\" >> {}\n{body}", said.display());
        let hidden = folder.join(".new");
        std::fs::write(&hidden, script).expect("a script");
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&hidden, mode).expect("a mode");
        std::fs::rename(&hidden, folder.join("disk")).expect("in place");
    }

    /// What drivers were called with, since it was last asked.
    fn said(&self) -> Vec<String> {
        let path = self.root.path().join("said");
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let _it_may_not_be_there = std::fs::remove_file(path);
        text.lines().map(str::to_owned).collect()
    }

    async fn ability(&self) -> Result<Ability, Trouble> {
        self.drivers.ability("example.org/disk").await
    }
}

fn call(options: Option<&str>) -> Call {
    Call {
        driver: "example.org/disk".into(),
        volume: "data".into(),
        node: "n1".into(),
        options: options.map(str::to_owned),
    }
}

#[tokio::test]
async fn a_driver_is_called_as_the_original_calls_it() {
    let bench = Bench::new();
    bench.install(WELL);
    assert_eq!(bench.ability().await, Ok(Ability::Attaches));
    // It has said so.
    assert_eq!(bench.ability().await, Ok(Ability::Attaches));
    let told = Some(r#"{"size":"1G"}"#);
    let device = bench.drivers.attach(&call(told)).await;
    assert_eq!(device.as_deref(), Ok("/dev/of-n1"));
    assert_eq!(bench.drivers.detach(&call(None)).await, Ok(()));
    let expected = [
        "init",
        r#"getvolumename {"size":"1G"}"#,
        r#"attach {"size":"1G"} n1"#,
        "detach data n1",
    ];
    assert_eq!(bench.said(), expected);
}

#[tokio::test]
async fn what_a_driver_does_not_support_is_as_good_as_done() {
    let bench = Bench::new();
    bench.install(BARE);
    assert_eq!(bench.drivers.attach(&call(Some("{}"))).await, Ok("".into()));
    assert_eq!(bench.drivers.detach(&call(Some("{}"))).await, Ok(()));
    assert_eq!(
        bench.said().last().map(String::as_str),
        Some("detach data n1")
    );
}

#[tokio::test]
async fn what_is_not_attached_need_not_be_detached_if_the_driver_can_be_asked() {
    let bench = Bench::new();
    bench.install(GONE);
    assert_eq!(bench.drivers.detach(&call(Some("{}"))).await, Ok(()));
    assert_eq!(bench.said(), ["detach data n1", "isattached {} n1"]);
    let error = bench.drivers.detach(&call(None)).await;
    let words = "FlexVolume driver example.org/disk: detach command failed, status: Failure, \
                 reason: no such disk";
    assert_eq!(error, Err(Trouble::Failed(words.into())));
}

#[tokio::test]
async fn what_a_driver_can_do_is_asked_anew_when_another_takes_its_place() {
    let bench = Bench::new();
    let missing = bench.ability().await.expect_err("nobody is there");
    assert!(matches!(missing, Trouble::Missing(_)), "{missing:?}");
    let path = bench.root.path().join("exec/example.org~disk/disk");
    let words = format!("{} is missing", path.display());
    assert!(missing.to_string().ends_with(&words), "{missing}");
    bench.install(r#"echo '{"status":"Success","capabilities":{"attach":false}}'"#);
    assert_eq!(bench.ability().await, Ok(Ability::LeftToNodes));
    bench.install(WELL);
    assert_eq!(bench.ability().await, Ok(Ability::Attaches));
    bench.install("exit 1");
    let failed = bench.ability().await.expect_err("it says nothing");
    assert!(matches!(failed, Trouble::Failed(_)), "{failed:?}");
}

#[tokio::test]
async fn a_driver_that_comes_is_noticed() {
    let bench = Bench::new();
    let came = async {
        // What there is at the start, and the driver.
        bench.drivers.came().await;
        bench.install(WELL);
        while bench.ability().await.is_err() {
            bench.drivers.came().await;
        }
    };
    std::fs::create_dir_all(bench.root.path().join("exec")).expect("a folder");
    tokio::select! {
        () = bench.drivers.watch() => panic!("it watches for ever"),
        came = tokio::time::timeout(Duration::from_secs(20), came) => came.expect("noticed"),
    }
}

#[tokio::test]
async fn a_driver_that_hangs_is_killed_and_named() {
    let mut bench = Bench::new();
    bench.drivers.deadline = Duration::from_millis(300);
    bench.install("sleep 600");
    let error = bench.drivers.detach(&call(None)).await;
    let error = error.expect_err("it hangs").to_string();
    assert!(error.contains("detach command: "), "{error}");
    assert!(error.contains("was killed: it ran for 0.3 s"), "{error}");
    let left = bench.root.path().join("calls/example.org~disk/n1/data");
    assert!(!left.exists());
}

#[tokio::test]
async fn a_call_for_what_there_can_not_be_is_not_made() {
    let bench = Bench::new();
    bench.install(WELL);
    let wrong = [
        ("../..", "victim"),
        ("/tmp", "victim"),
        ("n1", ".."),
        ("n1", "../../victim"),
    ];
    for (node, volume) in wrong {
        let call = Call {
            node: node.into(),
            volume: volume.into(),
            ..call(Some("{}"))
        };
        let refused = bench.drivers.attach(&call).await;
        assert!(
            matches!(refused, Err(Trouble::Failed(_))),
            "{node} {volume}"
        );
        let refused = bench.drivers.detach(&call).await;
        assert!(
            matches!(refused, Err(Trouble::Failed(_))),
            "{node} {volume}"
        );
    }
    assert_eq!(bench.said(), [""; 0]);
    let calls = bench.root.path().join("calls");
    assert!(!calls.exists(), "nothing is on file");
}
