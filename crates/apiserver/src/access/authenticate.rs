//! From a request to the user who sent it.

use http::HeaderMap;
use http::header::AUTHORIZATION;

use super::index::Index;
use super::rbac::Act;
use super::token::{ISSUER, Signer};
use super::user::{AUTHENTICATED, User};
use crate::refusal::Refusal;
use crate::registry::Registry;

/// What is known of a caller before its request is read.
#[derive(Debug, Clone)]
pub(crate) enum Caller {
    /// A part of this process, or a client with a certificate of the cluster's authority.
    Known(User),
    /// Somebody who must show a token.
    Unknown,
}

/// Everything that authentication and authorization need.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gate<'g> {
    pub(crate) registry: &'g Registry,
    pub(crate) signer: &'g Signer,
    pub(crate) index: &'g Index,
}

impl Gate<'_> {
    /// Who sent the request, impersonation included.
    pub(crate) fn user(&self, caller: &Caller, headers: &HeaderMap) -> Result<User, Refusal> {
        let user = match (caller, bearer(headers)) {
            (Caller::Known(user), _) => user.clone(),
            (Caller::Unknown, Some(token)) => {
                let audiences = [ISSUER.to_owned()];
                let verified = self.signer.verify(self.registry, token, &audiences);
                let (user, _) = verified.map_err(|why| {
                    tracing::debug!(why, "a bearer token was refused");
                    Refusal::unauthorized()
                })?;
                user
            }
            (Caller::Unknown, None) => return Err(Refusal::unauthorized()),
        };
        self.impersonated(user, headers)
    }

    /// Refuses an act that no role allows.
    pub(crate) fn check(&self, user: &User, act: &Act<'_>) -> Result<(), Refusal> {
        match self.index.allows(&self.registry.store, user, act) {
            Some(_) => Ok(()),
            None => Err(Refusal::not_allowed(user, act)),
        }
    }

    fn impersonated(&self, user: User, headers: &HeaderMap) -> Result<User, Refusal> {
        let header = |name: &str| -> Vec<String> {
            let values = headers.get_all(name).iter();
            values
                .filter_map(|value| value.to_str().ok().map(str::to_owned))
                .collect()
        };
        let names = header("impersonate-user");
        let groups = header("impersonate-group");
        let uids = header("impersonate-uid");
        let extra: Vec<(String, String)> = headers
            .iter()
            .filter_map(|(name, value)| {
                let key = name.as_str().strip_prefix("impersonate-extra-")?;
                Some((unescape(key), value.to_str().ok()?.to_owned()))
            })
            .collect();
        let Some(name) = names.first() else {
            if groups.is_empty() && uids.is_empty() && extra.is_empty() {
                return Ok(user);
            }
            return Err(Refusal::bad_request(
                "requested impersonation of groups, a uid or extra data without a user: \
                 set Impersonate-User too",
            ));
        };
        let may = |group: &str, resource: &str, namespace: &str, name: &str| {
            let act = Act::Resource {
                verb: "impersonate",
                group,
                resource,
                namespace,
                name,
            };
            self.check(&user, &act)
        };
        let mut other = match User::as_service_account(name) {
            Some((namespace, account)) => {
                may("", "serviceaccounts", namespace, account)?;
                if groups.is_empty() {
                    User::service_account(namespace, account)
                } else {
                    User::new(name, groups.iter().cloned())
                }
            }
            None => {
                may("", "users", "", name)?;
                User::new(name, groups.iter().cloned())
            }
        };
        for group in groups.iter().filter(|group| *group != AUTHENTICATED) {
            may("", "groups", "", group)?;
        }
        if let Some(uid) = uids.first() {
            may("authentication.k8s.io", "uids", "", uid)?;
            other.uid.clone_from(uid);
        }
        for (key, value) in extra {
            may(
                "authentication.k8s.io",
                &format!("userextras/{key}"),
                "",
                &value,
            )?;
            other.extra.entry(key).or_default().push(value);
        }
        Ok(other)
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then(|| token.trim())
}

/// Keys of extra data are percent-encoded in the header's name.
fn unescape(key: &str) -> String {
    crate::http::decode_segment(key).unwrap_or_else(|| key.to_owned())
}
