//! What SELinux calls containers and their files on this host.

use std::path::Path;

/// The labels that a container gets where nobody says otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contexts {
    /// Of its processes.
    pub process: String,
    /// Of its files.
    pub file: String,
}

/// The labels of this host's policy; none where SELinux is off, or has no policy for containers.
#[must_use]
pub fn contexts() -> Option<Contexts> {
    // The kernel shows the file system only where SELinux is on, and this file only with a policy.
    if !Path::new("/sys/fs/selinux/policyvers").exists() {
        return None;
    }
    below(Path::new("/etc/selinux"))
}

fn below(etc: &Path) -> Option<Contexts> {
    let config = std::fs::read_to_string(etc.join("config")).ok()?;
    let policy = value(&config, "SELINUXTYPE")?;
    if !crate::place::is_plain_name(policy.as_ref()) {
        return None;
    }
    let path = etc.join(policy).join("contexts/lxc_contexts");
    let text = std::fs::read_to_string(path).ok()?;
    Some(Contexts {
        process: value(&text, "process")?,
        file: value(&text, "file")?,
    })
}

fn value(text: &str, key: &str) -> Option<String> {
    let mut lines = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.starts_with(['#', ';']));
    let (_, value) = lines.find_map(|line| {
        let (name, value) = line.split_once('=')?;
        (name.trim() == key).then_some((name, value))
    })?;
    Some(value.trim().trim_matches('"').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policys_labels_are_read_and_a_policy_that_leads_elsewhere_is_not() {
        let etc = tempfile::tempdir().expect("a folder");
        let contexts = etc.path().join("targeted/contexts");
        std::fs::create_dir_all(&contexts).expect("a folder");
        let config = etc.path().join("config");
        std::fs::write(
            &config,
            "# a comment\nSELINUX=enforcing\nSELINUXTYPE=targeted\n",
        )
        .expect("a file");
        assert_eq!(below(etc.path()), None, "without containers' labels");
        let text = "process = \"system_u:system_r:container_t:s0\"\n\
                    content = \"system_u:object_r:virt_var_lib_t:s0\"\n\
                    file = \"system_u:object_r:container_file_t:s0\"\n";
        std::fs::write(contexts.join("lxc_contexts"), text).expect("a file");
        let wanted = Contexts {
            process: "system_u:system_r:container_t:s0".into(),
            file: "system_u:object_r:container_file_t:s0".into(),
        };
        assert_eq!(below(etc.path()), Some(wanted));
        std::fs::write(&config, "SELINUXTYPE=../targeted\n").expect("a file");
        assert_eq!(below(etc.path()), None);
    }
}
