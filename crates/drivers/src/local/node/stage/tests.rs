use std::collections::BTreeMap;

use orlop_csi::server::CsiError;
use tonic::Code;

use super::*;
use crate::local::tests::home;
use crate::local::volume::VolumeRecord;

fn volume(content: Content, capacity_bytes: u64) -> Volume {
    let record = VolumeRecord {
        content,
        ..VolumeRecord::blank("a", 1, capacity_bytes)
    };
    Volume {
        home: home("n"),
        record,
    }
}

const EXT4: Access = Access::Mount(FsKind::Ext4);
const XFS: Access = Access::Mount(FsKind::Xfs);
const SOUND_EXT4: Signature = Signature::Known {
    kind: FsKind::Ext4,
    damaged: false,
};
const DAMAGED_EXT4: Signature = Signature::Known {
    kind: FsKind::Ext4,
    damaged: true,
};

#[test]
fn the_record_decides_what_happens_to_the_image() {
    use Preparation::*;
    let has_ext4 = Content::FileSystem(FsKind::Ext4);
    let cases = [
        (
            EXT4,
            Content::Blank,
            Signature::Hole,
            Ok(Format(FsKind::Ext4)),
        ),
        // Whatever a mkfs that was cut short left there.
        (EXT4, Content::Blank, SOUND_EXT4, Ok(Format(FsKind::Ext4))),
        (
            EXT4,
            Content::Blank,
            Signature::Other,
            Ok(Format(FsKind::Ext4)),
        ),
        (XFS, Content::Blank, SOUND_EXT4, Ok(Format(FsKind::Xfs))),
        (EXT4, has_ext4, SOUND_EXT4, Ok(Nothing)),
        (EXT4, has_ext4, DAMAGED_EXT4, Ok(Repair(FsKind::Ext4))),
        (EXT4, has_ext4, Signature::Hole, Err(Code::DataLoss)),
        (EXT4, has_ext4, Signature::Other, Err(Code::DataLoss)),
        (XFS, has_ext4, SOUND_EXT4, Err(Code::FailedPrecondition)),
        (
            Access::Block,
            has_ext4,
            SOUND_EXT4,
            Err(Code::FailedPrecondition),
        ),
        (Access::Block, Content::Blank, Signature::Hole, Ok(MarkRaw)),
        (Access::Block, Content::Raw, Signature::Other, Ok(Nothing)),
        (
            EXT4,
            Content::Raw,
            Signature::Hole,
            Ok(Format(FsKind::Ext4)),
        ),
        (EXT4, Content::Raw, SOUND_EXT4, Ok(Nothing)),
        (
            EXT4,
            Content::Raw,
            Signature::Other,
            Err(Code::FailedPrecondition),
        ),
        (XFS, Content::Raw, SOUND_EXT4, Err(Code::FailedPrecondition)),
    ];
    for (access, content, signature, expected) in cases {
        let planned = plan_image(&volume(content, 1 << 30), access, signature);
        let planned = planned.map_err(|error| error.code());
        assert_eq!(planned, expected, "{access:?} {content:?} {signature:?}");
    }
}

#[test]
fn a_volume_too_small_for_the_file_system_is_not_formatted() {
    let planned = plan_image(&volume(Content::Blank, 64 << 20), XFS, Signature::Hole);
    assert!(matches!(planned, Err(StageError::TooSmall { .. })));
}

fn staged(path: &str, read_only: bool) -> Staged {
    let capability = Capability {
        access: EXT4,
        mode: Mode::SingleNodeWriter,
    };
    Staged {
        path: path.into(),
        publication: Publication {
            capability,
            read_only,
        },
    }
}

#[test]
fn staging_is_done_once_and_in_one_place() {
    use orlop_host::place::Kind;
    let directory = Shown::Plain(Kind::Directory);
    let recorded = |staged| NodeRecord {
        boot: serde_json::from_str("\"boot\"").unwrap(),
        staged,
        targets: BTreeMap::new(),
    };
    // What was recorded, what /s shows, what /other shows, and what follows for /s.
    let cases = [
        (None, directory, directory, Ok(Staging::Do)),
        (None, Shown::Nothing, directory, Ok(Staging::Do)),
        (
            None,
            Shown::Foreign,
            directory,
            Err(Code::FailedPrecondition),
        ),
        (
            Some(staged("/s", false)),
            Shown::Volume,
            directory,
            Ok(Staging::Done),
        ),
        (
            Some(staged("/s", false)),
            directory,
            directory,
            Ok(Staging::Do),
        ),
        (
            Some(staged("/s", true)),
            Shown::Volume,
            directory,
            Err(Code::AlreadyExists),
        ),
        (
            Some(staged("/s", true)),
            directory,
            directory,
            Ok(Staging::Do),
        ),
        (
            Some(staged("/s", false)),
            Shown::Foreign,
            directory,
            Err(Code::FailedPrecondition),
        ),
        (
            Some(staged("/other", false)),
            directory,
            Shown::Volume,
            Err(Code::FailedPrecondition),
        ),
        (
            Some(staged("/other", false)),
            directory,
            directory,
            Ok(Staging::Do),
        ),
    ];
    for (record, at_s, at_other, expected) in cases {
        let shown = |staged: &Staged| {
            Ok(if staged.path == std::path::Path::new("/s") {
                at_s
            } else {
                at_other
            })
        };
        let id = VolumeId::of_name("a");
        let planned = plan_staging(&id, &staged("/s", false), &recorded(record.clone()), &shown);
        let planned = planned.map_err(|error| error.code());
        assert_eq!(planned, expected, "{record:?} {at_s:?} {at_other:?}");
    }
}
