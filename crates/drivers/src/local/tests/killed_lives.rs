//! A driver that is killed in the midst of volumes' lives: the next one finishes or undoes them.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::*;

const AT: &str = "ORLOP_TEST_LIVES_AT";

/// What lives differ in: the name, and the class.
const CLASSES: [(&str, &[(&str, &str)]); 2] = [
    ("thin", &[]),
    (
        "thick",
        &[("allocation", "thick"), ("mkfsOptions", "-b 1024")],
    ),
];

/// A driver, and the kubelet's folder that its callers name paths in.
struct Lives {
    driver: LocalDriver,
    folder: PathBuf,
}

impl Lives {
    fn over(root: &Path) -> Self {
        let pools = BTreeMap::from([(NodeName::from("one"), root.join("pool-one"))]);
        let folder = root.join("kubelet-one");
        let mut config = LocalConfig::new(pools);
        config.reaches = BTreeMap::from([(NodeName::from("one"), Reach::below(&folder))]);
        let driver = LocalDriver::open(config).unwrap();
        Self { driver, folder }
    }

    fn node(&self) -> NodeService {
        self.driver.node(&NodeName::from("one"))
    }

    fn at(&self, name: &str) -> String {
        self.folder.join(name).to_str().unwrap().to_owned()
    }

    /// From nothing, or from whatever there is, to a volume that is used and has grown.
    async fn begin(&self, name: &str, class: &[(&str, &str)]) -> String {
        let request = proto::CreateVolumeRequest {
            parameters: map(class),
            ..creation(name, 64 * MIB)
        };
        let controller = self.driver.controller();
        let made = controller.create_volume(Request::new(request)).await;
        let id = made.unwrap().into_inner().volume.unwrap().volume_id;
        let request = proto::ControllerPublishVolumeRequest {
            volume_id: id.clone(),
            node_id: "one".to_owned(),
            volume_capability: Some(files("")),
            ..Default::default()
        };
        done(
            controller
                .controller_publish_volume(Request::new(request))
                .await,
        );
        let request = proto::NodeStageVolumeRequest {
            volume_id: id.clone(),
            staging_target_path: self.at(&format!("s-{name}")),
            volume_capability: Some(files("")),
            ..Default::default()
        };
        done(self.node().node_stage_volume(Request::new(request)).await);
        let request = proto::NodePublishVolumeRequest {
            volume_id: id.clone(),
            staging_target_path: self.at(&format!("s-{name}")),
            target_path: self.at(&format!("t-{name}")),
            volume_capability: Some(files("")),
            ..Default::default()
        };
        done(self.node().node_publish_volume(Request::new(request)).await);
        fs::write(self.folder.join(format!("t-{name}/f")), "written").unwrap();
        let request = proto::ControllerExpandVolumeRequest {
            volume_id: id.clone(),
            capacity_range: Some(proto::CapacityRange {
                required_bytes: 96 * MIB,
                limit_bytes: 0,
            }),
            ..Default::default()
        };
        done(
            controller
                .controller_expand_volume(Request::new(request))
                .await,
        );
        let request = proto::ControllerModifyVolumeRequest {
            volume_id: id.clone(),
            mutable_parameters: map(&[("allocation", "thick"), ("readAheadKiB", "64")]),
            ..Default::default()
        };
        done(
            controller
                .controller_modify_volume(Request::new(request))
                .await,
        );
        id
    }

    /// From whatever there is to nothing.
    async fn end(&self, name: &str) {
        let id = VolumeId::of_name(name).as_str().to_owned();
        let request = proto::NodeUnpublishVolumeRequest {
            volume_id: id.clone(),
            target_path: self.at(&format!("t-{name}")),
        };
        done(
            self.node()
                .node_unpublish_volume(Request::new(request))
                .await,
        );
        let request = proto::NodeUnstageVolumeRequest {
            volume_id: id.clone(),
            staging_target_path: self.at(&format!("s-{name}")),
        };
        done(self.node().node_unstage_volume(Request::new(request)).await);
        let controller = self.driver.controller();
        let request = proto::ControllerUnpublishVolumeRequest {
            volume_id: id.clone(),
            ..Default::default()
        };
        done(
            controller
                .controller_unpublish_volume(Request::new(request))
                .await,
        );
        let request = proto::DeleteVolumeRequest {
            volume_id: id,
            ..Default::default()
        };
        done(controller.delete_volume(Request::new(request)).await);
    }

    async fn begin_inline(&self) {
        let request = proto::NodePublishVolumeRequest {
            volume_id: inline_id(),
            target_path: self.at("inline"),
            volume_capability: Some(files("")),
            volume_context: map(&[("csi.storage.k8s.io/ephemeral", "true"), ("size", "64Mi")]),
            ..Default::default()
        };
        done(self.node().node_publish_volume(Request::new(request)).await);
    }

    async fn end_inline(&self) {
        let request = proto::NodeUnpublishVolumeRequest {
            volume_id: inline_id(),
            target_path: self.at("inline"),
        };
        done(
            self.node()
                .node_unpublish_volume(Request::new(request))
                .await,
        );
    }
}

fn inline_id() -> String {
    format!("csi-{}", "0b".repeat(32))
}

/// What is asked for is done, or was never there.
fn done<T>(reply: Result<Response<T>, Status>) {
    if let Err(status) = reply {
        assert_eq!(status.code(), Code::NotFound, "{status}");
    }
}

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

/// Not a test by itself: the process that the next one kills.
#[tokio::test]
async fn lives_until_killed_if_told_to() {
    let Ok(root) = std::env::var(AT) else { return };
    let lives = Lives::over(Path::new(&root));
    println!("\nliving");
    loop {
        for (name, class) in CLASSES {
            lives.begin(name, class).await;
            lives.begin_inline().await;
            lives.end(name).await;
            lives.end_inline().await;
        }
    }
}

#[tokio::test]
async fn lives_cut_short_by_a_kill_are_finished_or_undone_by_the_next_driver() {
    if !is_root() {
        return;
    }
    let mut bed = Bed::new();
    bed.driver = None;
    for round in 0..16u64 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["lives_until_killed_if_told_to", "--nocapture"])
            .env(AT, bed.path(""))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let began = lines.map_while(Result::ok).any(|line| line == "living");
        // Another moment of a life each time.
        std::thread::sleep(Duration::from_millis(5 + round * 17));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(began);

        let lives = Lives::over(&bed.path(""));
        // Every other time the calls are repeated first, and must find or finish what there is.
        if round % 2 == 0 {
            for (name, class) in CLASSES {
                lives.begin(name, class).await;
            }
            lives.begin_inline().await;
        }
        for (name, _) in CLASSES {
            lives.end(name).await;
        }
        lives.end_inline().await;
        let left = settled(|| leftovers(lives.driver.pools()).unwrap());
        assert_eq!(left, Vec::<String>::new(), "round {round}");
        let table = MountTable::read().unwrap();
        assert_eq!(table.beneath(&bed.path("")).count(), 0, "round {round}");
    }
}
