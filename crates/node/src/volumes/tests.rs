//! Tables of the volume's decisions.

use super::decide::{Attachment, Because, DriverState, Step, View, decide};
use super::*;

fn uid(name: &str) -> PodUid {
    PodUid::new(name).expect("a uid")
}

fn want(labels: &[(&str, &str)], pod: &str) -> Arc<Want> {
    let label = labels.iter().find(|(of, _)| *of == pod);
    Arc::new(Want {
        label: label.map(|(_, label)| (*label).to_owned()),
        ..Want::default()
    })
}

struct Case {
    wants: &'static [&'static str],
    undecided: &'static [&'static str],
    published: &'static [(&'static str, Hold)],
    staging: Option<Hold>,
    attachment: Attachment,
    driver: DriverState,
    skip: &'static [&'static str],
    grows: bool,
    lifetime: Lifetime,
    group: Grouped,
    again_at: Option<i64>,
    /// What it is mounted with, and what pods need.
    label: Option<&'static str>,
    labels: &'static [(&'static str, &'static str)],
}

impl Default for Case {
    fn default() -> Self {
        Self {
            wants: &[],
            undecided: &[],
            published: &[],
            staging: None,
            attachment: Attachment::Attached,
            driver: DriverState::Present { stages: true },
            skip: &[],
            grows: false,
            lifetime: Lifetime::Persistent,
            group: Grouped::Settled,
            again_at: None,
            label: None,
            labels: &[],
        }
    }
}

/// When the decisions of these tables are taken.
const NOW: i64 = 1000;

fn time(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("a time")
}

impl Case {
    fn step(&self) -> Step {
        let publication = |hold| Publication {
            hold,
            group: self.group,
            again_at: self.again_at.map(time),
            ..Publication::maybe("pv".into())
        };
        let device = Device {
            shape: Shape::Files,
            lifetime: self.lifetime,
            staging: self.staging,
            label: self.label.map(str::to_owned),
            publications: self
                .published
                .iter()
                .map(|(pod, hold)| (uid(pod), publication(*hold)))
                .collect(),
            wants: self
                .wants
                .iter()
                .map(|pod| (uid(pod), want(self.labels, pod)))
                .collect(),
            undecided: self.undecided.iter().map(|pod| uid(pod)).collect(),
            trouble: None,
            size: growth::Size::Unknown,
            refused: None,
        };
        let skip = self.skip.iter().map(|pod| uid(pod)).collect();
        decide(&View {
            device: &device,
            driver: self.driver,
            attachment: self.attachment,
            skip: &skip,
            grows: self.grows,
            now: time(NOW),
        })
    }
}

const CERTAIN: Option<Hold> = Some(Hold::Certain);
const UNCERTAIN: Option<Hold> = Some(Hold::Uncertain);

#[test]
fn a_volume_is_reported_attached_staged_published_in_this_order() {
    let wanted = || Case {
        wants: &["a"],
        ..Case::default()
    };
    let step = |case: Case| case.step();
    assert_eq!(
        step(Case {
            attachment: Attachment::NotReported,
            ..wanted()
        }),
        Step::Wait(Because::NotReported)
    );
    assert_eq!(
        step(Case {
            attachment: Attachment::Pending,
            ..wanted()
        }),
        Step::Wait(Because::NotAttached)
    );
    assert_eq!(step(wanted()), Step::Stage);
    assert_eq!(
        step(Case {
            attachment: Attachment::NotNeeded,
            ..wanted()
        }),
        Step::Stage
    );
    assert_eq!(
        step(Case {
            staging: CERTAIN,
            ..wanted()
        }),
        Step::Publish(uid("a"))
    );
    let published = &[("a", Hold::Certain)];
    assert_eq!(
        step(Case {
            staging: CERTAIN,
            published,
            ..wanted()
        }),
        Step::Rest
    );
}

