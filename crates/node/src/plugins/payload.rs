//! What files a volume shall have: read from config maps, secrets and the pod itself.

use std::collections::BTreeMap;

use base64::Engine as _;
use jiff::Timestamp;
use orlop_model::pod::{
    ConfigMapSource, DownwardFile, DownwardSource, KeyToPath, PodVolume, Projection, SecretSource,
};
use orlop_model::{Key, Pod};

use super::atomic_files::{File, Payload};
use super::downward::{field, resource};
use super::objects::{Freshness, Shown, Told};
use super::{Sources, VolumeError, tokens};
use crate::layout::PodUid;

const USUAL_MODE: u32 = 0o644;

/// A volume's files, and until when they are good.
pub(super) struct Gathered {
    pub(super) payload: Payload,
    /// The pod's group, which the files are for.
    pub(super) group: Option<u32>,
    /// When a token among them must be replaced by a new one.
    pub(super) renew_at: Option<Timestamp>,
}

/// Where files come from.
pub(super) struct From<'a> {
    pub(super) sources: &'a Sources,
    pub(super) pod: &'a Pod,
    pub(super) uid: &'a PodUid,
    pub(super) freshness: Freshness,
    pub(super) now: Timestamp,
}

/// Reads everything that a volume's files come from.
pub(super) async fn gather(from: &From<'_>, volume: &PodVolume) -> Result<Gathered, VolumeError> {
    let mut gather = Gather {
        from,
        user: Shown {
            pod: from.uid.clone(),
            volume: volume.name.clone(),
        },
        renew_at: None,
    };
    let mut payload = Payload::new();
    if let Some(source) = &volume.config_map {
        gather.config_map(source, None, &mut payload).await?;
    }
    if let Some(source) = &volume.secret {
        gather.secret(source, None, &mut payload).await?;
    }
    if let Some(source) = &volume.downward_api {
        gather.downward(source, None, &mut payload)?;
    }
    if let Some(source) = &volume.projected {
        for projection in &source.sources {
            gather
                .projection(projection, source.default_mode, &mut payload)
                .await?;
        }
    }
    if let Some(path) = payload.keys().find(|path| !is_within(path)) {
        return Err(VolumeError::BadPath(path.clone()));
    }
    if let Some((file, below)) = conflict(&payload) {
        let (file, below) = (file.clone(), below.clone());
        return Err(VolumeError::SamePath { file, below });
    }
    let group = group_of(from.pod);
    give_to_group(group, &mut payload);
    Ok(Gathered {
        payload,
        group,
        renew_at: gather.renew_at,
    })
}

/// A file that would have to be a folder as well, and a file in that.
fn conflict(payload: &Payload) -> Option<(&String, &String)> {
    payload.keys().find_map(|below| {
        let mut folders = below.match_indices('/').map(|(at, _)| &below[..at]);
        let (file, _) = folders.find_map(|folder| payload.get_key_value(folder))?;
        Some((file, below))
    })
}

fn group_of(pod: &Pod) -> Option<u32> {
    let context = pod.spec.security_context.as_ref();
    context.and_then(|context| u32::try_from(context.fs_group?).ok())
}

/// The pod's group reads what the node wrote for the pod.
fn give_to_group(group: Option<u32>, payload: &mut Payload) {
    let Some(group) = group else { return };
    for file in payload.values_mut() {
        file.group = Some(group);
        file.mode |= 0o440;
    }
}

/// Relative, of plain names, none of which could be taken for our own links.
fn is_within(path: &str) -> bool {
    path.len() <= 4096
        && path
            .split('/')
            .all(|name| crate::layout::Layout::is_safe(name) && name.len() <= 255)
        && !path.starts_with("..")
}

struct Gather<'a> {
    from: &'a From<'a>,
    user: Shown,
    renew_at: Option<Timestamp>,
}

