//! The kinds that are part of the program, in discovery's order: by group, then by plural.

use super::{KindInfo, Subresource};

pub(crate) const ALL_VERBS: &[&str] = &[
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
];
/// Namespaces are emptied one at a time, so there is no collection to delete.
const NAMESPACE_VERBS: &[&str] = &[
    "create", "delete", "get", "list", "patch", "update", "watch",
];

const PLAIN: KindInfo = KindInfo {
    group: "",
    version: "v1",
    kind: "",
    plural: "",
    singular: "",
    short_names: &[],
    namespaced: true,
    verbs: ALL_VERBS,
    status: false,
    list_kind: "",
    categories: &[],
    subresources: &[],
    custom: None,
};
const STORAGE: KindInfo = KindInfo {
    group: "storage.k8s.io",
    namespaced: false,
    ..PLAIN
};

/// What makes pods.
const APPS: KindInfo = KindInfo {
    group: "apps",
    status: true,
    categories: &["all"],
    ..PLAIN
};
/// The number of pods apart from the rest, the same for all kinds that have one.
pub(crate) const SCALE: &[Subresource] = &[Subresource {
    name: "scale",
    group: "autoscaling",
    version: "v1",
    kind: "Scale",
    verbs: &["get", "patch", "update"],
}];

const RBAC: KindInfo = KindInfo {
    group: "rbac.authorization.k8s.io",
    ..PLAIN
};
/// Questions: asked by creating them, and never kept.
const AUTHENTICATION: KindInfo = KindInfo {
    group: "authentication.k8s.io",
    namespaced: false,
    verbs: &["create"],
    ..PLAIN
};
const AUTHORIZATION: KindInfo = KindInfo {
    group: "authorization.k8s.io",
    ..AUTHENTICATION
};

