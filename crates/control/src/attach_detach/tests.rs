//! The original's own cases have their counterparts, as far as they are about what must come of a state;
//! the others are about how its caches are kept.
//!
//! | original (`pkg/controller/volume/attachdetach`) | here |
//! |---|---|
//! | reconciler: attach, detach with unmounted and mounted volume | `a_node_keeps_what_it_wants_or_uses_and_nothing_else` |
//! | reconciler: …UpdateStatusFail, …DetachFail; statusupdater: FailureInFirstUpdate | `tests/attaching/trouble.rs` |
//! | reconciler: MultipleNodesWithReadWriteMany, …ReadWriteOnce | `a_shared_volume_goes_to_every_node_that_wants_it`, `a_volume_of_one_node_never_goes_to_a_second` |
//! | reconciler: Uncertain, Timeout | the simulation's `history::a_volume_whose_attachment_is_uncertain_comes_off_before_it_goes_elsewhere` |
//! | reconciler: OutOfServiceTainted, Unhealthy, ForceDetachOnUnmountDisabled | `a_volume_in_use_is_detached_by_force_only_for_a_reason` |
//! | reconciler: Test_ReportWaitingOnDetach | `news` |
//! | controller: StateOfWorldPopulators, Recovery, VolumeAttachmentRecovery | `tests/attaching/stories.rs` `a_restart_finds_what_dangles_and_keeps_what_is_wanted` |
//! | controller: TestPodDelete_Tombstone | the simulation's `history::an_attacher_that_missed_the_end_of_an_attachment_goes_on` |
//! | populator: FindAndRemoveDeletedPods, FindAndRemoveNonattachableVolumes | `stories` `a_pod_that_is_being_deleted_…`, `a_driver_that_wants_nothing_attached_any_more_gets_its_volumes_back` |
//! | util: Test_CreateVolumeSpec | `model::migration`, `stories` `pods_own_volumes_of_plugins_…` |
//! | metrics | `stories` `a_volume_is_attached_told_and_announced_…` |
//!
//! Who is attached where, and what a crash after any write leads to.

use std::{collections::BTreeMap, sync::Arc};

use orlop_model::{
    Node, Pod, PodPhase, Volume, VolumeAttachment, node::AttachedVolume, node::Taint, well_known,
};

use super::{
    actual::{self, Room},
    decide::{
        Elsewhere, Force, NodeDecision, NodeView, Standing, Verdict, VolumeView, decide_node,
        decide_volume,
    },
    desired::{self, Wish},
};
mod flex;
mod news;

use crate::{
    Evidence,
    fixtures::{attachment, bound, deleting, node as a_node, pod as a_pod, volume as a_volume},
};

fn wishes(pods: &[Pod]) -> desired::Wishes {
    let mut wishes = desired::Wishes::new();
    for pod in pods {
        let on = wishes.entry(pod.spec.node_name.clone()).or_default();
        on.push(Wish {
            pod: Arc::new(pod.clone()),
            volume: Arc::new(a_volume("vol", "c")),
            inline: false,
        });
    }
    wishes
}

fn verdicts(pods: &[Pod], attachments: Vec<VolumeAttachment>) -> Vec<(String, Verdict)> {
    decide_volume(&VolumeView {
        exclusive: true,
        attachable: true,
        wishes: wishes(pods),
        attachments: attachments.into_iter().map(Arc::new).collect(),
        rooms: BTreeMap::new(),
    })
}

fn elsewhere(node: &str, users: &[&str]) -> Verdict {
    let users = users
        .iter()
        .map(|name| orlop_model::Key::namespaced("ns", *name));
    Verdict::Elsewhere(Elsewhere {
        nodes: vec![node.to_owned()],
        users: users.collect(),
        trouble: None,
    })
}

