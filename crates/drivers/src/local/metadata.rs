//! The snapshot metadata service: which blocks of a snapshot hold data, and which changed since
//! another.
//!
//! The answers come from the pool's file system: no log of changes is kept, nothing is read that
//! two snapshots share.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use orlop_csi::limits;
use orlop_csi::proto;
use orlop_csi::proto::snapshot_metadata_server::SnapshotMetadata;
use orlop_csi::server::{CsiError, answer, status};
use orlop_host::extents;
use tokio::sync::mpsc;
use tonic::codegen::BoxStream;
use tonic::codegen::tokio_stream::Stream;
use tonic::{Code, Request, Response, Status};

use super::fields::FieldError;
use super::pool::StoreError;
use super::pools::Pools;
use super::snapshot::{Snapshot, SnapshotId};
use super::snapshots::FindError;

/// Ranges per message, unless the caller wants fewer: 20 KiB or so.
const MOST: usize = 1024;

/// Messages that wait for a slow reader.
const WAITING: usize = 4;

/// The snapshot metadata service over all pools.
#[derive(Clone, Debug)]
pub struct SnapshotMetadataService {
    pools: Arc<Pools>,
}

/// Why the blocks of a snapshot are not told.
#[derive(Debug, thiserror::Error)]
pub enum MetadataError {
    /// A field is unusable.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// A count below zero.
    #[error("max_results is negative")]
    Count,
    /// A snapshot is not there, or damaged.
    #[error(transparent)]
    Find(#[from] FindError),
    /// Two snapshots that have nothing to do with each other.
    #[error("snapshots {base} and {target} are not of the same volume")]
    Unrelated {
        /// The one.
        base: SnapshotId,
        /// The other.
        target: SnapshotId,
    },
    /// An offset that is not in the snapshot.
    #[error("starting_offset {offset} is not within the {size} bytes of the snapshot")]
    Offset {
        /// What was asked for.
        offset: i64,
        /// What there is.
        size: u64,
    },
    /// The pool's disk refused.
    #[error("could not look at snapshot {id}")]
    Store {
        /// The snapshot.
        id: SnapshotId,
        /// Why.
        #[source]
        source: StoreError,
    },
}

impl CsiError for MetadataError {
    fn code(&self) -> Code {
        match self {
            Self::Field(_) | Self::Count | Self::Unrelated { .. } => Code::InvalidArgument,
            Self::Find(source) => source.code(),
            Self::Offset { .. } => Code::OutOfRange,
            Self::Store { source, .. } => source.code(),
        }
    }
}

/// What is to be told.
#[derive(Debug)]
struct Question {
    id: SnapshotId,
    /// What it is compared with.
    base: Option<File>,
    image: File,
    from: u64,
    size: u64,
    per_message: usize,
}

impl Question {
    fn allocated(
        pools: &Pools,
        request: &proto::GetMetadataAllocatedRequest,
    ) -> Result<Self, MetadataError> {
        limits::required("snapshot_id", &request.snapshot_id).map_err(FieldError::from)?;
        let per_message = per_message(request.max_results)?;
        let snapshot = pools.find_snapshot(&request.snapshot_id)?;
        Self::about(pools, &snapshot, request.starting_offset, per_message)
    }

    fn delta(
        pools: &Pools,
        request: &proto::GetMetadataDeltaRequest,
    ) -> Result<Self, MetadataError> {
        let required =
            |field, value: &str| limits::required(field, value).map_err(FieldError::from);
        required("base_snapshot_id", &request.base_snapshot_id)?;
        required("target_snapshot_id", &request.target_snapshot_id)?;
        let per_message = per_message(request.max_results)?;
        let base = pools.find_snapshot(&request.base_snapshot_id)?;
        let target = pools.find_snapshot(&request.target_snapshot_id)?;
        if base.record.source != target.record.source {
            return Err(MetadataError::Unrelated {
                base: base.record.id,
                target: target.record.id,
            });
        }
        let question = Self::about(pools, &target, request.starting_offset, per_message)?;
        Ok(Self {
            base: Some(open(pools, &base)?),
            ..question
        })
    }

    fn about(
        pools: &Pools,
        snapshot: &Snapshot,
        offset: i64,
        per_message: usize,
    ) -> Result<Self, MetadataError> {
        let size = snapshot.record.size_bytes;
        let from = u64::try_from(offset)
            .ok()
            .filter(|from| *from <= size)
            .ok_or(MetadataError::Offset { offset, size })?;
        Ok(Self {
            id: snapshot.record.id.clone(),
            base: None,
            image: open(pools, snapshot)?,
            // Only whole blocks are told.
            from: from / extents::BLOCK * extents::BLOCK,
            size,
            per_message,
        })
    }

