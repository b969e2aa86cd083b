//! What a snapshot, or a group of them, needs next while nobody deletes it. Pure.

use crate::patience::Setback;

/// How a kind speaks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Words {
    /// `` or `Group`, before the reasons of events.
    pub(super) prefix: &'static str,
    /// "VolumeSnapshot"
    pub(super) kind: &'static str,
    /// "VolumeSnapshotContent"
    pub(super) content: &'static str,
    /// "snapshot"
    pub(super) word: &'static str,
    /// The two fields of which one must be set.
    pub(super) sources: [&'static str; 2],
}

/// What is to be cut, or where it is already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// Claims, of which a snapshot is to be cut.
    Claims,
    /// A content that was there before.
    Content,
    /// Made with its group, along with its content.
    Group,
    /// Neither, or both.
    Unclear,
}

/// A content, as its other half sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Half<'a> {
    pub(super) name: &'a str,
    /// It was there before, rather than made for us.
    pub(super) found: bool,
    /// It points back, uid included.
    pub(super) bound: bool,
    /// It points back, or at our name without a uid.
    pub(super) may_bind: bool,
    /// We name a class and it doesn't yet.
    pub(super) classless: bool,
}

/// A snapshot or group, as a decision sees it.
#[derive(Debug, Clone, Copy)]
pub(super) struct View<'a> {
    pub(super) source: Source,
    /// Ready, and it says which content it is bound to.
    pub(super) settled: bool,
    /// The content that it is bound to, names, or would be given.
    pub(super) content: Option<Half<'a>>,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing.
    Leave,
    /// Nothing until its content shows up.
    Wait,
    /// A content must be made.
    Make,
    /// The content must be told whom it belongs to.
    Bind,
    /// What the content says goes into the status.
    Settle,
    /// Say what is wrong.
    Refuse(Refusal),
}

/// What is wrong, for the status and the event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) reason: String,
    pub(super) message: String,
    /// Whether it can't be used; otherwise its readiness stays as it is.
    pub(super) unready: bool,
    /// How long it waits. What it waits for wakes it, if it is watched.
    pub(super) setback: Setback,
}

impl Refusal {
    pub(super) fn new(words: &Words, reason: &str, message: impl Into<String>) -> Self {
        Self {
            reason: format!("{}{reason}", words.prefix),
            message: message.into(),
            unready: true,
            setback: Setback::Failed,
        }
    }

    /// One that can't go well until its object is another.
    fn hopeless(self) -> Self {
        Self {
            setback: Setback::Infeasible,
            ..self
        }
    }

    /// One that takes nothing away from what is there.
    pub(super) fn mild(words: &Words, reason: &str, message: impl Into<String>) -> Self {
        Self {
            unready: false,
            ..Self::new(words, reason, message)
        }
    }
}

