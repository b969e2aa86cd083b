//! Signs of life of a worker that says nothing.
//!
//! A worker can wait for long in one call: the kernel writes back what a file has in memory when it is
//! closed, or its owner changes, and over a slow link that takes minutes. The kernel counts what the
//! server has answered meanwhile, and who counts is not waited for.

use std::path::PathBuf;

/// What has been counted of a process. What has changed is a sign of life; how much says nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Signs {
    /// What it has read and written.
    files: String,
    /// What its servers have answered.
    answers: Vec<String>,
}

impl Signs {
    /// Those of a process; none if it has gone.
    pub(super) fn of(process: u32) -> Self {
        let folder = PathBuf::from(format!("/proc/{process}"));
        let read = |name| std::fs::read_to_string(folder.join(name)).unwrap_or_default();
        Self {
            files: read("io"),
            answers: answers(&read("mountstats")),
        }
    }
}

/// What the statistics of mounts say about operations of NFS that have come to an end. Other lines
/// change by themselves, such as a mount's age, or by what is only sent.
fn answers(mountstats: &str) -> Vec<String> {
    let mut of_nfs = false;
    let mut answers = Vec::new();
    for line in mountstats.lines() {
        if line.starts_with("device ") {
            of_nfs = line.contains(" with fstype nfs");
            continue;
        }
        let Some((operation, counts)) = line.trim().split_once(": ").filter(|_| of_nfs) else {
            continue;
        };
        let named = operation
            .bytes()
            .all(|byte| byte.is_ascii_uppercase() || byte == b'_');
        // Requests, transmissions, timeouts, bytes sent, bytes received, and times.
        let received = counts
            .split(' ')
            .nth(4)
            .and_then(|count| count.parse::<u64>().ok());
        if let Some(received) = received.filter(|received| named && *received > 0) {
            answers.push(format!("{operation} {received}"));
        }
    }
    answers
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "device proc mounted on /proc with fstype proc\n\
        device s:/data mounted on /tmp with fstype nfs4 statvers=1.1\n\
        \topts:\trw,vers=4.2\n\tage:\t10\n\tbytes:\t1 2 3 4 5 6 7 8\n\
        \tper-op statistics\n\
        \t        NULL: 1 1 0 44 24 0 0 0 0\n\
        \t       WRITE: 64 64 0 67122688 9600 5 90 100 0\n\
        \t        READ: 0 0 0 0 0 0 0 0 0\n";

    #[test]
    fn what_a_server_answers_is_a_sign_of_life_and_what_is_asked_of_it_is_none() {
        let before = answers(BEFORE);
        assert_eq!(before, ["NULL 24", "WRITE 9600"]);
        for (change, sign) in [
            (("age:\t10", "age:\t40"), false),
            (
                ("WRITE: 64 64 0 67122688", "WRITE: 64 66 2 69122688"),
                false,
            ),
            (("67122688 9600", "67122688 9750"), true),
            (("READ: 0 0 0 0 0", "READ: 1 1 0 120 4096"), true),
        ] {
            let after = answers(&BEFORE.replace(change.0, change.1));
            assert_eq!(after != before, sign, "{change:?}");
        }
    }
}
