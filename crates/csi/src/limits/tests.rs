use super::*;

fn pairs(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

#[test]
fn a_string_may_have_128_bytes_and_no_more() {
    assert_eq!(required("volume_id", &"x".repeat(128)), Ok(()));
    assert_eq!(
        required("volume_id", &"x".repeat(129)),
        Err(LimitError::TooLong {
            field: "volume_id",
            length: 129,
            limit: 128
        })
    );
    assert_eq!(
        required("volume_id", ""),
        Err(LimitError::Missing { field: "volume_id" })
    );
    assert_eq!(string("fs_type", ""), Ok(()));
    // Bytes count, not characters.
    assert_eq!(name("name", &"ü".repeat(64)), Ok(()));
    assert!(name("name", &"ü".repeat(65)).is_err());
}

#[test]
fn a_name_may_hold_anything_but_the_banned_control_characters() {
    for code in 0..=0x110u32 {
        let character = char::from_u32(code).unwrap();
        let banned = matches!(code, 0x0..=0x8 | 0xb | 0xc | 0xe..=0x1f | 0x7f..=0x9f);
        let found = name("name", &format!("a{character}b"));
        assert_eq!(found.is_err(), banned, "U+{code:04X}: {found:?}");
    }
    for legal in ["../../etc", "-rf", "a/b", "tab\there", "two\nlines", "名前"] {
        assert_eq!(name("name", legal), Ok(()), "{legal:?}");
    }
}

#[test]
fn a_map_counts_keys_and_values_together() {
    assert_eq!(
        map("parameters", &pairs(&[("k", &"v".repeat(4095))])),
        Ok(())
    );
    assert_eq!(
        map("parameters", &pairs(&[("k", &"v".repeat(4095)), ("l", "")])),
        Err(LimitError::TooLong {
            field: "parameters",
            length: 4097,
            limit: 4096
        })
    );
    assert_eq!(mount_flags(&["x".repeat(4096)]), Ok(()));
    assert!(mount_flags(&["x".repeat(4096), "y".to_owned()]).is_err());
}

#[test]
fn a_path_is_absolute_and_fits_the_kernel() {
    assert_eq!(
        path("target_path", &format!("/{}", "x".repeat(4094))),
        Ok(())
    );
    assert!(path("target_path", &format!("/{}", "x".repeat(4095))).is_err());
    assert_eq!(
        path("target_path", "some/path"),
        Err(LimitError::RelativePath {
            field: "target_path"
        })
    );
    assert!(path("target_path", "/a\0b").is_err());
    assert_eq!(node_id("node_id", &"n".repeat(256)), Ok(()));
    assert!(node_id("node_id", &"n".repeat(257)).is_err());
}

#[test]
fn a_capacity_range_needs_a_bound_and_an_order() {
    let range = |required_bytes, limit_bytes| {
        capacity_range(&CapacityRange {
            required_bytes,
            limit_bytes,
        })
    };
    for (required, limit) in [(1, 0), (0, 1), (1, 1), (1, 2), (i64::MAX, i64::MAX)] {
        assert_eq!(range(required, limit), Ok(()), "{required}..{limit}");
    }
    assert_eq!(range(0, 0), Err(LimitError::EmptyRange));
    assert_eq!(
        range(2, 1),
        Err(LimitError::InvertedRange {
            required: 2,
            limit: 1
        })
    );
    assert!(matches!(
        range(-1, 0),
        Err(LimitError::Negative {
            field: "required_bytes",
            ..
        })
    ));
    assert!(matches!(
        range(1, -1),
        Err(LimitError::Negative {
            field: "limit_bytes",
            ..
        })
    ));
}

#[test]
fn a_capability_says_what_as_and_by_how_many() {
    use crate::proto::volume_capability::{AccessMode, AccessType, BlockVolume};
    let block = Some(AccessType::Block(BlockVolume {}));
    let once = Some(AccessMode { mode: 1 });
    let check = |access_type, access_mode| {
        volume_capability(&VolumeCapability {
            access_type,
            access_mode,
        })
    };
    assert_eq!(check(block.clone(), once), Ok(()));
    assert!(
        matches!(check(None, once), Err(LimitError::Missing { field }) if field.ends_with("access_type"))
    );
    assert!(
        matches!(check(block.clone(), None), Err(LimitError::Missing { field }) if field.ends_with("access_mode"))
    );
    assert!(check(block, Some(AccessMode { mode: 0 })).is_err());
}

#[test]
fn plugin_names_follow_the_specification() {
    for good in [
        "local.orlop.io",
        "a",
        "a-b.c",
        "9p.example.org",
        &"x".repeat(63),
    ] {
        assert_eq!(plugin_name(good), Ok(()), "{good:?}");
    }
    for bad in ["", "-a", "a.", "a_b", "a/b", &"x".repeat(64)] {
        assert!(plugin_name(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn topology_keys_and_values_have_the_form_of_labels() {
    let long = "x".repeat(63);
    for good in [
        ("topology.orlop.io/node", "n1"),
        ("zone", "eu_1.a"),
        (long.as_str(), &long),
    ] {
        assert_eq!(topology(&pairs(&[good])), Ok(()), "{good:?}");
    }
    let longer = "x".repeat(64);
    for bad in [
        ("Topology.orlop.io/node", "n1"),
        ("a/b/c", "v"),
        ("/node", "v"),
        ("zone", ""),
        ("zone", "-v"),
        (longer.as_str(), "v"),
        ("zone", &longer),
    ] {
        assert!(topology(&pairs(&[bad])).is_err(), "{bad:?}");
    }
    assert!(topology(&pairs(&[("zone", "a"), ("ZONE", "b")])).is_err());
}