impl Gather<'_> {
    fn key(&self, name: &str) -> Key {
        Key::namespaced(&self.from.pod.metadata.namespace, name)
    }

    async fn projection(
        &mut self,
        projection: &Projection,
        mode: Option<u32>,
        payload: &mut Payload,
    ) -> Result<(), VolumeError> {
        if let Some(source) = &projection.config_map {
            self.config_map(source, mode, payload).await?;
        }
        if let Some(source) = &projection.secret {
            self.secret(source, mode, payload).await?;
        }
        if let Some(source) = &projection.downward_api {
            self.downward(source, mode, payload)?;
        }
        if projection.cluster_trust_bundle.is_some() {
            return Err(VolumeError::Projection("clusterTrustBundle"));
        }
        if projection.pod_certificate.is_some() {
            return Err(VolumeError::Projection("podCertificate"));
        }
        if let Some(source) = &projection.service_account_token {
            let From {
                sources, pod, now, ..
            } = self.from;
            let request = tokens::Request {
                user: &self.user,
                pod,
                source,
                now: *now,
            };
            let given = sources.tokens.get(&sources.cluster, &request).await?;
            let sooner = |at: Timestamp| at.min(given.renew_at);
            self.renew_at = Some(self.renew_at.map_or(given.renew_at, sooner));
            let file = tokens::file(self.from.pod, given.secret, mode.unwrap_or(USUAL_MODE));
            payload.insert(source.path.clone(), file);
        }
        Ok(())
    }

    async fn config_map(
        &self,
        source: &ConfigMapSource,
        mode: Option<u32>,
        payload: &mut Payload,
    ) -> Result<(), VolumeError> {
        let key = self.key(&source.name);
        let optional = source.optional == Some(true);
        let maps = &self.from.sources.objects.config_maps;
        let found = maps.get(&key, &self.user, self.from.freshness).await?;
        let Some(map) = required(found, optional, "ConfigMap", &key)? else {
            return Ok(());
        };
        let mut values: BTreeMap<String, Vec<u8>> = decoded(&map.binary_data, &key)?;
        values.extend(
            map.data
                .iter()
                .map(|(name, text)| (name.clone(), text.clone().into_bytes())),
        );
        let pick = Pick {
            kind: "ConfigMap",
            key,
            items: &source.items,
            mode: source.default_mode.or(mode),
            optional,
        };
        pick.into_payload(values, payload)
    }

    async fn secret(
        &mut self,
        source: &SecretSource,
        mode: Option<u32>,
        payload: &mut Payload,
    ) -> Result<(), VolumeError> {
        let name = if source.secret_name.is_empty() {
            &source.name
        } else {
            &source.secret_name
        };
        let key = self.key(name);
        let optional = source.optional == Some(true);
        let From { sources, now, .. } = self.from;
        let objects = &sources.objects;
        let asked = objects.secret(&key, &self.user, self.from.freshness);
        let (found, told) = asked.await?;
        if found.as_ref().and_then(|secret| secret.immutable) != Some(true)
            && told == Told::Never
            && let Ok(again) = now.checked_add(sources.secrets_again)
        {
            self.renew_at = Some(self.renew_at.map_or(again, |at| at.min(again)));
        }
        let Some(secret) = required(found, optional, "Secret", &key)? else {
            return Ok(());
        };
        let values = decoded(&secret.data, &key)?;
        let pick = Pick {
            kind: "Secret",
            key,
            items: &source.items,
            mode: source.default_mode.or(mode),
            optional,
        };
        pick.into_payload(values, payload)
    }

    fn downward(
        &self,
        source: &DownwardSource,
        mode: Option<u32>,
        payload: &mut Payload,
    ) -> Result<(), VolumeError> {
        for item in &source.items {
            let value = self.own_value(item)?;
            let mode = item
                .mode
                .or(source.default_mode)
                .or(mode)
                .unwrap_or(USUAL_MODE);
            payload.insert(item.path.clone(), File::new(value.into_bytes(), mode));
        }
        Ok(())
    }

    fn own_value(&self, item: &DownwardFile) -> Result<String, VolumeError> {
        let facts = &self.from.sources.facts;
        let spec = &self.from.pod.spec;
        let unknown = |path: &str| VolumeError::UnknownField(path.to_owned());
        match (&item.field_ref, &item.resource_field_ref) {
            (Some(wanted), _) => {
                let path = &wanted.field_path;
                field(self.from.pod, path, facts).ok_or_else(|| unknown(path))
            }
            (None, Some(wanted)) => {
                let mut containers = spec.init_containers.iter().chain(&spec.containers);
                let container = containers.find(|c| c.name == wanted.container_name);
                let container = container
                    .ok_or_else(|| VolumeError::NoContainer(wanted.container_name.clone()))?;
                resource(container, wanted, facts).ok_or_else(|| unknown(&wanted.resource))
            }
            (None, None) => Err(unknown("")),
        }
    }
}

