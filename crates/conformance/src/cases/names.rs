//! Names, ids and paths at the edges of what the specification allows.

use orlop_csi::client::ControllerCapability as Can;
use orlop_csi::proto;
use tonic::Code;

use super::CREATE;
use crate::case::{Case, Need, ensure};
use crate::{spec, words};

mod lengths;

/// Legal names that trip drivers that build paths, commands or labels from them. They follow a
/// unique prefix unless they are marked as a whole.
const ODD: [(&str, &str); 24] = [
    ("slash", "a/b"),
    ("dot_dot_slash", "../../etc/passwd"),
    ("absolute_path", "/etc/passwd"),
    ("backslash", "a\\b"),
    ("newline", "a\nb"),
    ("carriage_return", "a\rb"),
    ("tab", "a\tb"),
    ("space", "a b"),
    ("leading_space", " a"),
    ("trailing_dot", "a."),
    ("single_quote", "a'b"),
    ("double_quote", "a\"b"),
    (
        "dollar_parenthesis",
        "$(touch /tmp/orlop-conformance-pwned)",
    ),
    ("backtick", "`id`"),
    ("semicolon", "a;b"),
    ("percent_encoded", "%2e%2e%2f"),
    ("percent_s", "%s%n%d"),
    ("asterisk", "*"),
    ("umlaut", "größe"),
    ("cjk", "卷宗"),
    ("emoji", "🗄️"),
    ("right_to_left", "\u{202E}abc"),
    ("zero_width", "a\u{200B}b"),
    ("equals_and_comma", "a=b,c=d"),
];

/// The first of each range that the specification bans, the last, and some between.
const BANNED: [(u32, &str); 12] = [
    (0x00, "nul"),
    (0x01, "soh"),
    (0x07, "bell"),
    (0x08, "backspace"),
    (0x0B, "vertical_tab"),
    (0x0C, "form_feed"),
    (0x0E, "shift_out"),
    (0x1B, "escape"),
    (0x1F, "unit_separator"),
    (0x7F, "delete"),
    (0x80, "c1_first"),
    (0x9F, "c1_last"),
];

pub(super) fn cases() -> Vec<Case> {
    [
        volumes(),
        leading(),
        banned(),
        snapshots(),
        lengths::cases(),
    ]
    .concat()
}

fn volumes() -> Vec<Case> {
    let odd = ODD.iter().map(|(id, odd)| {
        let title = format!("a volume's name may hold {}", words::short(odd));
        Case::must(
            format!("names.volume_{id}"),
            spec::CREATE_VOLUME,
            title,
            &[CREATE],
            move |t| named(t, move |unique| format!("{unique}{odd}")),
        )
    });
    odd.collect()
}

/// Names that begin oddly; what makes them unique stands at their end.
fn leading() -> Vec<Case> {
    let starts = [
        ("leading_dash", "--help"),
        ("leading_dots", "../"),
        ("leading_slash", "/"),
        ("leading_dot", "."),
    ];
    let cases = starts.into_iter().map(|(id, start)| {
        let title = format!("a volume's name may begin with {start:?}");
        Case::must(
            format!("names.volume_{id}"),
            spec::CREATE_VOLUME,
            title,
            &[CREATE],
            move |t| named(t, move |unique| format!("{start}{unique}")),
        )
    });
    cases.collect()
}

async fn named(t: crate::trial::Trial, make: impl Fn(&str) -> String) -> crate::case::Outcome {
    let name = make(&t.name("n"));
    let request = proto::CreateVolumeRequest {
        name,
        ..t.create_request("n")
    };
    let volume = t.create(request.clone()).await?;
    let again = t.create(request).await?;
    ensure!(
        again.volume_id == volume.volume_id,
        "the name gave volume {:?} first and {:?} when repeated",
        volume.volume_id,
        again.volume_id
    );
    t.call(t.delete_request(&volume.volume_id)).await.ok()?;
    ensure!(
        !std::path::Path::new("/tmp/orlop-conformance-pwned").exists(),
        "the driver ran a command that was in a volume's name"
    );
    Ok(())
}

fn banned() -> Vec<Case> {
    let cases = BANNED.iter().filter_map(|(code, id)| {
        let letter = char::from_u32(*code)?;
        let title = format!("a volume's name with U+{code:04X} is refused with INVALID_ARGUMENT");
        Some(Case::should(
            format!("names.banned_{id}"),
            spec::CREATE_VOLUME,
            title,
            &[CREATE],
            move |t| async move {
                let name = format!("{}{letter}x", t.name("n"));
                let request = proto::CreateVolumeRequest {
                    name,
                    ..t.create_request("n")
                };
                t.call(request).await.refused(
                    Code::InvalidArgument,
                    "the specification bans this character from names",
                )
            },
        ))
    });
    cases.collect()
}

fn snapshots() -> Vec<Case> {
    let needs = [CREATE, Need::Controller(Can::CreateDeleteSnapshot)];
    let picks = [
        "slash",
        "dot_dot_slash",
        "newline",
        "emoji",
        "dollar_parenthesis",
    ];
    let odd = ODD
        .iter()
        .filter(|(id, _)| picks.contains(id))
        .map(|(id, odd)| {
            let title = format!("a snapshot's name may hold {}", words::short(odd));
            Case::must(
                format!("names.snapshot_{id}"),
                spec::CREATE_SNAPSHOT,
                title,
                &needs,
                move |t| async move {
                    let volume = t.volume("v").await?;
                    let request = proto::CreateSnapshotRequest {
                        name: format!("{}{odd}", t.name("s")),
                        ..t.snapshot_request(&volume.volume_id, "s")
                    };
                    t.call(request).await.ok().map(drop)
                },
            )
        });
    let mut cases: Vec<Case> = odd.collect();
    cases.push(Case::should(
        "names.snapshot_banned",
        spec::CREATE_SNAPSHOT,
        "a snapshot's name with a control character is refused with INVALID_ARGUMENT",
        &needs,
        |t| async move {
            let volume = t.volume("v").await?;
            let request = proto::CreateSnapshotRequest {
                name: format!("{}\u{1}", t.name("s")),
                ..t.snapshot_request(&volume.volume_id, "s")
            };
            t.call(request).await.refused(
                Code::InvalidArgument,
                "the specification bans this character from names",
            )
        },
    ));
    cases.push(Case::must(
        "names.snapshot_128_bytes",
        spec::NAME_RULES,
        "a snapshot's name of 128 bytes is taken",
        &needs,
        |t| async move {
            let volume = t.volume("v").await?;
            let request = proto::CreateSnapshotRequest {
                name: padded(&t.name("s"), 128),
                ..t.snapshot_request(&volume.volume_id, "s")
            };
            t.call(request).await.ok().map(drop)
        },
    ));
    cases.push(Case::should(
        "names.snapshot_129_bytes",
        spec::NAME_RULES,
        "a snapshot's name of 129 bytes is refused with INVALID_ARGUMENT",
        &needs,
        |t| async move {
            let volume = t.volume("v").await?;
            let request = proto::CreateSnapshotRequest {
                name: padded(&t.name("s"), 129),
                ..t.snapshot_request(&volume.volume_id, "s")
            };
            t.call(request)
                .await
                .refused(Code::InvalidArgument, "strings have at most 128 bytes")
        },
    ));
    cases
}

fn padded(start: &str, length: usize) -> String {
    let mut name = start.to_owned();
    name.extend(std::iter::repeat_n('x', length.saturating_sub(start.len())));
    name
}
