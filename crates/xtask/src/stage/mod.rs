//! The scenario library: a stage is one scenario's place in the cluster.
//!
//! It has a namespace, a folder, programs that it started, and eyes on the API server. Every wait
//! on it is bounded, and ends early when one of its programs dies. `scenarios/mock.rs` shows how
//! little a scenario is.

#![allow(
    dead_code,
    reason = "the library holds what the next scenario needs, not only what today's do"
)]

mod actors;
mod components;
mod identity;
mod kinds;
mod leftovers;
mod objects;
mod programs;
mod report;

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use kube::Client;
use serde_json::{Value, json};
use tokio::sync::watch;

pub(crate) use self::{
    actors::{claim, pod, reader, writer},
    kinds::*,
    objects::documents,
    programs::Program,
};
use crate::kube::{Authority, client, folder::Folder};

/// How long any one wait may take. Machines that run tests are often busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// One scenario's place in the cluster.
pub(crate) struct Stage {
    /// The scenario's name, with the number of the try after the first.
    name: String,
    cluster: Folder,
    client: Client,
    authority: Authority,
    /// Cluster-wide objects to delete at the end, in the order of their making.
    made: Mutex<Vec<(Kind, String)>>,
    programs: Arc<Mutex<Vec<Arc<Program>>>>,
    /// The first program's death that nobody asked for.
    death: watch::Sender<Option<String>>,
}

impl Stage {
    /// Makes the namespace and the folder.
    pub(crate) async fn open(cluster: &Folder, name: &str) -> Result<Self> {
        let stage = Self {
            name: name.to_owned(),
            cluster: cluster.clone(),
            client: client(&cluster.admin()).await?,
            authority: Authority::open(&cluster.join("pki"))?,
            made: Mutex::default(),
            programs: Arc::default(),
            death: watch::Sender::new(None),
        };
        std::fs::create_dir_all(stage.folder()).context("could not make the scenario's folder")?;
        stage.apply_value(stage.own_namespace()).await?;
        // Pods are refused until the namespace has its account.
        stage
            .until(SERVICE_ACCOUNT, "default", "made", |_| true)
            .await?;
        Ok(stage)
    }

    /// The same stage in front of another API server: what is applied, read and awaited is there.
    /// Its programs are those of this one.
    pub(crate) async fn facing(&self, kubeconfig: &Path) -> Result<Self> {
        let stage = Self {
            name: self.name.clone(),
            cluster: self.cluster.clone(),
            client: client(kubeconfig).await?,
            authority: Authority::open(&self.cluster.join("pki"))?,
            made: Mutex::default(),
            programs: Arc::clone(&self.programs),
            death: self.death.clone(),
        };
        stage.apply_value(stage.own_namespace()).await?;
        Ok(stage)
    }

    fn own_namespace(&self) -> Value {
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace()}})
    }

    /// The namespace: the scenario's name.
    pub(crate) fn namespace(&self) -> &str {
        &self.name
    }

    /// A driver name that no other scenario uses.
    pub(crate) fn driver_name(&self) -> String {
        format!("{}.csi.orlop.dev", self.name)
    }

    /// A folder of the scenario's own.
    pub(crate) fn folder(&self) -> PathBuf {
        self.cluster.join("stages").join(&self.name)
    }

    /// A program that the cluster was given: ours, a built one or a brought one.
    pub(crate) fn binary(&self, name: &str) -> PathBuf {
        self.cluster.binary(name)
    }

    /// Waits for something with the bound of all waits. Ends early when a program dies.
    pub(crate) async fn bounded<T>(
        &self,
        what: &str,
        wait: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let mut death = self.death.subscribe();
        tokio::select! {
            biased;
            done = wait => done,
            died = death.wait_for(Option::is_some) => {
                let died = died.ok().and_then(|death| death.clone()).unwrap_or_default();
                bail!("{died}, while waiting: {what}")
            }
            () = tokio::time::sleep(PATIENCE) => bail!("not within {} s: {what}", PATIENCE.as_secs()),
        }
    }

    /// Asks again and again until two readings are equal, for whatever settles only after a
    /// while. After the bound the difference is told.
    pub(crate) async fn until_equal<F>(
        &self,
        what: &str,
        expected: &Value,
        mut read: impl FnMut() -> F,
    ) -> Result<()>
    where
        F: Future<Output = Result<Value>>,
    {
        let last = Mutex::new(Value::Null);
        let equal = self.bounded(what, async {
            loop {
                let found = read().await?;
                if found == *expected {
                    return Ok(());
                }
                *lock(&last) = found;
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        });
        let equal = equal.await;
        equal.with_context(|| {
            let found = lock(&last);
            format!("they differ: {what}\nexpected: {expected:#}\nfound: {found:#}")
        })
    }

    /// Removes everything of the scenario and checks that nothing is left: what it applied, its
    /// volumes and attachments, and then its programs, mounts and loop devices.
    pub(crate) async fn close(&self) -> Result<()> {
        // A namespace's own removal takes its controller many seconds; what matters goes first.
        for kind in [POD, CLAIM] {
            let names = self.names(kind).await?;
            self.remove(kind, &names.iter().map(String::as_str).collect::<Vec<_>>())
                .await?;
        }
        self.bounded(
            "no volume, attachment, mount or loop device of the scenario is left",
            async {
                while !self.leftovers().await?.is_empty() {
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
                Ok(())
            },
        )
        .await
        .or_else(|late| bail!("{late:#}; left: {}", self.leftovers_now()))?;
        let made = std::mem::take(&mut *lock(&self.made));
        for (kind, name) in made.into_iter().rev() {
            self.delete(kind, &name).await?;
        }
        self.delete(NAMESPACE, self.namespace()).await?;
        self.end_programs().await
    }
}

impl Stage {
    /// Takes away what it can of a scenario that failed, so that others aren't disturbed. Whatever
    /// stays goes with the cluster.
    pub(crate) async fn abandon(&self) {
        let _ = self.delete(NAMESPACE, self.namespace()).await;
        let _ = self.end_programs().await;
        self.resume_components();
        let made = std::mem::take(&mut *lock(&self.made));
        for (kind, name) in made.into_iter().rev() {
            let _ = self.delete(kind, &name).await;
        }
    }
}

/// Locks, also after a panic elsewhere: what is behind these locks is never half-changed.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
