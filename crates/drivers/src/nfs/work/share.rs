//! A share, mounted where nobody else sees it.
//!
//! By the kernel's mount API, not by mount.nfs: the error number says what is wrong, the mount is
//! made where a descriptor says, and an image of the driver needs no other program. What mount.nfs
//! does besides is done here: the name is resolved, and the version agreed upon.

use std::cell::RefCell;
use std::ffi::OsString;
use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::path::Path;
use std::time::Duration;

use orlop_host::mount::{self, FsOption, NewMount};
use orlop_host::mount_space::{self, MountSpace};
use orlop_host::{Folder, Restrictions};
use tonic::Code;

use super::{Pulse, statd};
use crate::nfs::diagnosis;
use crate::nfs::export::Export;
use crate::nfs::failure::Failure;
use crate::nfs::options::{MountPlan, Transport};
use crate::nfs::order::{Mounting, Order, Work};

/// How long a server may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(8);
const PORT: u16 = 2049;

/// The same for one that has just answered at another port.
const NEAR: Duration = Duration::from_secs(2);

/// The share that a worker has mounted, from one order to the next.
#[derive(Default)]
pub(in crate::nfs) struct Kept(RefCell<Option<Mounted>>);

struct Mounted {
    on: Mounting,
    address: SocketAddr,
    root: Folder,
}

impl Kept {
    pub(super) fn is_empty(&self) -> bool {
        self.0.borrow().is_none()
    }

    pub(super) fn forget(&self) {
        self.0.take();
    }
}

/// Where the work happens.
pub(super) struct Ground<'a> {
    order: &'a Order,
    kept: &'a Kept,
    pub(super) pulse: &'a Pulse<'a>,
    /// The mounts of the node, if we have left them.
    home: Option<MountSpace>,
    /// What is still to be deleted when the caller has its answer.
    pub(super) left: RefCell<Left>,
}

/// What is in the trash and has to go.
#[derive(Default)]
pub(super) enum Left {
    #[default]
    Nothing,
    These(Vec<OsString>),
    All,
}

/// A share that can be worked on.
pub(super) struct Share {
    pub(super) export: Export,
    /// Held, and not open: we may not be allowed to read it.
    pub(super) root: Folder,
}

impl Share {
    /// Says at what the work failed.
    pub(super) fn failed(&self, doing: &str) -> impl Fn(io::Error) -> Failure + use<> {
        let (export, doing) = (self.export.clone(), doing.to_owned());
        move |error| diagnosis::work(&export, &doing, &error)
    }
}

impl<'a> Ground<'a> {
    /// Leaves the node's mounts, for work that mounts.
    pub(super) fn new(
        order: &'a Order,
        kept: &'a Kept,
        pulse: &'a Pulse<'a>,
    ) -> Result<Self, Failure> {
        let on_the_node = matches!(order.work, Work::Unpublish { .. } | Work::Stats { .. });
        let left = !kept.is_empty();
        let home = match on_the_node || left || order.stand_in.is_some() {
            true => None,
            false => Some(leave().map_err(|error| {
                let told = format!("a worker could not have mounts of its own: {error}");
                Failure::new(Code::Internal, told)
            })?),
        };
        Ok(Self {
            order,
            kept,
            pulse,
            home,
            left: RefCell::default(),
        })
    }

    /// Where the server is of the share that is kept.
    pub(super) fn address(&self, on: &Mounting) -> Option<SocketAddr> {
        let kept = self.kept.0.borrow();
        let mounted = kept.as_ref().filter(|mounted| mounted.on == *on);
        mounted.map(|mounted| mounted.address)
    }

    /// Lets go of the share, so that the next order is not this worker's.
    pub(super) fn let_go(&self) {
        self.kept.forget();
    }

    /// What an order has to delete that threw these away.
    pub(super) fn to_delete(&self, thrown: Vec<OsString>) -> Left {
        match (self.order.sweep, thrown.is_empty()) {
            (true, _) => Left::All,
            (false, true) => Left::Nothing,
            (false, false) => Left::These(thrown),
        }
    }

    /// Goes back to the node's mounts; what was mounted meanwhile stays reachable by descriptor.
    pub(super) fn go_home(&self) -> io::Result<()> {
        self.home.as_ref().map_or(Ok(()), MountSpace::enter)
    }

    /// Mounts a share.
    pub(super) fn open(&self, on: &Mounting) -> Result<Share, Failure> {
        let root = match &self.order.stand_in {
            None => match self.kept(on)? {
                Some(root) => root,
                None => self.mount(on)?,
            },
            Some(folder) => {
                let path = folder.join(&on.export.server).join(&on.export.share);
                Folder::hold(&path).map_err(|error| diagnosis::work(&on.export, "look", &error))?
            }
        };
        self.pulse.reached();
        Ok(Share {
            export: on.export.clone(),
            root,
        })
    }

    /// What is mounted already, if the server is still there: the kernel's client would wait for it
    /// longer than anybody here, and could not say why.
    fn kept(&self, on: &Mounting) -> Result<Option<Folder>, Failure> {
        let kept = self.kept.0.borrow();
        let Some(mounted) = kept.as_ref().filter(|mounted| mounted.on == *on) else {
            return Ok(None);
        };
        self.greet(on, mounted.address)?;
        let root = mounted.root.again();
        root.map(Some)
            .map_err(|error| diagnosis::work(&on.export, "look", &error))
    }

