//! What pods that wait are told. The beginnings are the original's (Test_ReportWaitingOnDetach).

use orlop_model::{Key, attachment::VolumeError};

use super::*;

fn text(users: &[(&str, &str)], trouble: Option<&str>) -> String {
    let pod = a_pod("me", "n2", "data");
    let users = users.iter().map(|(ns, name)| Key::namespaced(*ns, *name));
    let verdict = Verdict::Elsewhere(Elsewhere {
        nodes: vec!["n1".into()],
        users: users.collect(),
        trouble: trouble.map(str::to_owned),
    });
    verdict.news("vol", &pod).unwrap()
}

#[test]
fn waiting_pods_are_told_who_has_the_volume_where_and_what_to_do() {
    let advice = "It is attached to n1; its access modes are for one node: end those pods, place \
                  this one there as well, or use a volume with ReadWriteMany";
    for (users, told, then) in [
        (
            &[][..],
            "Volume is already exclusively attached to one node, waiting on detach before it can \
             be attached to another node",
            "It is attached to n1; it comes off as soon as that node has unmounted it; if the \
             node is off for good, delete its object or taint it node.kubernetes.io/out-of-service",
        ),
        (
            &[("ns", "a"), ("ns", "b")],
            "Volume is already used by pod(s) a, b",
            advice,
        ),
        (
            &[("other", "secret-name")],
            "Volume is already used by 1 pod(s) in different namespaces",
            advice,
        ),
        (
            &[("ns", "a"), ("other", "secret-name")],
            "Volume is already used by pod(s) a and 1 pod(s) in different namespaces",
            advice,
        ),
    ] {
        let expected = format!("Waiting for detach for volume \"vol\" {told}. {then}");
        assert_eq!(text(users, None), expected);
    }
}

#[test]
fn a_detachment_that_fails_is_told_to_who_waits_for_it() {
    let told = text(&[], Some("the array is on fire"));
    assert!(
        told.ends_with("the last try to detach it failed: the array is on fire"),
        "{told}"
    );
    let pod = a_pod("me", "n1", "data");
    let mut leaving = deleting(attachment(&a_volume("vol", "c"), "n1"));
    leaving.status.detach_error = Some(VolumeError {
        message: "busy".into(),
        ..VolumeError::default()
    });
    let verdict = &verdicts(std::slice::from_ref(&pod), vec![leaving.clone()])[0].1;
    let told = verdict.news("vol", &pod).unwrap();
    assert!(
        told.contains("node n1") && told.ends_with("failed: busy"),
        "{told}"
    );
    let other = a_pod("me", "n2", "data");
    let verdict = &verdicts(std::slice::from_ref(&other), vec![leaving])[0].1;
    let told = verdict.news("vol", &other).unwrap();
    assert!(
        told.ends_with("It is attached to n1; the last try to detach it failed: busy"),
        "{told}"
    );
}

#[test]
fn what_keeps_an_attachment_from_being_made_is_told() {
    let pod = a_pod("me", "n2", "data");
    let mut refused = attachment(&a_volume("vol", "c"), "n2");
    refused.status.attached = false;
    refused.status.attach_error = Some(VolumeError {
        message: "no".into(),
        ..VolumeError::default()
    });
    let verdict = &verdicts(std::slice::from_ref(&pod), vec![refused])[0].1;
    assert_eq!(
        verdict.news("vol", &pod).unwrap(),
        "AttachVolume.Attach failed for volume \"vol\" : no"
    );
    let full = Verdict::Full(2).news("vol", &pod).unwrap();
    assert!(
        full.contains("node n2 has as many volumes") && full.contains("(2,"),
        "{full}"
    );
    let missing = Verdict::NoDriver.news("vol", &pod).unwrap();
    assert!(missing.contains("not registered on node n2"), "{missing}");
    for quiet in [
        Verdict::Held,
        Verdict::Attach,
        Verdict::Leaving { trouble: None },
    ] {
        assert_eq!(quiet.news("vol", &pod), None);
    }
}
