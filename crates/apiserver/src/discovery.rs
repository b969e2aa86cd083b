//! Discovery: which groups, versions and resources exist. Every answer is made
//! from the table of kinds and is the same for every caller.

use crate::kinds::{KindInfo, Kinds, Subresource, group_version};
use serde_json::{Value, json};

/// The Kubernetes release whose API this server speaks.
const MAJOR: &str = "1";
const MINOR: &str = "37";

const JSON: &str = "application/json";
const AGGREGATED_V2: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const AGGREGATED_V2BETA1: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";

/// A discovery answer and the content type it must be sent with: clients tell
/// aggregated discovery from the plain kind by the latter.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// Value of the `Content-Type` header.
    pub content_type: &'static str,
    /// The body.
    pub body: Value,
}

/// The document at `path`, or `None` when there is none.
pub fn document(kinds: &Kinds, path: &str, accept: &str) -> Option<Document> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    if let (["api" | "apis"], Some(format)) = (parts.as_slice(), aggregated(accept)) {
        return Some(Document {
            content_type: format.content_type(),
            body: group_discovery(kinds, format, parts == ["api"]),
        });
    }
    let body = match parts.as_slice() {
        ["version"] => version(),
        ["api"] => json!({
            "kind": "APIVersions",
            "versions": ["v1"],
            "serverAddressByClientCIDRs": [],
        }),
        ["apis"] => json!({
            "kind": "APIGroupList",
            "apiVersion": "v1",
            "groups": named_groups(kinds).map(|(group, versions)| api_group(group, &versions))
                .collect::<Vec<_>>(),
        }),
        ["apis", group] => {
            let (group, versions) = named_groups(kinds).find(|(name, _)| name == group)?;
            let mut body = api_group(group, &versions);
            body["kind"] = "APIGroup".into();
            body["apiVersion"] = "v1".into();
            body
        }
        ["api", version] => resource_list(kinds, "", version)?,
        ["apis", group, version] if !group.is_empty() => resource_list(kinds, group, version)?,
        _ => return None,
    };
    Some(Document {
        content_type: JSON,
        body,
    })
}

/// The two spellings of aggregated discovery that clients ask for.
#[derive(Clone, Copy)]
enum Aggregated {
    V2,
    V2Beta1,
}

impl Aggregated {
    fn content_type(self) -> &'static str {
        match self {
            Self::V2 => AGGREGATED_V2,
            Self::V2Beta1 => AGGREGATED_V2BETA1,
        }
    }

    fn api_version(self) -> &'static str {
        match self {
            Self::V2 => "apidiscovery.k8s.io/v2",
            Self::V2Beta1 => "apidiscovery.k8s.io/v2beta1",
        }
    }
}

/// The first media type of `accept` decides, as clients list what they like
/// best first.
fn aggregated(accept: &str) -> Option<Aggregated> {
    for media in accept.split(',') {
        let mut params = media.split(';').map(str::trim);
        match params.next() {
            Some("application/json" | "*/*" | "application/*") => {}
            _ => continue,
        }
        let params: Vec<&str> = params.collect();
        if !params.contains(&"as=APIGroupDiscoveryList") {
            return None;
        }
        if params.contains(&"v=v2") {
            return Some(Aggregated::V2);
        }
        if params.contains(&"v=v2beta1") {
            return Some(Aggregated::V2Beta1);
        }
    }
    None
}

fn version() -> Value {
    json!({
        "major": MAJOR,
        "minor": MINOR,
        "emulationMajor": MAJOR,
        "emulationMinor": MINOR,
        "minCompatibilityMajor": MAJOR,
        "minCompatibilityMinor": MINOR,
        "gitVersion": format!("v{MAJOR}.{MINOR}.0+orlop-{}", env!("CARGO_PKG_VERSION")),
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, go_arch()),
    })
}

