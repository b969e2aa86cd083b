//! Signs of life of a worker that says nothing.
//!
//! A worker can wait for long in one call: the kernel writes back what a file has in memory when it is
//! closed, or its owner changes, and over a slow link that takes minutes. The kernel counts what the
//! server has answered meanwhile, and who counts is not waited for.

use std::path::{Path, PathBuf};

/// What has been counted of a process. What has changed is a sign of life; how much says nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Signs {
    /// What it has read and written.
    files: String,
    /// What its servers have answered.
    answers: Vec<String>,
}

impl Signs {
    /// Those of a process that sees shares on a folder; none if it has gone. What the node has mounted
    /// elsewhere, it sees as well, and others use it.
    pub(super) fn of(process: u32, shares: &Path) -> Self {
        let folder = PathBuf::from(format!("/proc/{process}"));
        let read = |name| std::fs::read_to_string(folder.join(name)).unwrap_or_default();
        Self {
            files: read("io"),
            answers: answers(&read("mountstats"), shares),
        }
    }
}

/// What the statistics of mounts on a folder say about operations of NFS that have come to an end. Other
/// lines change by themselves, such as a mount's age, or by what is only sent.
fn answers(mountstats: &str, on: &Path) -> Vec<String> {
    // The kernel tells no link on the way, and writes what would divide its words by numbers.
    let on = std::fs::canonicalize(on).unwrap_or_else(|_| on.to_owned());
    let mut on = on.to_string_lossy().replace('\\', "\\134");
    for (letter, number) in [(" ", "\\040"), ("\t", "\\011"), ("\n", "\\012")] {
        on = on.replace(letter, number);
    }
    let mount = format!(" mounted on {on} with fstype nfs");
    let mut of_nfs = false;
    let mut answers = Vec::new();
    for line in mountstats.lines() {
        if line.starts_with("device ") {
            of_nfs = line.contains(&mount);
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
        \t        READ: 0 0 0 0 0 0 0 0 0\n\
        device t:/other mounted on /other with fstype nfs4 statvers=1.1\n\
        \tper-op statistics\n\
        \t     GETATTR: 5 5 0 800 700 0 0 0 0\n";

    #[test]
    fn what_a_server_answers_is_a_sign_of_life_and_what_is_asked_of_it_is_none() {
        let answers = |text: &str| answers(text, Path::new("/tmp/"));
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
            // Another server's.
            (("5 5 0 800 700", "9 9 0 900 990"), false),
        ] {
            let after = answers(&BEFORE.replace(change.0, change.1));
            assert_eq!(after != before, sign, "{change:?}");
        }
    }

    #[test]
    fn a_folder_with_a_blank_is_found_as_the_kernel_tells_it() {
        let folder = tempfile::Builder::new().prefix("a b\\").tempdir().unwrap();
        let told = folder.path().display().to_string();
        let told = told.replace('\\', "\\134").replace(' ', "\\040");
        let text = BEFORE.replace(" on /tmp with", &format!(" on {told} with"));
        assert_eq!(answers(&text, folder.path()).len(), 2);
    }
}