    /// Tells all ranges, message by message, until `tell` says that nobody listens.
    fn answer(&self, mut tell: impl FnMut(Vec<Range<u64>>) -> bool) -> io::Result<()> {
        let ranges: Box<dyn Iterator<Item = io::Result<Range<u64>>> + '_> = match &self.base {
            None => Box::new(extents::allocated(&self.image, self.from, self.size)),
            Some(base) => Box::new(extents::changed(base, &self.image, self.from, self.size)),
        };
        let mut page = Vec::new();
        let mut told = false;
        for range in ranges {
            page.push(range?);
            if page.len() == self.per_message {
                told = true;
                if !tell(std::mem::take(&mut page)) {
                    return Ok(());
                }
            }
        }
        // Also if there is nothing: a message tells the capacity.
        if !page.is_empty() || !told {
            tell(page);
        }
        Ok(())
    }
}

fn per_message(max_results: i32) -> Result<usize, MetadataError> {
    match usize::try_from(max_results) {
        Ok(0) => Ok(MOST),
        Ok(most) => Ok(most.min(MOST)),
        Err(_) => Err(MetadataError::Count),
    }
}

fn open(pools: &Pools, snapshot: &Snapshot) -> Result<File, MetadataError> {
    let id = &snapshot.record.id;
    let opened = pools.pool(&snapshot.home).open_snapshot(id);
    let opened = opened.map_err(|source| MetadataError::Store {
        id: id.clone(),
        source,
    })?;
    Ok(opened.ok_or_else(|| FindError::gone(id))?)
}

/// Messages as they come from the thread that finds them.
#[derive(Debug)]
struct Messages<T>(mpsc::Receiver<Result<T, Status>>);

impl<T> Stream for Messages<T> {
    type Item = Result<T, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(context)
    }
}

impl SnapshotMetadataService {
    pub(super) fn new(pools: Arc<Pools>) -> Self {
        Self { pools }
    }

    /// Understands the question on a blocking thread, and answers it on another, to the end or
    /// until nobody listens.
    async fn stream<Q, T>(
        &self,
        request: Request<Q>,
        understand: fn(&Pools, &Q) -> Result<Question, MetadataError>,
        message: fn(i64, Vec<proto::BlockMetadata>) -> T,
    ) -> Result<Response<BoxStream<T>>, Status>
    where
        Q: Send + 'static,
        T: Send + 'static,
    {
        let pools = Arc::clone(&self.pools);
        let request = request.into_inner();
        let understood = tokio::task::spawn_blocking(move || {
            pools.look_after();
            answer(understand(&pools, &request))
        });
        let question = understood.await.map_err(|_| unforeseen())??.into_inner();
        let (sender, receiver) = mpsc::channel(WAITING);
        tokio::task::spawn_blocking(move || {
            let capacity = i64::try_from(question.size).unwrap_or(i64::MAX);
            let tell = |ranges: Vec<Range<u64>>| {
                let ranges = ranges.into_iter().map(to_wire).collect();
                sender.blocking_send(Ok(message(capacity, ranges))).is_ok()
            };
            if let Err(error) = question.answer(tell) {
                let error = MetadataError::Store {
                    id: question.id.clone(),
                    source: StoreError::at("read the snapshot's image")(error),
                };
                // Nobody listens any more, or is told.
                let _ = sender.blocking_send(Err(status(&error)));
            }
        });
        Ok(Response::new(Box::pin(Messages(receiver))))
    }
}

fn to_wire(range: Range<u64>) -> proto::BlockMetadata {
    let bytes = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    proto::BlockMetadata {
        byte_offset: bytes(range.start),
        size_bytes: bytes(range.end - range.start),
    }
}

fn unforeseen() -> Status {
    Status::internal("the driver failed in an unforeseen way; see its log")
}

#[tonic::async_trait]
impl SnapshotMetadata for SnapshotMetadataService {
    async fn get_metadata_allocated(
        &self,
        request: Request<proto::GetMetadataAllocatedRequest>,
    ) -> Result<Response<BoxStream<proto::GetMetadataAllocatedResponse>>, Status> {
        let message = |volume_capacity_bytes, block_metadata| proto::GetMetadataAllocatedResponse {
            block_metadata_type: proto::BlockMetadataType::VariableLength.into(),
            volume_capacity_bytes,
            block_metadata,
        };
        self.stream(request, Question::allocated, message).await
    }

    async fn get_metadata_delta(
        &self,
        request: Request<proto::GetMetadataDeltaRequest>,
    ) -> Result<Response<BoxStream<proto::GetMetadataDeltaResponse>>, Status> {
        let message = |volume_capacity_bytes, block_metadata| proto::GetMetadataDeltaResponse {
            block_metadata_type: proto::BlockMetadataType::VariableLength.into(),
            volume_capacity_bytes,
            block_metadata,
        };
        self.stream(request, Question::delta, message).await
    }
}
