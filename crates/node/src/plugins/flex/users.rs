//! Who uses a volume that is attached: one small file per pod, written before the driver is
//! asked for anything and removed when all of it is undone.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{FlexError, at};
use crate::checkpoint::{gone, make_folder};
use crate::layout::{Layout, PodUid};

/// What a pod asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) driver: String,
    /// As the driver is told, without the pod and without secrets.
    pub(super) options: String,
}

fn folder(layout: &Layout, driver: &str, volume: &str) -> PathBuf {
    layout.flex(driver).join("users").join(volume)
}

/// Writes down that a pod uses a volume, unless another one of the same name is used: the
/// driver would be asked for both under one name and one path.
pub(super) fn add(
    layout: &Layout,
    record: &Record,
    volume: &str,
    pod: &PodUid,
) -> Result<(), FlexError> {
    let folder = folder(layout, &record.driver, volume);
    for (user, other) in records(layout, &record.driver, volume) {
        if user != pod.as_str() && other.options != record.options {
            return Err(FlexError::SameName {
                volume: volume.to_owned(),
                driver: record.driver.clone(),
                pod: user,
            });
        }
    }
    make_folder(&folder).map_err(at("make", &folder))?;
    let path = folder.join(pod.as_str());
    let json = serde_json::to_vec(record).unwrap_or_default();
    orlop_host::write_volatile(&path, &json, 0o600).map_err(at("write", &path))
}

/// The driver and name of each volume that a pod uses.
pub(super) fn of(layout: &Layout, pod: &PodUid) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for driver in layout.flex_drivers() {
        for (volume, path) in Layout::entries(&layout.flex(&driver).join("users")) {
            if path.join(pod.as_str()).exists() {
                found.push((driver.clone(), volume));
            }
        }
    }
    found
}

fn records(layout: &Layout, driver: &str, volume: &str) -> Vec<(String, Record)> {
    let entries = Layout::entries(&folder(layout, driver, volume)).into_iter();
    entries
        .filter_map(|(user, path)| {
            let json = std::fs::read(path).ok()?;
            Some((user, serde_json::from_slice(&json).ok()?))
        })
        .collect()
}

/// The options of a volume that is used.
pub(super) fn options(layout: &Layout, driver: &str, volume: &str) -> String {
    let mut records = records(layout, driver, volume).into_iter();
    records
        .next()
        .map_or_else(|| "{}".to_owned(), |(_, record)| record.options)
}

pub(super) fn is_last(layout: &Layout, (driver, volume): (&str, &str), pod: &PodUid) -> bool {
    let users = Layout::entries(&folder(layout, driver, volume));
    users.iter().all(|(user, _)| user == pod.as_str())
}

pub(super) fn remove(
    layout: &Layout,
    (driver, volume): (&str, &str),
    pod: &PodUid,
) -> Result<(), FlexError> {
    let folder = folder(layout, driver, volume);
    let path = folder.join(pod.as_str());
    gone(std::fs::remove_file(&path)).map_err(at("remove", &path))?;
    let _others_may_use_it = std::fs::remove_dir(&folder);
    Ok(())
}
