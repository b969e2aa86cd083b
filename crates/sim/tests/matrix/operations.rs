//! What the sidecars do, each as a story; and the same told by a user who meddles.

use std::time::Duration;

use orlop_csi::Driver;
use orlop_runtime::Process;
use orlop_sim::run::{Scenario, Script};
use orlop_sim::user::{Stuck, User};

/// A story.
pub(crate) type Operation = fn() -> Scenario;

/// Every operation, undisturbed by its user.
pub(crate) const ALL: [Operation; 8] = [
    create, attach, clone, restore, group, expand, modify, capacity,
];

pub(crate) fn create() -> Scenario {
    Scenario::new("create and delete", |user| {
        Box::pin(async move {
            user.class("Immediate", "Delete").await;
            user.claim("data").await;
            user.until_bound("data").await?;
            user.delete_claim("data").await;
            user.until_all_gone().await
        })
    })
}

pub(crate) fn attach() -> Scenario {
    Scenario::new("attach and detach", |user| {
        Box::pin(async move {
            user.class("WaitForFirstConsumer", "Delete").await;
            user.claim("data").await;
            user.pod("web", "data").await;
            user.until_running("web").await?;
            user.delete_pod("web").await;
            user.until_pod_gone("web").await?;
            user.delete_claim("data").await;
            user.until_all_gone().await
        })
    })
}

pub(crate) fn clone() -> Scenario {
    Scenario::new("clone", |user| {
        Box::pin(async move {
            user.class("Immediate", "Delete").await;
            user.claim("data").await;
            user.until_bound("data").await?;
            user.clone_of("copy", "data").await;
            user.until_bound("copy").await?;
            user.delete_claim("data").await;
            user.delete_claim("copy").await;
            user.until_all_gone().await
        })
    })
}

pub(crate) fn restore() -> Scenario {
    Scenario::new("snapshot and restore", |user| {
        Box::pin(async move {
            user.class("Immediate", "Delete").await;
            user.snapshot_classes("Delete").await;
            user.claim("data").await;
            user.until_bound("data").await?;
            user.snapshot("cut", "data").await;
            user.until_cut("cut").await?;
            user.restore_of("copy", "cut").await;
            user.until_bound("copy").await?;
            user.delete_snapshot("cut").await;
            user.delete_claim("data").await;
            user.delete_claim("copy").await;
            all_gone(&user).await
        })
    })
    .snapshots()
}

pub(crate) fn group() -> Scenario {
    Scenario::new("group snapshot", |user| {
        Box::pin(async move {
            user.class("Immediate", "Delete").await;
            user.snapshot_classes("Delete").await;
            user.grouped_claim("data").await;
            user.grouped_claim("logs").await;
            user.until_bound("data").await?;
            user.until_bound("logs").await?;
            user.group_snapshot("all").await;
            user.until_group_cut("all").await?;
            user.delete_group("all").await;
            user.delete_claim("data").await;
            user.delete_claim("logs").await;
            all_gone(&user).await
        })
    })
    .snapshots()
}

pub(crate) fn expand() -> Scenario {
    Scenario::new("expand", |user| {
        Box::pin(async move {
            user.class("WaitForFirstConsumer", "Delete").await;
            user.claim("data").await;
            user.pod("web", "data").await;
            user.until_running("web").await?;
            user.resize("data", "2Gi").await;
            user.until_size("data", "2Gi").await?;
            user.delete_pod("web").await;
            user.until_nothing_attached().await
        })
    })
}

pub(crate) fn modify() -> Scenario {
    Scenario::new("modify", |user| {
        Box::pin(async move {
            user.class("Immediate", "Delete").await;
            user.attributes("gold").await;
            user.attributes("silver").await;
            user.claim("data").await;
            user.until_bound("data").await?;
            user.choose("data", "gold").await;
            user.until_modified("data", "gold").await?;
            user.choose("data", "silver").await;
            user.until_modified("data", "silver").await
        })
    })
}

pub(crate) fn capacity() -> Scenario {
    Scenario::new("capacity", |user| {
        Box::pin(async move {
            user.class("WaitForFirstConsumer", "Delete").await;
            user.claim("data").await;
            user.pod("web", "data").await;
            user.until_running("web").await?;
            user.until("room is told of", |objects| !objects.capacities.is_empty())
                .await?;
            user.delete_pod("web").await;
            user.delete_claim("data").await;
            user.until_all_gone().await
        })
    })
    .provisioner(with_capacity)
}

fn with_capacity(process: &Process, driver: Driver) {
    orlop_sidecars::provisioner::start(process, driver.clone(), Default::default());
    orlop_sidecars::capacity::start(process, driver, Default::default());
}

async fn all_gone(user: &User) -> Result<(), Stuck> {
    user.until_no_snapshots().await?;
    user.until_all_gone().await
}

