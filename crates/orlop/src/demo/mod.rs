//! `orlop demo`: one claim's whole life on a throw-away folder, every step shown.

mod lesson;
mod screen;

use crate::voice::say;
use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use orlop_model::{Claim, Key, Kind, Pod, Volume, VolumeAttachment};
use orlop_runtime::Preconditions;
use serde_json::{Value, json};
use tokio::{sync::mpsc, time::timeout};

use self::screen::Screen;
pub(crate) use self::screen::millis;
use crate::{
    cli,
    life::{Happening, Step},
    proof,
    up::{Admission, Options, System},
};

const NAMESPACE: &str = "default";
/// No single step may take longer; the demo's own part is to take under five seconds.
const PATIENCE: Duration = Duration::from_secs(20);
const GREETING: &str = "the orlop keeps the stores";

pub(crate) async fn run(args: cli::Demo) -> Result<()> {
    let folder = tempfile::Builder::new()
        .prefix("orlop-demo-")
        .tempdir()
        .context("could not make a temporary folder")?;
    let mut screen = Screen::new(args.brief);
    screen.chapter("1. The stack comes up: API server, controllers, scheduler, a node, a driver");
    let options = Options {
        data_dir: folder.path().to_owned(),
        listen: ([127, 0, 0, 1], 0).into(),
        nodes: 1,
        driver: None,
        cri: None,
        admission: Admission {
            service_accounts: true,
        },
    };
    let system = System::start(options, |name, what| {
        screen.say(&format!("{name:<12} {what}"))
    })
    .await?;
    let mut story = Story {
        news: system.chronicle.listen(),
        screen,
        calls: Vec::new(),
    };
    let told = story.tell(&system).await;
    // Whatever happened, the machine is left as it was found.
    let stopped = system.stop().await;
    let left = proof::leftovers(folder.path()).context("could not look for leftovers")?;
    told?;
    stopped?;
    story.close(&left, folder.path());
    ensure!(
        left.is_empty(),
        "the demo left something behind: {}",
        left.join(", ")
    );
    Ok(())
}

struct Story {
    news: mpsc::UnboundedReceiver<Happening>,
    screen: Screen,
    calls: Vec<Happening>,
}

impl Story {
    async fn tell(&mut self, system: &System) -> Result<()> {
        let cluster = &system.cluster;
        let claim = Key::namespaced(NAMESPACE, "data");

        self.screen
            .chapter("2. A user creates a claim, and a pod that writes into it");
        let started = Instant::now();
        cluster
            .create_json::<Claim>(&claim_named(&claim, "64Mi"))
            .await?;
        let write = format!("echo '{GREETING}' > /data/greeting && sync && exec sleep infinity");
        cluster
            .create_json::<Pod>(&pod_named("writer", &write))
            .await?;
        self.until(Step::PodRunning).await?;
        let to_running = started.elapsed();

        self.screen
            .chapter("3. The pod is deleted; the claim and its data stay");
        self.delete::<Pod>(system, "writer").await?;
        self.until(Step::Detached).await?;

        self.screen.chapter("4. Another pod finds the same data");
        let read = "cat /data/greeting && exec sleep infinity";
        cluster
            .create_json::<Pod>(&pod_named("reader", read))
            .await?;
        self.until(Step::PodRunning).await?;
        let said = system.first_line_of(NAMESPACE, "reader").await?;
        self.screen.proof(
            said == GREETING,
            &format!("the second pod read what the first one wrote: {said:?}"),
        );
        ensure!(said == GREETING, "the second pod read {said:?}");

        self.screen
            .chapter("5. Pod and claim are deleted, and everything is taken apart");
        self.delete::<Pod>(system, "reader").await?;
        self.delete::<Claim>(system, "data").await?;
        self.until(Step::VolumeGone).await?;

        self.screen.chapter("6. What is left of it");
        self.prove_gone::<Pod>(system, "pods").await?;
        self.prove_gone::<Claim>(system, "claims").await?;
        self.prove_gone::<Volume>(system, "volumes").await?;
        self.prove_gone::<VolumeAttachment>(system, "attachments")
            .await?;
        self.screen.say(&format!(
            "from the claim to the pod's running process: {}",
            millis(to_running)
        ));
        Ok(())
    }

    async fn delete<K: Kind>(&self, system: &System, name: &str) -> Result<()> {
        let key = Key::namespaced(NAMESPACE, name);
        Ok(system
            .cluster
            .delete::<K>(&key, &Preconditions::default())
            .await?)
    }

    /// Shows what happens until this step does.
    async fn until(&mut self, last: Step) -> Result<()> {
        loop {
            let next = timeout(PATIENCE, self.news.recv()).await.with_context(|| {
                format!(
                    "nothing happened for {} s; waiting for: {}",
                    PATIENCE.as_secs(),
                    last.words()
                )
            })?;
            let Some(happening) = next else {
                bail!("the stack has stopped")
            };
            self.screen.step(&happening);
            let step = happening.step;
            if matches!(step, Step::Call(..)) {
                self.calls.push(happening);
            }
            if step == last {
                return Ok(());
            }
        }
    }

    async fn prove_gone<K: Kind>(&self, system: &System, what: &str) -> Result<()> {
        let left = system.cluster.list::<K>(None).await?;
        self.screen.proof(
            left.is_empty(),
            &format!("{} {what} on the API server", left.len()),
        );
        ensure!(
            left.is_empty(),
            "{} {what} are left on the API server",
            left.len()
        );
        Ok(())
    }

    fn close(&self, left: &[String], folder: &Path) {
        self.screen.proof(
            left.is_empty(),
            &format!(
                "no mount, no loop device, no volume file below {}",
                folder.display()
            ),
        );
        for thing in left {
            self.screen.say(thing);
        }
        let in_driver: Duration = self.calls.iter().filter_map(|c| c.took).sum();
        self.screen.say(&format!(
            "{} calls to the driver took {} in all; the whole demo took {}",
            self.calls.len(),
            millis(in_driver),
            millis(self.screen.elapsed()),
        ));
        say(
            "\nTry it yourself: orlop up, then kubectl --kubeconfig <data-dir>/kubeconfig apply -f examples/",
        );
    }
}

fn claim_named(key: &Key, size: &str) -> Value {
    json!({
        "metadata": {"name": key.name, "namespace": key.namespace},
        "spec": {"accessModes": ["ReadWriteOnce"],
                 "resources": {"requests": {"storage": size}}},
    })
}

fn pod_named(name: &str, script: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "main", "image": "host", "command": ["sh", "-c", script],
                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
            }],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
        },
    })
}