#[test]
fn nothing_is_taken_from_a_pod_whose_fate_is_not_known_yet() {
    let restarted = |undecided| Case {
        undecided,
        published: &[("a", Hold::Uncertain)],
        staging: UNCERTAIN,
        ..Case::default()
    };
    assert_eq!(restarted(&["a"]).step(), Step::Rest);
    assert_eq!(restarted(&[]).step(), Step::Unpublish(uid("a")));
}

#[test]
fn what_is_uncertain_and_wanted_is_done_again() {
    let published = &[("a", Hold::Uncertain)];
    let case = Case {
        wants: &["a"],
        published,
        staging: UNCERTAIN,
        ..Case::default()
    };
    assert_eq!(
        case.step(),
        Step::Stage,
        "an unstage that timed out may have unstaged it"
    );
    assert_eq!(
        Case {
            staging: CERTAIN,
            ..case
        }
        .step(),
        Step::Publish(uid("a"))
    );
}

#[test]
fn what_is_uncertain_and_unwanted_is_undone() {
    let published = &[("a", Hold::Uncertain)];
    let case = Case {
        published,
        staging: UNCERTAIN,
        ..Case::default()
    };
    assert_eq!(case.step(), Step::Unpublish(uid("a")));
    assert_eq!(
        Case {
            published: &[],
            ..case
        }
        .step(),
        Step::Unstage
    );
    assert_eq!(Case::default().step(), Step::Forget);
}

#[test]
fn a_volume_is_taken_away_even_if_it_is_not_attached_any_more() {
    let case = Case {
        published: &[("a", Hold::Certain)],
        staging: CERTAIN,
        attachment: Attachment::Pending,
        ..Case::default()
    };
    assert_eq!(case.step(), Step::Unpublish(uid("a")));
}

#[test]
fn a_volume_stays_staged_while_one_pod_wants_it() {
    let case = Case {
        wants: &["b"],
        published: &[("a", Hold::Certain), ("b", Hold::Certain)],
        staging: CERTAIN,
        ..Case::default()
    };
    assert_eq!(case.step(), Step::Unpublish(uid("a")));
    assert_eq!(
        Case {
            published: &[("b", Hold::Certain)],
            ..case
        }
        .step(),
        Step::Rest
    );
}

#[test]
fn it_is_not_unstaged_while_a_publication_may_be_left() {
    let case = Case {
        published: &[("a", Hold::Certain)],
        staging: CERTAIN,
        skip: &["a"],
        ..Case::default()
    };
    assert_eq!(case.step(), Step::Rest);
}

#[test]
fn one_pods_failure_does_not_hold_up_another() {
    let case = Case {
        wants: &["a", "b"],
        staging: CERTAIN,
        skip: &["a"],
        ..Case::default()
    };
    assert_eq!(case.step(), Step::Publish(uid("b")));
}

#[test]
fn a_driver_that_does_not_stage_is_published_directly() {
    let driver = DriverState::Present { stages: false };
    let case = Case {
        wants: &["a"],
        driver,
        ..Case::default()
    };
    assert_eq!(case.step(), Step::Publish(uid("a")));
}

#[test]
fn a_volume_that_lives_with_its_pod_is_published_and_unpublished_and_nothing_else() {
    let inline = |published| Case {
        published,
        lifetime: Lifetime::Ephemeral,
        ..Case::default()
    };
    for attachment in [
        Attachment::NotReported,
        Attachment::Pending,
        Attachment::NotNeeded,
    ] {
        let wanted = Case {
            wants: &["a"],
            attachment,
            ..inline(&[])
        };
        assert_eq!(wanted.step(), Step::Publish(uid("a")), "{attachment:?}");
    }
    let rests = Case {
        wants: &["a"],
        ..inline(&[("a", Hold::Certain)])
    };
    assert_eq!(rests.step(), Step::Rest);
    let uncertain = &[("a", Hold::Uncertain)];
    let restarted = Case {
        undecided: &["a"],
        ..inline(uncertain)
    };
    assert_eq!(restarted.step(), Step::Rest);
    assert_eq!(inline(uncertain).step(), Step::Unpublish(uid("a")));
    assert_eq!(inline(&[]).step(), Step::Forget);
}