/// What one needs whose content has this name, or would.
pub(super) fn decide(words: &Words, view: &View<'_>, expected: &str) -> Step {
    let refuse = |reason, message: String| Step::Refuse(Refusal::new(words, reason, message));
    let Words { kind, content, .. } = words;
    let missing = || {
        let message = format!("{content} is missing: {expected} does not exist; it is waited for");
        refuse("SnapshotContentMissing", message)
    };
    if view.source == Source::Unclear {
        let [one, other] = words.sources;
        let message = format!("Exactly one of {one} and {other} should be specified");
        let refusal = Refusal::new(words, "SnapshotValidationError", message);
        return Step::Refuse(refusal.hopeless());
    }
    let Some(half) = view.content else {
        return match view.source {
            _ if view.settled => missing(),
            Source::Content => missing(),
            Source::Group => Step::Wait,
            Source::Claims | Source::Unclear => Step::Make,
        };
    };
    if view.settled {
        if half.bound {
            return Step::Leave;
        }
        let message = format!("{content} is not bound to the {kind} correctly");
        return refuse("SnapshotMisbound", message);
    }
    let misbound = || {
        let (name, word) = (half.name, words.word);
        let message = format!(
            "{content} [{name}] is bound to a different {word}; name another, or correct what it refers to"
        );
        refuse("SnapshotContentMisbound", message)
    };
    match view.source {
        Source::Content if !half.found => refuse(
            "SnapshotContentMismatch",
            format!("{content} is dynamically provisioned while expecting a pre-provisioned one"),
        ),
        Source::Content if !half.may_bind => misbound(),
        Source::Content if !half.bound || half.classless => Step::Bind,
        Source::Claims if half.found => refuse(
            "SnapshotContentMismatch",
            format!(
                "{content} {} is pre-provisioned while expecting a dynamically provisioned one",
                half.name
            ),
        ),
        _ if !half.bound => misbound(),
        _ => Step::Settle,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: Words = Words {
        prefix: "",
        kind: "VolumeSnapshot",
        content: "VolumeSnapshotContent",
        word: "snapshot",
        sources: ["PersistentVolumeClaimName", "VolumeSnapshotContentName"],
    };
    const MADE: Half<'_> = Half {
        name: "c",
        found: false,
        bound: true,
        may_bind: true,
        classless: false,
    };
    const FREE: Half<'_> = Half {
        found: true,
        bound: false,
        ..MADE
    };
    const FOREIGN: Half<'_> = Half {
        bound: false,
        may_bind: false,
        ..MADE
    };

    fn of(source: Source, settled: bool, content: Option<Half<'_>>) -> Result<Step, String> {
        let view = View {
            source,
            settled,
            content,
        };
        match decide(&WORDS, &view, "c") {
            Step::Refuse(refusal) => Err(refusal.reason),
            step => Ok(step),
        }
    }

    #[test]
    fn a_snapshot_of_a_claim_gets_a_content_and_follows_it() {
        assert_eq!(of(Source::Claims, false, None), Ok(Step::Make));
        assert_eq!(of(Source::Claims, false, Some(MADE)), Ok(Step::Settle));
        assert_eq!(of(Source::Claims, true, Some(MADE)), Ok(Step::Leave));
    }

    #[test]
    fn a_snapshot_of_a_content_is_bound_both_ways_before_it_is_believed() {
        assert_eq!(of(Source::Content, false, Some(FREE)), Ok(Step::Bind));
        let bound = Half {
            bound: true,
            ..FREE
        };
        assert_eq!(of(Source::Content, false, Some(bound)), Ok(Step::Settle));
        let classless = Half {
            classless: true,
            ..bound
        };
        assert_eq!(of(Source::Content, false, Some(classless)), Ok(Step::Bind));
    }

    #[test]
    fn a_member_waits_for_the_content_that_its_group_makes() {
        assert_eq!(of(Source::Group, false, None), Ok(Step::Wait));
        assert_eq!(of(Source::Group, false, Some(MADE)), Ok(Step::Settle));
    }

    #[test]
    fn what_does_not_fit_together_is_told_and_never_bound() {
        for (source, settled, content, reason) in [
            (Source::Unclear, false, None, "SnapshotValidationError"),
            (Source::Content, false, None, "SnapshotContentMissing"),
            (Source::Claims, true, None, "SnapshotContentMissing"),
            (Source::Group, true, None, "SnapshotContentMissing"),
            (Source::Claims, true, Some(FOREIGN), "SnapshotMisbound"),
            (Source::Claims, false, Some(FREE), "SnapshotContentMismatch"),
            (
                Source::Claims,
                false,
                Some(FOREIGN),
                "SnapshotContentMisbound",
            ),
            (
                Source::Group,
                false,
                Some(FOREIGN),
                "SnapshotContentMisbound",
            ),
            (
                Source::Content,
                false,
                Some(MADE),
                "SnapshotContentMismatch",
            ),
        ] {
            let expected = Err(reason.to_owned());
            assert_eq!(of(source, settled, content), expected, "{source:?}");
        }
        let taken = Half {
            found: true,
            ..FOREIGN
        };
        let expected = Err("SnapshotContentMisbound".to_owned());
        assert_eq!(of(Source::Content, false, Some(taken)), expected);
    }
}
