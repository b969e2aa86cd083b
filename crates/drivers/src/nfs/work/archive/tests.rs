use std::io::Read;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use orlop_host::folder::EntryKind;
use tar::{EntryType, Header};

use super::super::Pulse;
use super::*;

fn trip(packed: Packed, from: &Path, to: &Path, dir: &Path) {
    let silent = |_| {};
    let pulse = Pulse::new(&silent);
    let file = dir.join(format!("archive{}", packed.ending()));
    let out = File::create(&file).unwrap();
    pack(&Folder::open(from).unwrap(), &out, packed, &pulse).unwrap();
    unpack(
        File::open(&file).unwrap(),
        packed,
        &Folder::open(to).unwrap(),
        &pulse,
    )
    .unwrap();
}

#[test]
fn what_is_packed_comes_out_the_same() {
    for packed in [Packed::Plain, Packed::Gzip] {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        let long = "n".repeat(200);
        std::fs::create_dir_all(from.join(&long).join(&long)).unwrap();
        std::fs::create_dir_all(&to).unwrap();
        std::fs::write(from.join("a"), "hello").unwrap();
        std::fs::write(from.join(&long).join(&long).join("deep"), vec![7; 3 << 20]).unwrap();
        std::fs::set_permissions(from.join("a"), std::fs::Permissions::from_mode(0o4640)).unwrap();
        symlink("../../etc/passwd", from.join("link")).unwrap();
        std::fs::set_permissions(from.join(&long), std::fs::Permissions::from_mode(0o555)).unwrap();
        trip(packed, &from, &to, dir.path());
        assert_eq!(std::fs::read_to_string(to.join("a")).unwrap(), "hello");
        assert_eq!(to.join("a").metadata().unwrap().mode() & 0o7777, 0o4640);
        assert_eq!(
            to.join("a").metadata().unwrap().mtime(),
            from.join("a").metadata().unwrap().mtime()
        );
        let deep = std::fs::read(to.join(&long).join(&long).join("deep")).unwrap();
        assert!(deep.len() == 3 << 20 && deep.iter().all(|byte| *byte == 7));
        assert_eq!(to.join(&long).metadata().unwrap().mode() & 0o777, 0o555);
        assert_eq!(
            std::fs::read_link(to.join("link")).unwrap(),
            Path::new("../../etc/passwd")
        );
        for side in [&from, &to] {
            let open = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(side.join(&long), open).unwrap();
        }
    }
}

#[test]
fn archives_of_the_tar_program_are_read_and_ours_are_read_by_it() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to, back) = (
        dir.path().join("from"),
        dir.path().join("to"),
        dir.path().join("back"),
    );
    for folder in [&from, &to, &back] {
        std::fs::create_dir_all(folder).unwrap();
    }
    std::fs::create_dir(from.join("sub")).unwrap();
    std::fs::write(from.join("sub/x"), "hello").unwrap();
    std::fs::hard_link(from.join("sub/x"), from.join("y")).unwrap();
    let tar = |words: &[&str]| {
        let done = std::process::Command::new("tar")
            .args(words)
            .output()
            .unwrap();
        assert!(done.status.success(), "{done:?}");
    };
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let theirs = dir.path().join("theirs.tar.gz");
    tar(&["-C", &text(&from), "-czf", &text(&theirs), "."]);
    let silent = |_| {};
    let pulse = Pulse::new(&silent);
    let folder = Folder::open(&to).unwrap();
    unpack(File::open(&theirs).unwrap(), Packed::Gzip, &folder, &pulse).unwrap();
    assert_eq!(std::fs::read_to_string(to.join("y")).unwrap(), "hello");
    assert_eq!(std::fs::read_to_string(to.join("sub/x")).unwrap(), "hello");
    let ours = dir.path().join("ours.tar.gz");
    let out = File::create(&ours).unwrap();
    pack(&Folder::open(&from).unwrap(), &out, Packed::Gzip, &pulse).unwrap();
    tar(&["-xzf", &text(&ours), "-C", &text(&back)]);
    assert_eq!(
        std::fs::read_to_string(back.join("sub/x")).unwrap(),
        "hello"
    );
}

