use super::*;

const WRITES: Attachment = Attachment { readonly: false };

fn order(name: &str) -> Order {
    Order {
        name: name.to_owned(),
        bytes: 1 << 20,
        parameters: BTreeMap::new(),
        attributes: BTreeMap::new(),
        places: Vec::new(),
        sharing: Sharing::OneNode,
        source: None,
    }
}

fn spot<'a>(volume: &'a str, path: &'a str) -> Spot<'a> {
    Spot {
        volume,
        node: "n1",
        path,
    }
}

fn published() -> (Backend, String) {
    let mut backend = Backend::default();
    let id = backend.create(order("a")).expect("a new name");
    backend.attach(&id, "n1", WRITES).expect("it is free");
    backend.stage(spot(&id, "/stage")).expect("it is attached");
    backend
        .publish(spot(&id, "/pod"), "/stage", WRITES)
        .expect("it is staged");
    (backend, id)
}

fn rules(backend: &mut Backend) -> Vec<&'static str> {
    backend
        .take_breaches()
        .into_iter()
        .map(|breach| breach.rule)
        .collect()
}

#[test]
fn a_whole_life_in_order_breaks_no_rule_and_leaves_nothing() {
    let (mut backend, id) = published();
    backend.unpublish(spot(&id, "/pod")).expect("in order");
    backend.unstage(spot(&id, "/stage")).expect("in order");
    backend.detach(&id, "n1").expect("in order");
    backend.delete(&id).expect("in order");
    assert_eq!(rules(&mut backend), Vec::<&str>::new());
    assert!(backend.volumes().is_empty());
}

#[test]
fn every_call_may_be_repeated() {
    let (mut backend, id) = published();
    assert_eq!(backend.create(order("a")), Ok(id.clone()));
    assert_eq!(backend.attach(&id, "n1", WRITES), Ok(()));
    assert_eq!(backend.stage(spot(&id, "/stage")), Ok(()));
    assert_eq!(backend.publish(spot(&id, "/pod"), "/stage", WRITES), Ok(()));
    for _ in 0..2 {
        assert_eq!(backend.unpublish(spot(&id, "/pod")), Ok(()));
    }
    for _ in 0..2 {
        assert_eq!(backend.unstage(spot(&id, "/stage")), Ok(()));
    }
    for _ in 0..2 {
        assert_eq!(backend.detach(&id, "n1"), Ok(()));
    }
    for _ in 0..2 {
        assert_eq!(backend.delete(&id), Ok(()));
    }
    assert_eq!(rules(&mut backend), Vec::<&str>::new());
    assert_eq!(backend.made(), 1);
}

#[test]
fn calls_out_of_order_are_refused_and_written_down() {
    type Call = fn(&mut Backend, &str) -> Result<(), Refusal>;
    let cases: &[(&str, &str, Call)] = &[
        ("delete while in use", "I04", |b, id| b.delete(id)),
        ("detach while staged", "I09", |b, id| b.detach(id, "n1")),
        ("detach from all while staged", "I09", |b, id| {
            b.detach(id, "")
        }),
        ("unstage while published", "I10", |b, id| {
            b.unstage(spot(id, "/stage"))
        }),
        ("stage elsewhere", "I10", |b, id| {
            b.stage(spot(id, "/other"))
        }),
        ("publish from elsewhere", "I10", |b, id| {
            b.publish(spot(id, "/p"), "/x", WRITES)
        }),
        ("a second node", "I06", |b, id| b.attach(id, "n2", WRITES)),
        ("stage unattached", "I10", |b, id| {
            b.stage(Spot {
                volume: id,
                node: "n2",
                path: "/stage",
            })
        }),
        ("another size", "I20", |b, _| {
            b.create(Order {
                bytes: 7,
                ..order("a")
            })
            .map(|_| ())
        }),
    ];
    for (name, rule, call) in cases {
        let (mut backend, id) = published();
        let before = backend.volumes().clone();
        assert!(call(&mut backend, &id).is_err(), "{name}");
        assert_eq!(rules(&mut backend), [*rule], "{name}");
        assert_eq!(backend.volumes(), &before, "{name}: nothing changed");
    }
}

#[test]
fn a_volume_answers_an_order_if_it_is_within_reach_of_one_of_its_places() {
    let at = |places: &[&str]| Order {
        places: places.iter().map(|place| (*place).to_owned()).collect(),
        ..order("a")
    };
    let cases: &[(&[&str], &[&str], bool)] = &[
        (&[], &["n1"], true),
        (&["n1", "n2"], &["n2", "n1"], true),
        (&["n1"], &[], true),
        (&["n1"], &["n2"], false),
    ];
    for (first, then, fits) in cases {
        let mut backend = Backend::default();
        backend.create(at(first)).expect("a new name");
        assert_eq!(
            backend.create(at(then)).is_ok(),
            *fits,
            "{first:?}, then {then:?}"
        );
    }
}

#[test]
fn a_clone_needs_its_source_once() {
    let mut backend = Backend::default();
    let source = backend.create(order("a")).expect("a new name");
    let clone = Order {
        source: Some(source.clone()),
        ..order("b")
    };
    let id = backend.create(clone.clone()).expect("its source is there");
    backend.delete(&source).expect("nobody uses it");
    assert_eq!(backend.create(clone.clone()), Ok(id), "the clone is made");
    let late = Order {
        name: "c".to_owned(),
        ..clone
    };
    backend.create(late).expect_err("there is nothing to clone");
    assert_eq!(rules(&mut backend), ["I12"]);
}
