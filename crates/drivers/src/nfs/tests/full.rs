use orlop_host::mount::{self, FsOption, NewMount};
use orlop_host::{Folder, Restrictions};

use super::publishing::{Target, is_root};
use super::*;

/// A share with so many files and folders, and no more.
fn limited(ground: &Ground, files: u32) -> Target {
    small(&ground.share(), files);
    Target(ground.share())
}

fn small(at: &Path, files: u32) {
    let options = [FsOption {
        key: "nr_inodes".to_owned(),
        value: Some(files.to_string()),
    }];
    let new = NewMount {
        fs_type: "tmpfs",
        source: Path::new("share"),
        restrictions: Restrictions::default(),
        options: &options,
    };
    mount::mount(&new, Folder::open(at).unwrap()).unwrap();
}

fn fill(folder: &Path) {
    let mut number = 0;
    while fs::write(folder.join(number.to_string()), "").is_ok() {
        number += 1;
    }
}

#[tokio::test]
async fn a_full_share_is_emptied_though_it_has_no_room_for_a_trash() {
    if !is_root() {
        return;
    }
    for (policy, deep) in [("", 1), ("", 200), ("archive", 1)] {
        let ground = Ground::new();
        let share = limited(&ground, 400);
        let root = Folder::open(&ground.share()).unwrap();
        let mut at = root.make("pvc-1", 0o755).unwrap();
        for _ in 0..deep {
            at = at.make("d", 0o755).unwrap();
        }
        drop((root, at));
        fill(&ground.share().join("pvc-1"));
        let id = format!("nfs.example#share#pvc-1##{policy}");
        for _ in 0..2 {
            ground.delete(&id).await.unwrap();
            let left = match policy {
                "" => vec![],
                _ => vec!["archived-pvc-1"],
            };
            assert_eq!(names(&ground.share()), left);
        }
        drop(share);
    }
}

#[tokio::test]
async fn a_folder_leaves_its_name_before_its_files_also_where_there_is_no_room_for_a_trash() {
    if !is_root() {
        return;
    }
    let ground = Ground::new();
    let share = limited(&ground, 40);
    let root = Folder::open(&ground.share()).unwrap();
    root.make("deep/er/stuck", 0o755).unwrap();
    fill(&ground.share().join("deep/er"));
    // Another file system cannot be removed, so that this comes to no end.
    small(&ground.share().join("deep/er/stuck"), 2);
    let id = "nfs.example#share#deep/er#pvc-1#";
    ground.delete(id).await.unwrap_err();
    let left = names(&ground.share().join("deep"));
    assert!(left.len() == 1 && left[0].starts_with('.'), "{left:?}");
    drop(Target(
        ground.share().join("deep").join(&left[0]).join("stuck"),
    ));
    for _ in 0..2 {
        ground.delete(id).await.unwrap();
        assert_eq!(names(&ground.share()), Vec::<String>::new());
    }
    drop((root, share));
}

#[tokio::test]
async fn a_snapshot_of_a_full_share_is_deleted() {
    if !is_root() {
        return;
    }
    let ground = Ground::new();
    let _share = limited(&ground, 40);
    fs::create_dir(ground.share().join("s")).unwrap();
    fs::write(ground.share().join("s/pvc-1.tar"), "x").unwrap();
    fs::create_dir(ground.share().join("other")).unwrap();
    fill(&ground.share().join("other"));
    ground.discard("nfs.example#share#s#s#pvc-1").await.unwrap();
    assert_eq!(names(&ground.share()), ["other"]);
}

#[tokio::test]
async fn a_clone_that_was_short_of_room_at_any_step_is_made_when_there_is_some() {
    if !is_root() {
        return;
    }
    let mut refused = 0;
    for room in 0..24 {
        let ground = Ground::new();
        let _share = limited(&ground, 200);
        let source = ground.create("pvc-1", &[]).await.unwrap().volume_id;
        for file in ["a", "b"] {
            fs::write(ground.share().join("pvc-1").join(file), "x").unwrap();
        }
        let other = ground.share().join("other");
        fs::create_dir(&other).unwrap();
        fill(&other);
        for file in 0..room {
            fs::remove_file(other.join(file.to_string())).unwrap();
        }
        let copied = || {
            let content = Source::Volume(VolumeSource {
                volume_id: source.clone(),
            });
            ground.create_from("pvc-2", &[("subDir", "deep/er")], Some(content))
        };
        if let Err(full) = copied().await {
            assert_eq!(full.code(), Code::ResourceExhausted, "{room}: {full}");
            refused += 1;
        }
        fs::remove_dir_all(&other).unwrap();
        for _ in 0..2 {
            copied().await.unwrap();
            assert_eq!(names(&ground.share().join("deep/er")), ["a", "b"], "{room}");
        }
    }
    assert!((5..24).contains(&refused), "{refused}");
}