    fn mount(&self, on: &Mounting) -> Result<Folder, Failure> {
        let Mounting { export, plan } = on;
        self.pulse.doing("be found by its name");
        let port = plan.value("port").and_then(|port| port.parse().ok());
        let port: u16 = port.unwrap_or(PORT);
        let addresses = (export.server.as_str(), port).to_socket_addrs();
        let addresses: Vec<SocketAddr> = match addresses {
            Ok(addresses) => addresses.collect(),
            Err(error) => {
                let told = format!(
                    "the name of NFS server {} is not known here: {error}; check server, and this \
                     node's DNS (share {export})",
                    export.server
                );
                return Err(Failure::new(Code::Unavailable, told));
            }
        };
        let mut failure = Failure::new(
            Code::Unavailable,
            format!(
                "the name of NFS server {} has no address (share {export})",
                export.server
            ),
        );
        for address in addresses {
            match self.mount_from(on, address) {
                Ok(root) => {
                    self.keep(on, address, &root);
                    return Ok(root);
                }
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    fn keep(&self, on: &Mounting, address: SocketAddr, root: &Folder) {
        if self.order.work.only() != Some(on) {
            return;
        }
        if let Ok(root) = root.again() {
            let on = on.clone();
            *self.kept.0.borrow_mut() = Some(Mounted { on, address, root });
        }
    }

    /// Sees whether the server accepts connections: the kernel's client would try for minutes.
    fn greet(&self, on: &Mounting, address: SocketAddr) -> Result<(), Failure> {
        if on.plan.transport() != Transport::Tcp {
            return Ok(());
        }
        self.pulse
            .doing(format!("accept a connection from this node at {address}"));
        TcpStream::connect_timeout(&address, CONNECT)
            .map(drop)
            .map_err(|error| diagnosis::unreachable(&on.export, address.port(), &error))
    }

    fn mount_from(&self, on: &Mounting, address: SocketAddr) -> Result<Folder, Failure> {
        let Mounting { export, plan } = on;
        self.greet(on, address)?;
        let versions = plan.versions();
        let (mut left, mut first) = (&versions[..], None);
        while let [version, rest @ ..] = left {
            self.pulse
                .doing(format!("mount {} by version {version}", export.path()));
            let text = |key: &str, value: String| FsOption {
                key: key.to_owned(),
                value: Some(value),
            };
            let mut options = vec![
                text("addr", address.ip().to_string()),
                text("vers", (*version).to_owned()),
            ];
            options.extend(plan.options());
            let source = export.source();
            let new = NewMount {
                fs_type: "nfs",
                source: Path::new(&source),
                restrictions: restrictions(&self.order.work),
                options: &options,
            };
            let place = |error: io::Error| {
                let folder = self.order.working_dir.display();
                let told = format!("the working folder {folder} cannot be used: {error}");
                Failure::new(Code::Internal, told)
            };
            let point = Folder::open(&self.order.working_dir).map_err(place)?;
            let Err(error) = mount::mount(&new, &point) else {
                let root = Folder::hold(&self.order.working_dir);
                return root.map_err(|error| diagnosis::work(export, "look", &error));
            };
            let failure = first.unwrap_or_else(|| diagnosis::mount(export, plan, version, &error));
            left = diagnosis::worth_trying(rest, plan, &error);
            let is_version = diagnosis::is_version(&error);
            if left.is_empty() || !(is_version || is_told_of_the_rest(plan, address)) {
                return Err(failure);
            }
            // What is tried besides only says that it is none.
            first = (!is_version).then_some(failure);
        }
        Err(Failure::new(Code::Internal, "there is no version to try"))
    }
}

/// Whether a server tells what version 3 needs to know besides. Where a firewall is before that, the
/// kernel's client would wait for minutes.
fn is_told_of_the_rest(plan: &MountPlan, address: SocketAddr) -> bool {
    let rpcbind = SocketAddr::new(address.ip(), statd::RPCBIND.port());
    plan.value("mountport").is_some() || TcpStream::connect_timeout(&rpcbind, NEAR).is_ok()
}

/// What a worker's own mount is kept from. A pod's is made of the worker's, and has what its volume's
/// options say; nobody else has any use for devices of the node, or programs, that lie in a share.
fn restrictions(work: &Work) -> Restrictions {
    let own = !matches!(work, Work::Publish(_));
    Restrictions {
        no_dev: own,
        no_suid: own,
        no_exec: own,
        ..Restrictions::default()
    }
}

fn leave() -> io::Result<MountSpace> {
    let home = MountSpace::current()?;
    mount_space::leave()?;
    Ok(home)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nfs::order::Publish;

    #[test]
    fn a_workers_own_mount_has_no_devices_and_a_pods_is_not_restricted_by_it() {
        let on = Mounting {
            export: Export::parse("nfs.example", "/share").unwrap(),
            plan: MountPlan::parse([""; 0]).unwrap(),
        };
        let own = restrictions(&Work::Measure { on: on.clone() });
        assert!(own.no_dev && own.no_suid && own.no_exec && !own.read_only);
        let publish = Publish {
            on,
            folder: None,
            permissions: None,
            reach: None,
            target: "/".into(),
            there: None,
        };
        assert_eq!(
            restrictions(&Work::Publish(publish)),
            Restrictions::default()
        );
    }
}
