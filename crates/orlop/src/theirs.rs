//! Flags of kube-controller-manager's storage controllers that have nothing to set here, or ask for
//! what is not there: a command line that names them works on, or is told why not.

use anyhow::{Result, bail};
use clap::Args;
use tracing::warn;

/// The flags.
#[derive(Debug, Args, Default, Clone)]
pub(crate) struct Theirs {
    /// The binder acts on events.
    #[arg(long, hide = true, value_name = "DURATION")]
    pvclaimbinder_sync_period: Option<String>,
    /// So does attach-detach.
    #[arg(long, hide = true, value_name = "DURATION")]
    attach_detach_reconcile_sync_period: Option<String>,
    /// It verifies nothing in rounds.
    #[arg(
        long, hide = true, num_args = 0..=1, require_equals = true,
        default_missing_value = "true", value_name = "BOOL",
    )]
    disable_attach_detach_reconcile_sync: Option<bool>,
    /// Volumes are made by provisioners.
    #[arg(
        long, hide = true, num_args = 0..=1, require_equals = true,
        default_missing_value = "true", value_name = "BOOL",
    )]
    enable_dynamic_provisioning: Option<bool>,
    /// Nobody makes volumes of hosts' folders.
    #[arg(
        long, hide = true, num_args = 0..=1, require_equals = true,
        default_missing_value = "true", value_name = "BOOL",
    )]
    enable_hostpath_provisioner: Option<bool>,
    /// The lease is another's.
    #[arg(long, hide = true, value_name = "NAME")]
    leader_elect_resource_name: Option<String>,
    /// Leases are all that there is.
    #[arg(long, hide = true, value_name = "KIND")]
    leader_elect_resource_lock: Option<String>,
}

impl Theirs {
    /// Says what a flag does not do.
    ///
    /// # Errors
    /// One asks for what is not there.
    pub(crate) fn heed(&self) -> Result<()> {
        if self.enable_dynamic_provisioning == Some(false) {
            bail!(
                "--enable-dynamic-provisioning=false: claims are always offered to the provisioner of \
                 their class; to have none made, run no provisioner, or let the class say \
                 kubernetes.io/no-provisioner"
            );
        }
        if self.enable_hostpath_provisioner == Some(true) {
            bail!(
                "--enable-hostpath-provisioner: no volumes are made of hosts' folders here; the local \
                 driver makes such (docs/local-driver.md)"
            );
        }
        if let Some(name) = &self.leader_elect_resource_name {
            bail!(
                "--leader-elect-resource-name={name}: the lease is always orlop-control, so that \
                 kube-controller-manager can lead its other controllers by its own"
            );
        }
        if let Some(lock) = self.leader_elect_resource_lock.as_deref()
            && lock != "leases"
        {
            bail!("--leader-elect-resource-lock={lock}: only leases are there");
        }
        for unneeded in self.unneeded() {
            warn!("{unneeded} changes nothing: these controllers act on events, not in rounds");
        }
        Ok(())
    }

    fn unneeded(&self) -> Vec<&'static str> {
        let said = [
            (
                self.pvclaimbinder_sync_period.is_some(),
                "--pvclaimbinder-sync-period",
            ),
            (
                self.attach_detach_reconcile_sync_period.is_some(),
                "--attach-detach-reconcile-sync-period",
            ),
            (
                self.disable_attach_detach_reconcile_sync.is_some(),
                "--disable-attach-detach-reconcile-sync",
            ),
        ];
        let said = said.into_iter().filter(|(said, _)| *said);
        said.map(|(_, flag)| flag).collect()
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        theirs: Theirs,
    }

    fn read(flags: &str) -> Theirs {
        let words = std::iter::once("control").chain(flags.split_whitespace());
        Line::try_parse_from(words).expect("it is taken").theirs
    }

    #[test]
    fn a_flag_of_kube_controller_managers_is_taken_or_refused_with_a_reason() {
        for (flags, unneeded) in [
            ("", &[][..]),
            (
                "--enable-dynamic-provisioning --enable-hostpath-provisioner=false",
                &[],
            ),
            ("--leader-elect-resource-lock=leases", &[]),
            (
                "--pvclaimbinder-sync-period=15s --attach-detach-reconcile-sync-period 1m0s",
                &[
                    "--pvclaimbinder-sync-period",
                    "--attach-detach-reconcile-sync-period",
                ],
            ),
            (
                "--disable-attach-detach-reconcile-sync",
                &["--disable-attach-detach-reconcile-sync"],
            ),
        ] {
            let theirs = read(flags);
            assert!(theirs.heed().is_ok(), "{flags}");
            assert_eq!(theirs.unneeded(), unneeded, "{flags}");
        }
        for (flags, why) in [
            ("--enable-dynamic-provisioning=false", "run no provisioner"),
            ("--enable-hostpath-provisioner", "the local driver"),
            ("--leader-elect-resource-name=x", "always orlop-control"),
            ("--leader-elect-resource-lock=endpoints", "only leases"),
        ] {
            let error = read(flags).heed().expect_err(flags).to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
