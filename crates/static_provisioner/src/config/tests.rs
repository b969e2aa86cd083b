use super::*;

const DATA: &str = r#"
nodeLabelsForPV: |
  - kubernetes.io/hostname
useAlphaAPI: "false"
minResyncPeriod: "5m0s"
labelsForPV: |
  tier: fast
storageClassMap: |
  fast-disks:
    hostDir: /mnt/fast-disks
    mountDir: /mnt/fast-disks
    blockCleanerCommand:
      - "/scripts/shred.sh"
      - "2"
    volumeMode: Filesystem
    fsType: ext4
    namePattern: "nvme*,sd*"
  raw:
    hostDir: /mnt/raw
    mountDir: /mnt/in-pod
    volumeMode: Block
    accessMode: ReadWriteOncePod
    blockCleanerCommand: [/usr/local/bin/wipe, --twice]
"#;

fn class(text: &str) -> Result<ClassConfig, String> {
    let text = format!("storageClassMap: {{a: {{hostDir: /a, mountDir: /b{text}}}}}");
    let config = Config::parse(&text).map_err(|error| error.to_string())?;
    Ok(config.classes["a"].clone())
}

#[test]
fn the_originals_config_map_reads_the_same_from_a_file_and_a_folder() {
    let config_map = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: c}}\ndata:\n{}",
        DATA.lines()
            .map(|line| format!("  {line}\n"))
            .collect::<String>()
    );
    let read = Config::parse(&config_map).unwrap();
    assert_eq!(Config::parse(DATA).unwrap(), read);

    let folder = tempfile::tempdir().unwrap();
    let Value::Object(keys) = yaml("", DATA).unwrap() else {
        panic!("no map");
    };
    for (key, value) in keys {
        std::fs::write(folder.path().join(key), value.as_str().unwrap()).unwrap();
    }
    std::fs::create_dir(folder.path().join("..data")).unwrap();
    assert_eq!(Config::load(folder.path()).unwrap(), read);

    assert_eq!(read.node_labels, ["kubernetes.io/hostname"]);
    assert_eq!(read.labels["tier"], "fast");
    let fast = &read.classes["fast-disks"];
    assert_eq!(fast.cleaner, BlockCleaner::Wipe(Wipe::Shred(2)));
    assert_eq!(fast.access_mode, AccessMode::ReadWriteOnce);
    assert!(fast.names.match_name("sda") && !fast.names.match_name("x"));
    let raw = &read.classes["raw"];
    assert_eq!(raw.mount_dir, Path::new("/mnt/in-pod"));
    assert_eq!(raw.volume_mode, VolumeMode::Block);
    let command = vec!["/usr/local/bin/wipe".to_owned(), "--twice".to_owned()];
    assert_eq!(raw.cleaner, BlockCleaner::Command(command));
}

#[test]
fn a_disk_is_wiped_whole_unless_less_is_asked_for() {
    let cleaner = |text: &str| class(text).unwrap().cleaner;
    assert_eq!(cleaner(""), BlockCleaner::Wipe(Wipe::Zero));
    assert_eq!(
        cleaner(", blockCleaner: quick"),
        BlockCleaner::Wipe(Wipe::Quick)
    );
    let script = ", blockCleanerCommand: [/scripts/quick_reset.sh]";
    assert_eq!(cleaner(script), BlockCleaner::Wipe(Wipe::Quick));
    let script = ", blockCleanerCommand: [/scripts/shred.sh]";
    assert_eq!(cleaner(script), BlockCleaner::Wipe(Wipe::Shred(3)));
}

#[test]
fn mistakes_are_told_with_their_class() {
    for (text, said) in [
        (
            ", blockCleaner: fast",
            "a: blockCleaner: \"fast\" is none of",
        ),
        (
            ", blockCleanerCommand: []",
            "a: blockCleanerCommand is empty",
        ),
        (
            ", blockCleanerCommand: [dd]",
            "\"dd\" must be an absolute path",
        ),
        (
            ", blockCleanerCommand: [/x], blockCleaner: zero",
            "exclude each other",
        ),
        (", namePattern: '['", "is no file name pattern"),
        (", hostdir: /x", "unknown field `hostdir`"),
    ] {
        let error = class(text).unwrap_err();
        assert!(error.contains(said), "{text}: {error}");
    }
    for (text, said) in [
        ("", "no class is configured"),
        (
            "useJobForCleaning: true",
            "cleaned by the provisioner itself",
        ),
        (
            "storageClassMap: {a: {hostDir: x, mountDir: /b}}",
            "hostDir must be an absolute path",
        ),
        (
            "storageClassMap: {a: {hostDir: /mnt/../a, mountDir: /b}}",
            "a: hostDir must not have \"..\" in it",
        ),
        (
            "labelsForPV: {bad key: x}\nstorageClassMap: {a: {hostDir: /a, mountDir: /b}}",
            "labelsForPV: \"bad key\" is no label key",
        ),
        (
            "labelsForPV: {Example.com/key: x}\nstorageClassMap: {a: {hostDir: /a, mountDir: /b}}",
            "is no label key",
        ),
        (
            "labelsForPV: {example.com/key: '-'}\nstorageClassMap: {a: {hostDir: /a, mountDir: /b}}",
            "example.com/key: \"-\" is no label value",
        ),
        ("storageClassMap: 'a: ['", "storageClassMap: "),
    ] {
        let error = Config::parse(text).unwrap_err();
        let mut said_all = error.to_string();
        if let Some(source) = std::error::Error::source(&error) {
            said_all.push_str(&source.to_string());
        }
        assert!(said_all.contains(said), "{text}: {said_all}");
    }
}

#[test]
fn a_class_that_cannot_be_used_does_not_harm_the_others() {
    let text = "storageClassMap: {good: {hostDir: /a, mountDir: /a}, bare: {hostDir: /b}, \
                odd: {hostDir: /c, mountDir: /c, mountdir: /d}}";
    let config = Config::parse(text).unwrap();
    assert_eq!(config.classes.keys().collect::<Vec<_>>(), ["good"]);
    let what = &config.unusable["bare"];
    assert_eq!(
        what,
        "mountDir is missing: the folder as the provisioner sees it"
    );
    assert!(config.unusable["odd"].starts_with("unknown field `mountdir`"));
}

#[test]
fn what_an_editor_has_not_saved_yet_is_no_key() {
    let folder = tempfile::tempdir().unwrap();
    let map = "a: {hostDir: /a, mountDir: /a}";
    for (name, text) in [("storageClassMap", map), (".map.swp", "x"), ("map~", "x")] {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    assert_eq!(Config::load(folder.path()).unwrap().classes.len(), 1);
}
