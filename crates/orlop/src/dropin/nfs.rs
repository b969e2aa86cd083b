//! csi-driver-nfs by its program's name: `orlop driver nfs`, with the original's command line.

use anyhow::{Result, anyhow};

use super::settings::View;
use crate::{cli, driver};

/// What the original takes for any time that is none.
const STATS_MINUTES: u64 = 10;

/// Runs it.
pub(super) fn main(view: &View<'_>) -> Result<()> {
    let args = read(view).map_err(|why| anyhow!(why))?;
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    driver::frugal(&mut runtime);
    let runtime = runtime.enable_all().build()?;
    runtime.block_on(driver::nfs(args))
}

fn read(view: &View<'_>) -> Result<cli::DriverNfs, String> {
    let permissions = view.int("mount-permissions");
    let policy = view.text("default-ondelete-policy");
    let minutes = view.int("vol-stats-cache-expire-in-minutes");
    Ok(cli::DriverNfs {
        endpoint: view.text("endpoint"),
        nodeid: view.text("nodeid"),
        drivername: view.text("drivername"),
        mount_permissions: u32::try_from(permissions)
            .ok()
            .filter(|mode| *mode <= 0o7777)
            .ok_or_else(|| {
                format!("--mount-permissions={permissions}: use permissions such as 0777")
            })?,
        working_mount_dir: view.text("working-mount-dir").into(),
        default_ondelete_policy: cli::on_delete(&policy)
            .map_err(|why| format!("--default-ondelete-policy={policy}: {why}"))?,
        vol_stats_cache_expire_in_minutes: u64::try_from(minutes)
            .ok()
            .filter(|minutes| *minutes > 0)
            .unwrap_or(STATS_MINUTES),
        remove_archived_volume_path: view.bool("remove-archived-volume-path"),
        enable_snapshot_compression: view.bool("enable-snapshot-compression"),
        use_tar_command_in_snapshot: view.bool("use-tar-command-in-snapshot"),
        // The original has no flag that says where the kubelet's folder is: its container has nothing
        // of the node's but that.
        kubelet_dir: "/".into(),
        // The log is set up by then.
        v: None,
        moot: cli::GoLogging::default(),
    })
}

#[cfg(test)]
mod tests {
    use orlop_drivers::nfs::OnDelete;

    use super::*;
    use crate::dropin::{flags::parse, programs::called};

    fn of(line: &str) -> Result<cli::DriverNfs, String> {
        let program = called("nfsplugin").ok_or("there is no such program")?;
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let given =
            parse(&program.flags(), program.dialect, &words).map_err(|stop| format!("{stop:?}"))?;
        read(&View {
            given: &given,
            program,
            prefix: None,
        })
    }

    #[test]
    fn the_originals_command_lines_mean_the_same() {
        let args = of("").expect("all has a default");
        assert_eq!(args.endpoint, "unix://tmp/csi.sock");
        assert_eq!(args.drivername, "nfs.csi.k8s.io");
        assert_eq!(args.default_ondelete_policy, OnDelete::Delete);
        assert!(args.enable_snapshot_compression && !args.remove_archived_volume_path);
        let args = of(
            "-v=5 -nodeid=n --endpoint unix:///csi/csi.sock --mount-permissions=0777 \
             --default-ondelete-policy=archive -vol-stats-cache-expire-in-minutes 0 \
             --remove-archived-volume-path=t -enable-snapshot-compression=FALSE \
             --use-tar-command-in-snapshot=1 --vmodule=nfs=4 --add_dir_header \
             -legacy_stderr_threshold_behavior=0 --alsologtostderrthreshold=ERROR",
        )
        .expect("it is a good line");
        assert_eq!(
            (&*args.nodeid, &*args.endpoint),
            ("n", "unix:///csi/csi.sock")
        );
        assert_eq!(args.mount_permissions, 0o777);
        assert_eq!(args.default_ondelete_policy, OnDelete::Archive);
        assert_eq!(args.vol_stats_cache_expire_in_minutes, STATS_MINUTES);
        assert!(args.remove_archived_volume_path && !args.enable_snapshot_compression);
    }

    #[test]
    fn what_means_nothing_is_refused_by_its_flag() {
        for (line, why) in [
            ("--mount-permissions=65536", "--mount-permissions=65536"),
            ("--mount-permissions=-1", "--mount-permissions=-1"),
            (
                "--default-ondelete-policy=burn",
                "delete, retain or archive",
            ),
            ("--remove-archived-volume-path=yes", "invalid boolean value"),
            (
                "--kubelet-dir=/var/lib/kubelet",
                "not defined: -kubelet-dir",
            ),
        ] {
            let refused = of(line).expect_err(line);
            assert!(refused.contains(why), "{line}: {refused}");
        }
    }
}
