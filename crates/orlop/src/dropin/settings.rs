//! What a command line asks for, in our own types.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use orlop_runtime::{Backoff, Cap};

use super::{
    flags::{Flag, Given, Support, Value},
    programs::{self, Program, Role, Together},
};

#[cfg(test)]
mod tests;

/// Where health is served.
const HEALTH_PATHS: [&str; 3] = ["/healthz", "/healthz/leader-election", "/healthz/driver"];

/// A controller's view of the command line.
#[derive(Debug, Clone, Copy)]
pub(super) struct View<'a> {
    pub(super) given: &'a Given,
    pub(super) program: &'static Program,
    /// What its own flags begin with where many controllers share the line.
    pub(super) prefix: Option<&'static str>,
}

impl View<'_> {
    fn set(&self, name: &str) -> Option<&Value> {
        let own = self
            .prefix
            .and_then(|prefix| self.given.get(&format!("{prefix}-{name}")));
        own.or_else(|| self.given.get(name))
    }

    fn value(&self, name: &str) -> Value {
        let known = self.program.flag(name);
        let default = || known.map(Flag::default);
        self.set(name)
            .cloned()
            .or_else(default)
            .unwrap_or(Value::Bool(false))
    }

    /// Whether a flag was given.
    pub(super) fn is_set(&self, name: &str) -> bool {
        self.set(name).is_some()
    }

    pub(super) fn bool(&self, name: &str) -> bool {
        matches!(self.value(name), Value::Bool(true))
    }

    pub(super) fn int(&self, name: &str) -> i64 {
        match self.value(name) {
            Value::Int(value) => value,
            _ => 0,
        }
    }

    pub(super) fn float(&self, name: &str) -> f64 {
        match self.value(name) {
            Value::Float(value) => value,
            _ => 0.0,
        }
    }

    pub(super) fn duration(&self, name: &str) -> Duration {
        match self.value(name) {
            Value::Duration(value) => value,
            _ => Duration::ZERO,
        }
    }

    pub(super) fn text(&self, name: &str) -> String {
        match self.value(name) {
            Value::Text(value) => value,
            _ => String::new(),
        }
    }

    /// How many at once; nothing can be done by none.
    pub(super) fn workers(&self, name: &str) -> Result<usize, String> {
        match usize::try_from(self.int(name)) {
            Ok(workers) if workers > 0 => Ok(workers),
            _ => Err(format!("option -{name} must be greater than zero")),
        }
    }

    /// A time that must pass: without one everything would be tried, or asked, without a pause, and
    /// no call would ever be in time.
    pub(super) fn interval(&self, name: &str) -> Result<Duration, String> {
        match self.duration(name) {
            Duration::ZERO => Err(format!("option -{name} must be greater than zero")),
            time => Ok(time),
        }
    }

    /// The waits between tries.
    pub(super) fn retry(&self) -> Result<Backoff, String> {
        Ok(Backoff {
            first: self.interval("retry-interval-start")?,
            most: self.interval("retry-interval-max")?,
        })
    }

    /// Where metrics are.
    pub(super) fn metrics_path(&self) -> Result<String, String> {
        let path = self.text("metrics-path");
        let why = if !path.starts_with('/') {
            "a path begins with /"
        } else if HEALTH_PATHS.contains(&path.as_str()) {
            "health is served there; choose another"
        } else if path.contains(['{', '}', '*', '?', '#']) || path.contains("/:") {
            "no path has such signs"
        } else {
            return Ok(path);
        };
        Err(format!("--metrics-path={path}: {why}"))
    }

    /// The most that may be asked of the API server, if a flag says so.
    pub(super) fn cap(&self, qps: &str, burst: &str) -> Option<Cap> {
        let capped = self.is_set(qps) || self.is_set(burst);
        let cap = Cap {
            per_second: self.float(qps),
            burst: u32::try_from(self.int(burst)).unwrap_or(1).max(1),
        };
        // Not more than none is client-go's word for no limit.
        Some(cap).filter(|cap| capped && cap.per_second > 0.0)
    }

    /// Whether a feature is on.
    pub(super) fn gate(&self, name: &str) -> bool {
        let known = self.program.gates.iter().find(|gate| gate.name == name);
        let default = known.is_some_and(|gate| gate.default);
        self.gates().get(name).copied().unwrap_or(default)
    }

    fn gates(&self) -> BTreeMap<String, bool> {
        match self.set("feature-gates") {
            Some(Value::Gates(gates)) => gates.clone(),
            _ => BTreeMap::new(),
        }
    }

    /// Why what is asked for can't be done here; empty if it can.
    pub(super) fn refusals(&self) -> Vec<String> {
        let mut refusals = Vec::new();
        for flag in self.program.flags() {
            if let Support::DefaultOnly(why) = flag.support
                && let Some(value) = self.set(&flag.name)
                && *value != flag.default()
            {
                refusals.push(format!("--{}={value}: {why}", flag.name));
            }
        }
        for name in self.gates().into_keys() {
            match self.program.gates.iter().find(|gate| gate.name == name) {
                None if self.prefix.is_some() && Together::knows(&name) => {}
                None if programs::gone(&name) => {}
                None => refusals.push(format!("unrecognized feature gate: {name}")),
                Some(_) => {}
            }
        }
        refusals
    }

    /// What is to be said of gates that are taken, and change nothing.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        for (name, on) in self.gates() {
            let known = self.program.gates.iter().find(|gate| gate.name == name);
            match known.map(|gate| gate.support) {
                Some(Support::Done) => {}
                Some(Support::DefaultOnly(why)) if !on => {
                    notes.push(format!("--feature-gates={name}={on}: {why}"));
                }
                // Another controller's, which says what there is to say.
                None if !programs::gone(&name) => {}
                Some(Support::Moot | Support::DefaultOnly(_)) | None => {
                    notes.push(format!("--feature-gates={name}={on} has no effect here"));
                }
            }
        }
        notes
    }
}

