//! Who may do what: roles, tokens, reviews, impersonation.

use http::{Method, Request};
use orlop_apiserver::{ApiServer, Config, Storage, User};
use serde_json::{Value, json};
use tower::ServiceExt as _;

/// A server and, for its administrator, the way in.
struct World {
    server: ApiServer,
}

/// An answer: its status and its body.
type Answer = (u16, Value);

impl World {
    async fn new() -> Self {
        let server = ApiServer::open(Config::new(Storage::Memory)).await.unwrap();
        Self { server }
    }

    async fn ask(&self, user: Option<&User>, request: (&str, &str, Value)) -> Answer {
        self.ask_with(user, request, &[]).await
    }

    async fn ask_with(
        &self,
        user: Option<&User>,
        (method, path, body): (&str, &str, Value),
        headers: &[(&str, &str)],
    ) -> Answer {
        let service = match user {
            Some(user) => self.server.service_as(user.clone()),
            None => self.server.service(),
        };
        let mut request = Request::builder()
            .method(Method::from_bytes(method.as_bytes()).unwrap())
            .uri(path)
            .header("accept", "application/json");
        let typed = headers.iter().any(|(name, _)| *name == "content-type");
        if !typed {
            request = request.header("content-type", "application/json");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = axum::body::Body::from(if body.is_null() {
            Vec::new()
        } else {
            body.to_string().into_bytes()
        });
        let answer = service.oneshot(request.body(body).unwrap()).await.unwrap();
        let code = answer.status().as_u16();
        let bytes = axum::body::to_bytes(answer.into_body(), 1 << 20)
            .await
            .unwrap();
        (code, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
    }

    async fn made(&self, path: &str, object: Value) -> Value {
        let (code, body) = self.ask(None, ("POST", path, object)).await;
        assert_eq!(code, 201, "{body}");
        body
    }

    /// A role of this name with these rules, held by a user or service account.
    async fn grant(&self, name: &str, rules: Value, subject: Value) {
        let rbac = "/apis/rbac.authorization.k8s.io/v1";
        let role = json!({ "metadata": { "name": name }, "rules": rules });
        self.made(&format!("{rbac}/clusterroles"), role).await;
        let binding = json!({
            "metadata": { "name": name },
            "roleRef": { "kind": "ClusterRole", "name": name },
            "subjects": [subject],
        });
        self.made(&format!("{rbac}/clusterrolebindings"), binding)
            .await;
    }
}

fn user(name: &str) -> User {
    User::new(name, [])
}

fn get(path: &str) -> (&str, &str, Value) {
    ("GET", path, Value::Null)
}

const PODS: &str = "/api/v1/namespaces/default/pods";

#[tokio::test]
async fn what_no_role_allows_is_refused_in_the_originals_words() {
    let world = World::new().await;
    let (code, status) = world.ask(Some(&user("jane")), get(PODS)).await;
    assert_eq!(code, 403);
    assert_eq!(status["reason"], "Forbidden");
    assert_eq!(
        status["message"],
        "pods is forbidden: User \"jane\" cannot list resource \"pods\" in API group \"\" in the \
         namespace \"default\""
    );
    let volume = "/api/v1/persistentvolumes/v";
    let (_, status) = world.ask(Some(&user("jane")), get(volume)).await;
    assert_eq!(
        status["message"],
        "persistentvolumes \"v\" is forbidden: User \"jane\" cannot get resource \
         \"persistentvolumes\" in API group \"\" at the cluster scope"
    );
    let (_, status) = world.ask(Some(&user("jane")), get("/metrics")).await;
    assert_eq!(
        status["message"],
        "forbidden: User \"jane\" cannot get path \"/metrics\""
    );
}

#[tokio::test]
async fn everybody_known_may_discover_and_ask_about_themselves() {
    let world = World::new().await;
    let jane = user("jane");
    for path in [
        "/api",
        "/apis",
        "/api/v1",
        "/version",
        "/openapi/v3",
        "/healthz",
    ] {
        assert_eq!(world.ask(Some(&jane), get(path)).await.0, 200, "{path}");
    }
    let who = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let (code, review) = world.ask(Some(&jane), ("POST", who, json!({}))).await;
    assert_eq!(code, 201);
    assert_eq!(review["status"]["userInfo"]["username"], "jane");
}

#[tokio::test]
async fn a_grant_and_its_withdrawal_count_at_once() {
    let world = World::new().await;
    let jane = user("jane");
    let rules = json!([{ "verbs": ["list"], "apiGroups": [""], "resources": ["pods"] }]);
    world
        .grant("lister", rules, json!({ "kind": "User", "name": "jane" }))
        .await;
    assert_eq!(world.ask(Some(&jane), get(PODS)).await.0, 200);
    assert_eq!(
        world
            .ask(Some(&jane), get(&format!("{PODS}?watch=1")))
            .await
            .0,
        403
    );
    assert_eq!(
        world.ask(Some(&jane), get(&format!("{PODS}/p"))).await.0,
        403
    );
    let binding = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/lister";
    assert_eq!(
        world.ask(None, ("DELETE", binding, Value::Null)).await.0,
        200
    );
    assert_eq!(world.ask(Some(&jane), get(PODS)).await.0, 403);
}

#[tokio::test]
async fn a_role_binding_grants_in_its_namespace_only() {
    let world = World::new().await;
    let binding = json!({
        "metadata": { "name": "viewers" },
        "roleRef": { "kind": "ClusterRole", "name": "view" },
        "subjects": [{ "kind": "Group", "name": "viewers" }],
    });
    let bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
    world.made(bindings, binding).await;
    let jane = User::new("jane", ["viewers".to_owned()]);
    assert_eq!(world.ask(Some(&jane), get(PODS)).await.0, 200);
    for elsewhere in ["/api/v1/namespaces/kube-system/pods", "/api/v1/pods"] {
        assert_eq!(world.ask(Some(&jane), get(elsewhere)).await.0, 403);
    }
    let secrets = "/api/v1/namespaces/default/secrets";
    assert_eq!(world.ask(Some(&jane), get(secrets)).await.0, 403);
}

#[tokio::test]
async fn a_token_stands_for_its_account_until_that_is_gone() {
    let world = World::new().await;
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    world
        .made(accounts, json!({ "metadata": { "name": "a" } }))
        .await;
    let subject = json!({ "kind": "ServiceAccount", "name": "a", "namespace": "default" });
    let rules = json!([{ "verbs": ["list"], "apiGroups": [""], "resources": ["pods"] }]);
    world.grant("lister", rules, subject).await;
    let request = json!({ "spec": { "audiences": [], "expirationSeconds": 600 } });
    let answer = world.made(&format!("{accounts}/a/token"), request).await;
    let token = answer["status"]["token"].as_str().unwrap();

    let reviews = "/apis/authentication.k8s.io/v1/tokenreviews";
    let review = json!({ "spec": { "token": token } });
    let answer = world.made(reviews, review.clone()).await;
    assert_eq!(answer["status"]["authenticated"], true);
    assert_eq!(
        answer["status"]["user"]["username"],
        "system:serviceaccount:default:a"
    );
    let other = json!({ "spec": { "token": token, "audiences": ["vault"] } });
    let answer = world.made(reviews, other).await;
    assert_eq!(answer["status"]["authenticated"], Value::Null);

    let account = format!("{accounts}/a");
    assert_eq!(
        world.ask(None, ("DELETE", &account, Value::Null)).await.0,
        200
    );
    let answer = world.made(reviews, review).await;
    assert_eq!(
        answer["status"]["error"],
        "service account token has been invalidated"
    );
}

#[tokio::test]
async fn a_token_request_is_held_to_its_bounds() {
    let world = World::new().await;
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    world
        .made(accounts, json!({ "metadata": { "name": "a" } }))
        .await;
    let token = format!("{accounts}/a/token");
    let short = json!({ "spec": { "expirationSeconds": 10 } });
    let (code, status) = world.ask(None, ("POST", &token, short)).await;
    assert_eq!(code, 422);
    assert_eq!(
        status["message"],
        "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value: \
         10: may not specify a duration less than 10 minutes"
    );
    let absent = json!({ "spec": {
        "boundObjectRef": { "apiVersion": "v1", "kind": "Pod", "name": "p" },
    } });
    let (code, status) = world.ask(None, ("POST", &token, absent)).await;
    assert_eq!(
        (code, &status["message"]),
        (404, &json!("pods \"p\" not found"))
    );
    let nobody = format!("{accounts}/b/token");
    assert_eq!(world.ask(None, ("POST", &nobody, json!({}))).await.0, 404);
}

#[tokio::test]
async fn nobody_gives_away_what_they_do_not_have() {
    let world = World::new().await;
    let jane = user("jane");
    let rules = json!([
        {
            "verbs": ["create", "patch", "update", "get"],
            "apiGroups": ["rbac.authorization.k8s.io"],
            "resources": ["roles", "rolebindings", "clusterroles", "clusterrolebindings"],
        },
        { "verbs": ["get"], "apiGroups": [""], "resources": ["pods"] },
    ]);
    let subject = json!({ "kind": "User", "name": "jane" });
    world.grant("author", rules, subject).await;
    let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
    let role = |name: &str, verb: &str| {
        json!({
            "metadata": { "name": name },
            "rules": [{ "verbs": [verb], "apiGroups": [""], "resources": ["pods"] }],
        })
    };
    let (code, _) = world
        .ask(Some(&jane), ("POST", roles, role("held", "get")))
        .await;
    assert_eq!(code, 201);
    let (code, status) = world
        .ask(Some(&jane), ("POST", roles, role("more", "delete")))
        .await;
    assert_eq!(code, 403);
    let message = status["message"].as_str().unwrap();
    assert!(
        message.contains("is attempting to grant RBAC permissions not currently held:\n{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"delete\"]}"),
        "{message}"
    );
    // Nor by a patch, nor by binding a mightier role.
    let held = format!("{roles}/held");
    let patch = json!({ "rules": role("held", "delete")["rules"] });
    let merge = [("content-type", "application/merge-patch+json")];
    let (code, _) = world
        .ask_with(Some(&jane), ("PATCH", &held, patch), &merge)
        .await;
    assert_eq!(code, 403);
    let binding = json!({
        "metadata": { "name": "root" },
        "roleRef": { "kind": "ClusterRole", "name": "cluster-admin" },
        "subjects": [{ "kind": "User", "name": "jane" }],
    });
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    assert_eq!(
        world.ask(Some(&jane), ("POST", bindings, binding)).await.0,
        403
    );
}

#[tokio::test]
async fn impersonation_must_be_allowed_and_then_counts() {
    let world = World::new().await;
    let jane = user("jane");
    let as_john = [("impersonate-user", "john")];
    let (code, status) = world.ask_with(Some(&jane), get("/api"), &as_john).await;
    assert_eq!(code, 403);
    assert_eq!(
        status["message"],
        "users \"john\" is forbidden: User \"jane\" cannot impersonate resource \"users\" in API \
         group \"\" at the cluster scope"
    );
    // The administrator may; and is then nobody special.
    assert_eq!(world.ask_with(None, get("/api"), &as_john).await.0, 200);
    assert_eq!(world.ask_with(None, get(PODS), &as_john).await.0, 403);
}

#[tokio::test]
async fn access_reviews_answer_for_others() {
    let world = World::new().await;
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let ask = |user: &str, groups: Value| {
        json!({ "spec": {
            "user": user, "groups": groups,
            "resourceAttributes": { "verb": "delete", "resource": "nodes" },
        } })
    };
    let answer = world.made(path, ask("jane", json!([]))).await;
    assert_eq!(answer["status"], json!({ "allowed": false }));
    let answer = world
        .made(path, ask("root", json!(["system:masters"])))
        .await;
    assert_eq!(answer["status"]["allowed"], true);
    let (code, _) = world
        .ask(None, ("POST", path, json!({ "spec": { "user": "x" } })))
        .await;
    assert_eq!(code, 422);
}

#[tokio::test]
async fn roles_are_checked_before_they_are_kept() {
    let world = World::new().await;
    let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
    let empty = json!({ "metadata": { "name": "r" }, "rules": [{ "verbs": [] }] });
    let (code, status) = world.ask(None, ("POST", roles, empty)).await;
    assert_eq!(code, 422);
    let message = status["message"].as_str().unwrap();
    assert!(
        message.contains("rules[0].verbs: Required value"),
        "{message}"
    );
}

const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";

/// Waits until a role has as many rules; its changes are watched.
async fn gathers(world: &World, role: &str, count: usize) {
    let rules = |role: &Value| role["rules"].as_array().map_or(0, Vec::len);
    let wait = async {
        loop {
            let (_, found) = world.ask(None, get(&format!("{ROLES}/{role}"))).await;
            if rules(&found) == count {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    let patience = std::time::Duration::from_secs(30);
    tokio::time::timeout(patience, wait).await.unwrap();
}

#[tokio::test]
async fn a_role_gathers_what_has_its_label_for_as_long_as_it_has() {
    let world = World::new().await;
    let gathering = |name: &str, of: &str, to: &str| {
        json!({
            "metadata": { "name": name, "labels": { "to": to } },
            "aggregationRule": { "clusterRoleSelectors": [{ "matchLabels": { "to": of } }] },
        })
    };
    let rule = json!([{ "verbs": ["get"], "apiGroups": [""], "resources": ["pods"] }]);
    let plain = json!({ "metadata": { "name": "p", "labels": { "to": "a" } }, "rules": rule });
    world.made(ROLES, gathering("b", "b", "none")).await;
    world.made(ROLES, gathering("a", "a", "b")).await;
    world.made(ROLES, plain).await;
    gathers(&world, "b", 1).await;
    // Nobody's own rules stay in a role that gathers.
    let own = json!({ "rules": [{ "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"] }] });
    let merge = [("content-type", "application/merge-patch+json")];
    let path = format!("{ROLES}/b");
    let (code, _) = world.ask_with(None, ("PATCH", &path, own), &merge).await;
    assert_eq!(code, 200);
    world
        .ask(None, ("DELETE", &format!("{ROLES}/p"), Value::Null))
        .await;
    gathers(&world, "b", 0).await;
}