#[test]
fn a_volume_of_one_node_never_goes_to_a_second() {
    let vol = a_volume("vol", "c");
    let here = a_pod("here", "n2", "data");
    let there = a_pod("there", "n1", "data");
    let on_n1 = attachment(&vol, "n1");
    let mut unsure = on_n1.clone();
    unsure.status.attached = false;
    let cases = [
        ("nobody has it", vec![], Verdict::Attach),
        ("n1 has it", vec![on_n1.clone()], elsewhere("n1", &[])),
        ("n1 may have it", vec![unsure], elsewhere("n1", &[])),
        (
            "n1 is giving it back",
            vec![deleting(on_n1.clone())],
            elsewhere("n1", &[]),
        ),
        ("n2 has it", vec![attachment(&vol, "n2")], Verdict::Held),
        (
            "n2 is giving it back",
            vec![deleting(attachment(&vol, "n2"))],
            Verdict::Leaving { trouble: None },
        ),
    ];
    for (name, attachments, verdict) in cases {
        let expected = vec![("n2".to_owned(), verdict)];
        assert_eq!(
            verdicts(std::slice::from_ref(&here), attachments),
            expected,
            "{name}"
        );
    }
    let both = verdicts(&[here, there], vec![on_n1]);
    let expected = [
        ("n2".to_owned(), elsewhere("n1", &["there"])),
        ("n1".to_owned(), Verdict::Held),
    ];
    assert_eq!(both, expected);
}

#[test]
fn of_two_nodes_that_want_it_the_longer_waiting_pod_wins() {
    let mut old = a_pod("old", "n2", "data");
    let mut new = a_pod("new", "n1", "data");
    old.metadata.creation_timestamp = Some(jiff::Timestamp::from_second(1).unwrap());
    new.metadata.creation_timestamp = Some(jiff::Timestamp::from_second(2).unwrap());
    let expected = [
        ("n2".to_owned(), Verdict::Attach),
        ("n1".to_owned(), elsewhere("n2", &["old"])),
    ];
    assert_eq!(verdicts(&[new, old], vec![]), expected);
}

#[test]
fn a_shared_volume_goes_to_every_node_that_wants_it() {
    let vol = a_volume("vol", "c");
    let view = VolumeView {
        attachments: vec![Arc::new(attachment(&vol, "n1"))],
        exclusive: false,
        attachable: true,
        wishes: wishes(&[a_pod("a", "n1", "data"), a_pod("b", "n2", "data")]),
        rooms: BTreeMap::new(),
    };
    let expected = [
        ("n1".to_owned(), Verdict::Held),
        ("n2".to_owned(), Verdict::Attach),
    ];
    assert_eq!(decide_volume(&view), expected);
    let view = VolumeView {
        attachable: false,
        ..view
    };
    assert_eq!(decide_volume(&view), []);
}

fn running(mut pod: Pod) -> Pod {
    let mut container = orlop_model::pod::ContainerStatus::default();
    container.state.running = Some(orlop_model::pod::RunningSince::default());
    pod.status.container_statuses = vec![container];
    pod
}

#[test]
fn a_pod_wants_its_volumes_until_its_containers_have_ended() {
    let pod = a_pod("p", "n1", "data");
    let mut off = a_node("n1");
    off.spec.taints.push(Taint {
        key: well_known::OUT_OF_SERVICE.into(),
        effect: "NoExecute".into(),
        ..Taint::default()
    });
    let on = a_node("n1");
    let mut finished = pod.clone();
    finished.status.phase = Some(PodPhase::Succeeded);
    let cases = [
        ("running", pod.clone(), Some(&on), true),
        (
            "being deleted",
            deleting(running(pod.clone())),
            Some(&on),
            true,
        ),
        (
            "being deleted, nothing runs",
            deleting(pod.clone()),
            Some(&on),
            false,
        ),
        ("node gone", pod.clone(), None, true),
        ("node off", pod.clone(), Some(&off), true),
        (
            "node off, being deleted",
            deleting(running(pod)),
            Some(&off),
            false,
        ),
        ("finished", finished, Some(&on), false),
        ("not placed", a_pod("p", "", "data"), None, false),
    ];
    for (name, pod, node, wants) in cases {
        assert_eq!(desired::wants(&pod, node), wants, "{name}");
    }
    let (claim, volume) = bound("data", "vol");
    assert!(desired::is_bound(&claim, &volume));
    let mut replaced = claim;
    replaced.metadata.uid = "second".into();
    assert!(!desired::is_bound(&replaced, &volume));
}

