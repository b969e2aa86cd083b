use super::*;

fn spot(class: &str, zone: &str) -> Spot {
    Spot {
        class: class.to_owned(),
        segment: [("zone".to_owned(), zone.to_owned())].into(),
    }
}

fn told(manager: &Manager, name: &str, spot: &Spot) -> CsiStorageCapacity {
    let room = Room {
        free: 7,
        largest: Some(5),
    };
    let mut object = manager.object("ns", None, spot, &room);
    object.metadata.name = name.to_owned();
    object
}

fn names(objects: &[CsiStorageCapacity]) -> Vec<&str> {
    objects.iter().map(|o| o.metadata.name.as_str()).collect()
}

#[test]
fn what_is_told_of_no_spot_or_twice_is_obsolete() {
    let manager = Manager::of("d", &Deployment::Central);
    let wanted = BTreeSet::from([spot("fast", "a"), spot("fast", "b"), spot("slow", "a")]);
    let objects = vec![
        told(&manager, "second", &spot("fast", "a")),
        told(&manager, "first", &spot("fast", "a")),
        told(&manager, "gone-class", &spot("old", "a")),
        told(&manager, "gone-zone", &spot("fast", "z")),
        told(&manager, "good", &spot("slow", "a")),
    ];
    let board = Board::new(&manager, wanted, objects);
    assert_eq!(
        names(board.obsolete()),
        ["gone-class", "gone-zone", "second"]
    );
    let missing: Vec<_> = board.spots().filter(|(_, told)| told.is_none()).collect();
    assert_eq!(missing, [(&spot("fast", "b"), None)]);
    assert_eq!((board.wanted(), board.told()), (3, 2));
}

#[test]
fn others_objects_are_left_alone() {
    let central = Manager::of("d", &Deployment::Central);
    let others = [
        Manager::of("another", &Deployment::Central),
        Manager::of("d", &Deployment::node("n1")),
    ];
    for other in others {
        let theirs = vec![told(&other, "theirs", &spot("fast", "a"))];
        let board = Board::new(&central, BTreeSet::new(), theirs);
        assert!(board.obsolete().is_empty(), "{other:?}");
    }
}

#[test]
fn a_long_node_name_fits_into_a_label_and_stays_its_own() {
    let node = |end: &str| {
        let name = format!("{}{end}", "x".repeat(80));
        Manager::of("d", &Deployment::node(&name))
    };
    let value = |manager: &Manager| manager.labels[CAPACITY_MANAGER].clone();
    assert!(value(&node("1")).len() <= LABEL);
    assert_ne!(value(&node("1")), value(&node("2")));
    let short = Manager::of("d", &Deployment::node("n1"));
    assert_eq!(value(&short), "external-provisioner-n1");
}

#[test]
fn room_reads_back_as_it_was_written() {
    let manager = Manager::of("d", &Deployment::Central);
    let object = told(&manager, "o", &spot("fast", "a"));
    let room = Room {
        free: 7,
        largest: Some(5),
    };
    assert_eq!(Room::of(&object), room);
    assert_eq!(Spot::of(&object), spot("fast", "a"));
    assert_eq!(object.metadata.generate_name, "csisc-");
}
