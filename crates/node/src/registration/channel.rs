//! Sightings from the same process: for simulation, and for drivers that live in it.

use tokio::sync::mpsc;

use super::{Announcement, PluginId, Registrations, Sighting, Work};

/// The driver's end.
#[derive(Debug, Clone)]
pub struct Announcer {
    sender: mpsc::UnboundedSender<Sighting>,
}

impl Announcer {
    /// A driver has come.
    pub fn came(&self, plugin: PluginId, announcement: Announcement) {
        let _nobody_listens_any_more = self.sender.send(Sighting::Came(plugin, announcement));
    }

    /// A driver has gone.
    pub fn left(&self, plugin: PluginId) {
        let _nobody_listens_any_more = self.sender.send(Sighting::Left(plugin));
    }
}

/// The node's end.
#[derive(Debug)]
pub struct ChannelRegistrations {
    receiver: mpsc::UnboundedReceiver<Sighting>,
}

impl ChannelRegistrations {
    /// Both ends.
    pub fn new() -> (Announcer, Self) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Announcer { sender }, Self { receiver })
    }
}

impl Registrations for ChannelRegistrations {
    fn next(&mut self) -> Work<'_, Option<Sighting>> {
        Box::pin(self.receiver.recv())
    }

    fn acknowledge(&self, _: PluginId, _: Result<(), String>) -> Work<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}
