use orlop_csi::server::CsiError;
use orlop_host::FsKind;
use orlop_host::place::Kind;
use tonic::Code;

use super::*;

const DIRECTORY: Shown = Shown::Plain(Kind::Directory);

fn how(mode: Mode) -> Publication {
    let capability = Capability {
        access: Access::Mount(FsKind::Ext4),
        mode,
    };
    Publication {
        capability,
        read_only: false,
    }
}

fn wanted(mode: Mode) -> Wanted {
    Wanted {
        staging: Some("/s".into()),
        target: "/t".into(),
        publication: how(mode),
        restrictions: Restrictions::default(),
    }
}

fn staged() -> Option<Staged> {
    Some(Staged {
        path: "/s".into(),
        publication: how(Mode::MultiWriter),
    })
}

fn planned(wanted: &Wanted, seen: &Seen) -> Result<Step, Code> {
    plan(&VolumeId::of_name("a"), wanted, seen).map_err(|error| error.code())
}

#[test]
fn the_second_call_follows_the_specifications_table() {
    let (writer, reader) = (Mode::SingleNodeWriter, Mode::SingleNodeReader);
    let (single, multi) = (Mode::SingleWriter, Mode::MultiWriter);
    let refused = Err(Code::FailedPrecondition);
    // Published at /t how; published elsewhere how; asked for /t how; the answer.
    let cases = [
        (None, None, writer, Ok(Step::Publish)),
        (Some(writer), None, writer, Ok(Step::AlreadyPublished)),
        (Some(writer), None, single, Err(Code::AlreadyExists)),
        (Some(multi), Some(multi), multi, Ok(Step::AlreadyPublished)),
        (None, Some(multi), multi, Ok(Step::Publish)),
        (None, Some(multi), single, refused),
        (None, Some(single), multi, refused),
        (None, Some(single), single, refused),
        (None, Some(writer), writer, refused),
        (None, Some(reader), reader, refused),
    ];
    for (here, elsewhere, asked, expected) in cases {
        let refused = expected.as_ref().err().copied();
        let seen = Seen {
            staged: staged(),
            recorded: here.map(how),
            at_target: if here.is_some() {
                Shown::Volume
            } else {
                Shown::Nothing
            },
            others: elsewhere
                .map(|mode| ("/elsewhere".into(), how(mode)))
                .into_iter()
                .collect(),
        };
        let planned = planned(&wanted(asked), &seen);
        assert_eq!(
            planned.as_ref().err().copied(),
            refused,
            "{here:?} {elsewhere:?} {asked:?}"
        );
        if let Ok(step) = expected {
            assert_eq!(planned.unwrap(), step, "{here:?} {elsewhere:?} {asked:?}");
        }
    }
}

#[test]
fn only_what_is_staged_there_in_that_form_is_published() {
    let wanted = wanted(Mode::MultiWriter);
    let seen = |staged| Seen {
        staged,
        recorded: None,
        at_target: DIRECTORY,
        others: vec![],
    };
    assert_eq!(planned(&wanted, &seen(staged())), Ok(Step::Publish));
    assert_eq!(planned(&wanted, &seen(None)), Err(Code::FailedPrecondition));
    let elsewhere = staged().map(|staged| Staged {
        path: "/x".into(),
        ..staged
    });
    assert_eq!(
        planned(&wanted, &seen(elsewhere)),
        Err(Code::FailedPrecondition)
    );
    let device = staged().map(|mut staged| {
        staged.publication.capability.access = Access::Block;
        staged
    });
    assert_eq!(
        planned(&wanted, &seen(device)),
        Err(Code::FailedPrecondition)
    );
    let unnamed = Wanted {
        staging: None,
        ..wanted
    };
    assert_eq!(
        planned(&unnamed, &seen(staged())),
        Err(Code::FailedPrecondition)
    );
}

#[test]
fn a_target_that_holds_something_else_is_not_covered() {
    let cases = [
        (Shown::Nothing, Ok(Step::Publish)),
        (DIRECTORY, Ok(Step::Publish)),
        (Shown::Plain(Kind::File), Err(Code::FailedPrecondition)),
        (Shown::Plain(Kind::Symlink), Err(Code::FailedPrecondition)),
        (Shown::Foreign, Err(Code::FailedPrecondition)),
        (Shown::Unreachable, Err(Code::FailedPrecondition)),
    ];
    for (at_target, expected) in cases {
        // On record, but never done, or covered since.
        let recorded = Some(how(Mode::MultiWriter));
        let seen = Seen {
            staged: staged(),
            recorded,
            at_target,
            others: vec![],
        };
        assert_eq!(
            planned(&wanted(Mode::MultiWriter), &seen),
            expected,
            "{at_target:?}"
        );
    }
}