/// Clients compare platforms in Go's spelling.
fn go_arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn named_groups(kinds: &Kinds) -> impl Iterator<Item = (&'static str, Vec<&'static str>)> {
    kinds
        .groups()
        .into_iter()
        .filter(|(group, _)| !group.is_empty())
}

fn api_group(group: &str, versions: &[&str]) -> Value {
    let version =
        |version: &&str| json!({"groupVersion": group_version(group, version), "version": version});
    let versions: Vec<Value> = versions.iter().map(version).collect();
    json!({"name": group, "versions": versions, "preferredVersion": versions.first()})
}

fn kinds_of<'a>(
    kinds: &'a Kinds,
    group: &'a str,
    version: &'a str,
) -> impl Iterator<Item = &'static KindInfo> + 'a {
    kinds
        .all()
        .filter(move |kind| kind.group == group && kind.version == version)
}

/// `status` first: it is a subresource like the others, of the kind itself.
fn subresources(kind: &KindInfo) -> Vec<Subresource> {
    let status = kind.status.then_some(Subresource {
        name: "status",
        group: kind.group,
        version: kind.version,
        kind: kind.kind,
        verbs: &["get", "patch", "update"],
    });
    let others = kind.subresources.iter().map(|sub| Subresource { ..*sub });
    let mut all: Vec<_> = status.into_iter().chain(others).collect();
    all.sort_by_key(|sub| sub.name);
    all
}

fn resource_list(kinds: &Kinds, group: &str, version: &str) -> Option<Value> {
    let mut resources = Vec::new();
    for kind in kinds_of(kinds, group, version) {
        let mut resource = json!({
            "name": kind.plural,
            "singularName": kind.singular,
            "namespaced": kind.namespaced,
            "kind": kind.kind,
            "verbs": kind.verbs,
        });
        if !kind.short_names.is_empty() {
            resource["shortNames"] = json!(kind.short_names);
        }
        if !kind.categories.is_empty() {
            resource["categories"] = json!(kind.categories);
        }
        resources.push(resource);
        for sub in subresources(kind) {
            let mut resource = json!({
                "name": format!("{}/{}", kind.plural, sub.name),
                "singularName": "",
                "namespaced": kind.namespaced,
                "kind": sub.kind,
                "verbs": sub.verbs,
            });
            if (sub.group, sub.version) != (kind.group, kind.version) {
                resource["group"] = sub.group.into();
                resource["version"] = sub.version.into();
            }
            resources.push(resource);
        }
    }
    (!resources.is_empty()).then(|| {
        json!({
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": group_version(group, version),
            "resources": resources,
        })
    })
}

/// `/api` holds the core group, `/apis` the named ones.
fn group_discovery(kinds: &Kinds, format: Aggregated, core: bool) -> Value {
    let groups = kinds.groups().into_iter();
    let items: Vec<Value> = groups
        .filter(|(group, _)| group.is_empty() == core)
        .map(|(group, versions)| {
            let mut metadata = json!({"creationTimestamp": null});
            if !group.is_empty() {
                metadata["name"] = group.into();
            }
            let version = |version: &str| {
                let resources = kinds_of(kinds, group, version).map(resource_discovery);
                let resources: Vec<Value> = resources.collect();
                json!({"version": version, "resources": resources, "freshness": "Current"})
            };
            let versions: Vec<Value> = versions.into_iter().map(version).collect();
            json!({ "metadata": metadata, "versions": versions })
        })
        .collect();
    json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": format.api_version(),
        "metadata": {},
        "items": items,
    })
}

fn resource_discovery(kind: &KindInfo) -> Value {
    let subresources: Vec<Value> = subresources(kind)
        .iter()
        .map(|sub| {
            json!({
                "subresource": sub.name,
                "responseKind":
                    {"group": sub.group, "version": sub.version, "kind": sub.kind},
                "verbs": sub.verbs,
            })
        })
        .collect();
    let mut resource = json!({
        "resource": kind.plural,
        "responseKind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
        "scope": if kind.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": kind.singular,
        "verbs": kind.verbs,
    });
    for (name, list) in [
        ("shortNames", json!(kind.short_names)),
        ("categories", json!(kind.categories)),
        ("subresources", json!(subresources)),
    ] {
        if list.as_array().is_some_and(|list| !list.is_empty()) {
            resource[name] = list;
        }
    }
    resource
}

