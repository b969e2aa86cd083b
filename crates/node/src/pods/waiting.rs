//! What a pod that waits for its volumes is told. Pure.

/// A volume that is not there yet.
pub(super) struct Wait {
    /// Its name in the pod.
    pub(super) name: String,
    pub(super) why: Option<String>,
    /// Attach-detach is not done with it.
    pub(super) unattached: bool,
}

/// A volume that could not be set up.
pub(super) struct Failed {
    /// Its name in the pod.
    pub(super) name: String,
    pub(super) why: String,
    /// It is not even known which volume it is.
    pub(super) unprocessed: bool,
}

/// For the status of the pod's containers.
pub(super) fn words(waits: &[Wait]) -> String {
    let each = waits.iter().map(|Wait { name, why, .. }| match why {
        Some(why) => format!("volume {name:?}: {why}"),
        None => format!("volume {name:?} is being mounted"),
    });
    each.collect::<Vec<_>>().join("; ")
}

/// For an event, in the kubelet's words: which volumes are missing, and why.
pub(super) fn summary(waits: &[Wait], failed: &[Failed]) -> String {
    let names = |names: &mut dyn Iterator<Item = &str>| {
        let mut names: Vec<&str> = names.collect();
        names.sort_unstable();
        names.join(" ")
    };
    let waiting = waits.iter().map(|wait| wait.name.as_str());
    let lost = failed.iter().map(|failed| failed.name.as_str());
    let unprocessed = failed.iter().filter(|failed| failed.unprocessed);
    let unattached = waits.iter().filter(|wait| wait.unattached);
    let mut reasons: Vec<String> = failed
        .iter()
        .map(|Failed { name, why, .. }| format!("volume {name:?}: {why}"))
        .collect();
    if !waits.is_empty() {
        reasons.push(words(waits));
    }
    format!(
        "Unable to attach or mount volumes: unmounted volumes=[{}], unattached volumes=[{}], \
         failed to process volumes=[{}]: {}",
        names(&mut waiting.chain(lost)),
        names(&mut unattached.map(|wait| wait.name.as_str())),
        names(&mut unprocessed.map(|failed| failed.name.as_str())),
        reasons.join("; "),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_told_which_volumes_are_missing_and_why() {
        let wait = |name: &str, why: Option<&str>, unattached| Wait {
            name: name.to_owned(),
            why: why.map(str::to_owned),
            unattached,
        };
        let waits = [
            wait("b", Some("waiting for the volume to be attached"), true),
            wait("a", None, false),
        ];
        let lost = |name: &str, why: &str, unprocessed| Failed {
            name: name.to_owned(),
            why: why.to_owned(),
            unprocessed,
        };
        let failed = [
            lost("c", "claim ns/c is not bound", true),
            lost("d", "ConfigMap ns/d not found", false),
        ];
        assert_eq!(
            summary(&waits, &failed),
            "Unable to attach or mount volumes: unmounted volumes=[a b c d], unattached volumes=[b], \
             failed to process volumes=[c]: volume \"c\": claim ns/c is not bound; volume \"d\": \
             ConfigMap ns/d not found; volume \"b\": waiting for the volume to be attached; volume \"a\" is being mounted"
        );
    }
}
