//! Nodes with networks of their own, and a volume that two of them share.

use std::fs;

use crate::client::{Driver, On};
use crate::server::run;
use crate::{in_guest, server};

/// A network namespace with a link to the server; gone when dropped.
pub(crate) struct Node {
    name: String,
    number: u8,
}

impl Node {
    pub(crate) fn new(name: &str, number: u8) -> Self {
        let node = Self {
            name: name.to_owned(),
            number,
        };
        let (here, there) = (format!("h-{name}"), format!("n-{name}"));
        run("modprobe", &["veth"]);
        run("ip", &["netns", "add", name]);
        run(
            "ip",
            &["link", "add", &here, "type", "veth", "peer", "name", &there],
        );
        run("ip", &["link", "set", &there, "netns", name]);
        run(
            "ip",
            &[
                "address",
                "add",
                &format!("{}/24", node.server()),
                "dev",
                &here,
            ],
        );
        run("ip", &["link", "set", &here, "up"]);
        let inside = |words: &[&str]| {
            let mut all = vec!["-n", name];
            all.extend(words);
            run("ip", &all);
        };
        inside(&[
            "address",
            "add",
            &format!("10.{number}.0.2/24"),
            "dev",
            &there,
        ]);
        inside(&["link", "set", &there, "up"]);
        inside(&["link", "set", "lo", "up"]);
        node
    }

    /// The server's address, as this node reaches it.
    pub(crate) fn server(&self) -> String {
        format!("10.{}.0.1", self.number)
    }

    /// Our driver on this node.
    pub(crate) async fn driver(&self, flags: &[&str]) -> Driver {
        let space = format!("--net=/run/netns/{}", self.name);
        Driver::start_by(&["nsenter", &space], flags).await
    }

    /// The server does not hear it any more, nor says so.
    pub(crate) fn cut(&self) {
        run("ip", &["link", "set", &format!("h-{}", self.name), "down"]);
    }

    /// It hears it again.
    pub(crate) fn mend(&self) {
        run("ip", &["link", "set", &format!("h-{}", self.name), "up"]);
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = std::process::Command::new("ip")
            .args(["netns", "delete", &self.name])
            .status();
    }
}

#[tokio::test]
async fn two_nodes_share_a_volume() {
    in_guest!();
    server::kernel();
    let (one, two) = (Node::new("one", 5), Node::new("two", 6));
    let (first, second) = (one.driver(&[]).await, two.driver(&[]).await);
    let (at_one, at_two) = (one.server(), two.server());
    let on = |server| On {
        server,
        share: "/data",
        options: "actimeo=0",
    };
    let volume = first.create("pvc-both", &on(&at_one)).await.unwrap();
    // The same volume, by the address that the other node has for the server.
    let mut seen = volume.clone();
    seen.volume_context.insert("server".into(), at_two.clone());
    let (here, there) = (
        first.folder.path().join("t"),
        second.folder.path().join("t"),
    );
    first.publish(&volume, &on(&at_one), &here).await.unwrap();
    second.publish(&seen, &on(&at_two), &there).await.unwrap();
    fs::write(here.join("file"), "from one").unwrap();
    assert_eq!(fs::read_to_string(there.join("file")).unwrap(), "from one");
    fs::write(there.join("back"), "from two").unwrap();
    assert_eq!(fs::read_to_string(here.join("back")).unwrap(), "from two");
    first.unpublish(&volume, &here).await.unwrap();
    assert_eq!(fs::read_to_string(there.join("file")).unwrap(), "from one");
    second.unpublish(&seen, &there).await.unwrap();
    first.delete(&volume.volume_id, &on(&at_one)).await.unwrap();
}
