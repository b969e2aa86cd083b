//! Ids of volumes, as plugins and drivers write them.

use super::{GCE, Untranslatable, regions};

/// What stands for a part of a GCE disk's id that nobody knows.
pub(super) const UNSPECIFIED: &str = "UNSPECIFIED";

/// The id of a GCE disk of a zone.
pub(super) fn of_zone(project: &str, zone: &str, disk: &str) -> String {
    format!("projects/{project}/zones/{zone}/disks/{disk}")
}

/// The id of a GCE disk of a region.
pub(super) fn of_region(project: &str, region: &str, disk: &str) -> String {
    format!("projects/{project}/regions/{region}/disks/{disk}")
}

/// The parts of an id of GCE, if there are enough of them.
fn parts<'a>(what: &'static str, id: &'a str) -> Result<[&'a str; 6], Untranslatable> {
    let parts: Vec<&str> = id.split('/').collect();
    let first = parts.first_chunk::<6>().copied();
    first.ok_or_else(|| Untranslatable::Id {
        what,
        id: id.to_owned(),
    })
}

/// The name of a GCE disk.
pub(super) fn gce_disk(id: &str) -> Result<&str, Untranslatable> {
    parts("a disk of GCE", id).map(|parts| parts[5])
}

/// The id of an EBS disk, of which zones were told before.
pub(super) fn ebs(id: &str) -> Result<String, Untranslatable> {
    let Some(rest) = id.strip_prefix("aws://") else {
        return Ok(id.to_owned());
    };
    // What stands up to the first slash is the zone.
    let disk = rest.split_once('/').map_or("", |(_, disk)| disk);
    let disk = disk.trim_matches('/');
    if disk.starts_with("vol-") && !disk.contains('/') {
        return Ok(disk.to_owned());
    }
    Err(Untranslatable::Id {
        what: "a disk of AWS",
        id: id.to_owned(),
    })
}

/// The name of an Azure disk.
pub(super) fn azure_disk(uri: &str) -> Result<String, Untranslatable> {
    let managed = !uri.get(..4).is_some_and(|s| s.eq_ignore_ascii_case("http")) || uri.len() == 4;
    let name = match managed {
        true => uri
            .split_once("/subscriptions/")
            .and_then(|(_, rest)| rest.split_once("/resourceGroups/"))
            .and_then(|(_, rest)| rest.split_once("/providers/Microsoft.Compute/disks/")),
        false => uri
            .split_once("://")
            .and_then(|(_, rest)| rest.split_once("/vhds/")),
    };
    match name {
        Some((_, name)) if !name.is_empty() => Ok(name.to_owned()),
        _ => Err(Untranslatable::Id {
            what: "a disk of Azure",
            id: uri.to_owned(),
        }),
    }
}

/// The storage account whose secret this is, by the secret's name.
pub(super) fn storage_account(secret: &str) -> Option<&str> {
    let (_, rest) = secret.split_once("azure-storage-account-")?;
    let (account, _) = rest.rsplit_once("-secret")?;
    (!account.is_empty()).then_some(account)
}

/// A volume's id with what a node's id tells of it, where the volume's object didn't.
///
/// # Errors
/// If an id has no such form.
pub fn repaired(driver: &str, handle: &str, node_id: &str) -> Result<String, Untranslatable> {
    if driver != GCE.driver {
        return Ok(handle.to_owned());
    }
    let [_, project, kind, place, _, disk] = parts("a disk of GCE", handle)?;
    if project != UNSPECIFIED {
        return Ok(handle.to_owned());
    }
    let [_, project, _, zone, _, _] = parts("an instance of GCE", node_id)?;
    let known = |place: &str| (place != UNSPECIFIED).then(|| place.to_owned());
    match kind {
        "zones" => {
            let zone = known(place).unwrap_or_else(|| zone.to_owned());
            Ok(of_zone(project, &zone, disk))
        }
        "regions" => {
            let region = match known(place) {
                Some(region) => region,
                None => regions::gce(&[zone.to_owned()])?,
            };
            Ok(of_region(project, &region, disk))
        }
        _ => Err(Untranslatable::Id {
            what: "a disk of GCE",
            id: handle.to_owned(),
        }),
    }
}
