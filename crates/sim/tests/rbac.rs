//! The manifests in `deploy/rbac` grant every call that a role makes, and no more than is
//! meant.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use orlop_sim::faults::{Fault, Member, Phase, Plan};
use orlop_sim::run::{Scenario, run};
use serde_json::{Value, json};

const SEED: u64 = 5;

/// What is asked of the API server.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Ask {
    verb: &'static str,
    group: String,
    /// With its subresource, as rules name it.
    resource: String,
    namespace: Option<String>,
}

impl Ask {
    /// Reads the simulation's record of a call, `PATCH /api/v1/…`; `None` for one to the
    /// driver.
    fn read(what: &str) -> Option<Self> {
        let (method, path) = what.split_once(' ')?;
        let mut parts = path.strip_prefix('/')?.split('/');
        let group = match parts.next()? {
            "api" => String::new(),
            "apis" => parts.next()?.to_owned(),
            _ => return None,
        };
        let _version = parts.next()?;
        let mut rest: Vec<&str> = parts.collect();
        let namespace = (rest.len() > 2 && rest[0] == "namespaces").then(|| rest[1].to_owned());
        if namespace.is_some() {
            rest.drain(..2);
        }
        let resource = match rest[..] {
            [resource] | [resource, _] => resource.to_owned(),
            [resource, _, part] => format!("{resource}/{part}"),
            _ => return None,
        };
        let verb = match (method, rest.len()) {
            ("WATCH", _) => "watch",
            ("GET", 1) => "list",
            ("GET", _) => "get",
            ("POST", _) => "create",
            ("PATCH", _) => "patch",
            ("PUT", _) => "update",
            ("DELETE", _) => "delete",
            _ => return None,
        };
        Some(Self {
            verb,
            group,
            resource,
            namespace,
        })
    }
}

/// The rules of a manifest.
struct Rules {
    /// A Role's namespace and its rule, or a ClusterRole's rule.
    rules: Vec<(Option<String>, Value)>,
}

impl Rules {
    fn of(role: &str) -> Self {
        let file = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../deploy/rbac")
            .join(format!("{role}.yaml"));
        let text = std::fs::read_to_string(&file).expect("the manifest is there");
        let objects: Vec<Value> = serde_saphyr::from_multiple(&text).expect("it is YAML");
        let subject = json!([{
            "kind": "ServiceAccount", "name": format!("orlop-{role}"), "namespace": "kube-system",
        }]);
        let mut rules = Vec::new();
        for object in &objects {
            let kind = object["kind"].as_str().expect("a kind");
            assert_eq!(
                object["metadata"]["name"],
                format!("orlop-{role}"),
                "{kind}"
            );
            match kind {
                "ServiceAccount" => assert_eq!(object["metadata"]["namespace"], "kube-system"),
                "Role" | "ClusterRole" => {
                    let binding = objects.iter().find(|binding| {
                        binding["kind"] == format!("{kind}Binding")
                            && binding["roleRef"]["kind"] == kind
                            && binding["metadata"]["namespace"] == object["metadata"]["namespace"]
                    });
                    let binding = binding.unwrap_or_else(|| panic!("{kind} is bound"));
                    assert_eq!(binding["roleRef"]["name"], object["metadata"]["name"]);
                    assert_eq!(binding["subjects"], subject);
                    let namespace = object["metadata"]["namespace"].as_str();
                    for rule in object["rules"].as_array().expect("rules") {
                        rules.push((namespace.map(str::to_owned), rule.clone()));
                    }
                }
                "RoleBinding" | "ClusterRoleBinding" => {}
                other => panic!("a {other} among the permissions of {role}"),
            }
        }
        Self { rules }
    }

    fn grant(&self, ask: &Ask) -> bool {
        let names = |rule: &Value, field: &str, wanted: &str| {
            let list = rule[field].as_array();
            list.is_some_and(|list| list.iter().any(|name| name == wanted))
        };
        self.rules.iter().any(|(namespace, rule)| {
            (namespace.is_none() || *namespace == ask.namespace)
                && names(rule, "apiGroups", &ask.group)
                && names(rule, "resources", &ask.resource)
                && names(rule, "verbs", ask.verb)
        })
    }
}

