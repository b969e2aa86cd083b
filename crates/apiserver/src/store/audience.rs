//! Who waits for changes of a resource, and how they are woken.
//!
//! Readers wait for what they see: a resource, one namespace of it, or one object. A change wakes
//! those that can see it and nobody else, so that a reader of something quiet costs a busy writer
//! nothing. Waking takes a step per reader, which a crowd's [`Herald`] takes in the writer's place.

use std::collections::HashMap;
use std::sync::{Arc, mpsc};

use super::Key;
use super::bell::{Bell, Listener};
use super::feed::Scope;

/// From how many readers on the writer leaves it to the herald to wake them. Fewer are woken sooner
/// than another thread would get to run.
const CROWD: usize = 256;
/// From how many scopes on those that nobody waits for any more are looked for.
const SWEEP: usize = 64;

/// Those who wait for changes of one resource.
#[derive(Debug, Default)]
pub(super) struct Audience {
    bells: HashMap<Scope, Arc<Bell>>,
    /// How many scopes there may be before the forsaken ones are removed.
    sweep_at: usize,
}

impl Audience {
    /// Tells when something in this scope has changed.
    pub(super) fn listen(&mut self, scope: &Scope) -> Listener {
        if let Some(bell) = self.bells.get(scope) {
            return bell.listen();
        }
        if self.bells.len() >= self.sweep_at.max(SWEEP) {
            self.bells.retain(|_, bell| bell.listeners() > 0);
            self.sweep_at = self.bells.len() * 2;
        }
        let bell = Arc::<Bell>::default();
        let listener = bell.listen();
        self.bells.insert(scope.clone(), bell);
        listener
    }

    /// Adds those who can see a change of this object.
    pub(super) fn concerned(&self, key: &Key, news: &mut News) {
        if self.bells.is_empty() {
            return;
        }
        let scopes = [
            Scope::All,
            Scope::Namespace(Arc::clone(&key.namespace)),
            Scope::Object(Arc::clone(&key.namespace), Arc::clone(&key.name)),
        ];
        for bell in scopes.iter().filter_map(|scope| self.bells.get(scope)) {
            news.add(bell);
        }
    }
}

/// Those who are to learn that something has changed. They read for themselves what.
#[must_use]
#[derive(Debug, Default)]
pub(super) struct News {
    bells: Vec<Arc<Bell>>,
}

impl News {
    /// Adds those who listen to this bell as the first to be woken. On a thread that serves
    /// requests that makes them the last to run.
    pub(super) fn add_first(&mut self, bell: &Arc<Bell>) {
        if bell.listeners() > 0 {
            self.bells.insert(0, Arc::clone(bell));
        }
    }

    /// Adds those who listen to this bell.
    pub(super) fn add(&mut self, bell: &Arc<Bell>) {
        if bell.listeners() > 0 && !self.bells.iter().any(|one| Arc::ptr_eq(one, bell)) {
            self.bells.push(Arc::clone(bell));
        }
    }

    /// Wakes them.
    pub(super) fn tell(&self) {
        for bell in &self.bells {
            bell.ring();
        }
    }

    fn listeners(&self) -> usize {
        self.bells.iter().map(|bell| bell.listeners()).sum()
    }
}

/// Wakes crowds on a thread of its own, so that the writer can go on.
#[derive(Debug)]
pub(super) struct Herald {
    news: mpsc::Sender<News>,
}

impl Herald {
    /// Starts the thread, which ends when this is dropped.
    pub(super) fn start() -> std::io::Result<Self> {
        let (sender, receiver) = mpsc::channel::<News>();
        std::thread::Builder::new()
            .name("store-herald".to_owned())
            .spawn(move || receiver.iter().for_each(|news| news.tell()))?;
        Ok(Self { news: sender })
    }

    /// Sees to it that they are woken. Takes a bounded time, however many they are. Answers whether
    /// any were, here and now.
    pub(super) fn spread(&self, news: News) -> bool {
        let listeners = news.listeners();
        if listeners < CROWD {
            news.tell();
            return listeners > 0;
        }
        if let Err(mpsc::SendError(news)) = self.news.send(news) {
            // The thread can only have panicked; better late than never.
            news.tell();
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_wakes_those_who_can_see_it_and_nobody_else() {
        let mut audience = Audience::default();
        let heard = Listener::note;
        let mut all = audience.listen(&Scope::All);
        let mut here = audience.listen(&Scope::Namespace("here".into()));
        let mut there = audience.listen(&Scope::Namespace("there".into()));
        let mut one = audience.listen(&Scope::Object("here".into(), "x".into()));
        let mut other = audience.listen(&Scope::Object("here".into(), "y".into()));
        let mut news = News::default();
        audience.concerned(&Key::new("pods", "here", "x"), &mut news);
        audience.concerned(&Key::new("pods", "here", "x"), &mut news);
        assert_eq!(news.bells.len(), 3, "each is told once");
        news.tell();
        assert!(heard(&mut all) && heard(&mut here) && heard(&mut one));
        assert!(!heard(&mut there) && !heard(&mut other));
    }

    #[test]
    fn scopes_that_nobody_waits_for_are_forgotten() {
        let mut audience = Audience::default();
        let kept = audience.listen(&Scope::All);
        for n in 0..10 * SWEEP {
            drop(audience.listen(&Scope::Namespace(n.to_string().into())));
        }
        assert!(
            audience.bells.len() <= SWEEP + 1,
            "{}",
            audience.bells.len()
        );
        assert!(
            audience.bells[&Scope::All].listeners() == 1,
            "its bell is still there"
        );
        drop(kept);
    }

    #[tokio::test]
    async fn a_crowd_is_woken_too() {
        let herald = Herald::start().unwrap();
        let mut audience = Audience::default();
        let crowd: Vec<_> = (0..CROWD + 1)
            .map(|_| audience.listen(&Scope::All))
            .collect();
        let mut news = News::default();
        audience.concerned(&Key::new("pods", "here", "x"), &mut news);
        assert!(!herald.spread(news), "not by this thread");
        for mut listener in crowd {
            let heard = tokio::time::timeout(std::time::Duration::from_secs(10), listener.rung());
            heard.await.expect("it was not told");
        }
    }
}
