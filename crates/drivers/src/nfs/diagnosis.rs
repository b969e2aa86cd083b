//! What an error of the kernel's NFS client means, and what to do about it.
//!
//! Pure: from an error number to a failure in words.

use std::io;

use orlop_host::mount::MountError;
use tonic::Code;

use super::export::Export;
use super::failure::Failure;
use super::options::{MountPlan, Transport};

// The numbers of Linux on all machines that we run on.
const EPERM: i32 = 1;
const ENOENT: i32 = 2;
const EIO: i32 = 5;
const EACCES: i32 = 13;
const EBUSY: i32 = 16;
const EXDEV: i32 = 18;
const ENODEV: i32 = 19;
const ENOTDIR: i32 = 20;
const EINVAL: i32 = 22;
const ENOSPC: i32 = 28;
const EROFS: i32 = 30;
const ELOOP: i32 = 40;
const EPROTONOSUPPORT: i32 = 93;
const ENETUNREACH: i32 = 101;
const ETIMEDOUT: i32 = 110;
const ECONNREFUSED: i32 = 111;
const EHOSTDOWN: i32 = 112;
const EHOSTUNREACH: i32 = 113;
const ESTALE: i32 = 116;
const EDQUOT: i32 = 122;
const ENOKEY: i32 = 126;
const EKEYEXPIRED: i32 = 127;
const EKEYREVOKED: i32 = 128;
const EKEYREJECTED: i32 = 129;

/// Whether the server does not speak the version that was tried.
pub(crate) fn is_version(error: &MountError) -> bool {
    matches!(error, MountError::Open { source, .. }
        if matches!(source.raw_os_error(), Some(EPROTONOSUPPORT | EINVAL)))
}

/// A share that could not be reached over the network.
pub(crate) fn unreachable(export: &Export, port: u16, error: &io::Error) -> Failure {
    let Export { server, .. } = export;
    let told = match error.raw_os_error() {
        Some(ECONNREFUSED) => format!(
            "NFS server {server} refuses connections to port {port}: start its NFS service, or set \
             the mount option port"
        ),
        Some(EHOSTUNREACH | ENETUNREACH | EHOSTDOWN) => format!(
            "there is no route to NFS server {server}: check its address and this node's network"
        ),
        Some(ETIMEDOUT) => no_answer(export, port),
        _ if error.kind() == io::ErrorKind::TimedOut => no_answer(export, port),
        _ => format!("NFS server {server} cannot be reached at port {port}: {error}"),
    };
    Failure::new(Code::Unavailable, format!("{told} (share {export})"))
}

fn no_answer(export: &Export, port: u16) -> String {
    format!(
        "NFS server {} does not answer at port {port}: it is down, or a firewall is in between",
        export.server
    )
}

/// A failure of a mount by Kerberos, or without.
fn is_by_kerberos(plan: &MountPlan) -> bool {
    plan.value("sec").is_some_and(|sec| sec.starts_with("krb5"))
}

/// Which of the versions that are left are worth a try. One of another kind is none where the trouble may
/// be Kerberos: what that says of itself would be lost. Where nobody asked for a version, a share that
/// there isn't by version 4 may be there by version 3: its paths begin elsewhere, and there are servers
/// whose version 4 has no shares.
pub(crate) fn worth_trying<'a, 'v>(
    left: &'a [&'v str],
    plan: &MountPlan,
    error: &MountError,
) -> &'a [&'v str] {
    let number = match error {
        MountError::Open { source, .. } => source.raw_os_error(),
        _ => None,
    };
    let other_kind = |left: &'a [&'v str]| match left.split_last() {
        Some((&"3", before)) => &left[before.len()..],
        _ => &[],
    };
    match number {
        Some(EPROTONOSUPPORT) => left,
        Some(EINVAL) if left != ["3"] || !is_by_kerberos(plan) => left,
        Some(ENOENT | EPERM) if plan.version.is_none() && !is_by_kerberos(plan) => other_kind(left),
        _ => &[],
    }
}

