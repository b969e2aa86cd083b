use super::super::{
    flags::{Dialect, parse},
    parts::Part,
    programs::{ALL, Role, called, of},
};
use super::*;

fn given(name: &str, line: &str) -> Given {
    let program = called(name).unwrap_or_else(|| panic!("there is no {name}"));
    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    parse(&program.flags(), program.dialect, &words).unwrap_or_else(|stop| panic!("{stop:?}"))
}

fn view<'a>(name: &str, given: &'a Given) -> View<'a> {
    View {
        given,
        program: called(name).unwrap_or_else(|| panic!("there is no {name}")),
        prefix: None,
    }
}

fn common(line: &str) -> Result<Common, String> {
    let given = given("csi-attacher", line);
    Common::read(&view("csi-attacher", &given))
}

#[test]
fn the_api_server_is_spared_only_when_asked() {
    assert_eq!(common("").map(|c| c.cap), Ok(None));
    let cap = |per_second, burst| Ok(Some(Cap { per_second, burst }));
    assert_eq!(common("-kube-api-qps=20").map(|c| c.cap), cap(20.0, 10));
    assert_eq!(common("-kube-api-burst=50").map(|c| c.cap), cap(5.0, 50));
    assert_eq!(common("-kube-api-qps=-1").map(|c| c.cap), Ok(None));
}

#[test]
fn a_socket_may_be_named_from_the_working_folder() {
    let here = std::env::current_dir().unwrap_or_default();
    let address = |given: &str| common(&format!("-csi-address={given}")).map(|c| c.csi_address);
    assert_eq!(
        address("csi.sock"),
        Ok(here.join("csi.sock").display().to_string())
    );
    for whole in ["/csi/csi.sock", "unix:///csi/csi.sock", "tcp://x:1"] {
        assert_eq!(address(whole), Ok(whole.to_owned()));
    }
}

#[test]
fn metrics_have_one_address() {
    assert_eq!(common("").map(|c| c.served), Ok(None));
    let served = |line: &str| common(line).map(|c| c.served.map(|s| (s.address, s.health)));
    assert_eq!(
        served("-http-endpoint=:8080"),
        Ok(Some((":8080".to_owned(), true)))
    );
    assert_eq!(
        served("-metrics-address=:8080"),
        Ok(Some((":8080".to_owned(), false)))
    );
    assert!(
        served("-metrics-address=:1 -http-endpoint=:2").is_err_and(|e| e.contains("only one of"))
    );
    assert!(served("-metrics-path=x -http-endpoint=:2").is_err());
}

#[test]
fn an_election_that_no_leader_could_keep_is_refused() {
    let running = common("-leader-election -leader-election-labels=a:b,c:d").map(|c| c.running);
    let labels = running.map(|running| running.map(|running| running.labels));
    let expected = [("a", "b"), ("c", "d")].map(|(k, v)| (k.to_owned(), v.to_owned()));
    assert_eq!(labels, Ok(Some(BTreeMap::from(expected))));
    for (line, why) in [
        ("-leader-election-lease-duration=10s", "leaseDuration"),
        ("-leader-election-renew-deadline=6s", "renewDeadline"),
        ("-leader-election-retry-period=0", "retryPeriod must"),
    ] {
        let error = common(&format!("-leader-election {line}"))
            .map(|_| ())
            .unwrap_err();
        assert!(error.contains(why), "{line}: {error}");
        // Without an election nothing of it matters.
        assert!(common(line).is_ok(), "{line}");
    }
}

#[test]
fn what_is_not_built_is_refused_rather_than_ignored() {
    for (name, line, why) in [
        ("csi-provisioner", "--enable-pprof", "--enable-pprof=true: "),
        (
            "csi-attacher",
            "-feature-gates=Nonsense=true",
            "unrecognized feature gate: Nonsense",
        ),
    ] {
        let given = given(name, line);
        let refusals = view(name, &given).refusals();
        assert!(
            refusals.len() == 1 && refusals[0].starts_with(why),
            "{line}: {refusals:?}"
        );
    }
    for (name, line) in [
        (
            "csi-provisioner",
            "--enable-pprof=false --feature-gates=Topology=true",
        ),
        (
            "csi-resizer",
            "-feature-gates=ReleaseLeaderElectionOnExit=true",
        ),
    ] {
        let given = given(name, line);
        assert!(view(name, &given).refusals().is_empty(), "{line}");
    }
    for program in ALL {
        let none = Given::default();
        assert!(
            view(program.name, &none).refusals().is_empty(),
            "{}",
            program.name
        );
    }
}