fn required<T>(
    found: Option<T>,
    optional: bool,
    kind: &'static str,
    key: &Key,
) -> Result<Option<T>, VolumeError> {
    match found {
        None if !optional => Err(VolumeError::NoObject {
            kind,
            key: key.clone(),
        }),
        found => Ok(found),
    }
}

fn decoded(
    values: &BTreeMap<String, String>,
    key: &Key,
) -> Result<BTreeMap<String, Vec<u8>>, VolumeError> {
    let decode = |(name, value): (&String, &String)| {
        let bytes = base64::engine::general_purpose::STANDARD
            .decode(value)
            .ok()?;
        Some((name.clone(), bytes))
    };
    values
        .iter()
        .map(decode)
        .collect::<Option<_>>()
        .ok_or_else(|| VolumeError::NotBase64(key.clone()))
}

/// Which of an object's values become which files.
struct Pick<'a> {
    kind: &'static str,
    key: Key,
    items: &'a [KeyToPath],
    mode: Option<u32>,
    optional: bool,
}

impl Pick<'_> {
    fn into_payload(
        self,
        mut values: BTreeMap<String, Vec<u8>>,
        payload: &mut Payload,
    ) -> Result<(), VolumeError> {
        let usual = self.mode.unwrap_or(USUAL_MODE);
        if self.items.is_empty() {
            let files = values.into_iter();
            payload.extend(files.map(|(name, content)| (name, File::new(content, usual))));
            return Ok(());
        }
        for item in self.items {
            match values.remove(&item.key) {
                Some(content) => {
                    let mode = item.mode.unwrap_or(usual);
                    payload.insert(item.path.clone(), File::new(content, mode));
                }
                None if self.optional => {}
                None => {
                    let (kind, key, item) = (self.kind, self.key, item.key.clone());
                    return Err(VolumeError::NoItem { kind, key, item });
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_out_of_the_volume_are_refused() {
        for (path, within) in [
            ("a", true),
            ("a/b", true),
            ("../a", false),
            ("/a", false),
            ("a/../b", false),
            ("..data", false),
            ("", false),
        ] {
            assert_eq!(is_within(path), within, "{path}");
        }
    }

    #[test]
    fn a_file_that_is_a_folder_too_is_found_with_what_is_in_it() {
        let payload = |paths: &[&str]| -> Payload {
            let file = || File::new(Vec::new(), 0o644);
            paths
                .iter()
                .map(|path| ((*path).to_owned(), file()))
                .collect()
        };
        for (paths, found) in [
            (&["x", "x/y"][..], Some(("x", "x/y"))),
            (&["x/y", "x/y/z/w", "x.y"], Some(("x/y", "x/y/z/w"))),
            (&["x", "xy/z", "x.y"], None),
            (&["a/b", "a/c"], None),
        ] {
            let payload = payload(paths);
            let has = conflict(&payload).map(|(file, below)| (file.as_str(), below.as_str()));
            assert_eq!(has, found, "{paths:?}");
        }
    }
}
