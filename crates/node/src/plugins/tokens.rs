//! Tokens of a pod's service account: asked for, and given to the pod's user.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use orlop_model::pod::TokenSource;
use orlop_model::{Key, Pod};
use orlop_runtime::{Cluster, TokenRequest};

use super::VolumeError;
use super::atomic_files::File;
use super::objects::Shown;
use crate::layout::PodUid;

/// How long a token is good unless the pod says otherwise.
const USUAL_SECONDS: i64 = 3600;
/// A token is replaced after this long, however long it would be good.
const LONGEST_USE: SignedDuration = SignedDuration::from_hours(24);

/// A token, and when to ask for the next one.
#[derive(Clone)]
pub(super) struct Given {
    pub(super) secret: String,
    pub(super) renew_at: Timestamp,
}

/// The tokens that volumes show: a volume that is written anew for another reason keeps its
/// token.
#[derive(Default)]
pub(crate) struct Tokens {
    given: Mutex<BTreeMap<(Shown, String), Given>>,
}

/// Which token.
pub(super) struct Request<'a> {
    pub(super) user: &'a Shown,
    pub(super) pod: &'a Pod,
    pub(super) source: &'a TokenSource,
    pub(super) now: Timestamp,
}

impl Tokens {
    /// The token that was given, or a new one if it is time for that.
    pub(super) async fn get(
        &self,
        cluster: &Cluster,
        request: &Request<'_>,
    ) -> Result<Given, VolumeError> {
        let key = (request.user.clone(), request.source.path.clone());
        let known = self.given().get(&key).cloned();
        if let Some(known) = known.filter(|known| known.renew_at > request.now) {
            return Ok(known);
        }
        let given = ask(cluster, request.pod, request.source, request.now).await?;
        self.given().insert(key, given.clone());
        Ok(given)
    }

    /// A pod shows nothing any more.
    pub(crate) fn release(&self, pod: &PodUid) {
        self.given().retain(|(user, _), _| user.pod != *pod);
    }

    fn given(&self) -> MutexGuard<'_, BTreeMap<(Shown, String), Given>> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Asks the API server for a token that ends with the pod.
async fn ask(
    cluster: &Cluster,
    pod: &Pod,
    source: &TokenSource,
    now: Timestamp,
) -> Result<Given, VolumeError> {
    let account = match pod.spec.service_account_name.as_str() {
        "" => "default",
        name => name,
    };
    let seconds = source.expiration_seconds.unwrap_or(USUAL_SECONDS);
    let wanted = TokenRequest {
        audience: source.audience.clone(),
        seconds,
        pod: (pod.metadata.name.clone(), pod.metadata.uid.clone()),
    };
    let account = Key::namespaced(&pod.metadata.namespace, account);
    let token = cluster.request_token(&account, &wanted).await?;
    Ok(Given {
        secret: token.secret,
        renew_at: renew_at(now, token.expires),
    })
}

/// With a fifth of its life left, so that there is time for a few failures.
pub(crate) fn renew_at(given: Timestamp, expires: Timestamp) -> Timestamp {
    let life = expires.duration_since(given).max(SignedDuration::ZERO);
    let used = (life * 4 / 5).min(LONGEST_USE);
    given.checked_add(used).unwrap_or(expires)
}

/// The file of a token. Where all containers run as one user, or the pod has a group, it is
/// for them alone.
pub(super) fn file(pod: &Pod, secret: String, usual: u32) -> File {
    let user = one_user(pod);
    let context = pod.spec.security_context.as_ref();
    let grouped = context.is_some_and(|context| context.fs_group.is_some());
    let mode = if user.is_some() || grouped {
        0o600
    } else {
        usual
    };
    let mut file = File::new(secret.into_bytes(), mode);
    file.user = user;
    file
}

/// The user that all containers are said to run as, if they are and it is one.
fn one_user(pod: &Pod) -> Option<u32> {
    let pods = pod.spec.security_context.as_ref();
    let pods = pods.and_then(|context| context.run_as_user);
    let containers = pod.spec.init_containers.iter().chain(&pod.spec.containers);
    let mut users = containers.map(|container| {
        let own = container.security_context.as_ref();
        own.and_then(|context| context.run_as_user).or(pods)
    });
    let first = users.next()??;
    users
        .all(|user| user == Some(first))
        .then(|| u32::try_from(first).ok())?
}

#[cfg(test)]
mod tests {
    use orlop_model::pod::{Container, ContainerSecurityContext, PodSecurityContext};

    use super::*;

    #[test]
    fn a_token_is_renewed_with_a_fifth_of_its_life_left_and_every_day() {
        let time = |second| Timestamp::from_second(second).expect("a time");
        for (life, renewed) in [
            (3607, 2885),
            (600, 480),
            (100 * 3600, 24 * 3600),
            (0, 0),
            (-5, 0),
        ] {
            let at = renew_at(time(1000), time(1000 + life)).as_second();
            assert_eq!(at, 1000 + renewed, "{life}");
        }
    }

    fn pod(users: &[Option<i64>], fs_group: Option<i64>) -> Pod {
        let mut pod = Pod::default();
        pod.spec.security_context = Some(PodSecurityContext {
            fs_group,
            ..PodSecurityContext::default()
        });
        pod.spec.containers = users
            .iter()
            .map(|user| Container {
                security_context: Some(ContainerSecurityContext {
                    run_as_user: *user,
                    ..ContainerSecurityContext::default()
                }),
                ..Container::default()
            })
            .collect();
        pod
    }

    #[test]
    fn a_token_is_for_the_pods_user_or_group_alone_where_there_is_one() {
        let cases = [
            (pod(&[Some(7), Some(7)], None), (0o600, Some(7))),
            (pod(&[Some(7), Some(8)], None), (0o644, None)),
            (pod(&[Some(7), None], None), (0o644, None)),
            (pod(&[None], None), (0o644, None)),
            (pod(&[None], Some(9)), (0o600, None)),
        ];
        for (pod, wanted) in cases {
            let file = file(&pod, String::new(), 0o644);
            assert_eq!((file.mode, file.user), wanted);
        }
    }
}
