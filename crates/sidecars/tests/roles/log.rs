//! What a test's own thread logs.
//!
//! One subscriber for all tests, set before any role runs: one that came later could miss a
//! place that another thread was about to introduce.

use std::{
    cell::RefCell,
    fmt::Write as _,
    sync::{Arc, Mutex, Once, PoisonError},
};

use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span,
    subscriber::Interest,
};

thread_local! {
    static HERE: RefCell<Option<Log>> = const { RefCell::new(None) };
}

/// Everything that is logged, at every level.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<String>>);

impl Log {
    /// What this thread logs from here on. Ends with the test, as its thread does.
    pub(crate) fn begin() -> Self {
        listen();
        let log = Self::default();
        HERE.with_borrow_mut(|here| *here = Some(log.clone()));
        log
    }

    pub(crate) fn text(&self) -> String {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn add(record: impl FnOnce(&mut Words<'_>)) {
        HERE.with_borrow(|here| {
            if let Some(Self(text)) = here {
                let mut text = text.lock().unwrap_or_else(PoisonError::into_inner);
                record(&mut Words(&mut text));
            }
        });
    }
}

/// Sees to it that whatever is logged from here on can be heard.
pub(crate) fn listen() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        tracing::subscriber::set_global_default(Ear).expect("nobody else listens");
    });
}

struct Ear;

struct Words<'a>(&'a mut String);

impl Visit for Words<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = writeln!(self.0, "{field}={value:?}");
    }
}

impl Subscriber for Ear {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        HERE.with_borrow(Option::is_some)
    }
    fn new_span(&self, attributes: &span::Attributes<'_>) -> span::Id {
        Log::add(|words| attributes.record(words));
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, values: &span::Record<'_>) {
        Log::add(|words| values.record(words));
    }
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, event: &Event<'_>) {
        Log::add(|words| event.record(words));
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}
