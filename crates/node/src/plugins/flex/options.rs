//! What a driver is told of a volume, under the kubelet's keys.

use std::collections::BTreeMap;

use base64::Engine as _;
use orlop_model::volume::FlexSource;
use orlop_model::{Key, Pod, Secret, flex};
use orlop_runtime::Cluster;

use super::{FlexError, FlexVolume};

/// The options of one call.
pub(super) struct Options(BTreeMap<String, String>);

impl Options {
    pub(super) fn of(
        volume: FlexVolume<'_>,
        pod: Option<&Pod>,
        secret: &BTreeMap<String, String>,
    ) -> Self {
        let mut more = BTreeMap::new();
        let mut tell = |key: &str, value: &str| more.insert(key.to_owned(), value.to_owned());
        if let Some(pod) = pod {
            let meta = &pod.metadata;
            tell("pod.name", &meta.name);
            tell("pod.namespace", &meta.namespace);
            tell("pod.uid", &meta.uid);
            tell("serviceAccount.name", &pod.spec.service_account_name);
            let context = pod.spec.security_context.as_ref();
            if let Some(group) = context.and_then(|context| context.fs_group) {
                tell("mounterArgs.FsGroup", &group.to_string());
            }
        }
        for (key, value) in secret {
            tell(&format!("secret/{key}"), value);
        }
        let (source, name) = (volume.source, volume.name);
        Self(flex::options(source, name, volume.read_only, more))
    }

    pub(super) fn text(&self) -> String {
        serde_json::to_string(&self.0).unwrap_or_default()
    }
}

/// A volume's secret in base64, and all that must not be repeated of it.
pub(super) async fn secret(
    cluster: &Cluster,
    pod: &Pod,
    source: &FlexSource,
) -> Result<(BTreeMap<String, String>, Vec<String>), FlexError> {
    let Some(reference) = source.secret_ref.as_ref().filter(|r| !r.name.is_empty()) else {
        return Ok((BTreeMap::new(), Vec::new()));
    };
    let namespace = match reference.namespace.as_str() {
        "" => &pod.metadata.namespace,
        namespace => namespace,
    };
    let key = Key::namespaced(namespace, &reference.name);
    let found = cluster.get::<Secret>(&key).await?;
    let found = found.ok_or_else(|| FlexError::NoSecret(key.clone()))?;
    if found.type_ != source.driver {
        return Err(FlexError::SecretType {
            secret: key,
            type_: found.type_,
            driver: source.driver.clone(),
        });
    }
    let mut hidden = Vec::new();
    for value in found.data.values() {
        hidden.push(value.clone());
        let bytes = base64::engine::general_purpose::STANDARD.decode(value);
        if let Some(text) = bytes.ok().and_then(|bytes| String::from_utf8(bytes).ok()) {
            hidden.push(text.trim_end().to_owned());
        }
    }
    Ok((found.data, hidden))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_are_the_kubelets() {
        let source = FlexSource {
            driver: "example.org/disk".into(),
            fs_type: "ext4".into(),
            options: BTreeMap::from([("size".to_owned(), "1G".to_owned())]),
            ..FlexSource::default()
        };
        let volume = FlexVolume {
            called: "data",
            name: "data",
            source: &source,
            read_only: false,
        };
        assert_eq!(
            Options::of(volume, None, &BTreeMap::new()).text(),
            r#"{"kubernetes.io/fsType":"ext4","kubernetes.io/pvOrVolumeName":"data","kubernetes.io/readwrite":"rw","size":"1G"}"#
        );
        let mut pod = Pod::default();
        pod.metadata.name = "web".into();
        pod.metadata.namespace = "shop".into();
        pod.metadata.uid = "u-1".into();
        pod.spec.service_account_name = "default".into();
        pod.spec.security_context = Some(orlop_model::pod::PodSecurityContext {
            fs_group: Some(7),
            ..Default::default()
        });
        let secret = BTreeMap::from([("password".to_owned(), "aHVudGVyMg==".to_owned())]);
        assert_eq!(
            Options::of(volume, Some(&pod), &secret).text(),
            concat!(
                r#"{"kubernetes.io/fsType":"ext4","kubernetes.io/mounterArgs.FsGroup":"7","#,
                r#""kubernetes.io/pod.name":"web","kubernetes.io/pod.namespace":"shop","#,
                r#""kubernetes.io/pod.uid":"u-1","kubernetes.io/pvOrVolumeName":"data","#,
                r#""kubernetes.io/readwrite":"rw","kubernetes.io/secret/password":"aHVudGVyMg==","#,
                r#""kubernetes.io/serviceAccount.name":"default","size":"1G"}"#
            )
        );
    }
}
