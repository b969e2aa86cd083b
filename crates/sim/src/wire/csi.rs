//! The driver as one process reaches it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use orlop_csi::client::{CallSite, Passage};
use orlop_csi::{Gate, Method, code_name};
use tonic::{Code, Status};

use super::{Nature, Wire};
use crate::faults::{Answer, Fault, Phase};

/// What a call to the driver is known by between its two halves.
type CallKey = (Method, String);
/// A call's number and what awaits it.
type Numbered = (u64, Option<Fault>);

pub(super) struct CsiWire {
    wire: Wire,
    /// The calls under way that have a number, and what awaits them when they return.
    under_way: Mutex<BTreeMap<CallKey, Numbered>>,
}

impl CsiWire {
    pub(super) fn new(wire: Wire) -> Self {
        Self {
            wire,
            under_way: Mutex::default(),
        }
    }

    fn under_way(&self) -> MutexGuard<'_, BTreeMap<CallKey, Numbered>> {
        self.under_way
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn refuse(&self, number: u64, status: Status) -> Result<(), Status> {
        let code = code_name(status.code());
        self.wire.finish(number, &format!("{code}, by plan"));
        Err(status)
    }
}

impl Gate for CsiWire {
    fn before<'a>(&'a self, call: &'a CallSite) -> Passage<'a> {
        Box::pin(async move {
            let what = format!("{} {}", call.method, call.subject);
            let (number, fault) = self.wire.begin(&what, nature(call.method)).await;
            if let Some(Fault::Refused(Phase::Before, answer)) = fault {
                let why = "the simulation fails this call";
                let status = match answer {
                    Answer::Error => Status::internal(why),
                    Answer::Conflict => Status::aborted(why),
                    Answer::Busy => Status::unavailable(why),
                };
                return self.refuse(number, status);
            }
            let key = (call.method, call.subject.clone());
            self.under_way().insert(key, (number, fault));
            Ok(())
        })
    }

    fn after<'a>(&'a self, call: &'a CallSite, code: Code) -> Passage<'a> {
        Box::pin(async move {
            let key = (call.method, call.subject.clone());
            let Some((number, fault)) = self.under_way().remove(&key) else {
                return Ok(());
            };
            self.wire.pass(fault, Phase::After).await;
            if let Some(Fault::Refused(Phase::After, answer)) = fault {
                let why = "the simulation loses this reply";
                let status = match answer {
                    // A lost reply leaves the caller uncertain; INTERNAL would not.
                    Answer::Error | Answer::Busy => Status::unavailable(why),
                    Answer::Conflict => Status::aborted(why),
                };
                return self.refuse(number, status);
            }
            self.wire.finish(number, code_name(code));
            Ok(())
        })
    }
}

/// What a call is to the world; those that the fake driver doesn't serve are looks.
fn nature(method: Method) -> Nature {
    match method {
        Method::CreateVolume
        | Method::DeleteVolume
        | Method::ControllerPublishVolume
        | Method::ControllerUnpublishVolume
        | Method::ControllerExpandVolume
        | Method::ControllerModifyVolume
        | Method::CreateSnapshot
        | Method::DeleteSnapshot
        | Method::CreateVolumeGroupSnapshot
        | Method::DeleteVolumeGroupSnapshot
        | Method::NodeStageVolume
        | Method::NodeUnstageVolume
        | Method::NodePublishVolume
        | Method::NodeUnpublishVolume
        | Method::NodeExpandVolume => Nature::Effect,
        _ => Nature::Look,
    }
}