#[cfg(test)]
mod tests {
    use super::*;

    const KUBECTL_ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;\
         as=APIGroupDiscoveryList,application/json;g=apidiscovery.k8s.io;v=v2beta1;\
         as=APIGroupDiscoveryList,application/json";

    fn body(path: &str, accept: &str) -> Value {
        document(&Kinds::default(), path, accept).expect(path).body
    }

    #[test]
    fn kubectl_gets_aggregated_discovery_under_its_own_content_type() {
        let answer = document(&Kinds::default(), "/apis", KUBECTL_ACCEPT).expect("served");
        assert_eq!(answer.content_type, AGGREGATED_V2);
        let groups = answer.body["items"].as_array().expect("items");
        let names: Vec<_> = groups
            .iter()
            .map(|g| g["metadata"]["name"].clone())
            .collect();
        assert_eq!(
            names,
            [
                "apiextensions.k8s.io",
                "apps",
                "authentication.k8s.io",
                "authorization.k8s.io",
                "batch",
                "coordination.k8s.io",
                "events.k8s.io",
                "rbac.authorization.k8s.io",
                "scheduling.k8s.io",
                "storage.k8s.io"
            ]
        );
        let core = body("/api", KUBECTL_ACCEPT);
        let resources = core["items"][0]["versions"][0]["resources"]
            .as_array()
            .expect("list");
        let pods = resources
            .iter()
            .find(|r| r["resource"] == "pods")
            .expect("pods");
        let subs: Vec<_> = pods["subresources"]
            .as_array()
            .expect("list")
            .iter()
            .map(|s| s["subresource"].as_str().expect("name"))
            .collect();
        assert_eq!(subs, ["binding", "eviction", "log", "status"]);
    }

    #[test]
    fn older_clients_get_the_format_they_prefer() {
        let v2beta1 = "application/json;as=APIGroupDiscoveryList;v=v2beta1;g=apidiscovery.k8s.io";
        assert_eq!(
            document(&Kinds::default(), "/api", v2beta1)
                .expect("served")
                .content_type,
            AGGREGATED_V2BETA1
        );
        assert_eq!(body("/api", "application/json")["kind"], "APIVersions");
        assert_eq!(body("/apis", "")["kind"], "APIGroupList");
        assert_eq!(body("/apis", "*/*")["kind"], "APIGroupList");
    }

    #[test]
    fn each_group_version_lists_its_resources() {
        for (group, version) in Kinds::default().group_versions() {
            let path = match group {
                "" => format!("/api/{version}"),
                group => format!("/apis/{group}/{version}"),
            };
            let list = body(&path, KUBECTL_ACCEPT);
            assert_eq!(list["groupVersion"], group_version(group, version));
            let names: Vec<_> = list["resources"]
                .as_array()
                .expect("list")
                .iter()
                .map(|r| r["name"].as_str().expect("name").to_owned())
                .collect();
            for kind in kinds_of(&Kinds::default(), group, version) {
                assert!(names.iter().any(|name| name == kind.plural));
                let status = format!("{}/status", kind.plural);
                assert_eq!(names.contains(&status), kind.status, "{status}");
            }
        }
    }

    #[test]
    fn an_unserved_group_has_no_document() {
        let document = |path| document(&Kinds::default(), path, "");
        assert!(document("/apis/apps/v1beta1").is_none());
        assert!(document("/apis/storage.k8s.io/v1beta1").is_none());
        assert!(document("/apis/storage.k8s.io").is_some());
        assert!(document("/healthz").is_none());
        assert_eq!(body("/version", "")["major"], "1");
    }
}
