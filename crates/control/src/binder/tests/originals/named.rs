//! Claims that name a volume, and claims that were bound.

use super::*;

pub(super) fn cases() -> Vec<Case> {
    vec![
        case("2-1", |c| asks_for(c, "gone"), &[], nothing()),
        case(
            "2-3",
            |c| asks_for(c, "vol"),
            &[("vol", FREE)],
            Turn::Binds("vol", ALL),
        ),
        case(
            "2-4",
            |c| asks_for(c, "vol"),
            &[("vol", |v| reserve(v, ""))],
            Turn::Binds("vol", ALL),
        ),
        case(
            "2-5",
            |c| asks_for(c, "vol"),
            &[("vol", |v| reserve(v, "uid-data"))],
            Turn::Binds("vol", &WHOLE_BIND_BUT_RESERVING),
        ),
        case(
            "2-6",
            |c| asks_for(c, "vol"),
            &[("vol", |v| reserve(v, "another"))],
            Turn::Waits("FailedBinding", true),
        ),
        case(
            "2-7",
            |c| {
                asks_for(c, "vol");
                let annotations = &mut c.metadata.annotations;
                annotations.insert(well_known::BOUND_BY_CONTROLLER.into(), "yes".into());
            },
            &[("vol", |v| reserve(v, "another"))],
            Turn::Waits("FailedBinding", true),
        ),
        case(
            "2-8",
            |c| {
                asks_for(c, "vol");
                select(c);
            },
            &[("vol", FREE)],
            Turn::Binds("vol", ALL),
        ),
        case(
            "2-9",
            |c| asks_for(c, "vol"),
            &[("vol", |v| size(v, "1Mi"))],
            mismatch(),
        ),
        case(
            "2-10 and 14-5-2",
            |c| asks_for(c, "vol"),
            &[("vol", |v| v.spec.storage_class_name = "gold".into())],
            mismatch(),
        ),
        case(
            "2-11",
            |c| {
                asks_for(c, "vol");
                c.spec.volume_attributes_class_name = Some("gold".into());
            },
            &[("vol", FREE)],
            mismatch(),
        ),
        case(
            "2-12",
            |c| {
                asks_for(c, "vol");
                c.spec.volume_attributes_class_name = Some("gold".into());
            },
            &[("vol", |v| {
                v.spec.volume_attributes_class_name = Some("gold".into())
            })],
            Turn::Binds("vol", ALL),
        ),
        case(
            "3-3 and 3-7",
            |c| {
                was_bound(c);
                select(c);
            },
            &[("vol", FREE)],
            Turn::Binds(
                "vol",
                &[
                    Step::ReserveVolume,
                    Step::MarkVolumeBound,
                    Step::MarkClaimBound,
                ],
            ),
        ),
        case(
            "3-3, of a claim that was called lost",
            |c| {
                was_bound(c);
                c.status.phase = Some(ClaimPhase::Lost);
            },
            &[("vol", FREE)],
            Turn::Binds(
                "vol",
                &[
                    Step::ReserveVolume,
                    Step::MarkVolumeBound,
                    Step::MarkClaimBound,
                ],
            ),
        ),
        case(
            "3-5",
            was_bound,
            &[("vol", |v| {
                reserve(v, "uid-data");
                v.status.phase = Some(VolumePhase::Bound);
            })],
            Turn::Binds("vol", &[Step::MarkClaimBound]),
        ),
    ]
}