#[test]
fn gates_that_change_nothing_stop_nobody_and_are_told() {
    for (name, gates, notes) in [
        (
            "csi-provisioner",
            "HonorPVReclaimPolicy=true,Topology=true,AllAlpha=false,WatchListClient=true",
            &[
                "--feature-gates=AllAlpha=false has no effect here",
                "--feature-gates=HonorPVReclaimPolicy=true has no effect here",
                "--feature-gates=Topology=true has no effect here",
                "--feature-gates=WatchListClient=true has no effect here",
            ][..],
        ),
        (
            "csi-provisioner",
            "Topology=false,CrossNamespaceVolumeDataSource=true",
            &["--feature-gates=Topology=false: it can not be switched off here, and stays on"],
        ),
        ("csi-snapshotter", "CSIVolumeGroupSnapshot=false", &[]),
        (
            "csi-resizer",
            "ReleaseLeaderElectionOnExit=true",
            &["--feature-gates=ReleaseLeaderElectionOnExit=true has no effect here"],
        ),
    ] {
        let dashes = if name == "csi-provisioner" { "--" } else { "-" };
        let given = given(name, &format!("{dashes}feature-gates={gates}"));
        let view = view(name, &given);
        assert_eq!(view.notes(), notes, "{gates}");
        assert!(view.refusals().is_empty(), "{gates}");
    }
}

#[test]
fn together_a_controllers_own_flag_wins_over_the_plain_one() {
    let words = [
        "--timeout=3s",
        "--attacher-timeout=7s",
        "--feature-gates=Topology=true",
    ];
    let given = parse(
        &Together::new().flags,
        Dialect::Go,
        &words.map(str::to_owned),
    )
    .unwrap_or_default();
    let of = |role, prefix| View {
        given: &given,
        program: of(role),
        prefix: Some(prefix),
    };
    let attacher = of(Role::Attacher, "attacher");
    assert_eq!(attacher.duration("timeout"), Duration::from_secs(7));
    assert!(attacher.refusals().is_empty(), "another one's gate");
    let provisioner = of(Role::Provisioner, "provisioner");
    assert_eq!(provisioner.duration("timeout"), Duration::from_secs(3));
    assert_eq!(provisioner.workers("worker-threads"), Ok(100));
    assert_eq!(attacher.workers("worker-threads"), Ok(10));
}

#[test]
fn nothing_can_be_done_by_no_workers() {
    let given = given("csi-attacher", "-worker-threads=0");
    let workers = view("csi-attacher", &given).workers("worker-threads");
    assert_eq!(
        workers,
        Err("option -worker-threads must be greater than zero".to_owned())
    );
}

#[test]
fn a_path_for_metrics_is_one_and_not_healths() {
    let path = |path: &str| {
        let line = format!("-http-endpoint=:1 -metrics-path={path}");
        let served = common(&line).map(|c| c.served.map(|s| s.metrics_path));
        served.map(Option::unwrap_or_default)
    };
    assert_eq!(path("/mine"), Ok("/mine".to_owned()));
    for wrong in [
        "metrics",
        "/healthz",
        "/healthz/leader-election",
        "/{x",
        "/:x",
        "/*",
    ] {
        let said = path(wrong).expect_err(wrong);
        assert!(said.starts_with("--metrics-path="), "{said}");
    }
}

#[test]
fn what_would_never_wait_is_refused() {
    for (program, line) in [
        ("csi-attacher", "-retry-interval-start=0"),
        ("csi-attacher", "-retry-interval-max=-5s"),
        ("csi-attacher", "-timeout=0"),
        ("csi-attacher", "-max-entries=-1"),
        ("csi-provisioner", "--timeout=-1s"),
        ("csi-provisioner", "--volume-name-uuid-length=0"),
        ("csi-provisioner", "--volume-name-prefix=My_Volumes"),
        ("csi-snapshotter", "-snapshot-name-uuid-length=0"),
        ("csi-snapshotter", "-groupsnapshot-name-uuid-length=0"),
        ("csi-resizer", "-retry-interval-start=0s"),
        ("snapshot-controller", "-retry-interval-max=0"),
        (
            "csi-external-health-monitor-controller",
            "-monitor-interval=0",
        ),
        (
            "csi-external-health-monitor-controller",
            "-list-volumes-interval=0",
        ),
    ] {
        let given = given(program, line);
        let (metrics, retries) = (orlop_runtime::Metrics::default(), Default::default());
        let part = Part::read(&view(program, &given), &metrics, &retries);
        let said = part.err().unwrap_or_else(|| panic!("{program} {line}"));
        let flag = line.split('=').next().unwrap_or_default();
        let flag = flag.trim_start_matches('-');
        assert!(said.contains(flag), "{line}: {said}");
    }
}

#[test]
fn the_environments_kubeconfig_wins_over_the_flag_of_csi_provisioner_alone() {
    let of = |program: &str, line: &str, environment: &str| {
        let given = given(program, line);
        let environment = Some(environment.to_owned()).filter(|path| !path.is_empty());
        kubeconfig(&view(program, &given), environment).unwrap_or_default()
    };
    assert_eq!(of("csi-provisioner", "--kubeconfig=/a", "/b"), "/b");
    assert_eq!(of("csi-provisioner", "--kubeconfig=/a", ""), "/a");
    assert_eq!(of("csi-attacher", "-kubeconfig=/a", "/b"), "/a");
    assert_eq!(of("csi-attacher", "", "/b"), "");
}