/// Where metrics and health are served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Served {
    pub(super) address: String,
    pub(super) metrics_path: String,
    /// Whether health is served as well.
    pub(super) health: bool,
}

/// How to take part in an election.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Running {
    pub(super) namespace: Option<String>,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) duration: Duration,
    pub(super) renew_deadline: Duration,
    pub(super) retry: Duration,
}

/// What every program has that talks to an API server.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Common {
    pub(super) kubeconfig: Option<PathBuf>,
    pub(super) master: Option<String>,
    pub(super) csi_address: String,
    pub(super) cap: Option<Cap>,
    pub(super) served: Option<Served>,
    pub(super) running: Option<Running>,
}

impl Common {
    /// Reads it.
    pub(super) fn read(view: &View<'_>) -> Result<Self, String> {
        let some = |name: &str| Some(view.text(name)).filter(|text| !text.is_empty());
        let named = std::env::var("KUBECONFIG").ok();
        Ok(Self {
            kubeconfig: kubeconfig(view, named).map(PathBuf::from),
            master: some("master"),
            csi_address: crate::driver::address(&view.text("csi-address")),
            cap: view.cap("kube-api-qps", "kube-api-burst"),
            served: served(view)?,
            running: if view.bool("leader-election") {
                Some(running(view)?)
            } else {
                None
            },
        })
    }
}

/// The kubeconfig that counts. csi-provisioner alone lets its environment win over its flag; where
/// there is no flag, the environment is asked later, together with the pod's account.
fn kubeconfig(view: &View<'_>, environment: Option<String>) -> Option<String> {
    let flag = Some(view.text("kubeconfig"));
    let environment = environment.filter(|_| {
        let alone = view.prefix.is_none();
        alone && view.program.role == Role::Provisioner
    });
    let mut either = environment.into_iter().chain(flag);
    either.find(|path| !path.is_empty())
}

fn served(view: &View<'_>) -> Result<Option<Served>, String> {
    let (endpoint, metrics) = (view.text("http-endpoint"), view.text("metrics-address"));
    let (address, health) = match (endpoint.is_empty(), metrics.is_empty()) {
        (false, false) => {
            return Err("only one of `--metrics-address` and `--http-endpoint` can be set".into());
        }
        (false, true) => (endpoint, true),
        (true, false) => (metrics, false),
        (true, true) => return Ok(None),
    };
    Ok(Some(Served {
        address,
        metrics_path: view.metrics_path()?,
        health,
    }))
}

fn running(view: &View<'_>) -> Result<Running, String> {
    let written = view.text("leader-election-labels");
    let labels = written.split(',').filter_map(|pair| pair.split_once(':'));
    let labels = labels.map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned()));
    let labels = labels.collect();
    let running = Running {
        namespace: Some(view.text("leader-election-namespace")).filter(|text| !text.is_empty()),
        labels,
        duration: view.duration("leader-election-lease-duration"),
        renew_deadline: view.duration("leader-election-renew-deadline"),
        retry: view.duration("leader-election-retry-period"),
    };
    // client-go asks for the same, and with a little jitter between tries.
    if running.duration <= running.renew_deadline {
        return Err("leaseDuration must be greater than renewDeadline".into());
    }
    if running.renew_deadline <= running.retry.mul_f64(1.2) {
        return Err("renewDeadline must be greater than retryPeriod*JitterFactor".into());
    }
    if running.retry.is_zero() {
        return Err("retryPeriod must be greater than zero".into());
    }
    Ok(running)
}
