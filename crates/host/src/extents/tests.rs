#![expect(
    clippy::single_range_in_vec_init,
    clippy::cloned_ref_to_slice_refs,
    reason = "lists of ranges are compared, also of one"
)]

use super::*;
use crate::testing::ScratchFs;

const MIB: u64 = 1 << 20;

fn ranges(found: impl Iterator<Item = io::Result<Range<u64>>>) -> Vec<Range<u64>> {
    found.map(Result::unwrap).collect()
}

/// A pool with a base of two pieces of data, and a copy of it.
fn pair(kind: &str) -> Option<(ScratchFs, File, File)> {
    let pool = ScratchFs::new(kind, 320 * MIB)?;
    let base = pool.file("base", 64 * MIB);
    base.write_all_at(&[1; 8 * BLOCK as usize], 0).unwrap();
    base.write_all_at(&[2; 8 * BLOCK as usize], 32 * MIB)
        .unwrap();
    let target = pool.file("target", 0);
    if !crate::image::reflink(&base, &target).unwrap() {
        crate::image::copy_sparse(&base, &target, None).unwrap();
    }
    Some((pool, base, target))
}

#[test]
fn the_ranges_with_data_are_told_merged_and_from_the_start_asked_for() {
    for kind in ["ext4", "xfs", "btrfs"] {
        let Some((_pool, base, _)) = pair(kind) else {
            return;
        };
        let (first, second) = (0..8 * BLOCK, 32 * MIB..32 * MIB + 8 * BLOCK);
        assert_eq!(
            ranges(allocated(&base, 0, 64 * MIB)),
            [first, second.clone()],
            "{kind}"
        );
        assert_eq!(
            ranges(allocated(&base, 8 * BLOCK, 64 * MIB)),
            [second.clone()]
        );
        assert_eq!(
            ranges(allocated(&base, second.start + BLOCK, 64 * MIB)),
            [second.start + BLOCK..second.end]
        );
        assert!(ranges(allocated(&base, 64 * MIB, 64 * MIB)).is_empty());
    }
}

#[test]
fn blocks_that_were_only_set_aside_hold_no_data() {
    for kind in ["ext4", "xfs", "btrfs"] {
        let Some(pool) = ScratchFs::new(kind, 320 * MIB) else {
            return;
        };
        let file = pool.file("thick", 16 * MIB);
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 16 * MIB).unwrap();
        file.write_all_at(&[7; BLOCK as usize], 4 * MIB).unwrap();
        let written = 4 * MIB..4 * MIB + BLOCK;
        assert_eq!(
            ranges(allocated(&file, 0, 16 * MIB)),
            [written.clone()],
            "{kind}"
        );
        let empty = pool.file("empty", 16 * MIB);
        assert_eq!(ranges(changed(&empty, &file, 0, 16 * MIB)), [written]);
    }
}

#[test]
fn a_copy_that_was_not_touched_did_not_change() {
    for kind in ["ext4", "xfs", "btrfs"] {
        let Some((_pool, base, target)) = pair(kind) else {
            return;
        };
        assert_eq!(ranges(changed(&base, &target, 0, 64 * MIB)), [], "{kind}");
    }
}

#[test]
fn exactly_the_changed_blocks_are_told() {
    for kind in ["ext4", "xfs", "btrfs"] {
        let Some((_pool, base, target)) = pair(kind) else {
            return;
        };
        let block = |byte: u8| [byte; BLOCK as usize];
        // Inside of data, the same bytes again, beside data, and alone.
        target.write_all_at(&block(9), 2 * BLOCK).unwrap();
        target.write_all_at(&block(1), 5 * BLOCK).unwrap();
        target.write_all_at(&block(9), 8 * BLOCK).unwrap();
        target.write_all_at(&block(9), 9 * BLOCK).unwrap();
        target.write_all_at(&block(9), 48 * MIB).unwrap();
        // Zeros where nothing was are no change; zeros over data are.
        target.write_all_at(&block(0), 50 * MIB).unwrap();
        target.write_all_at(&block(0), 32 * MIB).unwrap();
        let all = [
            2 * BLOCK..3 * BLOCK,
            8 * BLOCK..10 * BLOCK,
            32 * MIB..32 * MIB + BLOCK,
            48 * MIB..48 * MIB + BLOCK,
        ];
        assert_eq!(ranges(changed(&base, &target, 0, 64 * MIB)), all, "{kind}");
        assert_eq!(
            ranges(changed(&base, &target, 9 * BLOCK, 64 * MIB))[0],
            9 * BLOCK..10 * BLOCK
        );
    }
}

#[test]
fn what_grew_beyond_the_base_changed_where_it_has_data() {
    for kind in ["ext4", "xfs", "btrfs"] {
        let Some((_pool, base, target)) = pair(kind) else {
            return;
        };
        target.set_len(128 * MIB).unwrap();
        target
            .write_all_at(&[3; BLOCK as usize], 100 * MIB)
            .unwrap();
        assert_eq!(
            ranges(changed(&base, &target, 0, 128 * MIB)),
            [100 * MIB..100 * MIB + BLOCK],
            "{kind}"
        );
    }
}

#[test]
fn more_extents_than_one_call_tells_are_all_told() {
    for kind in ["ext4", "xfs", "btrfs"] {
        let Some(pool) = ScratchFs::new(kind, 320 * MIB) else {
            return;
        };
        let file = pool.file("scattered", 64 * MIB);
        let places: Vec<_> = (0..600).map(|index| index * 3 * BLOCK).collect();
        for place in &places {
            file.write_all_at(&[1; BLOCK as usize], *place).unwrap();
        }
        let expected: Vec<_> = places.iter().map(|at| *at..*at + BLOCK).collect();
        assert_eq!(ranges(allocated(&file, 0, 64 * MIB)), expected, "{kind}");
        assert_eq!(
            Extents::of(&file, 0).filter(Result::is_err).count(),
            0,
            "{kind}"
        );
    }
}

#[test]
fn a_file_system_that_does_not_tell_places_is_compared_by_reading() {
    // Memory files have no FIEMAP.
    let new = || {
        let file = rustix::fs::memfd_create("f", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        File::from(file)
    };
    let (base, target) = (new(), new());
    for file in [&base, &target] {
        file.set_len(16 * MIB).unwrap();
        file.write_all_at(&[1; BLOCK as usize], MIB).unwrap();
    }
    target.write_all_at(&[2; BLOCK as usize], 8 * MIB).unwrap();
    assert_eq!(
        ranges(allocated(&target, 0, 16 * MIB)),
        [MIB..MIB + BLOCK, 8 * MIB..8 * MIB + BLOCK]
    );
    assert_eq!(
        ranges(changed(&base, &target, 0, 16 * MIB)),
        [8 * MIB..8 * MIB + BLOCK]
    );
}
