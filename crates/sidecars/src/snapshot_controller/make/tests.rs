use super::*;

const NONE: &BTreeMap<String, String> = &BTreeMap::new();
const WORDS: Words = VolumeSnapshot::WORDS;

fn class(name: &'static str, driver: &'static str, is_default: bool) -> Recipe<'static> {
    Recipe {
        name,
        driver,
        is_default,
        policy: DeletionPolicy::Delete,
        parameters: NONE,
    }
}

fn chosen(named: Option<&str>, all: &[Recipe<'static>]) -> Result<&'static str, String> {
    let driver = || Ok("ours".to_owned());
    match recipe(&WORDS, named, all, driver) {
        Ok(recipe) => Ok(recipe.name),
        Err(refusal) => {
            assert!(
                !refusal.unready,
                "a class that is missing takes nothing away"
            );
            Err(format!("{}: {}", refusal.reason, refusal.message))
        }
    }
}

#[test]
fn the_class_is_the_named_one_or_the_only_default_of_the_volumes_driver() {
    let all = [
        class("plain", "ours", false),
        class("best", "ours", true),
        class("other", "theirs", true),
    ];
    assert_eq!(chosen(Some("plain"), &all), Ok("plain"));
    assert_eq!(chosen(None, &all), Ok("best"));
    let error = chosen(Some("nowhere"), &all).unwrap_err();
    assert!(error.starts_with("GetSnapshotClassFailed: "), "{error}");
    let error = chosen(None, &all[2..]).unwrap_err();
    assert!(
        error.ends_with("cannot find default snapshot class; mark one of driver ours, or name one"),
        "{error}"
    );
    assert!(
        error.starts_with("SetDefaultSnapshotClassFailed: "),
        "{error}"
    );
    let error = chosen(None, &[all[1], class("too", "ours", true)]).unwrap_err();
    assert!(
        error.ends_with("2 default snapshot classes were found: best, too; keep one, or name one"),
        "{error}"
    );
}

#[test]
fn a_missing_claim_without_a_class_is_an_error_and_nothing_worse() {
    let all = [class("best", "ours", true)];
    let driver = || Err(Obstacle::NoClaim("data".to_owned()));
    let refusal = recipe(&WORDS, None, &all, driver).unwrap_err();
    assert_eq!(refusal.reason, "SetDefaultSnapshotClassFailed");
    assert!(refusal.message.contains("data"), "{}", refusal.message);
}

fn bound() -> (Claim, Volume) {
    let mut claim = Claim::default();
    claim.metadata.name = "data".into();
    claim.metadata.namespace = "a".into();
    claim.metadata.uid = "c".into();
    claim.spec.volume_name = "v".into();
    claim.status.phase = Some(ClaimPhase::Bound);
    let mut volume = Volume::default();
    volume.metadata.name = "v".into();
    volume.spec.claim_ref = Some(claim.reference());
    volume.spec.csi = Some(CsiSource {
        driver: "ours".into(),
        volume_handle: "h".into(),
        ..CsiSource::default()
    });
    (claim, volume)
}

#[test]
fn only_a_volume_that_belongs_to_the_claim_and_to_a_driver_is_cut() {
    let word = "snapshot";
    let (mut claim, mut volume) = bound();
    let (_, csi) = volume_of(&claim, Some(&volume), word).expect("it can be cut");
    assert_eq!(csi.volume_handle, "h");
    assert!(matches!(
        volume_of(&claim, None, word),
        Err(Obstacle::NoVolume(_))
    ));
    let owner = volume.spec.claim_ref.take();
    assert!(matches!(
        volume_of(&claim, Some(&volume), word),
        Err(Obstacle::NoVolume(_))
    ));
    volume.spec.claim_ref = owner.map(|owner| orlop_model::ObjectRef {
        uid: "another".into(),
        ..owner
    });
    assert!(matches!(
        volume_of(&claim, Some(&volume), word),
        Err(Obstacle::NoVolume(_))
    ));
    let (_, mut volume) = bound();
    volume.spec.csi = None;
    assert!(matches!(
        volume_of(&claim, Some(&volume), word),
        Err(Obstacle::NotCsi(_))
    ));
    claim.status.phase = None;
    let error = volume_of(&claim, Some(&volume), word).unwrap_err();
    let words = "the PVC data is not yet bound to a PV, will not attempt to take a snapshot";
    assert_eq!(error.to_string(), words);
}

#[test]
fn a_class_of_another_driver_is_refused() {
    let (_, volume) = bound();
    let csi = volume.spec.csi.as_ref().expect("it is one");
    assert_eq!(
        same_driver(&class("a", "ours", false), &volume, csi),
        Ok(())
    );
    let refused = same_driver(&class("a", "theirs", false), &volume, csi);
    assert!(matches!(refused, Err(Obstacle::OtherDriver { .. })));
}

#[test]
fn a_content_is_held_from_its_first_moment_on() {
    let secret = SecretRef {
        name: "s".into(),
        namespace: "n".into(),
    };
    let meta = held::<VolumeSnapshotContent>("c", Some(&secret), ["name", "namespace"]);
    assert!(meta.has_finalizer(names::SNAPSHOT_CONTENT_BOUND));
    assert_eq!(meta.annotation("name"), Some("s"));
    assert_eq!(meta.annotation("namespace"), Some("n"));
}
