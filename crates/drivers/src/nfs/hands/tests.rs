use orlop_csi::server::CsiError;

use super::*;
use crate::nfs::export::Export;
use crate::nfs::options::MountPlan;
use crate::nfs::order::{Content, Create, Mounting};
use crate::nfs::record::Record;
use crate::nfs::sub_dir::SubDir;

const SHORT: Duration = Duration::from_millis(300);

fn on() -> Mounting {
    Mounting {
        export: Export::parse("nfs.example", "/data").unwrap(),
        plan: MountPlan::default(),
    }
}

fn order(work: Work) -> Order {
    Order {
        working_dir: "/tmp".into(),
        stand_in: None,
        sweep: false,
        work,
    }
}

/// A worker that reaches its server and then does this.
async fn follow_one(script: &str, silence: Duration) -> Option<Word> {
    let script = format!(r#"echo '{{"Doing":"copy x"}}'; echo '{{"Beat":0}}'; {script}"#);
    let crew = Crew::new(vec!["/bin/sh".into(), "-c".into(), script.into()]);
    let mut worker = crew.start().unwrap();
    let (words, mut said) = mpsc::channel(64);
    let order = order(Work::Measure { on: on() });
    let wait = follow(&mut worker, words, (), &order, silence);
    tokio::time::timeout(Duration::from_secs(20), wait)
        .await
        .unwrap();
    worker.dismiss().await;
    let mut last = None;
    while let Some(word) = said.recv().await {
        last = Some(word);
    }
    last
}

#[tokio::test]
async fn a_worker_that_gets_on_without_a_word_is_not_ended() {
    let busy = r#"for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.4; read x < /proc/uptime; done; echo '{"Done":"Done"}'"#;
    let last = follow_one(busy, SHORT * 10).await;
    assert!(matches!(last, Some(Word::Done(_))), "{last:?}");
}

#[tokio::test]
async fn a_worker_that_gets_nowhere_is_ended_and_its_caller_told_where() {
    let Some(Word::Failed(failure)) = follow_one("exec sleep 30", SHORT).await else {
        panic!("it was not ended");
    };
    assert_eq!(failure.code(), Code::Unavailable);
    for told in ["nfs.example:/data", "copy x", "was ended"] {
        assert!(failure.to_string().contains(told), "{failure}");
    }
}

#[tokio::test]
async fn a_path_whose_server_is_silent_is_told_with_its_server() {
    let sleep = ["/bin/sleep", "30"].map(Into::into).to_vec();
    let hands = Hands::Processes(Crew::new(sleep));
    let work = Work::Stats {
        path: "/p".into(),
        export: Some(on().export),
    };
    let refused = hands.run(order(work), SHORT, ()).await.unwrap_err();
    assert_eq!(refused.code(), Code::DeadlineExceeded);
    assert!(
        refused.to_string().contains("nfs.example:/data"),
        "{refused}"
    );
}

#[tokio::test]
async fn copies_in_a_share_wait_for_others_and_nothing_else_does() {
    let crew = Crew::new(vec!["/bin/true".into()]);
    let record = Record {
        key: "x".into(),
        folder: SubDir::parse("x").unwrap(),
        capacity_bytes: 0,
        source: None,
        context: std::collections::BTreeMap::new(),
        placing: None,
    };
    let copy = order(Work::Create(Create {
        on: on(),
        record,
        required: 0,
        limit: 0,
        permissions: None,
        content: Some(Content::Volume {
            on: on(),
            key: "y".into(),
            folder: SubDir::parse("y").unwrap(),
        }),
        shown: Vec::new(),
    }));
    let mut held = Vec::new();
    while let Ok(place) = tokio::time::timeout(SHORT, crew.place(&copy)).await {
        held.push(place.unwrap());
        assert!(held.len() < 16, "they wait for nobody");
    }
    assert!(
        crew.place(&order(Work::Measure { on: on() }))
            .await
            .is_some()
    );
    held.pop();
    let next = tokio::time::timeout(SHORT, crew.place(&copy)).await;
    held.push(next.unwrap().unwrap());
    let hands = Hands::Processes(crew);
    let refused = hands.run(copy, SHORT, ()).await.unwrap_err();
    assert_eq!(refused.code(), Code::DeadlineExceeded);
    assert!(refused.to_string().contains("other copies"), "{refused}");
}