#[test]
fn an_attachment_is_found_by_name_even_when_its_volume_is_gone() {
    let vol = a_volume("vol", "c");
    let va = attachment(&vol, "n1");
    assert_eq!(va.metadata.name.len(), 4 + 64);
    assert!(actual::is_ours(&va));
    assert!(actual::is_of(&va, &unique(&vol)));
    assert!(!actual::is_of(&va, "kubernetes.io/csi/d^other"));
    let mut foreign = va.clone();
    foreign.metadata.name = "made-by-hand".into();
    assert!(!actual::is_ours(&foreign));
    assert!(actual::is_of(&foreign, "kubernetes.io/csi/d^other"));
    let mut node = a_node("n1");
    node.status.volumes_in_use = vec!["kubernetes.io/csi/d^other".into(), unique(&vol)];
    assert_eq!(actual::listed_name(&va, Some(&node)), Some(unique(&vol)));
    assert_eq!(actual::listed_name(&va, None), None);
}

fn unique(volume: &Volume) -> String {
    volume.unique_name().unwrap()
}

fn listed(volume: &Volume) -> Vec<AttachedVolume> {
    vec![AttachedVolume {
        name: unique(volume),
        device_path: String::new(),
    }]
}

struct Case {
    name: &'static str,
    wanted: bool,
    attached: bool,
    told: bool,
    in_use: bool,
    off: bool,
    /// What the node is told: `None` for nothing, else whether the volume is in the list.
    tell: Option<bool>,
    detach: bool,
}

#[test]
fn a_node_keeps_what_it_wants_or_uses_and_nothing_else() {
    let base = Case {
        name: "",
        wanted: false,
        attached: true,
        told: false,
        in_use: false,
        off: false,
        tell: None,
        detach: false,
    };
    let cases = [
        Case {
            name: "not attached yet",
            wanted: true,
            attached: false,
            ..base
        },
        Case {
            name: "just attached",
            wanted: true,
            tell: Some(true),
            ..base
        },
        Case {
            name: "settled",
            wanted: true,
            told: true,
            in_use: true,
            ..base
        },
        Case {
            name: "unwanted, still used",
            told: true,
            in_use: true,
            ..base
        },
        Case {
            name: "unwanted, used again",
            in_use: true,
            tell: Some(true),
            ..base
        },
        Case {
            name: "unwanted, unused",
            told: true,
            tell: Some(false),
            detach: true,
            ..base
        },
        Case {
            name: "unwanted, untold",
            detach: true,
            ..base
        },
        Case {
            name: "unwanted, never attached",
            attached: false,
            detach: true,
            ..base
        },
        Case {
            name: "unwanted, used, but the node is off",
            told: true,
            in_use: true,
            off: true,
            tell: Some(false),
            detach: true,
            ..base
        },
    ];
    let vol = a_volume("vol", "c");
    for case in cases {
        let mut node = a_node("n1");
        if case.told {
            node.status.volumes_attached = listed(&vol);
        }
        if case.in_use {
            node.status.volumes_in_use = vec![unique(&vol)];
        }
        if case.off {
            let key = well_known::OUT_OF_SERVICE.into();
            node.spec.taints = vec![Taint {
                key,
                ..Taint::default()
            }];
        }
        let mut va = attachment(&vol, "n1");
        va.status.attached = case.attached;
        let decision = decide_node(&NodeView {
            node: Some(Arc::new(node)),
            attachments: vec![standing(&vol, va, case.wanted)],
            asking: false,
            evidence: Evidence::Cached,
        });
        let tell = case
            .tell
            .map(|there| if there { listed(&vol) } else { vec![] });
        assert_eq!(decision.tell, tell, "{}", case.name);
        assert_eq!(!decision.detach.is_empty(), case.detach, "{}", case.name);
    }
}

