//! Parts of volumes as mounts of their own, for container runtimes that take paths: resolved by
//! descriptor and bound where nobody but the node can exchange them, in the kubelet's layout.
//!
//! ```text
//! <pods>/<pod>/volume-subpaths/<volume>/<container>/<index>
//! ```

use std::io;
use std::path::{Path, PathBuf};

use orlop_host::mount::Depth;
use orlop_host::{Place, Restrictions, Root};

use crate::checkpoint::{gone, make_folder};
use crate::layout::{Layout, PodUid};

/// Which part of which volume, and for whom.
pub(crate) struct Part<'a> {
    pub(crate) pod: &'a PodUid,
    pub(crate) volume: &'a str,
    pub(crate) container: &'a str,
    pub(crate) index: usize,
    /// Where the volume is.
    pub(crate) source: &'a Path,
    pub(crate) part: &'a Path,
}

/// Binds a part of a volume, made as a folder if it is missing, and tells where. What an earlier
/// attempt bound there may be something else by now, and is taken away first.
pub(crate) fn bind(layout: &Layout, part: &Part<'_>) -> io::Result<PathBuf> {
    for name in [part.volume, part.container] {
        if !Layout::is_safe(name) {
            return Err(io::Error::other(format!(
                "{name:?} can't be a folder's name"
            )));
        }
    }
    let held = Root::open(part.source)?.part(part.part)?;
    let folder = layout
        .subpaths(part.pod)
        .join(part.volume)
        .join(part.container);
    make_folder(&folder)?;
    let target = folder.join(part.index.to_string());
    let place = Place::at(&target)?;
    orlop_host::mount::unmount(&place)?;
    // It may be a folder now and have been a file, or the reverse.
    place.remove()?;
    if orlop_host::place::is_directory(&held)? {
        place.make_directory(0o750)?;
    } else {
        place.make_file(0o640)?;
    }
    orlop_host::mount::bind(held, place.open()?, Depth::One, Restrictions::default())?;
    Ok(target)
}