#[test]
fn an_archive_that_leads_out_writes_nothing_outside() {
    let dir = tempfile::tempdir().unwrap();
    let canary = dir.path().join("canary");
    std::fs::create_dir(&canary).unwrap();
    // A link out of the folder, then a file through it; and a path with dots.
    for wicked in ["through", "dots"] {
        let to = dir.path().join(wicked);
        std::fs::create_dir(&to).unwrap();
        let mut builder = tar::Builder::new(Vec::new());
        let mut header = Header::new_gnu();
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        match wicked {
            "through" => {
                header.set_entry_type(EntryType::Symlink);
                header.set_size(0);
                builder.append_link(&mut header, "out", &canary).unwrap();
                let mut header = header.clone();
                header.set_entry_type(EntryType::Regular);
                header.set_size(4);
                builder
                    .append_data(&mut header, "out/evil", &b"evil"[..])
                    .unwrap();
            }
            _ => {
                header.set_entry_type(EntryType::Regular);
                header.set_size(4);
                let name = b"../canary/evil";
                header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name);
                header.set_cksum();
                builder.append(&header, &b"evil"[..]).unwrap();
            }
        }
        let file = dir.path().join(format!("{wicked}.tar"));
        std::fs::write(&file, builder.into_inner().unwrap()).unwrap();
        let silent = |_| {};
        let folder = Folder::open(&to).unwrap();
        let outcome = unpack(
            File::open(&file).unwrap(),
            Packed::Plain,
            &folder,
            &Pulse::new(&silent),
        );
        assert!(outcome.is_err(), "{wicked}");
        assert!(
            std::fs::read_dir(&canary).unwrap().next().is_none(),
            "{wicked}"
        );
    }
}

fn plain(kind: EntryType, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(0o640);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(7);
    header.set_size(size);
    header.set_cksum();
    header
}

/// What comes of an archive with these bytes.
fn outcome_of(bytes: &[u8], packed: Packed, to: &Path) -> io::Result<()> {
    let file = to.with_extension("archive");
    std::fs::write(&file, bytes).unwrap();
    std::fs::create_dir_all(to).unwrap();
    let silent = |_| {};
    unpack(
        File::open(&file).unwrap(),
        packed,
        &Folder::open(to).unwrap(),
        &Pulse::new(&silent),
    )
}

#[test]
fn links_pipes_times_and_second_names_come_out_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    std::fs::create_dir_all(from.join("sub")).unwrap();
    std::fs::create_dir_all(&to).unwrap();
    let long = format!("http://h//{}/", "x/".repeat(300));
    let links = ["a//b", "http://h/x", "./a/../b/", "/", long.as_str()];
    for (number, target) in links.into_iter().enumerate() {
        symlink(target, from.join(format!("link-{number}"))).unwrap();
    }
    let held = Folder::open(&from).unwrap();
    std::fs::write(from.join("a"), "hello").unwrap();
    std::fs::hard_link(from.join("a"), from.join("sub/b")).unwrap();
    held.make_pipe("pipe", 0o600).unwrap();
    std::fs::set_permissions(from.join("pipe"), std::fs::Permissions::from_mode(0o1626)).unwrap();
    held.set_modified("a", (-86_400, 250_000_000)).unwrap();
    held.set_modified("pipe", (1_600_000_000, 123_456_789))
        .unwrap();
    held.set_modified("link-0", (-3, 0)).unwrap();
    held.set_modified("sub", (12, 5)).unwrap();
    trip(Packed::Gzip, &from, &to, dir.path());
    for (number, target) in links.into_iter().enumerate() {
        let link = std::fs::read_link(to.join(format!("link-{number}"))).unwrap();
        assert_eq!(link.as_os_str(), target);
    }
    let out = Folder::open(&to).unwrap();
    for name in ["a", "pipe", "link-0", "sub"] {
        let (before, after) = (held.look(name).unwrap(), out.look(name).unwrap());
        let (before, after) = (before.unwrap(), after.unwrap());
        assert_eq!(before.modified, after.modified, "{name}");
        assert_eq!(before.mode, after.mode, "{name}");
        assert_eq!(before.kind, after.kind, "{name}");
    }
    let inode = |path: &str| to.join(path).metadata().unwrap().ino();
    assert_eq!(inode("a"), inode("sub/b"));
    assert_eq!(out.look("pipe").unwrap().unwrap().kind, EntryKind::Pipe);
}

#[test]
fn a_second_name_has_its_bytes_for_who_knows_nothing_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("from");
    std::fs::create_dir(&from).unwrap();
    std::fs::write(from.join("a"), "hello").unwrap();
    std::fs::hard_link(from.join("a"), from.join("b")).unwrap();
    let archive = dir.path().join("archive.tar");
    let silent = |_| {};
    pack(
        &Folder::open(&from).unwrap(),
        &File::create(&archive).unwrap(),
        Packed::Plain,
        &Pulse::new(&silent),
    )
    .unwrap();
    let mut archive = tar::Archive::new(File::open(&archive).unwrap());
    let mut seen = 0;
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        if entry.header().entry_type() == EntryType::Regular {
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            assert_eq!(text, "hello");
            seen += 1;
        }
    }
    assert_eq!(seen, 2);
}