fn standing(volume: &Volume, attachment: VolumeAttachment, wanted: bool) -> Standing {
    Standing {
        unique_name: volume.unique_name(),
        wanted,
        leaving: attachment.metadata.is_deleting(),
        overdue: false,
        attachment: Arc::new(attachment),
    }
}

#[test]
fn nothing_is_given_back_that_the_node_was_last_told_it_has() {
    let vol = a_volume("vol", "c");
    let mut node = a_node("n1");
    node.status.volumes_attached = listed(&vol);
    let mut view = NodeView {
        node: Some(Arc::new(node)),
        attachments: vec![standing(&vol, attachment(&vol, "n1"), false)],
        asking: false,
        evidence: Evidence::Live,
    };
    assert!(decide_node(&view).detach.is_empty());
    view.node = Some(Arc::new(a_node("n1")));
    assert_eq!(decide_node(&view).detach.len(), 1);
}

#[test]
fn what_the_node_was_told_to_lose_goes_though_there_is_more_to_tell() {
    let (old, new) = (a_volume("old", "c"), a_volume("new", "d"));
    let view = NodeView {
        node: Some(Arc::new(a_node("n1"))),
        attachments: vec![
            standing(&old, attachment(&old, "n1"), false),
            standing(&new, attachment(&new, "n1"), true),
        ],
        asking: false,
        evidence: Evidence::Live,
    };
    let decision = decide_node(&view);
    assert_eq!(decision.tell, Some(listed(&new)));
    assert_eq!(decision.detach.len(), 1);
}

#[test]
fn news_can_wait_only_for_more_of_its_kind() {
    let [there, other] = ["there", "other"].map(|name| a_volume(name, name));
    let view = |told: bool, state: fn(&mut VolumeAttachment), wanted| {
        let mut node = a_node("n1");
        if told {
            node.status.volumes_attached = listed(&other);
        }
        let mut second = attachment(&other, "n1");
        state(&mut second);
        NodeView {
            node: Some(Arc::new(node)),
            attachments: vec![
                standing(&there, attachment(&there, "n1"), true),
                standing(&other, second, wanted),
            ],
            asking: false,
            evidence: Evidence::Cached,
        }
    };
    let coming = |a: &mut VolumeAttachment| a.status.attached = false;
    let refused = |a: &mut VolumeAttachment| {
        a.status.attached = false;
        a.status.attach_error = Some(orlop_model::attachment::VolumeError::default());
    };
    let waits = |told, state, wanted| decide_node(&view(told, state, wanted)).more_to_come;
    assert!(waits(false, coming, true));
    assert!(
        !waits(false, refused, true),
        "nobody knows how long that takes"
    );
    assert!(!waits(false, coming, false), "nobody waits for it");
    assert!(
        !waits(true, coming, true),
        "what isn't there is told at once"
    );
    assert!(!waits(false, |_| {}, true));
    let mut asking = view(false, |_| {}, true);
    asking.asking = true;
    assert!(decide_node(&asking).more_to_come);
}

#[test]
fn what_is_being_given_back_is_not_told_and_not_given_back_twice() {
    let vol = a_volume("vol", "c");
    let view = NodeView {
        node: Some(Arc::new(a_node("n1"))),
        attachments: vec![standing(&vol, deleting(attachment(&vol, "n1")), true)],
        asking: false,
        evidence: Evidence::Cached,
    };
    assert_eq!(decide_node(&view), NodeDecision::default());
}

