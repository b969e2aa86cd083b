use super::super::flags::{read, shown_default};
use super::*;

/// The flags that all sidecars share, with their defaults, as the reference has them.
const COMMON: &str = "version=false kubeconfig= csi-address=/run/csi/socket leader-election=false \
    leader-election-namespace= leader-election-lease-duration=15s leader-election-renew-deadline=10s \
    leader-election-retry-period=5s leader-election-labels= kube-api-qps=5 kube-api-burst=10 \
    http-endpoint= metrics-address= metrics-path=/metrics automaxprocs=false";

/// The flags of component logging.
const LOGS: &str = "v=0 vmodule= logging-format=text log-flush-frequency=5s log-text-split-stream=false \
    log-text-info-buffer-size= log-json-split-stream=false log-json-info-buffer-size=";

const OWN: [(&str, Dialect, &str); 9] = [
    (
        "csi-provisioner",
        Dialect::Pflag,
        "master= volume-name-prefix=pvc volume-name-uuid-length=-1 retry-interval-start=1s \
         retry-interval-max=5m worker-threads=100 cloning-protection-threads=1 \
         snapshot-orphan-sweep-interval=5m capacity-threads=1 timeout=10s strict-topology=false \
         immediate-topology=true extra-create-metadata=false enable-pprof=false default-fstype= \
         kube-api-capacity-qps=1 kube-api-capacity-burst=5 enable-capacity=false \
         capacity-for-immediate-binding=false capacity-poll-interval=1m capacity-ownerref-level=1 \
         node-deployment=false node-deployment-immediate-binding=true node-deployment-base-delay=20s \
         node-deployment-max-delay=60s controller-publish-readonly=false \
         prevent-volume-mode-conversion=true feature-gates=",
    ),
    (
        "csi-attacher",
        Dialect::Go,
        "resync=10m timeout=15s retry-interval-start=1s retry-interval-max=5m worker-threads=10 \
         max-entries=0 default-fstype= reconcile-sync=1m max-grpc-log-length=-1 feature-gates=",
    ),
    (
        "csi-resizer",
        Dialect::Go,
        "master= resync-period=10m workers=10 extra-modify-metadata=false timeout=10s \
         retry-interval-start=1s retry-interval-max=5m handle-volume-inuse-error=true feature-gates=",
    ),
    (
        "csi-snapshotter",
        Dialect::Go,
        "resync-period=15m snapshot-name-prefix=snapshot snapshot-name-uuid-length=-1 \
         groupsnapshot-name-prefix=groupsnapshot groupsnapshot-name-uuid-length=-1 worker-threads=10 \
         timeout=1m extra-create-metadata=false retry-interval-start=1s retry-interval-max=5m \
         node-deployment=false feature-gates=",
    ),
    (
        "snapshot-controller",
        Dialect::Go,
        "resync-period=15m worker-threads=10 retry-interval-start=1s retry-interval-max=5m \
         enable-distributed-snapshotting=false prevent-volume-mode-conversion=true \
         retry-crd-interval-max=30s feature-gates=",
    ),
    (
        "csi-external-health-monitor-controller",
        Dialect::Go,
        "monitor-interval=1m resync=10m timeout=15s list-volumes-interval=5m volume-list-add-interval=5m \
         node-list-add-interval=5m worker-threads=10 enable-node-watcher=false",
    ),
    (
        "csi-node-driver-registrar",
        Dialect::Go,
        "csi-address=/run/csi/socket plugin-registration-path=/registration kubelet-registration-path= \
         timeout=1s connection-timeout=0s health-port=0 http-endpoint= enable-pprof=false mode= \
         version=false automaxprocs=false",
    ),
    (
        "livenessprobe",
        Dialect::Go,
        "probe-timeout=3s csi-address=/run/csi/socket health-port=9808 metrics-address= http-endpoint= \
         metrics-path=/metrics automaxprocs=false",
    ),
    (
        "nfsplugin",
        Dialect::Go,
        "endpoint=unix://tmp/csi.sock nodeid= mount-permissions=0 drivername=nfs.csi.k8s.io \
         working-mount-dir=/tmp default-ondelete-policy= vol-stats-cache-expire-in-minutes=10 \
         remove-archived-volume-path=false use-tar-command-in-snapshot=false \
         enable-snapshot-compression=true",
    ),
];

