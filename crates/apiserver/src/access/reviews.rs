//! Requests that ask about access and store nothing: token and access reviews, and the
//! tokens of service accounts.

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::authenticate::Gate;
use super::rbac::{Act, Rule};
use super::token::{Bound, Grant, ISSUER};
use super::user::User;
use crate::kinds::{self, KindInfo};
use crate::refusal::{FieldError, Refusal};
use crate::registry::{Target, stamp, text};
use crate::store::Key;

/// How long a token is good unless asked otherwise, and the bounds of what may be asked.
const TOKEN_SECONDS: i64 = 3600;
const TOKEN_SECONDS_LEAST: i64 = 600;
const TOKEN_SECONDS_MOST: i64 = 1 << 32;

impl Gate<'_> {
    /// Answers a review by filling in its status.
    pub(crate) fn review(
        &self,
        kind: &KindInfo,
        namespace: &str,
        user: &User,
        mut review: Value,
    ) -> Result<Value, Refusal> {
        let spec = review["spec"].clone();
        let status = match kind.kind {
            "SelfSubjectReview" => json!({ "userInfo": user.info() }),
            "TokenReview" => self.token_review(&spec),
            "SelfSubjectAccessReview" => self.access(kind, user, &spec)?,
            "SubjectAccessReview" => self.access(kind, &asked_user(kind, &spec)?, &spec)?,
            "LocalSubjectAccessReview" => {
                if text(&spec, "/resourceAttributes/namespace") != namespace {
                    let error = FieldError::invalid(
                        "spec.resourceAttributes.namespace",
                        &spec["resourceAttributes"]["namespace"],
                        format!("must match the namespace of the request: {namespace:?}"),
                    );
                    return Err(Refusal::invalid(kind, "", &[error]));
                }
                self.access(kind, &asked_user(kind, &spec)?, &spec)?
            }
            "SelfSubjectRulesReview" => self.rules_review(user, text(&spec, "/namespace")),
            other => {
                return Err(Refusal::internal(format!("{other} is no review")));
            }
        };
        if kind.kind == "SelfSubjectRulesReview" {
            // Of the question nothing is repeated.
            review = json!({ "metadata": {}, "spec": {} });
        }
        review["apiVersion"] = kind.api_version().into();
        review["kind"] = kind.kind.into();
        if !review["metadata"].is_object() {
            review["metadata"] = json!({});
        }
        if kind.kind == "SelfSubjectReview" {
            review["metadata"]["creationTimestamp"] = stamp(self.registry.clock.now()).into();
        }
        review["status"] = status;
        Ok(review)
    }

    fn token_review(&self, spec: &Value) -> Value {
        let asked: Vec<String> = strings(&spec["audiences"]);
        let wanted = if asked.is_empty() {
            vec![ISSUER.to_owned()]
        } else {
            asked
        };
        let token = text(spec, "/token");
        match self.signer.verify(self.registry, token, &wanted) {
            Ok((user, audiences)) => {
                json!({ "authenticated": true, "user": user.info(), "audiences": audiences })
            }
            Err(why) => json!({ "user": {}, "error": why }),
        }
    }

    fn access(&self, kind: &KindInfo, user: &User, spec: &Value) -> Result<Value, Refusal> {
        let (resource, path) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
        let joined;
        let act = match (resource.is_object(), path.is_object()) {
            (true, false) => {
                joined = match text(resource, "/subresource") {
                    "" => text(resource, "/resource").to_owned(),
                    sub => format!("{}/{sub}", text(resource, "/resource")),
                };
                Act::Resource {
                    verb: text(resource, "/verb"),
                    group: text(resource, "/group"),
                    resource: &joined,
                    namespace: text(resource, "/namespace"),
                    name: text(resource, "/name"),
                }
            }
            (false, true) => Act::Path {
                verb: text(path, "/verb"),
                path: text(path, "/path"),
            },
            _ => {
                let error = FieldError::invalid(
                    "spec",
                    &Value::Null,
                    "exactly one of nonResourceAttributes or resourceAttributes must be specified",
                );
                return Err(Refusal::invalid(kind, "", &[error]));
            }
        };
        Ok(match self.index.allows(&self.registry.store, user, &act) {
            Some(reason) if reason.is_empty() => json!({ "allowed": true }),
            Some(reason) => json!({ "allowed": true, "reason": reason }),
            None => json!({ "allowed": false }),
        })
    }

    fn rules_review(&self, user: &User, namespace: &str) -> Value {
        let mut rules = self.index.rules(&self.registry.store, user, namespace);
        if user.is_master() {
            let all = || vec!["*".to_owned()];
            let resources = Rule {
                verbs: all(),
                groups: all(),
                resources: all(),
                ..Rule::default()
            };
            let paths = Rule {
                verbs: all(),
                paths: all(),
                ..Rule::default()
            };
            for rule in [resources, paths] {
                if !rules.contains(&rule) {
                    rules.push(rule);
                }
            }
        }
        let mut resources = Vec::new();
        let mut paths = Vec::new();
        for rule in rules {
            if rule.paths.is_empty() {
                let mut shown = json!({
                    "verbs": rule.verbs, "apiGroups": rule.groups, "resources": rule.resources,
                });
                if !rule.names.is_empty() {
                    shown["resourceNames"] = json!(rule.names);
                }
                resources.push(shown);
            } else {
                paths.push(json!({ "verbs": rule.verbs, "nonResourceURLs": rule.paths }));
            }
        }
        json!({ "resourceRules": resources, "nonResourceRules": paths, "incomplete": false })
    }

    /// A token for a service account, as `serviceaccounts/token` gives it.
    pub(crate) fn token(&self, account: &Target, mut request: Value) -> Result<Value, Refusal> {
        let store = &self.registry.store;
        let found = store
            .get(&account.key())
            .ok_or_else(|| Refusal::not_found(account.kind, &account.name))?;
        let spec = request["spec"].clone();
        let seconds = match &spec["expirationSeconds"] {
            Value::Null => TOKEN_SECONDS,
            given => given.as_i64().unwrap_or(0),
        };
        let wrong = |why: &str| {
            let field = "spec.expirationSeconds";
            let error = FieldError::invalid(field, &spec["expirationSeconds"], why);
            Refusal::invalid_named("TokenRequest.authentication.k8s.io", &[error])
        };
        if seconds < TOKEN_SECONDS_LEAST {
            return Err(wrong("may not specify a duration less than 10 minutes"));
        }
        if seconds > TOKEN_SECONDS_MOST {
            return Err(wrong("may not specify a duration larger than 2^32 seconds"));
        }
        let mut audiences = strings(&spec["audiences"]);
        if audiences.is_empty() {
            audiences.push(ISSUER.to_owned());
        }
        let bound = self.bound(account, &spec["boundObjectRef"])?;
        let node = bound
            .as_ref()
            .filter(|bound| bound.kind == "Pod")
            .and_then(|bound| store.get(&Key::new("pods", &account.namespace, &bound.name)))
            .map(|pod| text(&pod.value(), "/spec/nodeName").to_owned())
            .and_then(|name| Some((store.get(&Key::new("nodes", "", &name))?, name)));
        let issued = self.registry.clock.now();
        let expires = issued
            .checked_add(SignedDuration::from_secs(seconds))
            .map_err(|_| wrong("may not specify a duration larger than 2^32 seconds"))?;
        let grant = Grant {
            namespace: &account.namespace,
            account: &account.name,
            account_uid: found.meta.uid(),
            audiences: &audiences,
            bound: bound.as_ref(),
            node: node
                .as_ref()
                .map(|(node, name)| (name.as_str(), node.meta.uid())),
            issued,
            expires,
            id: self.registry.entropy.uid(),
        };
        let token = self.signer.sign(&grant).map_err(Refusal::internal)?;
        request["apiVersion"] = "authentication.k8s.io/v1".into();
        request["kind"] = "TokenRequest".into();
        request["metadata"] = json!({
            "name": account.name,
            "namespace": account.namespace,
            "uid": self.registry.entropy.uid(),
            "creationTimestamp": stamp(issued),
        });
        if !request["spec"].is_object() {
            request["spec"] = json!({});
        }
        request["spec"]["audiences"] = json!(audiences);
        request["spec"]["expirationSeconds"] = seconds.into();
        if spec["boundObjectRef"].is_null() {
            request["spec"]["boundObjectRef"] = Value::Null;
        }
        request["status"] = json!({ "token": token, "expirationTimestamp": stamp(expires) });
        Ok(request)
    }

    /// The object that a token is asked to be bound to.
    fn bound(&self, account: &Target, asked: &Value) -> Result<Option<Bound>, Refusal> {
        if !asked.is_object() {
            return Ok(None);
        }
        let (kind, name, uid) = (
            text(asked, "/kind"),
            text(asked, "/name"),
            text(asked, "/uid"),
        );
        let (resource, namespace) = match (text(asked, "/apiVersion"), kind) {
            ("v1", "Pod") => ("pods", account.namespace.as_str()),
            ("v1", "Secret") => ("secrets", account.namespace.as_str()),
            ("v1", "Node") => ("nodes", ""),
            (version, kind) => {
                let (group, version) = version.split_once('/').unwrap_or(("", version));
                return Err(Refusal::bad_request(format!(
                    "cannot bind token to object of type {group}/{version}, Kind={kind}"
                )));
            }
        };
        let known = kinds::find("", "v1", resource).ok_or_else(Refusal::no_such_path)?;
        let found = self
            .registry
            .store
            .get(&Key::new(resource, namespace, name))
            .ok_or_else(|| Refusal::not_found(known, name))?;
        if kind == "Pod" {
            let own = found.value();
            let pods = match text(&own, "/spec/serviceAccountName") {
                "" => "default",
                name => name,
            };
            if pods != account.name {
                return Err(Refusal::bad_request(format!(
                    "cannot bind token for serviceaccount {:?} to pod running with different \
                     serviceaccount name.",
                    account.name
                )));
            }
        }
        if !uid.is_empty() && found.meta.uid() != uid {
            return Err(Refusal::conflict(
                known,
                name,
                format!(
                    "the UID in the bound object reference ({uid}) does not match the UID in \
                     record. The object might have been deleted and then recreated"
                ),
            ));
        }
        Ok(Some(Bound {
            kind: kind.to_owned(),
            name: name.to_owned(),
            uid: found.meta.uid().to_owned(),
        }))
    }
}

/// The user that an access review asks about.
fn asked_user(kind: &KindInfo, spec: &Value) -> Result<User, Refusal> {
    let (name, groups) = (text(spec, "/user"), strings(&spec["groups"]));
    if name.is_empty() && groups.is_empty() {
        let why = "at least one of user or group must be specified";
        let error = FieldError::invalid("spec.user", &text(spec, "/user").into(), why);
        return Err(Refusal::invalid(kind, "", &[error]));
    }
    Ok(User {
        name: name.to_owned(),
        uid: text(spec, "/uid").to_owned(),
        groups,
        ..User::default()
    })
}

fn strings(list: &Value) -> Vec<String> {
    let items = list.as_array().into_iter().flatten();
    items
        .filter_map(|item| item.as_str().map(str::to_owned))
        .collect()
}
