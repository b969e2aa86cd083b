//! Who a process is in an election. Two that run at once never share a name: who finds its own
//! name on a lease takes itself to lead.

use std::path::Path;

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
}
