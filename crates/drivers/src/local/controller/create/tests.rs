use super::*;
use crate::local::tests::home;

fn asked() -> Asked {
    let range = proto::CapacityRange {
        required_bytes: 1 << 30,
        limit_bytes: 2 << 30,
    };
    Asked {
        id: VolumeId::of_name("a"),
        name: "a".to_owned(),
        size: Some(SizeRange::parse(&range).unwrap()),
        smallest: size::SMALLEST,
        pool: None,
        allocation: Allocation::Thin,
        mutable: Mutable {
            allocation: Some(Allocation::Thin),
            read_ahead_kib: None,
        },
        parameters: BTreeMap::new(),
        wanted: Wanted::OneOf(vec![NodeName::from("n")]),
        source: None,
        accesses: vec![Access::Block],
    }
}

fn volume(change: impl FnOnce(&mut Volume)) -> Volume {
    let record = VolumeRecord::blank("a", 1, 1 << 30);
    let mut volume = Volume {
        home: home("n"),
        record,
    };
    change(&mut volume);
    volume
}

#[test]
fn a_new_volume_has_the_size_asked_for_or_the_default() {
    assert_eq!(
        plan(&asked(), None, None).unwrap(),
        Step::Make { size: 1 << 30 }
    );
    let unsized_ = Asked {
        size: None,
        ..asked()
    };
    assert_eq!(
        plan(&unsized_, None, None).unwrap(),
        Step::Make {
            size: size::DEFAULT
        }
    );
}

#[test]
fn a_compatible_volume_is_the_answer() {
    assert_eq!(
        plan(&asked(), Some(&volume(|_| {})), None).unwrap(),
        Step::AlreadyThere
    );
    let larger = volume(|volume| volume.record.capacity_bytes = 2 << 30);
    assert_eq!(
        plan(&asked(), Some(&larger), None).unwrap(),
        Step::AlreadyThere
    );
}

#[test]
fn a_volume_that_differs_is_never_the_answer() {
    let cases: [(&str, Volume); 6] = [
        (
            "mutable parameters",
            volume(|volume| volume.record.allocation = Allocation::Thick),
        ),
        (
            "size",
            volume(|volume| volume.record.capacity_bytes = 3 << 30),
        ),
        (
            "size",
            volume(|volume| volume.record.capacity_bytes = 1 << 29),
        ),
        (
            "parameters",
            volume(|volume| {
                volume
                    .record
                    .parameters
                    .insert("fstype".to_owned(), "xfs".to_owned());
            }),
        ),
        ("place", volume(|volume| volume.home = home("other"))),
        (
            "name of the same id",
            volume(|volume| volume.record.name = "b".to_owned()),
        ),
    ];
    for (expected, found) in cases {
        match plan(&asked(), Some(&found), None) {
            Err(error @ CreateError::Differs { .. }) => {
                assert_eq!(error.code(), Code::AlreadyExists);
                assert!(error.to_string().ends_with(expected), "{error}");
            }
            other => panic!("{expected}: {other:?}"),
        }
    }
}