pub(super) static KINDS: &[KindInfo] = &[
    KindInfo {
        kind: "ConfigMap",
        plural: "configmaps",
        singular: "configmap",
        short_names: &["cm"],
        list_kind: "ConfigMapList",
        ..PLAIN
    },
    KindInfo {
        kind: "Endpoints",
        plural: "endpoints",
        singular: "endpoints",
        short_names: &["ep"],
        list_kind: "EndpointsList",
        ..PLAIN
    },
    KindInfo {
        kind: "Event",
        plural: "events",
        singular: "event",
        short_names: &["ev"],
        list_kind: "EventList",
        ..PLAIN
    },
    KindInfo {
        kind: "LimitRange",
        plural: "limitranges",
        singular: "limitrange",
        short_names: &["limits"],
        list_kind: "LimitRangeList",
        ..PLAIN
    },
    KindInfo {
        kind: "Namespace",
        plural: "namespaces",
        singular: "namespace",
        short_names: &["ns"],
        namespaced: false,
        verbs: NAMESPACE_VERBS,
        status: true,
        list_kind: "NamespaceList",
        subresources: &[Subresource {
            name: "finalize",
            group: "",
            version: "v1",
            kind: "Namespace",
            verbs: &["update"],
        }],
        ..PLAIN
    },
    KindInfo {
        kind: "Node",
        plural: "nodes",
        singular: "node",
        short_names: &["no"],
        namespaced: false,
        status: true,
        list_kind: "NodeList",
        subresources: &[Subresource {
            name: "proxy",
            group: "",
            version: "v1",
            kind: "NodeProxyOptions",
            verbs: &["get"],
        }],
        ..PLAIN
    },
    KindInfo {
        kind: "PersistentVolumeClaim",
        plural: "persistentvolumeclaims",
        singular: "persistentvolumeclaim",
        short_names: &["pvc"],
        status: true,
        list_kind: "PersistentVolumeClaimList",
        ..PLAIN
    },
    KindInfo {
        kind: "PersistentVolume",
        plural: "persistentvolumes",
        singular: "persistentvolume",
        short_names: &["pv"],
        namespaced: false,
        status: true,
        list_kind: "PersistentVolumeList",
        ..PLAIN
    },
    KindInfo {
        kind: "Pod",
        plural: "pods",
        singular: "pod",
        short_names: &["po"],
        status: true,
        list_kind: "PodList",
        categories: &["all"],
        subresources: &[
            Subresource {
                name: "binding",
                group: "",
                version: "v1",
                kind: "Binding",
                verbs: &["create"],
            },
            Subresource {
                name: "eviction",
                group: "policy",
                version: "v1",
                kind: "Eviction",
                verbs: &["create"],
            },
            Subresource {
                name: "log",
                group: "",
                version: "v1",
                kind: "Pod",
                verbs: &["get"],
            },
        ],
        ..PLAIN
    },
    KindInfo {
        kind: "ResourceQuota",
        plural: "resourcequotas",
        singular: "resourcequota",
        short_names: &["quota"],
        status: true,
        list_kind: "ResourceQuotaList",
        ..PLAIN
    },
    KindInfo {
        kind: "Secret",
        plural: "secrets",
        singular: "secret",
        list_kind: "SecretList",
        ..PLAIN
    },
    KindInfo {
        kind: "ServiceAccount",
        plural: "serviceaccounts",
        singular: "serviceaccount",
        short_names: &["sa"],
        list_kind: "ServiceAccountList",
        subresources: &[Subresource {
            name: "token",
            group: "authentication.k8s.io",
            version: "v1",
            kind: "TokenRequest",
            verbs: &["create"],
        }],
        ..PLAIN
    },
    KindInfo {
        kind: "Service",
        plural: "services",
        singular: "service",
        short_names: &["svc"],
        status: true,
        list_kind: "ServiceList",
        categories: &["all"],
        ..PLAIN
    },
    KindInfo {
        group: "apiextensions.k8s.io",
        kind: "CustomResourceDefinition",
        plural: "customresourcedefinitions",
        singular: "customresourcedefinition",
        short_names: &["crd", "crds"],
        namespaced: false,
        status: true,
        list_kind: "CustomResourceDefinitionList",
        categories: &["api-extensions"],
        ..PLAIN
    },
    KindInfo {
        kind: "ControllerRevision",
        plural: "controllerrevisions",
        singular: "controllerrevision",
        list_kind: "ControllerRevisionList",
        status: false,
        categories: &[],
        ..APPS
    },
    KindInfo {
        kind: "DaemonSet",
        plural: "daemonsets",
        singular: "daemonset",
        short_names: &["ds"],
        list_kind: "DaemonSetList",
        ..APPS
    },
    KindInfo {
        kind: "Deployment",
        plural: "deployments",
        singular: "deployment",
        short_names: &["deploy"],
        list_kind: "DeploymentList",
        subresources: SCALE,
        ..APPS
    },
    KindInfo {
        kind: "ReplicaSet",
        plural: "replicasets",
        singular: "replicaset",
        short_names: &["rs"],
        list_kind: "ReplicaSetList",
        subresources: SCALE,
        ..APPS
    },
    KindInfo {
        kind: "StatefulSet",
        plural: "statefulsets",
        singular: "statefulset",
        short_names: &["sts"],
        list_kind: "StatefulSetList",
        subresources: SCALE,
        ..APPS
    },
    KindInfo {
        kind: "SelfSubjectReview",
        plural: "selfsubjectreviews",
        singular: "selfsubjectreview",
        list_kind: "SelfSubjectReviewList",
        ..AUTHENTICATION
    },
    KindInfo {
        kind: "TokenReview",
        plural: "tokenreviews",
        singular: "tokenreview",
        list_kind: "TokenReviewList",
        ..AUTHENTICATION
    },
    KindInfo {
        kind: "LocalSubjectAccessReview",
        plural: "localsubjectaccessreviews",
        singular: "localsubjectaccessreview",
        list_kind: "LocalSubjectAccessReviewList",
        namespaced: true,
        ..AUTHORIZATION
    },
    KindInfo {
        kind: "SelfSubjectAccessReview",
        plural: "selfsubjectaccessreviews",
        singular: "selfsubjectaccessreview",
        list_kind: "SelfSubjectAccessReviewList",
        ..AUTHORIZATION
    },
    KindInfo {
        kind: "SelfSubjectRulesReview",
        plural: "selfsubjectrulesreviews",
        singular: "selfsubjectrulesreview",
        list_kind: "SelfSubjectRulesReviewList",
        ..AUTHORIZATION
    },
    KindInfo {
        kind: "SubjectAccessReview",
        plural: "subjectaccessreviews",
        singular: "subjectaccessreview",
        list_kind: "SubjectAccessReviewList",
        ..AUTHORIZATION
    },
    KindInfo {
        kind: "Job",
        plural: "jobs",
        singular: "job",
        list_kind: "JobList",
        group: "batch",
        ..APPS
    },
    KindInfo {
        group: "coordination.k8s.io",
        kind: "Lease",
        plural: "leases",
        singular: "lease",
        list_kind: "LeaseList",
        ..PLAIN
    },
    KindInfo {
        group: "events.k8s.io",
        kind: "Event",
        plural: "events",
        singular: "event",
        short_names: &["ev"],
        list_kind: "EventList",
        ..PLAIN
    },
    KindInfo {
        kind: "ClusterRoleBinding",
        plural: "clusterrolebindings",
        singular: "clusterrolebinding",
        list_kind: "ClusterRoleBindingList",
        namespaced: false,
        ..RBAC
    },
    KindInfo {
        kind: "ClusterRole",
        plural: "clusterroles",
        singular: "clusterrole",
        list_kind: "ClusterRoleList",
        namespaced: false,
        ..RBAC
    },
    KindInfo {
        kind: "RoleBinding",
        plural: "rolebindings",
        singular: "rolebinding",
        list_kind: "RoleBindingList",
        ..RBAC
    },
    KindInfo {
        kind: "Role",
        plural: "roles",
        singular: "role",
        list_kind: "RoleList",
        ..RBAC
    },
    KindInfo {
        group: "scheduling.k8s.io",
        kind: "PriorityClass",
        plural: "priorityclasses",
        singular: "priorityclass",
        short_names: &["pc"],
        namespaced: false,
        list_kind: "PriorityClassList",
        ..PLAIN
    },
    KindInfo {
        kind: "CSIDriver",
        plural: "csidrivers",
        singular: "csidriver",
        list_kind: "CSIDriverList",
        ..STORAGE
    },
    KindInfo {
        kind: "CSINode",
        plural: "csinodes",
        singular: "csinode",
        status: true,
        list_kind: "CSINodeList",
        ..STORAGE
    },
    KindInfo {
        kind: "CSIStorageCapacity",
        plural: "csistoragecapacities",
        singular: "csistoragecapacity",
        namespaced: true,
        list_kind: "CSIStorageCapacityList",
        ..STORAGE
    },
    KindInfo {
        kind: "StorageClass",
        plural: "storageclasses",
        singular: "storageclass",
        short_names: &["sc"],
        list_kind: "StorageClassList",
        ..STORAGE
    },
    KindInfo {
        kind: "VolumeAttachment",
        plural: "volumeattachments",
        singular: "volumeattachment",
        status: true,
        list_kind: "VolumeAttachmentList",
        ..STORAGE
    },
    KindInfo {
        kind: "VolumeAttributesClass",
        plural: "volumeattributesclasses",
        singular: "volumeattributesclass",
        short_names: &["vac"],
        list_kind: "VolumeAttributesClassList",
        ..STORAGE
    },
];
