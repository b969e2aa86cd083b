//! Volumes that were made by hand, and claims that look for them, or name them.

use anyhow::Result;
use serde_json::json;

use super::Telling;
use crate::stage::{CLAIM, VOLUME, claim};

/// A class that no object describes: its volumes are made by hand.
const CLASS: &str = "by-hand";

pub(super) async fn lead(telling: &mut Telling<'_>) -> Result<()> {
    by_search(telling).await?;
    by_name(telling).await
}

/// Size, class, access mode, mode and label decide; no two volumes are equally good for a claim.
async fn by_search(telling: &mut Telling<'_>) -> Result<()> {
    let stage = telling.stage;
    let volumes = [
        "small", "medium", "large", "shared", "device", "golden", "foreign",
    ];
    let [small, medium, large] = [("small", "1Gi"), ("medium", "2Gi"), ("large", "5Gi")]
        .map(|(name, size)| telling.disk(name, CLASS, size));
    let mut shared = telling.disk("shared", CLASS, "1Gi");
    shared["spec"]["accessModes"] = json!(["ReadWriteOnce", "ReadWriteMany"]);
    let mut device = telling.disk("device", CLASS, "1Gi");
    device["spec"]["volumeMode"] = json!("Block");
    let mut golden = telling.disk("golden", CLASS, "3Gi");
    golden["metadata"]["labels"]["tier"] = json!("gold");
    let foreign = telling.disk("foreign", "elsewhere", "1Gi");
    telling
        .apply([small, medium, large, shared, device, golden, foreign])
        .await?;
    for name in volumes {
        telling
            .phase(VOLUME, &telling.name(name), "Available")
            .await?;
    }

    let mut many = claim("many", CLASS, "1Gi");
    many["spec"]["accessModes"] = json!(["ReadWriteMany"]);
    let mut raw = claim("raw", CLASS, "1Gi");
    raw["spec"]["volumeMode"] = json!("Block");
    let mut picky = claim("picky", CLASS, "500Mi");
    picky["spec"]["selector"] = json!({"matchExpressions": [
        {"key": "tier", "operator": "In", "values": ["gold", "silver"]},
    ]});
    telling
        .apply([
            claim("least", CLASS, "1Gi"),
            claim("between", CLASS, "1500Mi"),
            claim("vast", CLASS, "4Gi"),
            claim("away", "elsewhere", "1Gi"),
            many,
            raw,
            picky,
        ])
        .await?;
    let bound = ["least", "between", "vast", "away", "many", "raw", "picky"];
    for name in bound {
        stage.bound(name).await?;
    }
    // Nothing is left for these.
    let mut exclusive = claim("exclusive", CLASS, "1Gi");
    exclusive["spec"]["accessModes"] = json!(["ReadWriteOncePod"]);
    let hopeless = ["endless", "exclusive", "misspelt"];
    telling
        .apply([
            claim("endless", CLASS, "100Gi"),
            claim("misspelt", "by-hnad", "1Gi"),
            exclusive,
        ])
        .await?;
    for name in hopeless {
        telling.told(name, "ProvisioningFailed").await?;
    }
    telling
        .stop("claims found what suits them, or nothing")
        .await?;
    telling
        .clear(&[&bound[..], &hopeless].concat(), &volumes)
        .await
}

/// Claims that name a volume, volumes that name a claim, and pairs that can't be.
async fn by_name(telling: &mut Telling<'_>) -> Result<()> {
    let stage = telling.stage;
    let volumes = ["named", "kept", "mutual", "tiny", "given", "files"];
    let mut files = telling.kept_for("files", CLASS, "blocky");
    files["spec"]["volumeMode"] = json!("Filesystem");
    telling
        .apply([
            telling.disk("named", CLASS, "1Gi"),
            telling.kept_for("kept", CLASS, "awaited"),
            telling.kept_for("mutual", CLASS, "both"),
            telling.disk("tiny", CLASS, "1Gi"),
            telling.kept_for("given", CLASS, "somebody"),
            files,
        ])
        .await?;
    for name in volumes {
        telling
            .phase(VOLUME, &telling.name(name), "Available")
            .await?;
    }
    telling.stop("volumes are kept for claims to come").await?;

    let mut misfit = telling.pointing("misfit", CLASS, "tiny");
    misfit["spec"]["resources"]["requests"]["storage"] = json!("10Gi");
    let mut blocky = claim("blocky", CLASS, "1Gi");
    blocky["spec"]["volumeMode"] = json!("Block");
    telling
        .apply([
            telling.pointing("naming", CLASS, "named"),
            claim("awaited", CLASS, "1Gi"),
            telling.pointing("both", CLASS, "mutual"),
            misfit,
            telling.pointing("late", CLASS, "given"),
            telling.pointing("early", CLASS, "not-there"),
            blocky,
        ])
        .await?;
    for name in ["naming", "awaited", "both"] {
        stage.bound(name).await?;
    }
    telling.told("misfit", "VolumeMismatch").await?;
    telling.told("late", "FailedBinding").await?;
    telling.told("blocky", "ProvisioningFailed").await?;
    telling.phase(CLAIM, "early", "Pending").await?;
    telling
        .stop("pairs that were named, and those that can't be")
        .await?;

    telling
        .apply([telling.disk("not-there", CLASS, "1Gi")])
        .await?;
    stage.bound("early").await?;
    telling.stop("the volume that was asked for came").await?;
    let claims = [
        "naming", "awaited", "both", "misfit", "late", "early", "blocky",
    ];
    let volumes = [&volumes[..], &["not-there"]].concat();
    telling.clear(&claims, &volumes).await
}