/// A share that could not be mounted.
pub(crate) fn mount(
    export: &Export,
    plan: &MountPlan,
    version: &str,
    error: &MountError,
) -> Failure {
    let (number, said) = match error {
        MountError::UnknownType { .. } => (Some(ENODEV), String::new()),
        MountError::Option { option, .. } => {
            let told = format!(
                "this node's kernel refuses the mount option {option}, or its value, for {export}: \
                 mend it in mountOptions, or take it out"
            );
            return Failure::new(Code::InvalidArgument, told);
        }
        MountError::Open { source, said, .. } => (source.raw_os_error(), said.clone()),
        MountError::Place(source) => (source.raw_os_error(), String::new()),
    };
    let said = match said.as_str() {
        "" => String::new(),
        said => format!(" ({said})"),
    };
    let opened = matches!(error, MountError::Open { .. });
    let is_rdma = plan.transport() == Transport::Rdma;
    let (code, told) = match number {
        Some(ENODEV | EINVAL | EPROTONOSUPPORT) if opened && is_rdma => (
            Code::FailedPrecondition,
            "this node has no RDMA for NFS: it needs the kernel's module rpcrdma and a device; or \
             take rdma out of mountOptions"
                .to_owned(),
        ),
        Some(EACCES | EPERM | EINVAL | ENOKEY | EKEYEXPIRED | EKEYREVOKED | EKEYREJECTED)
            if opened && is_by_kerberos(plan) =>
        {
            let told = format!(
                "NFS server {} and this node do not agree on sec={} for {}: Kerberos needs rpc.gssd \
                 and a keytab on this node, the kernel's module rpcsec_gss_krb5, and an export that \
                 allows it",
                export.server,
                plan.value("sec").unwrap_or_default(),
                export.path()
            );
            let code = match number {
                Some(EACCES | EPERM) => Code::PermissionDenied,
                _ => Code::FailedPrecondition,
            };
            (code, told)
        }
        Some(ENODEV) => (
            Code::FailedPrecondition,
            "this node's kernel has no NFS client: load the module nfs".to_owned(),
        ),
        Some(EACCES | EPERM) => (
            Code::PermissionDenied,
            match version {
                // Its servers say the same of what they do not have.
                "3" => format!(
                    "NFS server {} does not let this node mount {}, or has no such share: see \
                     `showmount -e {}`, then mend the share's name or add the node to the export",
                    export.server,
                    export.path(),
                    export.server
                ),
                _ => format!(
                    "NFS server {} does not let this node mount {}: add the node to the export, and \
                     check the option sec",
                    export.server,
                    export.path()
                ),
            },
        ),
        Some(ENOENT | ENOTDIR) => (
            Code::NotFound,
            format!(
                "NFS server {} has no share {} for this node: `showmount -e {}` lists what it exports \
                 and to whom; by version 4 paths begin at its root export",
                export.server,
                export.path(),
                export.server
            ),
        ),
        Some(EPROTONOSUPPORT) => (
            Code::FailedPrecondition,
            format!(
                "NFS server {} does not speak version {version}: set nfsvers in mountOptions to \
                 one that it speaks",
                export.server
            ),
        ),
        Some(EINVAL) => (
            Code::InvalidArgument,
            format!(
                "this node's kernel refuses to mount {export} with these mount options; if there are \
                 none, the share may be a file"
            ),
        ),
        Some(ECONNREFUSED | EHOSTUNREACH | ENETUNREACH | ETIMEDOUT | EIO | EHOSTDOWN) => (
            Code::Unavailable,
            format!(
                "NFS server {} broke off while {export} was mounted",
                export.server
            ),
        ),
        _ => (Code::Internal, format!("could not mount {export}")),
    };
    let source = match error {
        MountError::Open { source, .. } | MountError::Place(source) => format!(": {source}"),
        MountError::UnknownType { .. } | MountError::Option { .. } => String::new(),
    };
    Failure::new(
        code,
        format!("{told}{said} (share {export}, version {version}){source}"),
    )
}

