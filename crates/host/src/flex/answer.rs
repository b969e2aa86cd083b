//! What a FlexVolume driver answers, and what it means.

use serde::Deserialize;

use crate::foreign::Said;

/// An answer of a driver. Unlike the kubelet's, its reader takes the output alone, so that a
/// driver may complain elsewhere.
#[derive(Debug, Default, Clone, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Answer {
    #[serde(alias = "Status")]
    status: String,
    #[serde(alias = "Message")]
    message: String,
    /// Where an attached volume's device is.
    #[serde(alias = "devicePath")]
    pub device: String,
    /// Whether the volume is attached, where that was asked.
    pub attached: bool,
    #[serde(alias = "Capabilities")]
    capabilities: Option<Capabilities>,
}

impl Answer {
    /// What the driver says that it can do.
    pub fn capabilities(&self) -> Capabilities {
        self.capabilities.clone().unwrap_or_default()
    }
}

/// What a driver can do; what it doesn't mention has the kubelet's defaults.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Capabilities {
    /// Its volumes are attached before they are mounted.
    pub attach: bool,
    /// Its volumes can be given to a group.
    pub fs_group: bool,
    /// Its file systems have to be grown.
    #[serde(rename = "requiresFSResize")]
    pub requires_fs_resize: bool,
}

impl Default for Capabilities {
    fn default() -> Self {
        Self {
            attach: true,
            fs_group: true,
            requires_fs_resize: true,
        }
    }
}

/// Why a driver's answer is none.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Refusal {
    /// It doesn't have the command.
    #[error("Not supported")]
    NotSupported,
    /// It says no.
    #[error("{command} command failed, status: {status}, reason: {reason}")]
    Failed {
        /// Which.
        command: &'static str,
        /// Its word for how it went.
        status: String,
        /// Why.
        reason: String,
    },
    /// Nobody understands it.
    #[error("{command} command: the driver's answer is not JSON: {said:?} ({how})")]
    NotJson {
        /// Which.
        command: &'static str,
        /// Its words.
        said: String,
        /// How it ended.
        how: String,
    },
    /// Its words and its end don't agree.
    #[error("{command} command: the driver says Success, but ended with {how}")]
    Contradiction {
        /// Which.
        command: &'static str,
        /// How it ended.
        how: String,
    },
}

/// Understands an answer. Texts of the driver are shortened and rid of secrets.
///
/// # Errors
/// If it isn't one that says that the command was carried out.
pub fn judge(command: &'static str, said: &Said, secrets: &[String]) -> Result<Answer, Refusal> {
    let quote = |bytes: &[u8]| quoted(bytes, secrets);
    let Ok(answer) = serde_json::from_slice::<Answer>(&said.stdout) else {
        let words = if said.stdout.trim_ascii().is_empty() {
            &said.stderr
        } else {
            &said.stdout
        };
        return Err(Refusal::NotJson {
            command,
            said: quote(words),
            how: said.status.to_string(),
        });
    };
    match answer.status.as_str() {
        "Success" if said.status.success() => Ok(answer),
        "Success" => Err(Refusal::Contradiction {
            command,
            how: said.status.to_string(),
        }),
        "Not supported" => Err(Refusal::NotSupported),
        status => Err(Refusal::Failed {
            command,
            status: quote(status.as_bytes()),
            reason: quote(answer.message.as_bytes()),
        }),
    }
}

/// A driver's words, fit for an event: on one line, not long, without what it was told in secret.
fn quoted(bytes: &[u8], secrets: &[String]) -> String {
    const KEEP: usize = 500;
    let mut text = String::from_utf8_lossy(bytes).into_owned();
    for secret in secrets.iter().filter(|secret| !secret.is_empty()) {
        text = text.replace(secret.as_str(), "***");
    }
    let words: Vec<&str> = text.split_whitespace().collect();
    let line = words.join(" ");
    line.chars().take(KEEP).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    fn said(stdout: &str, stderr: &str, code: i32) -> Said {
        Said {
            stdout: stdout.into(),
            stderr: stderr.into(),
            status: std::process::ExitStatus::from_raw(code << 8),
        }
    }

    #[test]
    fn an_answer_counts_only_if_words_and_code_agree() {
        let cases = [
            (r#"{"status":"Success"}"#, 0, Ok(())),
            (
                r#"{"status":"Success"}"#,
                1,
                Err("says Success, but ended with exit status: 1"),
            ),
            (
                r#"{"status":"Failure","message":"no disk"}"#,
                1,
                Err("mount command failed, status: Failure, reason: no disk"),
            ),
            (r#"{"status":"Failure"}"#, 0, Err("status: Failure")),
            (r#"{"status":"Not supported"}"#, 1, Err("Not supported")),
            (r#"{}"#, 0, Err("status: ,")),
            ("oops", 0, Err("is not JSON: \"oops\"")),
            ("", 127, Err("is not JSON: \"complaint\"")),
        ];
        for (stdout, code, wanted) in cases {
            let found = judge("mount", &said(stdout, "complaint", code), &[]);
            match wanted {
                Ok(()) => assert!(found.is_ok(), "{stdout} {found:?}"),
                Err(words) => {
                    let error = found.expect_err(stdout).to_string();
                    assert!(error.contains(words), "{error}");
                }
            }
        }
    }

    #[test]
    fn what_a_driver_does_not_mention_it_can_do() {
        let answer = |text: &str| judge("init", &said(text, "", 0), &[]).expect("an answer");
        let none = answer(r#"{"status":"Success"}"#).capabilities();
        assert!(none.attach && none.fs_group && none.requires_fs_resize);
        let some = answer(r#"{"status":"Success","capabilities":{"attach":false}}"#).capabilities();
        assert!(!some.attach && some.fs_group && some.requires_fs_resize);
    }

    #[test]
    fn secrets_are_not_repeated() {
        let secrets = ["aHVudGVyMg==".to_owned(), "hunter2".to_owned()];
        let text = r#"{"status":"Failure","message":"bad password hunter2 (aHVudGVyMg==)"}"#;
        let error = judge("mount", &said(text, "", 1), &secrets).expect_err("refused");
        assert!(
            error.to_string().ends_with("bad password *** (***)"),
            "{error}"
        );
        let error = judge("mount", &said("", "+ login hunter2", 1), &secrets).expect_err("refused");
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
}
