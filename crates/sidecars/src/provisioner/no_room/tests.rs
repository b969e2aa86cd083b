use tokio::time::advance;

use super::*;

fn place(zone: &str) -> Segment {
    Segment::from([("zone".to_owned(), zone.to_owned())])
}

fn no_room() -> NoRoom {
    NoRoom::new(Backoff {
        first: Duration::from_secs(1),
        most: Duration::from_secs(300),
    })
}

#[tokio::test(start_paused = true)]
async fn a_place_that_was_not_asked_is_asked_at_once() {
    let (no_room, claim, class) = (no_room(), Claim::default(), StorageClass::default());
    no_room.refused(&claim, &class, &place("a"));
    assert_eq!(
        no_room.next(&claim, &class, &place("a")),
        Next::Wait(Duration::from_secs(1))
    );
    assert_eq!(no_room.next(&claim, &class, &place("b")), Next::Ask);
}

#[tokio::test(start_paused = true)]
async fn waits_double_and_the_claim_is_given_back_meanwhile() {
    let (no_room, claim, class) = (no_room(), Claim::default(), StorageClass::default());
    for _ in 0..9 {
        no_room.refused(&claim, &class, &place("a"));
    }
    let ask = || no_room.next(&claim, &class, &place("a"));
    assert_eq!(ask(), Next::Wait(KEPT));
    advance(Duration::from_secs(59)).await;
    assert_eq!(ask(), Next::Wait(Duration::from_secs(1)));
    advance(Duration::from_secs(1)).await;
    assert_eq!(ask(), Next::GiveBack);
    assert_eq!(ask(), Next::Wait(KEPT), "it was chosen again");
    advance(Duration::from_secs(196)).await;
    assert_eq!(ask(), Next::Ask);
}

#[tokio::test(start_paused = true)]
async fn hope_and_other_wishes_end_the_wait() {
    let (no_room, claim, class) = (no_room(), Claim::default(), StorageClass::default());
    let full = || {
        for _ in 0..9 {
            no_room.refused(&claim, &class, &place("a"));
        }
        assert_eq!(no_room.next(&claim, &class, &place("a")), Next::Wait(KEPT));
    };
    full();
    assert_eq!(no_room.hope(), [claim.key()]);
    assert_eq!(no_room.next(&claim, &class, &place("a")), Next::Ask);

    full();
    let mut edited = claim.clone();
    edited
        .metadata
        .annotations
        .insert("team".into(), "a".into());
    assert_eq!(no_room.next(&edited, &class, &place("a")), Next::Ask);

    full();
    let mut made_anew = class.clone();
    made_anew.metadata.uid = "other".into();
    assert_eq!(no_room.next(&claim, &made_anew, &place("a")), Next::Ask);

    full();
    no_room.forget(&claim.key());
    assert_eq!(no_room.next(&claim, &class, &place("a")), Next::Ask);
}

#[tokio::test(start_paused = true)]
async fn hope_in_vain_does_not_shorten_the_next_wait() {
    let (no_room, claim, class) = (no_room(), Claim::default(), StorageClass::default());
    for _ in 0..6 {
        no_room.refused(&claim, &class, &place("a"));
    }
    no_room.hope();
    no_room.refused(&claim, &class, &place("a"));
    advance(Duration::from_secs(59)).await;
    assert_ne!(no_room.next(&claim, &class, &place("a")), Next::Ask);
}