/// Work in a share that failed: `doing` says at what.
pub(crate) fn work(export: &Export, doing: &str, error: &io::Error) -> Failure {
    let (code, advice) = match error.raw_os_error() {
        Some(EACCES) => (
            Code::PermissionDenied,
            "; the server maps root to nobody (root_squash): export the share with no_root_squash, \
             or give its folder to the server's anonymous user",
        ),
        Some(EPERM) => (
            Code::PermissionDenied,
            "; the server forbids it to root as well, as with what is immutable there (chattr +i), or \
             to root alone (root_squash)",
        ),
        Some(EROFS) if export.share.is_empty() => (
            Code::FailedPrecondition,
            "; this is the root that the server has its shares in, and no share: `showmount -e` \
             lists those",
        ),
        Some(EROFS) => (
            Code::FailedPrecondition,
            "; the server exports the share read-only",
        ),
        Some(ENOSPC) => (
            Code::ResourceExhausted,
            "; the share is full, or has no room for more files (`df -i`)",
        ),
        Some(EDQUOT) => (Code::ResourceExhausted, "; the server's quota is used up"),
        Some(ESTALE) => (
            Code::Unavailable,
            "; the server has replaced what was there: the next try looks again",
        ),
        Some(EIO | ETIMEDOUT) => (Code::Unavailable, "; the server does not answer"),
        Some(ELOOP | ENOTDIR) => (
            Code::FailedPrecondition,
            "; a file or a symbolic link stands where a folder should, and is not followed",
        ),
        Some(EXDEV) => (
            Code::FailedPrecondition,
            "; another file system of the server is mounted there, and is not touched",
        ),
        Some(EBUSY) => (
            Code::FailedPrecondition,
            "; it is in use on the server, where something may be mounted on it",
        ),
        _ => (Code::Internal, ""),
    };
    Failure::new(
        code,
        format!("could not {doing} in share {export}: {error}{advice}"),
    )
}

/// A worker that said nothing for too long.
pub(crate) fn silent(export: Option<&Export>, doing: &str, seconds: u64) -> Failure {
    let place = match export {
        Some(export) => format!("NFS server {} (share {export})", export.server),
        None => "the NFS server".to_owned(),
    };
    Failure::new(
        Code::DeadlineExceeded,
        format!(
            "{place} gave no answer for {seconds} s while it was asked to {doing}: check the \
             server and the network; the call can be repeated"
        ),
    )
}

/// A worker that was ended, by us because it got nowhere or by somebody else.
pub(crate) fn ended(export: Option<&Export>, doing: &str, silent: Option<u64>) -> Failure {
    let place = match export {
        Some(export) => format!("NFS server {} (share {export})", export.server),
        None => "the NFS server".to_owned(),
    };
    let why = match silent {
        Some(seconds) => {
            format!("{place} answered nothing for {seconds} s, so the worker was ended")
        }
        None => format!("the worker ended by itself, or was ended by somebody, at work on {place}"),
    };
    Failure::new(
        Code::Unavailable,
        format!("{why} while it was to {doing}; the call can be repeated"),
    )
}

#[cfg(test)]
mod tests {
    use orlop_csi::server::CsiError;

    use super::*;

    fn export() -> Export {
        Export::parse("nfs.example", "/data").unwrap()
    }

