//! Who a process is in an election. Two that run at once never share a name: who finds its own
//! name on a lease takes itself to lead.

use std::path::Path;

use orlop_sidecars::provisioner::Identity;

/// Where a pod's service account is.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// What is known of a process.
#[derive(Debug, Clone, Default)]
struct Known {
    pod: Option<String>,
    in_pod: bool,
    host: String,
}

/// This process: its pod, or a name of its own on this host.
pub(crate) fn this_process() -> String {
    let host = rustix::system::uname();
    Known {
        pod: std::env::var("POD_NAME").ok(),
        in_pod: Path::new(ACCOUNT).is_dir(),
        host: host.nodename().to_string_lossy().into_owned(),
    }
    .name()
}

/// This csi-provisioner, as the original names itself.
pub(crate) fn provisioner(driver: &str) -> String {
    let now = jiff::Timestamp::now().as_millisecond();
    let driver = orlop_model::well_known::sanitise(driver);
    format!("{now}-{}-{driver}", fastrand::u32(..10_000))
}

/// This csi-provisioner in events, and in the attributes of volumes that it makes, as the original.
pub(crate) fn of_provisioner(driver: &str, node: Option<&str>) -> Identity {
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy();
    let id = (fastrand::u128(..) & !(0xf << 76) & !(0x3 << 62)) | (0x4 << 76) | (0x2 << 62);
    let id = format!("{id:032x}");
    let id = [&id[..8], &id[8..12], &id[12..16], &id[16..20], &id[20..]].join("-");
    let now = jiff::Timestamp::now().as_millisecond();
    let node = node.map(|node| format!("-{node}")).unwrap_or_default();
    Identity {
        component: format!("{driver}_{host}_{id}"),
        maker: format!("{now}-{}-{driver}{node}", fastrand::u32(..10_000)),
    }
}

impl Known {
    fn name(self) -> String {
        match self.pod.filter(|pod| !pod.is_empty()) {
            Some(pod) => pod,
            // A pod's host name is its own. Where it is not, with the host's network, the
            // manifest says POD_NAME.
            None if self.in_pod => self.host,
            None => format!(
                "{}_{}_{:08x}",
                self.host,
                std::process::id(),
                fastrand::u32(..)
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_processes_of_one_host_have_two_names_unless_they_are_one_pod() {
        let known = |pod: Option<&str>, in_pod| Known {
            pod: pod.map(str::to_owned),
            in_pod,
            host: "node-1".to_owned(),
        };
        assert_eq!(known(Some("web-0"), true).name(), "web-0");
        assert_eq!(known(Some("web-0"), false).name(), "web-0");
        assert_eq!(known(Some(""), true).name(), "node-1");
        assert_eq!(known(None, true).name(), "node-1");
        let (one, other) = (known(None, false).name(), known(None, false).name());
        assert_ne!(one, other);
        assert!(one.starts_with("node-1_"), "{one}");
    }

    #[test]
    fn a_provisioner_has_a_name_of_its_own_each_time() {
        let name = provisioner("ebs.csi.aws.com");
        let parts: Vec<&str> = name.splitn(3, '-').collect();
        assert!(parts[0].parse::<i64>().is_ok(), "{name}");
        assert!(parts[1].parse::<u32>().is_ok_and(|n| n < 10_000), "{name}");
        assert_eq!(parts[2], "ebs-csi-aws-com");
    }

    #[test]
    fn a_provisioner_signs_events_and_volumes_as_the_original() {
        let Identity { component, maker } = of_provisioner("ebs.csi.aws.com", Some("n1"));
        let parts: Vec<&str> = component.split('_').collect();
        assert_eq!(
            (parts.len(), parts[0]),
            (3, "ebs.csi.aws.com"),
            "{component}"
        );
        let groups: Vec<usize> = parts[2].split('-').map(str::len).collect();
        assert_eq!(groups, [8, 4, 4, 4, 12], "{component}");
        let parts: Vec<&str> = maker.splitn(3, '-').collect();
        assert!(parts[0].parse::<i64>().is_ok(), "{maker}");
        assert!(parts[1].parse::<u32>().is_ok_and(|n| n < 10_000), "{maker}");
        assert_eq!(parts[2], "ebs.csi.aws.com-n1");
    }
}