/// Takes all of a pod's away. Only mount points and empty folders go: what lies behind a mount
/// that stays is never touched.
pub(crate) fn clear(layout: &Layout, pod: &PodUid) -> io::Result<()> {
    let top = layout.subpaths(pod);
    for (_, volume) in Layout::entries(&top) {
        for (_, container) in Layout::entries(&volume) {
            for (_, target) in Layout::entries(&container) {
                let place = Place::at(&target)?;
                orlop_host::mount::unmount(&place)?;
                place.remove()?;
            }
            gone(std::fs::remove_dir(&container))?;
        }
        gone(std::fs::remove_dir(&volume))?;
    }
    gone(std::fs::remove_dir(&top))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    struct World {
        root: tempfile::TempDir,
        layout: Layout,
        pod: PodUid,
    }

    impl World {
        /// `None`, with the reason printed, where nothing can be mounted.
        fn new() -> Option<Self> {
            if !rustix::process::geteuid().is_root() {
                eprintln!("skipped: mounts need root");
                return None;
            }
            let root = tempfile::tempdir().expect("a folder");
            std::fs::create_dir_all(root.path().join("volume")).expect("a folder");
            std::fs::create_dir_all(root.path().join("canary")).expect("a folder");
            std::fs::write(root.path().join("canary/alive"), "yes").expect("a file");
            Some(Self {
                layout: Layout::new(root.path().join("node")),
                pod: PodUid::new("u-1").expect("a uid"),
                root,
            })
        }

        fn bind(&self, part: &str) -> io::Result<PathBuf> {
            let part = Part {
                pod: &self.pod,
                volume: "data",
                container: "main",
                index: 0,
                source: &self.root.path().join("volume"),
                part: Path::new(part),
            };
            bind(&self.layout, &part)
        }

        fn volume(&self, path: &str) -> PathBuf {
            self.root.path().join("volume").join(path)
        }

        fn canary(&self) -> Vec<PathBuf> {
            let canary = self.root.path().join("canary");
            let mut found: Vec<_> = Layout::entries(&canary)
                .into_iter()
                .map(|(_, p)| p)
                .collect();
            found.push(canary);
            found
        }
    }

    impl Drop for World {
        fn drop(&mut self) {
            let _ = clear(&self.layout, &self.pod);
        }
    }

    #[test]
    fn a_hostile_volume_leads_nowhere() {
        let Some(world) = World::new() else { return };
        let canary = world.canary();
        symlink(world.root.path().join("canary"), world.volume("absolute")).expect("a link");
        symlink("../canary", world.volume("climbs")).expect("a link");
        std::fs::create_dir(world.volume("dir")).expect("a folder");
        symlink("/", world.volume("dir/root")).expect("a link");
        symlink("loop", world.volume("loop")).expect("a link");
        for part in [
            "absolute",
            "absolute/new",
            "climbs",
            "climbs/new/deep",
            "dir/root/etc",
            "loop",
            "..",
            "dir/../../canary",
            "/etc",
        ] {
            let bound = world.bind(part);
            assert!(bound.is_err(), "{part}: {bound:?}");
        }
        assert_eq!(world.canary(), canary, "nothing was made there");
    }

    #[test]
    fn links_that_stay_in_the_volume_are_followed() {
        let Some(world) = World::new() else { return };
        std::fs::create_dir(world.volume("..2026")).expect("a folder");
        std::fs::write(world.volume("..2026/key"), "x").expect("a file");
        symlink("..2026", world.volume("..data")).expect("a link");
        symlink("..data/key", world.volume("key")).expect("a link");
        let bound = world.bind("key").expect("bound");
        assert_eq!(std::fs::read_to_string(bound).expect("the file"), "x");
    }

    #[test]
    fn folders_that_are_exchanged_meanwhile_gain_nothing() {
        let Some(world) = World::new() else { return };
        let canary = world.canary();
        let (real, link) = (world.volume("real"), world.volume("link"));
        std::fs::create_dir(&real).expect("a folder");
        symlink(world.root.path().join("canary"), &link).expect("a link");
        let part = world.volume("part");
        // As many exchanges as it took to win against the original (CVE-2021-25741).
        const EXCHANGES: usize = 100_000;
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..EXCHANGES / 4 {
                    let _ = std::fs::rename(&real, &part);
                    let _ = std::fs::rename(&part, &real);
                    let _ = std::fs::rename(&link, &part);
                    let _ = std::fs::rename(&part, &link);
                }
                stop.store(true, std::sync::atomic::Ordering::Relaxed);
            });
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                if let Ok(bound) = world.bind("part") {
                    assert!(!bound.join("alive").exists(), "the canary was reached");
                }
                if let Ok(bound) = world.bind("part/new") {
                    assert!(!bound.join("../alive").exists(), "the canary was reached");
                }
            }
        });
        assert_eq!(world.canary(), canary, "nothing was made there");
    }

    #[test]
    fn a_fifo_is_bound_without_being_opened() {
        let Some(world) = World::new() else { return };
        let fifo = world.volume("fifo");
        let made = std::process::Command::new("/usr/bin/mkfifo")
            .arg(&fifo)
            .status();
        assert!(made.expect("mkfifo").success());
        world
            .bind("fifo")
            .expect("bound, and nobody waits for a writer");
    }

    #[test]
    fn clearing_never_reaches_behind_a_mount() {
        let Some(world) = World::new() else { return };
        std::fs::create_dir(world.volume("part")).expect("a folder");
        std::fs::write(world.volume("part/kept"), "x").expect("a file");
        let bound = world.bind("part").expect("bound");
        assert!(bound.join("kept").exists());
        // Somebody works in it, so that it can't be unmounted.
        let busy = std::fs::File::open(bound.join("kept")).expect("a file");
        assert!(clear(&world.layout, &world.pod).is_err());
        assert!(world.volume("part/kept").exists());
        drop(busy);
        clear(&world.layout, &world.pod).expect("cleared");
        assert!(world.volume("part/kept").exists());
        assert!(!world.layout.subpaths(&world.pod).exists());
        clear(&world.layout, &world.pod).expect("nothing to clear is fine");
    }
}
