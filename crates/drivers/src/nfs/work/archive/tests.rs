use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

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
