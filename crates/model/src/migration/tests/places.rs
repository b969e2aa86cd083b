//! Where volumes are, in both directions, and regions.

use super::*;

const ZONE: &str = "topology.kubernetes.io/zone";
const REGION: &str = "topology.kubernetes.io/region";
const BETA_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";
const BETA_REGION: &str = "failure-domain.beta.kubernetes.io/region";
const GKE: &str = "topology.gke.io/zone";

type Terms<'a> = &'a [&'a [(&'a str, &'a [&'a str])]];

fn affinity(terms: Terms<'_>) -> Value {
    let term = |term: &&[(&str, &[&str])]| {
        let all = term.iter();
        let all = all.map(|(key, values)| json!({"key": key, "operator": "In", "values": values}));
        json!({"matchExpressions": all.collect::<Vec<_>>()})
    };
    let terms: Vec<Value> = terms.iter().map(term).collect();
    json!({"required": {"nodeSelectorTerms": terms}})
}

fn labels(all: &[(&str, &str)]) -> Value {
    let all = all.iter();
    all.map(|(key, value)| ((*key).to_owned(), json!(value)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

#[test]
fn places_are_told_by_the_drivers_label() {
    let gce = json!({"gcePersistentDisk": {"pdName": "pd"}});
    let ebs = json!({"awsElasticBlockStore": {"volumeID": "vol-1"}});
    let vsphere = json!({"vsphereVolume": {"volumePath": "p"}});
    let (vz, vr) = (
        "topology.csi.vmware.com/zone",
        "topology.csi.vmware.com/region",
    );
    let (a, b, e) = ("us-east1-a", "us-west2-b", "us-east1");
    type Labels<'a> = &'a [(&'a str, &'a str)];
    let cases: [(&str, &Value, Labels<'_>, Terms<'_>, Terms<'_>); 8] = [
        (
            "GA",
            &gce,
            &[],
            &[&[(ZONE, &[a]), (REGION, &[e])]],
            &[&[(GKE, &[a]), (REGION, &[e])]],
        ),
        (
            "beta; the region is told by the newer label",
            &gce,
            &[],
            &[&[(BETA_ZONE, &[b]), (BETA_REGION, &["us-west2"])]],
            &[&[(GKE, &[b]), (REGION, &["us-west2"])]],
        ),
        ("label alone", &gce, &[(ZONE, a)], &[], &[&[(GKE, &[a])]]),
        (
            "several, unsorted, with nothing between",
            &ebs,
            &[(ZONE, "us-x-c__ __us-x-a__us-x-c")],
            &[],
            &[&[("topology.ebs.csi.aws.com/zone", &["us-x-a", "us-x-c"])]],
        ),
        (
            "affinity before label",
            &gce,
            &[(ZONE, b)],
            &[&[(ZONE, &[a])], &[(ZONE, &[b])]],
            &[&[(GKE, &[a])], &[(GKE, &[b])]],
        ),
        (
            "label and another affinity",
            &gce,
            &[(ZONE, a)],
            &[&[("disk", &["ssd"])]],
            &[&[("disk", &["ssd"]), (GKE, &[a])]],
        ),
        (
            "vSphere by labels",
            &vsphere,
            &[(BETA_ZONE, "z"), (BETA_REGION, "r")],
            &[],
            &[&[(vz, &["z"]), (vr, &["r"])]],
        ),
        (
            "vSphere by affinity",
            &vsphere,
            &[],
            &[&[(ZONE, &["z"]), (REGION, &["r"])]],
            &[&[(vz, &["z"]), (vr, &["r"])]],
        ),
    ];
    for (name, source, given, before, after) in cases {
        let mut spec = source.clone();
        if !before.is_empty() {
            spec["nodeAffinity"] = affinity(before);
        }
        let new = over(json!({"metadata": {"labels": labels(given)}, "spec": spec}));
        assert_eq!(
            new.unwrap()["spec"]["nodeAffinity"],
            affinity(after),
            "{name}"
        );
    }
    let mut azure = json!({"azureDisk": {"diskURI": "u"}});
    azure["nodeAffinity"] = affinity(&[&[(ZONE, &[a])]]);
    let new = over(json!({"spec": azure})).unwrap();
    assert_eq!(new["spec"]["nodeAffinity"], affinity(&[&[(ZONE, &[a])]]));
}

#[test]
fn places_are_told_by_kubernetes_labels_again() {
    let gce =
        json!({"driver": "pd.csi.storage.gke.io", "volumeHandle": "projects/p/zones/z/disks/d"});
    let cinder = json!({"driver": "cinder.csi.openstack.org", "volumeHandle": "1"});
    let (a, c, b, e, w) = (
        "us-east1-a",
        "us-east1-c",
        "us-west2-b",
        "us-east1",
        "us-west2",
    );
    type Labels<'a> = &'a [(&'a str, &'a str)];
    type Row<'a> = (
        &'a str,
        &'a Value,
        (Labels<'a>, Terms<'a>),
        (Labels<'a>, Terms<'a>),
    );
    let cases: [Row<'_>; 7] = [
        (
            "GA region stays",
            &gce,
            (&[(ZONE, a), (REGION, e)], &[&[(REGION, &[e]), (GKE, &[a])]]),
            (
                &[(ZONE, a), (REGION, e)],
                &[&[(REGION, &[e]), (ZONE, &[a])]],
            ),
        ),
        (
            "beta region stays",
            &gce,
            (
                &[(BETA_ZONE, b), (BETA_REGION, w)],
                &[&[(BETA_REGION, &[w]), (GKE, &[b])]],
            ),
            (
                &[(BETA_ZONE, b), (BETA_REGION, w)],
                &[&[(BETA_REGION, &[w]), (BETA_ZONE, &[b])]],
            ),
        ),
        (
            "labels that are there stay",
            &gce,
            (&[(ZONE, "z"), (REGION, "r")], &[&[(GKE, &[a])]]),
            (
                &[(ZONE, "z"), (REGION, "r")],
                &[&[(ZONE, &[a]), (REGION, &[e])]],
            ),
        ),
        (
            "all is made from the driver's",
            &gce,
            (&[], &[&[(GKE, &[a])]]),
            (
                &[(ZONE, a), (REGION, e)],
                &[&[(ZONE, &[a]), (REGION, &[e])]],
            ),
        ),
        (
            "beta affinity makes beta labels",
            &gce,
            (&[], &[&[(BETA_ZONE, &[b])]]),
            (
                &[(BETA_ZONE, b), (BETA_REGION, w)],
                &[&[(BETA_ZONE, &[b]), (BETA_REGION, &[w])]],
            ),
        ),
        (
            "several terms",
            &gce,
            (&[], &[&[(GKE, &[a])], &[(GKE, &[c])]]),
            (
                &[(ZONE, "us-east1-a__us-east1-c"), (REGION, e)],
                &[
                    &[(ZONE, &[a]), (REGION, &[e])],
                    &[(ZONE, &[c]), (REGION, &[e])],
                ],
            ),
        ),
        (
            "Cinder knows no region",
            &cinder,
            (
                &[],
                &[&[("topology.cinder.csi.openstack.org/zone", &["nova"])]],
            ),
            (&[(ZONE, "nova")], &[&[(ZONE, &["nova"])]]),
        ),
    ];
    for (name, csi, (given, before), (then, after)) in cases {
        let volume = pv(json!({
            "metadata": {"labels": labels(given)},
            "spec": {"csi": csi, "nodeAffinity": affinity(before)},
        }));
        let new = told(&back(&volume).unwrap().unwrap());
        assert_eq!(new["spec"]["nodeAffinity"], affinity(after), "{name}");
        assert_eq!(new["metadata"]["labels"], labels(then), "{name}");
    }
}

#[test]
fn zones_lie_in_one_region_or_in_none() {
    let own = |zones: &[&str]| zones.iter().map(|z| (*z).to_owned()).collect::<Vec<_>>();
    for (zones, region) in [
        (&["us-west-2a", "us-west-2b"][..], Some("us-west-2")),
        (&["us-gov-east-1a"], Some("us-gov-east-1")),
        (&["us-east-1-wl1-bos-wlz-1"], Some("us-east-1")),
        (&["us-west-2-lax-1a"], Some("us-west-2")),
        (&[], None),
        (&["us-west-2a", "us-east-1a"], None),
        (&["us-west-2"], None),
        (&["us-west-2ab"], None),
        (&["us-west"], None),
    ] {
        assert_eq!(
            regions::aws(&own(zones)).ok().as_deref(),
            region,
            "{zones:?}"
        );
    }
    for (zones, region) in [
        (&["us-central1-a"][..], Some("us-central1")),
        (&["us-central1-a", "us-central1-c"], Some("us-central1")),
        (&["us-central1-a", "us-west1-c"], None),
        (&["us-central1"], None),
        (&[], None),
    ] {
        assert_eq!(
            regions::gce(&own(zones)).ok().as_deref(),
            region,
            "{zones:?}"
        );
    }
}