#[test]
fn a_later_entry_of_a_name_counts_whatever_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let mut builder = tar::Builder::new(Vec::new());
    for (name, text) in [("x", "one"), ("y", "two"), ("z", "own")] {
        let mut header = plain(EntryType::Regular, 3);
        builder
            .append_data(&mut header, name, text.as_bytes())
            .unwrap();
    }
    let mut header = plain(EntryType::Fifo, 0);
    builder.append_data(&mut header, "x", io::empty()).unwrap();
    for (name, first) in [("z", "y"), ("y", "y")] {
        let mut header = plain(EntryType::Link, 0);
        builder.append_link(&mut header, name, first).unwrap();
    }
    let to = dir.path().join("to");
    outcome_of(&builder.into_inner().unwrap(), Packed::Plain, &to).unwrap();
    let pipe = std::fs::symlink_metadata(to.join("x")).unwrap();
    assert!(pipe.file_type().is_fifo());
    assert_eq!((pipe.mode() & 0o7777, pipe.mtime()), (0o640, 7));
    assert_eq!(std::fs::read_to_string(to.join("z")).unwrap(), "two");
    assert_eq!(std::fs::read_to_string(to.join("y")).unwrap(), "two");
}

#[test]
fn an_archive_without_its_end_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut builder = tar::Builder::new(Vec::new());
    for name in ["a", "b"] {
        let mut header = plain(EntryType::Regular, 3);
        builder.append_data(&mut header, name, &b"abc"[..]).unwrap();
    }
    let whole = builder.into_inner().unwrap();
    let gzip = |bytes: &[u8]| {
        let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        io::Write::write_all(&mut out, bytes).unwrap();
        out.finish().unwrap()
    };
    for (packed, whole_one, short) in [
        (Packed::Plain, whole.clone(), whole[..1024].to_vec()),
        (Packed::Plain, whole.clone(), Vec::new()),
        (Packed::Gzip, gzip(&whole), gzip(&whole[..2048])),
        (Packed::Gzip, gzip(&whole), gzip(&[])),
        // Its last bytes are the checksum, and how much there is.
        (Packed::Gzip, gzip(&whole), {
            let mut short = gzip(&whole);
            short.truncate(short.len() - 8);
            short
        }),
        (Packed::Gzip, gzip(&whole), {
            let mut other = gzip(&whole);
            let at = other.len() - 8;
            other[at] ^= 1;
            other
        }),
    ] {
        let (to, other) = (dir.path().join("to"), dir.path().join("other"));
        outcome_of(&whole_one, packed, &to).unwrap();
        outcome_of(&short, packed, &other).unwrap_err();
    }
}

#[test]
fn a_path_that_is_longer_than_any_takes_no_memory() {
    let dir = tempfile::tempdir().unwrap();
    for kind in [
        EntryType::GNULongName,
        EntryType::GNULongLink,
        EntryType::XHeader,
        EntryType::XGlobalHeader,
    ] {
        // A gigabyte that is never there: whoever begins to read it fails at its end, not before.
        let mut bytes = plain(kind, 1 << 30).as_bytes().to_vec();
        bytes.resize(4 << 20, b'n');
        let refused = outcome_of(&bytes, Packed::Plain, &dir.path().join("to")).unwrap_err();
        if kind != EntryType::XGlobalHeader {
            assert!(refused.to_string().contains("longer"), "{kind:?} {refused}");
        }
    }
}

#[test]
fn long_names_and_exact_times_are_read_by_the_tar_program() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    std::fs::create_dir_all(from.join("n".repeat(150))).unwrap();
    std::fs::create_dir_all(&to).unwrap();
    std::fs::write(from.join("n".repeat(150)).join("file"), "x").unwrap();
    let long = "t/".repeat(200);
    symlink(&long, from.join("link")).unwrap();
    let held = Folder::open(&from).unwrap();
    held.set_modified("link", (-4, 500_000_000)).unwrap();
    // By a program that knows GNU's and PAX' extensions, both at one entry.
    let ours = dir.path().join("ours.tar");
    let silent = |_| {};
    let out = File::create(&ours).unwrap();
    pack(&held, &out, Packed::Plain, &Pulse::new(&silent)).unwrap();
    let read = std::process::Command::new("tar")
        .arg("-xf")
        .arg(&ours)
        .arg("-C")
        .arg(&to)
        .output()
        .unwrap();
    assert!(read.status.success(), "{read:?}");
    let link = std::fs::read_link(to.join("link")).unwrap();
    assert_eq!(link.as_os_str(), long.as_str());
    let looks = std::fs::symlink_metadata(to.join("link")).unwrap();
    assert_eq!((looks.mtime(), looks.mtime_nsec()), (-4, 500_000_000));
    assert_eq!(
        std::fs::read_to_string(to.join("n".repeat(150)).join("file")).unwrap(),
        "x"
    );
}
