//! Which blocks of a snapshot are in use, and which differ between two.
//!
//! Exact for block volumes. A volume of files has no blocks that its users could name, so all of it
//! counts as used and as changed, which is allowed and never wrong.

use std::fs::File;

use futures::stream::{self, BoxStream, StreamExt as _};
use orlop_csi::proto::snapshot_metadata_server::SnapshotMetadata;
use orlop_csi::proto::*;
use tonic::{Request, Response, Status};

use super::refuse::{self, internal, invalid};
use super::state::{Snapshot as Record, State};
use super::store::{self, Form, PAGE};
use super::{Fault, Model, Private, Shared};

/// Ranges in a message if the caller does not say.
const USUAL: usize = 256;

/// What one stream is made of.
struct Told {
    capacity: i64,
    messages: Vec<Vec<BlockMetadata>>,
}

type Stream<T> = BoxStream<'static, Result<T, Status>>;

#[tonic::async_trait]
impl SnapshotMetadata for Model {
    async fn get_metadata_allocated(
        &self,
        request: Request<GetMetadataAllocatedRequest>,
    ) -> Result<Response<Stream<GetMetadataAllocatedResponse>>, Status> {
        let request = request.into_inner();
        let state = self.0.state.lock().await;
        let told = self.0.allocated(&state, &request).map_err(|status| {
            let secrets = request.secrets.clone();
            self.0.spoil(
                &status,
                &Private {
                    secrets,
                    ..Private::default()
                },
            )
        })?;
        let (shared, capacity) = (self.0.clone(), told.capacity);
        let messages = told.messages.into_iter().enumerate();
        let replies = messages.map(move |(index, block_metadata)| {
            Ok(GetMetadataAllocatedResponse {
                block_metadata_type: shared.kind().into(),
                volume_capacity_bytes: shared.capacity(capacity, index),
                block_metadata,
            })
        });
        Ok(Response::new(stream::iter(replies).boxed()))
    }

    async fn get_metadata_delta(
        &self,
        request: Request<GetMetadataDeltaRequest>,
    ) -> Result<Response<Stream<GetMetadataDeltaResponse>>, Status> {
        let request = request.into_inner();
        let state = self.0.state.lock().await;
        let told = self.0.delta(&state, &request).map_err(|status| {
            let secrets = request.secrets.clone();
            self.0.spoil(
                &status,
                &Private {
                    secrets,
                    ..Private::default()
                },
            )
        })?;
        let (shared, capacity) = (self.0.clone(), told.capacity);
        let messages = told.messages.into_iter().enumerate();
        let replies = messages.map(move |(index, block_metadata)| {
            Ok(GetMetadataDeltaResponse {
                block_metadata_type: shared.kind().into(),
                volume_capacity_bytes: shared.capacity(capacity, index),
                block_metadata,
            })
        });
        Ok(Response::new(stream::iter(replies).boxed()))
    }
}

impl Shared {
    fn kind(&self) -> BlockMetadataType {
        match self.has(Fault::MetadataTypeUnknown) {
            true => BlockMetadataType::Unknown,
            false => BlockMetadataType::VariableLength,
        }
    }

    fn capacity(&self, real: i64, index: usize) -> i64 {
        match self.has(Fault::MetadataCapacityVaries) && index > 0 {
            true => real + 4096,
            false => real,
        }
    }

    fn allocated(
        &self,
        state: &State,
        request: &GetMetadataAllocatedRequest,
    ) -> Result<Told, Status> {
        let id = &request.snapshot_id;
        let nothing = || Told {
            capacity: 4096,
            messages: Vec::new(),
        };
        if self.has(Fault::AllocatedWithoutId) && id.is_empty() {
            return Ok(nothing());
        }
        refuse::required("snapshot_id", id)?;
        let snapshot = match find(state, id) {
            Err(_) if self.has(Fault::AllocatedUnknownEmpty) => return Ok(nothing()),
            found => found?,
        };
        let mut ranges = match snapshot.form {
            Form::Mount => vec![(0, snapshot.size.unsigned_abs())],
            Form::Block => self
                .image(snapshot)
                .and_then(|image| store::data(&image).map_err(|error| internal("seek", &error)))?,
        };
        if self.has(Fault::AllocatedMissesBlock) {
            miss(&mut ranges);
        }
        self.tell(
            ranges,
            snapshot.size,
            request.starting_offset,
            request.max_results,
        )
    }

