//! What a path names.

use crate::kinds::{KindInfo, Kinds};

/// The resource that a path names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Route {
    pub(super) kind: &'static KindInfo,
    /// Empty for cluster-scoped kinds and for lists over all namespaces.
    pub(super) namespace: String,
    /// The object; none for the collection.
    pub(super) name: Option<String>,
    pub(super) subresource: Option<String>,
    /// For the old paths that are watches by themselves: the object, empty for all.
    pub(super) watched: Option<String>,
}

impl Route {
    /// Reads a path; none if it names no resource that is served.
    pub(super) fn parse(kinds: &Kinds, path: &str) -> Option<Self> {
        // A slash at the end says nothing.
        let path = path.strip_prefix('/')?;
        let segments: Vec<String> = path
            .strip_suffix('/')
            .unwrap_or(path)
            .split('/')
            .map(decode)
            .collect::<Option<_>>()?;
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        let (group, version, rest) = match segments.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return None,
        };
        if rest.iter().any(|segment| segment.is_empty()) {
            return None;
        }
        let (watches, rest) = match rest {
            ["watch", rest @ ..] => (true, rest),
            rest => (false, rest),
        };
        let find = |plural: &str| kinds.find(group, version, plural);
        let (kind, namespace, rest) = match rest {
            // `namespaces/x/status` is about a namespace, `namespaces/x/pods` is not.
            ["namespaces", name, sub @ ("status" | "finalize")] if group.is_empty() => {
                (find("namespaces")?, "", vec![*name, *sub])
            }
            ["namespaces", namespace, plural, rest @ ..] => (
                find(plural).filter(|kind| kind.namespaced)?,
                *namespace,
                rest.to_vec(),
            ),
            [plural, rest @ ..] => {
                // Of namespaced kinds only the collection spans all namespaces.
                let kind = find(plural).filter(|kind| !kind.namespaced || rest.is_empty())?;
                (kind, "", rest.to_vec())
            }
            [] => return None,
        };
        let (name, subresource) = match rest.as_slice() {
            [] => (None, None),
            [name] => (Some(*name), None),
            [name, sub] if serves(kind, sub) => (Some(*name), Some(*sub)),
            // What comes after it is the node's to understand.
            [name, sub @ "proxy", ..] if serves(kind, sub) => (Some(*name), Some(*sub)),
            _ => return None,
        };
        if watches && (subresource.is_some() || !kind.is_stored()) {
            return None;
        }
        let (name, watched) = match watches {
            true => (None, Some(name.unwrap_or_default().to_owned())),
            false => (name, None),
        };
        Some(Self {
            kind,
            namespace: namespace.to_owned(),
            watched,
            name: name.map(str::to_owned),
            subresource: subresource.map(str::to_owned),
        })
    }
}

fn serves(kind: &KindInfo, subresource: &str) -> bool {
    subresource == "status" && kind.status
        || kind
            .subresources
            .iter()
            .any(|known| known.name == subresource)
}

/// Undoes percent-encoding; none if it isn't UTF-8.
pub(crate) fn decode(segment: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        if byte == b'%' {
            let (digits, after) = after.split_at_checked(2)?;
            let digits = std::str::from_utf8(digits).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = after;
        } else {
            bytes.push(byte);
            rest = after;
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(path: &str) -> Option<(&'static str, String, Option<String>, Option<String>)> {
        Route::parse(&Kinds::default(), path).map(|route| {
            (
                route.kind.kind,
                route.namespace,
                route.name,
                route.subresource,
            )
        })
    }

    fn named(
        kind: &'static str,
        namespace: &str,
        name: &str,
        sub: &str,
    ) -> Option<(&'static str, String, Option<String>, Option<String>)> {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Some((kind, namespace.to_owned(), some(name), some(sub)))
    }

    #[test]
    fn paths_name_resources() {
        assert_eq!(parse("/api/v1/pods"), named("Pod", "", "", ""));
        assert_eq!(parse("/api/v1/namespaces"), named("Namespace", "", "", ""));
        assert_eq!(
            parse("/api/v1/namespaces/a"),
            named("Namespace", "", "a", "")
        );
        assert_eq!(
            parse("/api/v1/namespaces/a/status"),
            named("Namespace", "", "a", "status")
        );
        assert_eq!(
            parse("/api/v1/namespaces/a/pods"),
            named("Pod", "a", "", "")
        );
        assert_eq!(
            parse("/api/v1/namespaces/a/pods/p/log"),
            named("Pod", "a", "p", "log")
        );
        assert_eq!(
            parse("/api/v1/nodes/n/proxy/stats/summary"),
            named("Node", "", "n", "proxy")
        );
        assert_eq!(
            parse("/apis/storage.k8s.io/v1/volumeattachments/v/status"),
            named("VolumeAttachment", "", "v", "status")
        );
        assert_eq!(
            parse("/api/v1/persistentvolumes/a%2Fb"),
            named("PersistentVolume", "", "a/b", "")
        );
    }

    #[test]
    fn old_paths_of_watches_name_what_is_watched() {
        let watched = |path: &str| {
            let route = Route::parse(&Kinds::default(), path).unwrap();
            assert_eq!(route.name, None, "{path}");
            (route.namespace, route.watched)
        };
        let named = |namespace: &str, name: &str| (namespace.to_owned(), Some(name.to_owned()));
        assert_eq!(watched("/api/v1/watch/nodes"), named("", ""));
        assert_eq!(watched("/api/v1/watch/nodes/n/"), named("", "n"));
        assert_eq!(
            watched("/api/v1/watch/namespaces/a/pods/p"),
            named("a", "p")
        );
        let path = "/apis/storage.k8s.io/v1/watch/storageclasses";
        assert_eq!(watched(path), named("", ""));
    }

    #[test]
    fn other_paths_name_nothing() {
        for path in [
            "/api/v1",
            "/api/v1/",
            "/apis/storage.k8s.io/v1",
            "/api/v1/nothing",
            "/api/v2/pods",
            "/api/v1/pods/p",
            "/api/v1/watch",
            "/api/v1/watch/nodes/n/status",
            "/api/v1//nodes",
            "/api/v1/namespaces/a/nodes",
            "/api/v1/namespaces/a/pods/p/exec/x",
            "/api/v1/nodes/n/log",
            "/healthz",
            "/api/v1/nodes/%zz",
            "/api/v1/nodes/%f",
        ] {
            assert_eq!(parse(path), None, "{path}");
        }
    }
}