    #[test]
    fn what_the_options_need_is_told_and_no_other_version_hides_it() {
        let error = |number| MountError::Open {
            fs_type: "nfs".into(),
            said: String::new(),
            source: io::Error::from_raw_os_error(number),
        };
        for (options, number, told) in [
            ("sec=krb5p", EACCES, "sec=krb5p"),
            ("sec=krb5", EINVAL, "Kerberos"),
            ("sec=krb5i", EKEYEXPIRED, "keytab"),
            ("proto=rdma", ENODEV, "rpcrdma"),
            ("rdma", ENODEV, "rpcrdma"),
            ("hard", ENODEV, "has no NFS client"),
        ] {
            let plan = MountPlan::parse([options]).unwrap();
            let failure = mount(&export(), &plan, "4.2", &error(number));
            assert!(failure.to_string().contains(told), "{failure}");
        }
        let all = ["4.1", "4.0", "3"];
        for (options, left, number, worth) in [
            ("sec=krb5", &all[2..], EINVAL, &[][..]),
            ("sec=krb5", &all, EINVAL, &all),
            ("sec=krb5", &all[2..], EPROTONOSUPPORT, &all[2..]),
            ("sec=krb5", &all, EPERM, &[]),
            ("sec=sys", &all[2..], EINVAL, &all[2..]),
            ("", &all[2..], EINVAL, &all[2..]),
            ("", &all, EACCES, &[]),
            ("", &all, ENOENT, &all[2..]),
            ("", &all, EPERM, &all[2..]),
            ("", &[], ENOENT, &[]),
            ("vers=4", &all[..2], ENOENT, &[]),
        ] {
            let plan = MountPlan::parse([options]).unwrap();
            assert_eq!(
                worth_trying(left, &plan, &error(number)),
                worth,
                "{options} {number}"
            );
        }
    }

    #[test]
    fn what_a_server_forbids_is_told_apart() {
        let root = Export::parse("nfs.example", "/").unwrap();
        for (export, number, told) in [
            (&export(), EPERM, "chattr +i"),
            (&export(), EBUSY, "in use on the server"),
            (&root, EROFS, "no share"),
            (&export(), EROFS, "read-only"),
        ] {
            let failure = work(export, "delete x", &io::Error::from_raw_os_error(number));
            assert!(failure.to_string().contains(told), "{failure}");
        }
    }

    #[test]
    fn every_trouble_names_the_share_and_what_to_do() {
        let error = |number| io::Error::from_raw_os_error(number);
        let plan = MountPlan::default();
        let open = |number| MountError::Open {
            fs_type: "nfs".into(),
            said: String::new(),
            source: error(number),
        };
        for (failure, code, told) in [
            (
                unreachable(&export(), 2049, &error(ECONNREFUSED)),
                Code::Unavailable,
                "start its NFS",
            ),
            (
                unreachable(&export(), 2049, &error(EHOSTUNREACH)),
                Code::Unavailable,
                "no route",
            ),
            (
                unreachable(&export(), 2049, &error(ETIMEDOUT)),
                Code::Unavailable,
                "firewall",
            ),
            (
                mount(&export(), &plan, "4.2", &open(EACCES)),
                Code::PermissionDenied,
                "add the node",
            ),
            (
                mount(&export(), &plan, "4.2", &open(ENOENT)),
                Code::NotFound,
                "has no share /data for this node",
            ),
            (
                mount(&export(), &plan, "3", &open(EACCES)),
                Code::PermissionDenied,
                "or has no such share",
            ),
            (
                mount(&export(), &plan, "3", &open(EPROTONOSUPPORT)),
                Code::FailedPrecondition,
                "version 3",
            ),
            (
                work(&export(), "make x", &error(EACCES)),
                Code::PermissionDenied,
                "root_squash",
            ),
            (
                work(&export(), "make x", &error(EROFS)),
                Code::FailedPrecondition,
                "read-only",
            ),
            (
                work(&export(), "make x", &error(EDQUOT)),
                Code::ResourceExhausted,
                "quota",
            ),
            (
                silent(Some(&export()), "mount", 5),
                Code::DeadlineExceeded,
                "gave no answer for 5 s",
            ),
        ] {
            assert_eq!(failure.code(), code, "{failure}");
            assert!(failure.to_string().contains(told), "{failure}");
            assert!(
                failure.to_string().contains("nfs.example:/data"),
                "{failure}"
            );
        }
    }
}