#[test]
fn every_program_has_the_flags_and_defaults_of_the_original() {
    for (name, dialect, own) in OWN {
        let program = called(name).unwrap_or_else(|| panic!("there is no {name}"));
        assert_eq!(program.dialect, dialect, "{name}");
        let mut expected = format!("{own} {LOGS}");
        match name {
            "csi-node-driver-registrar" | "livenessprobe" | "nfsplugin" => {}
            "snapshot-controller" => {
                for word in COMMON.split_whitespace() {
                    let flag = word.split('=').next().unwrap_or_default();
                    if !["csi-address", "leader-election-labels", "metrics-address"].contains(&flag)
                    {
                        expected = format!("{expected} {word}");
                    }
                }
            }
            _ => expected = format!("{expected} {COMMON}"),
        }
        let mut expected: Vec<&str> = expected.split_whitespace().collect();
        // klog's own are taken besides, for manifests that still have them.
        let klog = |flag: &&Flag| {
            !flag.name.contains('_')
                && ![
                    "logtostderr",
                    "alsologtostderr",
                    "stderrthreshold",
                    "alsologtostderrthreshold",
                ]
                .contains(&&*flag.name)
        };
        let flags = program.flags();
        let mut ours: Vec<String> = flags
            .iter()
            .filter(klog)
            .map(|flag| format!("{}={}", flag.name, flag.default))
            .collect();
        expected.sort_unstable();
        ours.sort_unstable();
        assert_eq!(ours, expected, "{name}");
    }
    assert_eq!(ALL.len(), OWN.len());
}

#[test]
fn every_default_is_a_value_of_its_flag() {
    for program in ALL {
        for flag in program.flags() {
            assert!(
                read(flag.kind, flag.default).is_ok(),
                "{} {}",
                program.name,
                flag.name
            );
            assert!(!flag.help.is_empty(), "{} {}", program.name, flag.name);
        }
    }
}

#[test]
fn where_controllers_differ_the_help_of_all_of_them_tells_each_default() {
    let together = Together::new().flags;
    let of_all = |name: &str| together.iter().find(|flag| flag.name == name);
    let mut differing = Vec::new();
    for (controller, role) in CONTROLLERS {
        for flag in of(role).flags() {
            let plain = of_all(&flag.name).unwrap_or_else(|| panic!("no {}", flag.name));
            let default = shown_default(&flag).unwrap_or_else(|| "none".to_owned());
            let each = format!("{default} for the {controller}");
            assert!(
                plain.default == flag.default || plain.help.contains(&each),
                "{controller} {}: {}",
                flag.name,
                plain.help
            );
            if plain.default != flag.default {
                differing.push(flag.name);
            }
        }
    }
    assert!(differing.contains(&"timeout".into()), "{differing:?}");
}

#[test]
fn a_program_is_known_by_its_path_too() {
    assert!(called("/usr/local/bin/csi-attacher").is_some_and(|p| p.role == Role::Attacher));
    assert!(called("orlop").is_none());
    for program in ALL {
        assert_eq!(of(program.role).name, program.name);
    }
}

#[test]
fn no_program_has_two_flags_of_one_name() {
    let names = |flags: Vec<Flag>| {
        let mut names: Vec<String> = flags.iter().map(|flag| flag.name.to_string()).collect();
        names.sort();
        names
    };
    for program in ALL {
        let all = names(program.flags());
        assert!(
            all.windows(2).all(|two| two[0] != two[1]),
            "{}: {all:?}",
            program.name
        );
    }
    let together = names(Together::new().flags);
    assert!(
        together.windows(2).all(|two| two[0] != two[1]),
        "{together:?}"
    );
    for flag in [
        "attacher-timeout",
        "timeout",
        "provisioner-volume-name-prefix",
        "volume-name-prefix",
    ] {
        assert!(together.iter().any(|name| name == flag), "{flag}");
    }
}