#[test]
fn a_gone_node_gives_back_what_its_pods_no_longer_want() {
    let vol = a_volume("vol", "c");
    for (wanted, given_back) in [(true, 0), (false, 1)] {
        let view = NodeView {
            node: None,
            attachments: vec![standing(&vol, attachment(&vol, "n1"), wanted)],
            asking: false,
            evidence: Evidence::Live,
        };
        assert_eq!(decide_node(&view).detach.len(), given_back);
    }
}

#[test]
fn entries_of_other_plugins_stay_in_the_list() {
    let other = AttachedVolume {
        name: "kubernetes.io/other/x".into(),
        device_path: "/dev/x".into(),
    };
    let mut node = a_node("n1");
    node.status.volumes_attached = vec![other.clone()];
    let vol = a_volume("vol", "c");
    let decision = decide_node(&NodeView {
        node: Some(Arc::new(node)),
        attachments: vec![standing(&vol, attachment(&vol, "n1"), true)],
        asking: false,
        evidence: Evidence::Cached,
    });
    assert_eq!(
        decision.tell.unwrap(),
        [&listed(&vol)[..], &[other][..]].concat()
    );
}

#[test]
fn a_node_that_attaches_itself_is_left_alone() {
    let vol = a_volume("vol", "c");
    let mut node = a_node("n1");
    node.metadata.annotations.clear();
    for evidence in [Evidence::Cached, Evidence::Live] {
        for wanted in [true, false] {
            let decision = decide_node(&NodeView {
                node: Some(Arc::new(node.clone())),
                attachments: vec![standing(&vol, attachment(&vol, "n1"), wanted)],
                asking: false,
                evidence,
            });
            assert_eq!(decision, NodeDecision::default());
        }
    }
}

/// Test_Run_OneVolumeDetachOnUnhealthyNode and the like of the original.
#[test]
fn a_volume_in_use_is_detached_by_force_only_for_a_reason() {
    struct Row {
        off: bool,
        ready: bool,
        overdue: bool,
        in_use: bool,
        goes: Option<Option<Force>>,
    }
    let row = |off, ready, overdue, in_use, goes| Row {
        off,
        ready,
        overdue,
        in_use,
        goes,
    };
    let vol = a_volume("vol", "c");
    for (number, row) in [
        row(false, true, false, false, Some(None)),
        row(false, false, false, false, Some(None)),
        row(false, true, false, true, None),
        row(false, false, false, true, None),
        row(false, true, true, true, None),
        row(false, false, true, true, Some(Some(Force::Timeout))),
        row(false, false, true, false, Some(None)),
        row(true, true, false, true, Some(Some(Force::OutOfService))),
        row(true, false, true, true, Some(Some(Force::OutOfService))),
        row(true, false, false, false, Some(Some(Force::OutOfService))),
    ]
    .into_iter()
    .enumerate()
    {
        let mut node = a_node("n1");
        if row.off {
            node.spec.taints = vec![Taint {
                key: well_known::OUT_OF_SERVICE.into(),
                ..Taint::default()
            }];
        }
        node.status.conditions = vec![orlop_model::node::Condition {
            type_: "Ready".into(),
            status: if row.ready { "True" } else { "Unknown" }.into(),
            ..orlop_model::node::Condition::default()
        }];
        if row.in_use {
            node.status.volumes_in_use = vec![unique(&vol)];
        }
        let mut standing = standing(&vol, attachment(&vol, "n1"), false);
        standing.overdue = row.overdue;
        let decision = decide_node(&NodeView {
            node: Some(Arc::new(node)),
            attachments: vec![standing],
            asking: false,
            evidence: Evidence::Cached,
        });
        let gone = decision.detach.first().map(|release| release.force);
        assert_eq!(gone, row.goes, "row {number}");
    }
}

