//! What a worker does: one order, from its mount to its answer.
//!
//! Runs in a process of its own, so everything here may wait for a server. Nothing is decided here
//! that depends on more than the share itself.

use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use super::order::{Answer, Order, Word, Work};

mod archive;
mod attempt;
mod bulk;
mod copy;
mod create;
mod delete;
mod discard;
mod fill;
mod house;
mod look;
mod pack;
mod publish;
mod remove;
mod share;
mod sight;
mod source;
mod statd;
mod stats;
mod steady;
mod unpublish;

use share::Ground;
pub(super) use share::Kept;

/// A worker process: reads orders and carries them out, one after the other as long as they are on
/// the same share, and ends when the driver does.
#[must_use]
pub fn worker_main() -> ExitCode {
    let (orders, next) = mpsc::channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            let _ = orders.send(line);
        }
        // The driver is gone or wants no more: nobody will hear an answer, and another worker may
        // begin anew.
        std::process::exit(1);
    });
    let tell = |word: Word| {
        if let Ok(mut line) = serde_json::to_vec(&word) {
            line.push(b'\n');
            let mut out = std::io::stdout().lock();
            let _ = out.write_all(&line).and_then(|()| out.flush());
        }
    };
    // A copy has descriptors of every level of its tree.
    if let Err(error) = orlop_host::process::open_as_many_files_as_allowed() {
        eprintln!("deep trees may not be copied: {error}");
    }
    let kept = Kept::default();
    for line in next {
        match serde_json::from_str::<Order>(&line) {
            Ok(order) => carry_out(&order, &kept, &tell),
            Err(error) => {
                eprintln!("no order: {error}");
                return ExitCode::FAILURE;
            }
        }
        if kept.is_empty() {
            break;
        }
        tell(Word::Free);
    }
    ExitCode::SUCCESS
}

/// Carries an order out and tells of it.
pub(super) fn carry_out(order: &Order, kept: &Kept, tell: &(dyn Fn(Word) + Sync)) {
    let pulse = Pulse::new(tell);
    let ground = match Ground::new(order, kept, &pulse) {
        Ok(ground) => ground,
        Err(failure) => return tell(Word::Failed(failure)),
    };
    let outcome = match &order.work {
        Work::Create(order) => create::create(&ground, order),
        Work::Delete { .. } => delete::delete(&ground, &order.work),
        Work::Look { on, key, folder } => look::look(&ground, on, key, folder),
        Work::Expand { .. } => look::expand(&ground, &order.work),
        Work::Measure { on } => look::measure(&ground, on),
        Work::Pack { .. } => pack::pack(&ground, &order.work),
        Work::Discard { .. } => discard::discard(&ground, &order.work),
        Work::Publish(order) => publish::publish(&ground, order),
        Work::Unpublish {
            reach,
            target,
            force,
        } => {
            pulse.doing(format!("unmount {}", target.display()));
            let any = order.stand_in.is_some();
            unpublish::unpublish(reach.as_deref(), target, *force, any).map(|()| Answer::Done)
        }
        Work::Stats { path, .. } => {
            pulse.doing(format!("measure {}", path.display()));
            stats::stats(path)
        }
    };
    match outcome {
        Ok(answer) => tell(Word::Done(answer)),
        Err(failure) => {
            // A mount on which something failed is not worked on again.
            kept.forget();
            return tell(Word::Failed(failure));
        }
    }
    if let Work::Delete { on, .. } | Work::Discard { on, .. } = &order.work {
        delete::sweep(&ground, on);
    }
}

/// Tells that the work goes on, though not more often than anybody wants to hear.
struct Pulse<'a> {
    tell: &'a (dyn Fn(Word) + Sync),
    files: AtomicU64,
    told: Mutex<Option<Instant>>,
}

impl<'a> Pulse<'a> {
    const PAUSE: Duration = Duration::from_millis(200);

    fn new(tell: &'a (dyn Fn(Word) + Sync)) -> Self {
        Self {
            tell,
            files: AtomicU64::new(0),
            told: Mutex::new(None),
        }
    }

    fn doing(&self, what: impl Into<String>) {
        (self.tell)(Word::Doing(what.into()));
    }

    /// The server has answered.
    fn reached(&self) {
        (self.tell)(Word::Beat(self.files.load(Ordering::Relaxed)));
    }

    /// One more file.
    fn file(&self) {
        self.files.fetch_add(1, Ordering::Relaxed);
        self.beat();
    }

    /// A bit more of one.
    fn beat(&self) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.is_none_or(|told| told.elapsed() >= Self::PAUSE) {
            *told = Some(Instant::now());
            drop(told);
            self.reached();
        }
    }
}