/// Stories of a user who changes their mind at any moment, and what they do then. All of
/// them end with nothing.
pub(crate) fn changed_minds() -> Vec<Scenario> {
    let with = |name, script: Script, snapshots: bool, acts: &[Script]| -> Vec<Scenario> {
        let story = || {
            let story = Scenario::new(name, script);
            if snapshots { story.snapshots() } else { story }
        };
        acts.iter().map(|act| story().meddling(*act)).collect()
    };
    let forget_pod: Script = |user| act(async move { user.delete_pod("web").await });
    let forget_data: Script = |user| act(async move { user.delete_claim("data").await });
    let forget_copy: Script = |user| act(async move { user.delete_claim("copy").await });
    let forget_volume: Script = |user| act(async move { user.delete_volume_of("data").await });
    let replace_data: Script = |user| act(async move { user.replace_claim("data").await });
    let forget_cut: Script = |user| act(async move { user.delete_snapshot("cut").await });
    let forget_contents: Script = |user| act(async move { user.delete_contents().await });
    let forget_both: Script = |user| {
        act(async move {
            user.delete_claim("copy").await;
            user.delete_snapshot("cut").await;
        })
    };
    let forget_group: Script = |user| act(async move { user.delete_group("all").await });
    let forget_group_contents: Script =
        |user| act(async move { user.delete_group_contents().await });
    [
        with(
            "attach, meddled with",
            attach_anyhow,
            false,
            &[forget_pod, forget_data, forget_volume],
        ),
        with(
            "create, meddled with",
            create_anyhow,
            false,
            &[forget_data, forget_volume, replace_data],
        ),
        with(
            "clone, meddled with",
            clone_anyhow,
            false,
            &[forget_data, forget_copy, replace_data],
        ),
        with(
            "restore, meddled with",
            restore_anyhow,
            true,
            &[forget_cut, forget_both, forget_contents, replace_data],
        ),
        with(
            "group, meddled with",
            group_anyhow,
            true,
            &[forget_group, forget_group_contents, forget_data],
        ),
        with(
            "expand, meddled with",
            expand_anyhow,
            false,
            &[forget_data, forget_pod],
        ),
        with(
            "modify, meddled with",
            modify_anyhow,
            false,
            &[forget_data, replace_data],
        ),
    ]
    .concat()
}

type Act = std::pin::Pin<Box<dyn Future<Output = Result<(), Stuck>> + Send>>;

fn act(what: impl Future<Output = ()> + Send + 'static) -> Act {
    Box::pin(async move {
        what.await;
        Ok(())
    })
}

/// Lets what was begun go on for a while, then deletes whatever is there.
async fn end(user: &User) -> Result<(), Stuck> {
    user.wait(Duration::from_secs(40)).await;
    user.clear().await;
    // What was deleted just before may yet be made anew.
    user.wait(Duration::from_secs(35)).await;
    user.clear().await;
    all_gone(user).await
}

fn create_anyhow(user: User) -> Act {
    Box::pin(async move {
        user.class("Immediate", "Delete").await;
        user.claim("data").await;
        end(&user).await
    })
}

fn attach_anyhow(user: User) -> Act {
    Box::pin(async move {
        user.class("WaitForFirstConsumer", "Delete").await;
        user.claim("data").await;
        user.pod("web", "data").await;
        end(&user).await
    })
}

fn clone_anyhow(user: User) -> Act {
    Box::pin(async move {
        user.class("Immediate", "Delete").await;
        user.claim("data").await;
        user.clone_of("copy", "data").await;
        end(&user).await
    })
}

fn restore_anyhow(user: User) -> Act {
    Box::pin(async move {
        user.class("Immediate", "Delete").await;
        user.snapshot_classes("Delete").await;
        user.claim("data").await;
        user.snapshot("cut", "data").await;
        user.restore_of("copy", "cut").await;
        end(&user).await
    })
}

fn group_anyhow(user: User) -> Act {
    Box::pin(async move {
        user.class("Immediate", "Delete").await;
        user.snapshot_classes("Delete").await;
        user.grouped_claim("data").await;
        user.grouped_claim("logs").await;
        user.wait(Duration::from_secs(5)).await;
        user.group_snapshot("all").await;
        end(&user).await
    })
}

fn expand_anyhow(user: User) -> Act {
    Box::pin(async move {
        user.class("WaitForFirstConsumer", "Delete").await;
        user.claim("data").await;
        user.pod("web", "data").await;
        user.wait(Duration::from_secs(5)).await;
        user.resize_if_bound("data", "2Gi").await;
        end(&user).await
    })
}

fn modify_anyhow(user: User) -> Act {
    Box::pin(async move {
        user.class("Immediate", "Delete").await;
        user.attributes("gold").await;
        user.claim("data").await;
        user.wait(Duration::from_secs(5)).await;
        user.choose("data", "gold").await;
        end(&user).await
    })
}