#[test]
fn no_node_gets_more_volumes_than_its_driver_can_bear() {
    let csi_node = |count: Option<i32>| {
        let mut node = orlop_model::CsiNode::default();
        node.spec.drivers = vec![orlop_model::driver::CsiNodeDriver {
            name: "d".into(),
            allocatable: Some(orlop_model::driver::VolumeNodeResources { count }),
            ..orlop_model::driver::CsiNodeDriver::default()
        }];
        node
    };
    for (node, there, room) in [
        (None, 0, Room::NoDriver),
        (Some(orlop_model::CsiNode::default()), 0, Room::NoDriver),
        (Some(csi_node(None)), 1000, Room::Free),
        (Some(csi_node(Some(2))), 1, Room::Free),
        (Some(csi_node(Some(2))), 2, Room::Full(2)),
        (Some(csi_node(Some(2))), 3, Room::Full(2)),
        (Some(csi_node(Some(0))), 0, Room::Full(0)),
    ] {
        assert_eq!(actual::room(node.as_ref(), "d", there), room);
    }
    let pod = a_pod("p", "n1", "data");
    for (room, verdict) in [
        (Room::Free, Verdict::Attach),
        (Room::Full(2), Verdict::Full(2)),
        (Room::NoDriver, Verdict::NoDriver),
    ] {
        let view = VolumeView {
            exclusive: true,
            attachable: true,
            wishes: wishes(std::slice::from_ref(&pod)),
            attachments: vec![],
            rooms: BTreeMap::from([("n1".to_owned(), room)]),
        };
        assert_eq!(decide_volume(&view), [("n1".to_owned(), verdict)]);
    }
    // What is there takes no more room.
    let view = VolumeView {
        exclusive: true,
        attachable: true,
        wishes: wishes(std::slice::from_ref(&pod)),
        attachments: vec![Arc::new(attachment(&a_volume("vol", "c"), "n1"))],
        rooms: BTreeMap::from([("n1".to_owned(), Room::Full(1))]),
    };
    assert_eq!(decide_volume(&view), [("n1".to_owned(), Verdict::Held)]);
}

/// A node that keeps the handshake, an attacher, and this role's turns, one write at a time.
#[derive(Clone)]
struct World {
    volume: Volume,
    pods: BTreeMap<&'static str, Pod>,
    nodes: BTreeMap<&'static str, Node>,
    attachments: BTreeMap<String, VolumeAttachment>,
    mounted: BTreeMap<&'static str, bool>,
    busy: BTreeMap<&'static str, u8>,
    writes: usize,
    crash_after: Option<usize>,
}

struct Crashed;

impl World {
    fn new() -> Self {
        Self {
            volume: bound("data", "vol").1,
            pods: BTreeMap::new(),
            nodes: BTreeMap::from([("n1", a_node("n1")), ("n2", a_node("n2"))]),
            attachments: BTreeMap::new(),
            mounted: BTreeMap::new(),
            busy: BTreeMap::new(),
            writes: 0,
            crash_after: None,
        }
    }

    fn wrote(&mut self) -> Result<(), Crashed> {
        self.writes += 1;
        self.check();
        match self.crash_after == Some(self.writes) {
            true => Err(Crashed),
            false => Ok(()),
        }
    }

    /// Never attached twice, and never taken away under a mount.
    fn check(&self) {
        assert!(self.attachments.len() <= 1, "attached twice");
        for (node, mounted) in &self.mounted {
            let on = |a: &VolumeAttachment| {
                a.spec.node_name == *node && a.status.attached && !a.metadata.is_deleting()
            };
            assert!(
                !mounted || self.attachments.values().any(on),
                "taken from {node}"
            );
        }
    }

    fn volume_turn(&mut self) -> Result<(), Crashed> {
        let pods: Vec<Pod> = self.pods.values().cloned().collect();
        let view = VolumeView {
            exclusive: true,
            attachable: true,
            wishes: wishes(&pods),
            attachments: self.attachments.values().cloned().map(Arc::new).collect(),
            rooms: BTreeMap::new(),
        };
        for (node, verdict) in decide_volume(&view) {
            if verdict == Verdict::Attach {
                let mut made = attachment(&self.volume, &node);
                made.status.attached = false;
                self.attachments.insert(made.metadata.name.clone(), made);
                self.wrote()?;
            }
        }
        Ok(())
    }

