//! What a request wants to do, in the words of roles, and whether its sender may.

use http::Method;
use http::request::Parts;

use super::Api;
use super::route::Route;
use crate::access::{Act, Caller, Gate, User};
use crate::refusal::Refusal;

impl Api {
    pub(super) fn gate(&self) -> Gate<'_> {
        Gate {
            registry: &self.registry,
            signer: &self.signer,
            index: &self.index,
        }
    }

    /// The sender of a request that may be served.
    pub(super) fn admitted(
        &self,
        parts: &Parts,
        route: Option<&Route>,
        caller: &Caller,
    ) -> Result<User, Refusal> {
        let path = parts.uri.path();
        let gate = self.gate();
        let user = gate.user(caller, &parts.headers)?;
        // Whoever may do everything need not be asked about each thing.
        if user.is_master() {
            return Ok(user);
        }
        match route {
            Some(route) => {
                let resource = match &route.subresource {
                    Some(sub) => format!("{}/{sub}", route.kind.plural),
                    None => route.kind.plural.to_owned(),
                };
                let selected = selected_name(parts);
                let watched = route.watched.as_deref().filter(|name| !name.is_empty());
                let name = route.name.as_deref().or(watched).or(selected.as_deref());
                gate.check(
                    &user,
                    &Act::Resource {
                        verb: verb(parts, route),
                        group: route.kind.group,
                        resource: &resource,
                        namespace: namespace(route),
                        name: name.unwrap_or_default(),
                    },
                )?;
            }
            None => {
                let verb = parts.method.as_str().to_ascii_lowercase();
                gate.check(&user, &Act::Path { verb: &verb, path })?;
            }
        }
        Ok(user)
    }
}

/// A namespace lies in itself, as the original sees it.
fn namespace(route: &Route) -> &str {
    match (route.kind.kind, &route.name) {
        ("Namespace", Some(name)) if route.kind.group.is_empty() => name,
        _ => &route.namespace,
    }
}

fn verb(parts: &Parts, route: &Route) -> &'static str {
    let one = route.name.is_some();
    match parts.method {
        Method::GET | Method::HEAD if one => "get",
        Method::GET | Method::HEAD if route.watched.is_some() || watches(parts) => "watch",
        Method::GET | Method::HEAD => "list",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE if one => "delete",
        Method::DELETE => "deletecollection",
        _ => "",
    }
}

fn pairs(parts: &Parts) -> Vec<(String, String)> {
    axum::extract::Query::try_from_uri(&parts.uri)
        .map(|query| query.0)
        .unwrap_or_default()
}

fn watches(parts: &Parts) -> bool {
    let mut pairs = pairs(parts).into_iter();
    pairs.any(|(name, value)| {
        name == "watch" && !matches!(value.to_ascii_lowercase().as_str(), "false" | "0")
    })
}

/// The one object that a list or watch selects by its name.
fn selected_name(parts: &Parts) -> Option<String> {
    let pairs = pairs(parts);
    let (_, fields) = pairs.iter().find(|(name, _)| name == "fieldSelector")?;
    fields.split(',').find_map(|field| {
        let name = field.strip_prefix("metadata.name=")?;
        Some(name.strip_prefix('=').unwrap_or(name).to_owned())
    })
}
