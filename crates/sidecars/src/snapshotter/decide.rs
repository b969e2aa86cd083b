//! What a content needs next. Pure.

use orlop_model::snapshot::DeletionPolicy;

/// Where a content's snapshot comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// It is to be cut.
    Volume,
    /// It was there before the content.
    Handle,
    /// It was cut with a group, and goes with it.
    Member,
}

/// A content as a decision sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct View {
    pub(super) deleting: bool,
    /// Our finalizer stands.
    pub(super) held: bool,
    pub(super) being_created: bool,
    pub(super) being_deleted: bool,
    /// It was there before, and nobody has been bound to it.
    pub(super) unbound: bool,
    pub(super) policy: DeletionPolicy,
    pub(super) origin: Origin,
    /// The driver's id is on record.
    pub(super) handle: bool,
    pub(super) ready: bool,
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing.
    Leave,
    /// Ask the driver to cut it, or to tell again what it cut.
    Create,
    /// Ask the driver how it is.
    Ask,
    /// Say that no call is under way.
    Tidy,
    /// Delete it at the driver, then let the content go.
    Delete,
    /// Let the content go; the driver has nothing, or keeps it.
    LetGo,
}

pub(super) fn decide(view: &View) -> Step {
    let may_go = view.unbound || (view.being_deleted && !view.being_created);
    match (view.deleting, may_go) {
        (true, true) if !view.held => Step::Leave,
        (true, true) => match (view.policy, view.handle, view.origin) {
            (DeletionPolicy::Delete, true, Origin::Volume | Origin::Handle) => Step::Delete,
            _ => Step::LetGo,
        },
        // Nothing new is made of what goes; what may have been made is looked for.
        (true, false) if !view.being_created => Step::Leave,
        _ => make(view),
    }
}

fn make(view: &View) -> Step {
    match (view.origin, view.handle) {
        // The deletion follows.
        (Origin::Volume, false) if view.being_deleted && !view.being_created => Step::Leave,
        (Origin::Volume, false) => Step::Create,
        _ if view.being_created => Step::Tidy,
        _ if view.ready => Step::Leave,
        (Origin::Volume, true) => Step::Create,
        (Origin::Handle, _) | (Origin::Member, true) => Step::Ask,
        // The snapshot controller has not told its id yet.
        (Origin::Member, false) => Step::Leave,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A content of a volume, new.
    const NEW: View = View {
        deleting: false,
        held: true,
        being_created: false,
        being_deleted: false,
        unbound: false,
        policy: DeletionPolicy::Delete,
        origin: Origin::Volume,
        handle: false,
        ready: false,
    };
    const ASKED: View = View {
        being_created: true,
        ..NEW
    };
    const CUT: View = View {
        handle: true,
        ..NEW
    };
    const READY: View = View { ready: true, ..CUT };
    const FOUND: View = View {
        origin: Origin::Handle,
        ..NEW
    };
    const MEMBER: View = View {
        origin: Origin::Member,
        handle: true,
        ..NEW
    };

    fn going(view: View) -> View {
        View {
            deleting: true,
            being_deleted: true,
            ..view
        }
    }

    #[test]
    fn a_content_is_led_to_ready_and_left_alone() {
        assert_eq!(decide(&NEW), Step::Create);
        assert_eq!(decide(&ASKED), Step::Create);
        assert_eq!(decide(&CUT), Step::Create, "it is asked again how it is");
        let recorded = View {
            being_created: true,
            ..READY
        };
        assert_eq!(decide(&recorded), Step::Tidy);
        assert_eq!(decide(&READY), Step::Leave);
        assert_eq!(decide(&FOUND), Step::Ask);
        assert_eq!(decide(&MEMBER), Step::Ask);
        let nameless = View {
            handle: false,
            ..MEMBER
        };
        assert_eq!(
            decide(&nameless),
            Step::Leave,
            "a member is never cut alone"
        );
    }

    #[test]
    fn a_content_goes_only_when_its_snapshot_does() {
        let alone = View {
            deleting: true,
            ..READY
        };
        assert_eq!(decide(&alone), Step::Leave);
        assert_eq!(decide(&going(READY)), Step::Delete);
        let kept = View {
            policy: DeletionPolicy::Retain,
            ..going(READY)
        };
        assert_eq!(decide(&kept), Step::LetGo);
        assert_eq!(
            decide(&going(NEW)),
            Step::LetGo,
            "nothing was ever asked for"
        );
        let over = View {
            held: false,
            ..going(READY)
        };
        assert_eq!(decide(&over), Step::Leave);
    }

    #[test]
    fn what_may_exist_is_found_before_its_content_goes() {
        assert_eq!(decide(&going(ASKED)), Step::Create);
        let found = View {
            handle: true,
            ..going(ASKED)
        };
        assert_eq!(decide(&found), Step::Tidy);
        let unmarked = View {
            deleting: true,
            ..ASKED
        };
        assert_eq!(decide(&unmarked), Step::Create);
    }

    #[test]
    fn nothing_new_is_made_of_what_goes() {
        let new = View {
            deleting: true,
            ..NEW
        };
        assert_eq!(decide(&new), Step::Leave);
    }

    #[test]
    fn nothing_new_is_made_of_what_is_about_to_go() {
        let marked = View {
            being_deleted: true,
            ..NEW
        };
        assert_eq!(decide(&marked), Step::Leave);
        let asked = View {
            being_created: true,
            ..marked
        };
        assert_eq!(decide(&asked), Step::Create, "its outcome is unknown");
    }

    #[test]
    fn a_member_is_never_deleted_alone() {
        assert_eq!(decide(&going(MEMBER)), Step::LetGo);
    }

    #[test]
    fn one_that_was_there_and_is_bound_to_nobody_goes_at_once() {
        let unbound = View {
            deleting: true,
            unbound: true,
            handle: true,
            ..FOUND
        };
        assert_eq!(decide(&unbound), Step::Delete);
    }
}