    fn delta(&self, state: &State, request: &GetMetadataDeltaRequest) -> Result<Told, Status> {
        let (base, target) = (&request.base_snapshot_id, &request.target_snapshot_id);
        let nothing = || Told {
            capacity: 4096,
            messages: Vec::new(),
        };
        if self.has(Fault::DeltaWithoutBase) && base.is_empty() {
            return Ok(nothing());
        }
        refuse::required("base_snapshot_id", base)?;
        refuse::required("target_snapshot_id", target)?;
        let (base, target) = match (find(state, base), find(state, target)) {
            (Ok(base), Ok(target)) => (base, target),
            _ if self.has(Fault::DeltaUnknownEmpty) => return Ok(nothing()),
            (Err(status), _) | (_, Err(status)) => return Err(status),
        };
        if base.source != target.source {
            return Err(invalid("the snapshots are of different volumes"));
        }
        let mut ranges = match target.form {
            Form::Mount => vec![(0, target.size.unsigned_abs())],
            Form::Block => {
                let (old, new) = (self.image(base)?, self.image(target)?);
                let mut ranges = store::differences(&old, &new)
                    .map_err(|error| internal("compare the snapshots", &error))?;
                if self.has(Fault::DeltaMissesZeroed) {
                    let full = store::data(&new).map_err(|error| internal("seek", &error))?;
                    ranges.retain(|(at, size)| !is_zero(&new, &full, *at, *size));
                }
                ranges
            }
        };
        if self.has(Fault::DeltaMissesBlock) {
            miss(&mut ranges);
        }
        self.tell(
            ranges,
            target.size,
            request.starting_offset,
            request.max_results,
        )
    }

    fn image(&self, snapshot: &Record) -> Result<File, Status> {
        File::open(self.store.snapshot(&snapshot.id))
            .map_err(|error| internal("open the snapshot", &error))
    }

    /// Cuts ranges into messages, from an offset on.
    fn tell(
        &self,
        ranges: Vec<(u64, u64)>,
        capacity: i64,
        offset: i64,
        most: i32,
    ) -> Result<Told, Status> {
        let start = match u64::try_from(offset) {
            Ok(start) => start,
            Err(_) if self.has(Fault::MetadataNegativeOffset) => 0,
            Err(_) => return Err(Status::out_of_range("starting_offset is negative")),
        };
        if offset > capacity && !self.has(Fault::MetadataBeyondEnd) {
            return Err(Status::out_of_range(
                "starting_offset is beyond the volume's end",
            ));
        }
        let most = match usize::try_from(most) {
            Err(_) => return Err(invalid("max_results is negative")),
            Ok(_) if self.has(Fault::MetadataIgnoresMaximum) => USUAL,
            Ok(0) => USUAL,
            Ok(most) => most.min(USUAL),
        };
        let from = match self.has(Fault::MetadataIgnoresOffset) {
            true => 0,
            false => start,
        };
        let signed = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let mut blocks: Vec<_> = ranges
            .into_iter()
            .filter(|(at, size)| at + size > from)
            .map(|(at, size)| {
                let begin = at.max(from);
                BlockMetadata {
                    byte_offset: signed(begin),
                    size_bytes: signed(at + size - begin),
                }
            })
            .collect();
        match self.fault {
            Some(Fault::AllocatedOutOfOrder) => blocks.reverse(),
            Some(Fault::AllocatedOverlaps) => {
                if let Some(first) = blocks.first().copied() {
                    blocks.insert(1, first);
                }
            }
            Some(Fault::MetadataPastCapacity) => {
                if let Some(last) = blocks.last_mut() {
                    last.size_bytes = capacity - last.byte_offset + 4096;
                }
            }
            _ => {}
        }
        Ok(Told {
            capacity,
            messages: blocks.chunks(most).map(<[_]>::to_vec).collect(),
        })
    }
}

fn find<'a>(state: &'a State, id: &str) -> Result<&'a Record, Status> {
    state
        .snapshots
        .get(id)
        .ok_or_else(|| Status::not_found(format!("there is no snapshot {id:?}")))
}

/// Takes the last page out of what is told.
fn miss(ranges: &mut Vec<(u64, u64)>) {
    if let Some(last) = ranges.last_mut() {
        last.1 = last.1.saturating_sub(PAGE);
        if last.1 == 0 {
            ranges.pop();
        }
    }
}

/// Whether a range holds nothing but zeros.
fn is_zero(image: &File, full: &[(u64, u64)], at: u64, size: u64) -> bool {
    use std::os::unix::fs::FileExt as _;
    let touched = full
        .iter()
        .any(|(start, length)| at < start + length && *start < at + size);
    let mut buffer = vec![0; usize::try_from(size).unwrap_or(0)];
    !touched
        || (image.read_exact_at(&mut buffer, at).is_ok() && buffer.iter().all(|byte| *byte == 0))
}
