//! Which blocks of a snapshot hold data, and which changed.

use std::os::unix::fs::FileExt as _;

use orlop_csi::proto::snapshot_metadata_server::SnapshotMetadata;
use tonic::codegen::tokio_stream::StreamExt as _;

use super::snapshots::{POOLS, shown};
use super::*;
use crate::local::metadata::SnapshotMetadataService;

const BLOCK: i64 = 4096;

/// The messages of a stream: the capacity, and the ranges of each as start and length.
type Told = (i64, Vec<Vec<(i64, i64)>>);

impl Bed {
    fn metadata(&self) -> SnapshotMetadataService {
        SnapshotMetadataService::new(Arc::clone(self.pools()))
    }

    async fn allocated(&self, id: &str, from: i64, most: i32) -> Result<Told, Code> {
        let request = proto::GetMetadataAllocatedRequest {
            snapshot_id: id.to_owned(),
            starting_offset: from,
            max_results: most,
            ..Default::default()
        };
        let reply = self
            .metadata()
            .get_metadata_allocated(Request::new(request))
            .await;
        let mut stream = shown(reply)?;
        let (mut capacity, mut messages) = (0, Vec::new());
        while let Some(message) = stream.next().await {
            let message = message.unwrap();
            capacity = message.volume_capacity_bytes;
            assert_eq!(
                message.block_metadata_type(),
                proto::BlockMetadataType::VariableLength
            );
            messages.push(ranges(&message.block_metadata));
        }
        Ok((capacity, messages))
    }

    async fn delta(&self, base: &str, target: &str, from: i64, most: i32) -> Result<Told, Code> {
        let request = proto::GetMetadataDeltaRequest {
            base_snapshot_id: base.to_owned(),
            target_snapshot_id: target.to_owned(),
            starting_offset: from,
            max_results: most,
            ..Default::default()
        };
        let reply = self
            .metadata()
            .get_metadata_delta(Request::new(request))
            .await;
        let mut stream = shown(reply)?;
        let (mut capacity, mut messages) = (0, Vec::new());
        while let Some(message) = stream.next().await {
            let message = message.unwrap();
            capacity = message.volume_capacity_bytes;
            messages.push(ranges(&message.block_metadata));
        }
        Ok((capacity, messages))
    }

    /// Writes to a volume that nobody uses.
    fn write(&self, id: &str, places: &[(i64, u8)]) {
        let image = self
            .path("pool-one/volumes")
            .join(id)
            .join(format!("{id}.img"));
        let image = fs::File::options().write(true).open(image).unwrap();
        for (place, byte) in places {
            let place = u64::try_from(*place).unwrap();
            image.write_all_at(&[*byte; 4096], place).unwrap();
        }
    }
}

fn ranges(blocks: &[proto::BlockMetadata]) -> Vec<(i64, i64)> {
    blocks
        .iter()
        .map(|block| (block.byte_offset, block.size_bytes))
        .collect()
}

#[tokio::test]
async fn what_holds_data_and_what_changed_is_told_exactly() {
    for kind in POOLS {
        let Some(bed) = Bed::on(kind) else { return };
        let id = bed.volume("raw", 64 * MIB).await;
        bed.write(&id, &[(0, 1), (BLOCK, 1), (MIB, 2), (40 * MIB, 3)]);
        let base = bed.snapshot("base", &id).await.unwrap().snapshot_id;
        bed.write(&id, &[(BLOCK, 9), (MIB, 2), (50 * MIB, 4)]);
        let target = bed.snapshot("target", &id).await.unwrap().snapshot_id;

        let all = [(0, 2 * BLOCK), (MIB, BLOCK), (40 * MIB, BLOCK)];
        let (capacity, messages) = bed.allocated(&base, 0, 0).await.unwrap();
        assert_eq!(
            (capacity, messages),
            (64 * MIB, vec![all.to_vec()]),
            "{kind}"
        );
        let (_, messages) = bed.allocated(&base, 0, 2).await.unwrap();
        assert_eq!(messages, [all[..2].to_vec(), all[2..].to_vec()]);
        // Where a former stream ended, and inside of a block.
        for from in [MIB + BLOCK, 40 * MIB, 40 * MIB + 17] {
            let (_, messages) = bed.allocated(&base, from, 0).await.unwrap();
            assert_eq!(messages, [all[2..].to_vec()], "{kind} from {from}");
        }
        let (capacity, messages) = bed.allocated(&base, 64 * MIB, 0).await.unwrap();
        assert_eq!((capacity, messages), (64 * MIB, vec![vec![]]));

        // The same bytes written again are no change.
        let changed = [(BLOCK, BLOCK), (50 * MIB, BLOCK)];
        let (capacity, messages) = bed.delta(&base, &target, 0, 0).await.unwrap();
        assert_eq!(capacity, 64 * MIB);
        assert_eq!(messages, [changed.to_vec()], "{kind}");
        let (_, messages) = bed.delta(&base, &target, 0, 1).await.unwrap();
        assert_eq!(messages, [changed[..1].to_vec(), changed[1..].to_vec()]);
        let (_, messages) = bed.delta(&base, &target, 2 * BLOCK, 0).await.unwrap();
        assert_eq!(messages, [changed[1..].to_vec()]);
        let (_, messages) = bed.delta(&base, &base, 0, 0).await.unwrap();
        assert_eq!(messages, [vec![]]);
        // The source may be gone.
        bed.delete(&id).await.unwrap();
        let (_, messages) = bed.delta(&base, &target, 0, 0).await.unwrap();
        assert_eq!(messages, [changed.to_vec()], "{kind}");
    }
}

#[tokio::test]
async fn questions_that_make_no_sense_are_refused() {
    let bed = Bed::new();
    let (one, two) = (
        bed.volume("one", 64 * MIB).await,
        bed.volume("two", 64 * MIB).await,
    );
    let a = bed.snapshot("a", &one).await.unwrap().snapshot_id;
    let b = bed.snapshot("b", &two).await.unwrap().snapshot_id;
    for (id, from, most, expected) in [
        ("", 0, 0, Code::InvalidArgument),
        ("nothing", 0, 0, Code::NotFound),
        (&a, -1, 0, Code::OutOfRange),
        (&a, 64 * MIB + 1, 0, Code::OutOfRange),
        (&a, 0, -1, Code::InvalidArgument),
    ] {
        let refused = bed.allocated(id, from, most).await.unwrap_err();
        assert_eq!(refused, expected, "{id} {from} {most}");
    }
    for (base, target, from, most, expected) in [
        ("", a.as_str(), 0, 0, Code::InvalidArgument),
        (&a, "", 0, 0, Code::InvalidArgument),
        ("nothing", &a, 0, 0, Code::NotFound),
        (&a, "nothing", 0, 0, Code::NotFound),
        (&a, &b, 0, 0, Code::InvalidArgument),
        (&a, &a, -1, 0, Code::OutOfRange),
        (&a, &a, 64 * MIB + 1, 0, Code::OutOfRange),
        (&a, &a, 0, -1, Code::InvalidArgument),
    ] {
        let refused = bed.delta(base, target, from, most).await.unwrap_err();
        assert_eq!(refused, expected, "{base} {target} {from} {most}");
    }
}
