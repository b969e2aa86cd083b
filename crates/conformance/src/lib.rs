//! A conformance suite for any CSI driver.
//!
//! - [`Suite`] holds the [`Case`]s: each names the section of the specification
//!   that it checks and the capabilities that it needs.
//! - [`Suite::run`] carries them out against the driver in [`Settings`], one after
//!   the other, cleans up after each, and gives a [`Report`].
//! - [`report`] shows a report as text, JUnit, JSON or a web page.
//!
//! Invariants: only what a case made is touched; what a case made is removed after
//! it, also when it failed or was stopped, and what can't be removed is named; no
//! secret is in a report.

mod answer;
mod bench;
mod case;
mod cases;
mod data;
mod folder;
mod ledger;
mod make;
mod observed;
mod presence;
mod remains;
pub mod report;
mod rest;
pub mod room;
mod run;
pub mod settings;
mod spec;
mod suite;
mod trial;
mod words;

pub use case::{Case, Level, Need};
pub use report::{CaseReport, Report, Verdict};
pub use settings::{Restart, Settings};
pub use suite::{CannotRun, Event, Pattern, Suite};