    fn node_view(&self, name: &str, evidence: Evidence) -> NodeView {
        let on = |a: &&VolumeAttachment| a.spec.node_name == name;
        let wanted = self.pods.values().any(|p| p.spec.node_name == name);
        let attachments = self.attachments.values().filter(on);
        NodeView {
            node: self.nodes.get(name).cloned().map(Arc::new),
            attachments: attachments
                .map(|a| standing(&self.volume, a.clone(), wanted))
                .collect(),
            asking: false,
            evidence,
        }
    }

    fn node_turn(&mut self, name: &'static str) -> Result<(), Crashed> {
        let decision = decide_node(&self.node_view(name, Evidence::Cached));
        let mut answer = None;
        if let Some(attached) = decision.tell {
            let node = self.nodes.get_mut(name).unwrap();
            node.status.volumes_attached = attached;
            answer = Some(Arc::new(node.clone()));
            self.wrote()?;
        }
        // The node may act between any two of our writes.
        self.node_acts(name);
        let mut live = self.node_view(name, Evidence::Live);
        if answer.is_some() {
            live.node = answer;
        }
        for given_back in decide_node(&live).detach {
            let name = &given_back.attachment.metadata.name;
            let left = self.attachments.get_mut(name).unwrap();
            *left = deleting(left.clone());
            self.wrote()?;
        }
        Ok(())
    }

    /// The kubelet's half: in use before mounting, mounted only if told, in use until unmounted.
    fn node_acts(&mut self, name: &'static str) {
        let wanted = self.pods.values().any(|p| p.spec.node_name == name);
        let told = listed(&self.volume);
        let node = self.nodes.get_mut(name).unwrap();
        let mounted = self.mounted.entry(name).or_default();
        if wanted {
            node.status.volumes_in_use = vec![unique(&self.volume)];
            *mounted = *mounted || node.status.volumes_attached == told;
            self.busy.insert(name, 2);
        } else if let Some(left) = self.busy.get_mut(name).filter(|left| **left > 0) {
            // Unmounting takes its time.
            *left -= 1;
        } else {
            *mounted = false;
            node.status.volumes_in_use.clear();
        }
        self.check();
    }

    fn attacher_acts(&mut self) {
        self.attachments.retain(|_, a| !a.metadata.is_deleting());
        for attachment in self.attachments.values_mut() {
            attachment.status.attached = true;
        }
    }

    fn settle(&mut self) {
        for _ in 0..20 {
            let _ = self.volume_turn();
            for name in ["n1", "n2"] {
                let _ = self.node_turn(name);
            }
            self.attacher_acts();
            for name in ["n1", "n2"] {
                self.node_acts(name);
            }
        }
        let before = self.writes;
        let _ = self.volume_turn();
        let _ = self.node_turn("n1");
        let _ = self.node_turn("n2");
        assert_eq!(self.writes, before, "it doesn't settle");
    }

    /// A pod comes, moves to another node, and goes.
    fn life(&mut self) {
        self.pods.insert("p", a_pod("p", "n1", "data"));
        self.settle();
        assert!(self.mounted["n1"]);
        self.pods.insert("p", a_pod("p", "n2", "data"));
        self.settle();
        assert!(self.mounted["n2"] && !self.mounted["n1"]);
        self.pods.clear();
        self.settle();
        assert!(self.attachments.is_empty());
        let told = self.nodes.values().map(|n| n.status.volumes_attached.len());
        assert_eq!(told.sum::<usize>(), 0);
    }
}

#[test]
fn a_volume_follows_its_pod_whatever_write_a_crash_comes_after() {
    let mut whole = World::new();
    whole.life();
    assert_eq!(whole.writes, 8, "attach, tell, untell, give back; twice");
    for crash in 1..=whole.writes {
        let mut world = World::new();
        world.crash_after = Some(crash);
        world.life();
    }
}