fn role(member: Member) -> &'static str {
    match member {
        Member::Control => "control",
        Member::Scheduler => "scheduler",
        Member::Provisioner | Member::Attacher | Member::Resizer | Member::Snapshotter => {
            "controller"
        }
        Member::SnapshotController => "snapshot-controller",
        Member::Node(_) => "node",
    }
}

fn lives() -> Vec<Scenario> {
    let whole = Scenario::new("whole life", |user| {
        Box::pin(async move {
            user.class("WaitForFirstConsumer", "Delete").await;
            user.claim("data").await;
            user.pod("web", "data").await;
            user.until_running("web").await?;
            user.delete_pod("web").await;
            user.until_pod_gone("web").await?;
            user.delete_claim("data").await;
            user.until_all_gone().await
        })
    });
    let deleted_at_once = Scenario::new("deleted at once", |user| {
        Box::pin(async move {
            user.class("Immediate", "Delete").await;
            user.claim("data").await;
            user.pod("web", "data").await;
            user.delete_claim("data").await;
            user.delete_pod("web").await;
            user.until_all_gone().await
        })
    });
    let growing = Scenario::new("growing", |user| {
        Box::pin(async move {
            user.class("WaitForFirstConsumer", "Delete").await;
            user.claim("data").await;
            user.pod("web", "data").await;
            user.until_running("web").await?;
            user.resize("data", "2Gi").await;
            user.until_size("data", "2Gi").await
        })
    });
    vec![whole, deleted_at_once, growing]
}

/// What each role asks in calm runs, and where each process dies at some of its calls.
fn asked() -> BTreeMap<&'static str, BTreeSet<Ask>> {
    let mut asked: BTreeMap<_, BTreeSet<Ask>> = BTreeMap::new();
    for life in lives() {
        let calm = run(&life, &Plan::calm(), SEED);
        let mut reports = Vec::new();
        for (member, calls) in &calm.calls {
            for number in (1..=calls.len() as u64).step_by(23) {
                let plan = Plan::one(*member, number, Fault::Crash(Phase::After));
                reports.push(run(&life, &plan, SEED));
            }
        }
        for report in std::iter::once(calm).chain(reports) {
            for (member, calls) in &report.calls {
                let asks = calls.iter().filter_map(|call| Ask::read(&call.what));
                asked.entry(role(*member)).or_default().extend(asks);
            }
        }
    }
    asked
}

#[test]
fn every_call_of_a_role_is_granted_to_it() {
    let asked = asked();
    assert_eq!(asked.len(), 4, "every role was heard");
    for (role, asks) in asked {
        let rules = Rules::of(role);
        let refused: Vec<&Ask> = asks.iter().filter(|ask| !rules.grant(ask)).collect();
        assert!(refused.is_empty(), "{role} may not: {refused:#?}");
        println!("{role}: {} kinds of calls, all granted", asks.len());
    }
}

/// The simulation has no FlexVolumes, of which attach-detach is the attacher.
#[test]
fn attach_detach_may_say_what_became_of_flex_volumes() {
    let rules = Rules::of("control");
    for resource in ["volumeattachments", "volumeattachments/status"] {
        let ask = Ask {
            verb: "patch",
            group: "storage.k8s.io".to_owned(),
            resource: resource.to_owned(),
            namespace: None,
        };
        assert!(rules.grant(&ask), "{resource}");
    }
}

#[test]
fn nothing_is_granted_wholesale_and_no_role_can_list_secrets() {
    for role in [
        "control",
        "controller",
        "scheduler",
        "node",
        "snapshot-controller",
    ] {
        let rules = Rules::of(role);
        for (_, rule) in &rules.rules {
            assert!(!rule.to_string().contains("\"*\""), "{role}: {rule}");
        }
        for verb in ["list", "watch", "create", "patch", "update", "delete"] {
            let ask = Ask {
                verb,
                group: String::new(),
                resource: "secrets".to_owned(),
                namespace: None,
            };
            assert!(!rules.grant(&ask), "{role} may {verb} secrets");
        }
    }
}
