//! Deterministic simulation of a whole cluster: the API server, every role and a fake
//! driver in one thread, on a paused clock, from a seed.
//!
//! | room | owns |
//! |---|---|
//! | [`backend`] | what exists at the fake storage, and the contract's order of calls |
//! | [`driver`] | the CSI services over the backend, and how they misbehave |
//! | [`faults`] | what happens to a process at its k-th call |
//! | [`wire`] | the way of every API and CSI call of a process, where faults strike |
//! | [`witness`] | every change of an object, in order, and what must never be |
//! | [`world`] | the processes, their death and their return |
//! | [`user`] | the person who creates, deletes and waits |
//! | [`strikes`] | which faults a sweep tries at which call |
//! | [`run`] | one run of a scenario, and the sweep over every fault |
//! | [`remains`] | what is left at the end |
//! | [`trace`] | what was called when |
//!
//! Invariants: a run depends on its scenario, its plan and its seed alone; nothing here is
//! part of the product.

pub mod backend;
pub mod driver;
pub mod faults;
pub mod remains;
pub mod run;
pub mod strikes;
pub mod trace;
pub mod user;
pub mod wire;
pub mod witness;
pub mod world;