#[test]
fn a_volume_grows_before_it_is_published_where_it_is_staged() {
    let case = Case {
        wants: &["a", "b"],
        staging: CERTAIN,
        grows: true,
        ..Case::default()
    };
    assert_eq!(case.step(), Step::Grow);
    let published = &[("a", Hold::Certain)];
    assert_eq!(
        Case { published, ..case }.step(),
        Step::Grow,
        "and while it is used"
    );
    let unstaged = |published| Case {
        wants: &["a"],
        driver: DriverState::Present { stages: false },
        published,
        grows: true,
        ..Case::default()
    };
    assert_eq!(unstaged(&[]).step(), Step::Publish(uid("a")));
    assert_eq!(unstaged(&[("a", Hold::Certain)]).step(), Step::Grow);
    let unwanted = Case {
        staging: CERTAIN,
        grows: true,
        ..Case::default()
    };
    assert_eq!(unwanted.step(), Step::Unstage);
}

#[test]
fn a_volumes_files_are_the_pods_groups_before_it_is_at_rest() {
    let open = Grouped::Open {
        wanted: Wanted {
            group: 7,
            access: orlop_host::group::Access::ReadWrite,
        },
        when: When::Always,
    };
    let case = |wants, skip| Case {
        wants,
        published: &[("a", Hold::Certain)],
        staging: CERTAIN,
        group: open,
        skip,
        ..Case::default()
    };
    assert_eq!(case(&["a"], &[]).step(), Step::Own(uid("a")));
    assert_eq!(case(&["a"], &["a"]).step(), Step::Rest);
    let second = case(&["a", "b"], &[]).step();
    assert_eq!(second, Step::Publish(uid("b")), "a walk may take long");
    assert_eq!(case(&[], &[]).step(), Step::Unpublish(uid("a")));
}

#[test]
fn a_volume_is_published_again_when_its_time_has_come() {
    let case = |again_at, wants| Case {
        wants,
        published: &[("a", Hold::Certain)],
        staging: CERTAIN,
        again_at: Some(again_at),
        ..Case::default()
    };
    let later = NOW + 60;
    assert_eq!(case(later, &["a"]).step(), Step::Until(time(later)));
    assert_eq!(case(NOW, &["a"]).step(), Step::Publish(uid("a")));
    assert_eq!(case(NOW, &[]).step(), Step::Unpublish(uid("a")));
}

#[test]
fn pods_with_other_selinux_labels_wait_until_the_volume_is_free() {
    let case = |wants, published| Case {
        wants,
        published,
        staging: CERTAIN,
        label: Some("one"),
        labels: &[("a", "one"), ("b", "two")],
        ..Case::default()
    };
    let used = &[("a", Hold::Certain)];
    assert_eq!(case(&["a"], used).step(), Step::Rest);
    let both = case(&["a", "b"], used).step();
    assert_eq!(both, Step::Wait(Because::OtherLabel));
    assert_eq!(case(&["a", "b"], &[]).step(), Step::Publish(uid("a")));
    assert_eq!(case(&["b"], used).step(), Step::Unpublish(uid("a")));
    let free = case(&["b"], &[]);
    assert_eq!(free.step(), Step::Unstage, "to be mounted with the other");
    let undecided = Case {
        undecided: &["a"],
        ..case(&["b"], used)
    };
    assert_eq!(undecided.step(), Step::Wait(Because::OtherLabel));
    let unstaged = Case {
        staging: None,
        ..case(&["b"], &[])
    };
    assert_eq!(unstaged.step(), Step::Stage);
}

#[test]
fn without_the_driver_nothing_is_called_and_nothing_forgotten() {
    let driver = DriverState::Missing;
    for case in [
        Case {
            wants: &["a"],
            driver,
            ..Case::default()
        },
        Case {
            published: &[("a", Hold::Certain)],
            staging: CERTAIN,
            driver,
            ..Case::default()
        },
        Case {
            staging: UNCERTAIN,
            driver,
            ..Case::default()
        },
    ] {
        assert_eq!(case.step(), Step::Wait(Because::NoDriver));
    }
}
