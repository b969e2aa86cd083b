//! A configuration that is changed for the worse.

use std::fs;

use orlop_runtime::{Clock, Process};
use orlop_trials::{Reach, Strikes};

use super::{SILENCE, World};

#[tokio::test]
async fn a_configuration_that_cannot_be_used_is_told_and_what_can_goes_on() {
    if !super::super::is_root() {
        return;
    }
    let world = World::open(Strikes::none(Reach::Calls), super::ByCommand::No).await;
    let client = world.strikes.client(world.server.service());
    let process = Process::new(client, Clock::system());
    let ready = crate::provisioner::start_with(&process, world.settings.clone(), SILENCE);
    world
        .until("all is well", &mut [], |_| ready.check().is_ok())
        .await;
    let path = &world.settings.config_path;
    let good = fs::read_to_string(path).unwrap();
    let bad_class = good.replacen('{', "{\"minResyncPeriod\": \"5m\",", 1);
    let bad_class = bad_class.replacen("{\"files\"", "{\"bare\":{\"hostDir\":\"/b\"},\"files\"", 1);
    for (text, told) in [
        (
            bad_class.as_str(),
            "storageClassMap: bare: mountDir is missing",
        ),
        ("storageClassMap: [", "the last one stays: "),
    ] {
        fs::write(path, text).unwrap();
        let says = || ready.check().is_err_and(|why| why.contains(told));
        world.until(told, &mut [], |_| says()).await;
    }
    fs::write(path, good).unwrap();
    world
        .until("all is well again", &mut [], |_| ready.check().is_ok())
        .await;
    let volumes = world.others.cluster.list::<orlop_model::Volume>(None).await;
    assert_eq!(volumes.unwrap().len(), super::CLASSES.len(), "they stayed");
    process.kill();
    world.others.kill();
}
