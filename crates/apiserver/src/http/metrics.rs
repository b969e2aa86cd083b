//! What the server counts, in Prometheus' text format.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};

use http::{Method, StatusCode};

use super::route::Route;
use crate::store::Store;

/// Requests by method, resource and status. Paths that name nothing share one label, so
/// that clients can't make the server remember what they invent.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    requests: Mutex<BTreeMap<(&'static str, String, u16), u64>>,
}

impl Metrics {
    pub(super) fn count(&self, method: &Method, route: Option<&Route>, code: StatusCode) {
        let method = match *method {
            Method::GET => "GET",
            Method::POST => "POST",
            Method::PUT => "PUT",
            Method::PATCH => "PATCH",
            Method::DELETE => "DELETE",
            _ => "other",
        };
        let resource = route.map(|route| route.kind.resource()).unwrap_or_default();
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        *requests
            .entry((method, resource, code.as_u16()))
            .or_default() += 1;
    }

    pub(super) fn text(&self, store: &Store) -> String {
        let mut text = String::new();
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        text.push_str("# HELP apiserver_request_total Requests answered.\n");
        text.push_str("# TYPE apiserver_request_total counter\n");
        for ((method, resource, code), count) in requests.iter() {
            // Writing to a String doesn't fail.
            let _ = writeln!(
                text,
                "apiserver_request_total{{verb=\"{method}\",resource=\"{resource}\",code=\"{code}\"}} {count}"
            );
        }
        drop(requests);
        let state = store.read();
        text.push_str("# HELP apiserver_storage_objects Objects stored.\n");
        text.push_str("# TYPE apiserver_storage_objects gauge\n");
        for resource in state.resources() {
            let count = state.count(resource);
            let _ = writeln!(
                text,
                "apiserver_storage_objects{{resource=\"{resource}\"}} {count}"
            );
        }
        text.push_str("# HELP apiserver_storage_revision The newest revision.\n");
        text.push_str("# TYPE apiserver_storage_revision gauge\n");
        let _ = writeln!(text, "apiserver_storage_revision {}", state.revision());
        text
    }
}
