//! CreateVolume: empty, from a snapshot, or from another volume.

use std::path::PathBuf;

use orlop_csi::limits;
use orlop_csi::proto::volume_content_source::Type as Source;
use orlop_csi::proto::*;
use tonic::Status;

use super::refuse::{self, UNIT, internal, invalid, limit};
use super::state::{Map, State, Volume as Record};
use super::store::{self, Form};
use super::{Fault, Profile, Shared};

/// The one place that the model has, as a topology.
pub(super) const ZONE: (&str, &str) = ("topology.model.csi.example/zone", "a");

/// What a volume starts from.
struct Origin {
    at: PathBuf,
    form: Form,
    size: i64,
}

impl Shared {
    pub(super) fn create_volume(
        &self,
        state: &mut State,
        request: &CreateVolumeRequest,
    ) -> Result<CreateVolumeResponse, Status> {
        self.check_name(&request.name)?;
        let form = self.check_capabilities(&request.volume_capabilities)?;
        if !self.has(Fault::CreateParametersTooLarge) {
            limits::map("parameters", &request.parameters).map_err(|error| limit(&error))?;
        }
        if !self.has(Fault::CreateMutableUnchecked) {
            Self::check_mutable(&request.mutable_parameters)?;
        }
        self.check_range(request.capacity_range.as_ref())?;
        self.check_topology(request.accessibility_requirements.as_ref())?;

        let forgets = self.has(Fault::CreateForgetsNames) || state.blind;
        let known = state
            .volumes
            .values()
            .find(|volume| volume.asked.name == request.name && !forgets);
        if let Some(known) = known {
            self.check_same(known, request)?;
            let mut volume = self.show(known, request);
            if self.has(Fault::CreateRepeatOtherContext) {
                volume.volume_context.insert("again".into(), "yes".into());
            }
            return Ok(CreateVolumeResponse {
                volume: Some(volume),
            });
        }
        let volume = self.make_volume(state, request, form)?;
        let shown = self.show(&volume, request);
        state.volumes.insert(volume.id.clone(), volume);
        Ok(CreateVolumeResponse {
            volume: Some(shown),
        })
    }

    fn make_volume(
        &self,
        state: &mut State,
        request: &CreateVolumeRequest,
        form: Form,
    ) -> Result<Record, Status> {
        let source = request.volume_content_source.as_ref();
        let origin = match source.and_then(|source| source.r#type.as_ref()) {
            Some(_) if self.profile == Profile::Least => {
                return Err(invalid("volumes are made empty here"));
            }
            Some(source) => Some(self.origin(state, source)?),
            None if source.is_some() => return Err(invalid("the content source names nothing")),
            None => None,
        };
        if origin.as_ref().is_some_and(|origin| origin.form != form) {
            return Err(invalid("the source has another access type"));
        }
        let least = origin.as_ref().map_or(0, |origin| origin.size);
        let capacity = self.size_for(request.capacity_range.as_ref(), least)?;
        let taken: i64 = state.volumes.values().map(|volume| volume.capacity).sum();
        if capacity > refuse::POOL - taken && !self.has(Fault::CreateHugeSize) {
            return Err(Status::resource_exhausted("the pool is full"));
        }

        let id = state.fresh("vol");
        let real = match self.fault {
            Some(Fault::CreateFileSystemTooSmall) if form == Form::Mount => {
                (capacity / 4).max(UNIT)
            }
            Some(Fault::BlockTooSmall) if form == Form::Block => (capacity / 2).max(UNIT),
            Some(Fault::RestoreStaysSmall) if origin.is_some() => least,
            _ => capacity.clamp(UNIT, refuse::LARGEST),
        };
        let made = self
            .store
            .make(&id, form, real)
            .and_then(|()| match &origin {
                Some(origin) => self.fill(&id, origin, source),
                None => Ok(()),
            });
        if let Err(error) = made {
            let _ = self.store.remove(&id);
            return Err(internal("make the volume", &error));
        }
        if self.has(Fault::CreateNameIsPath) && request.name.contains("..") {
            let _ = std::fs::create_dir_all(self.store.root().join(&request.name));
            let _ = std::fs::write(self.store.root().join(&request.name).join("volume"), &id);
        }
        let mut context: Map = [("model.csi.example/key".to_owned(), format!("of-{id}"))].into();
        if self.has(Fault::SecretInContext) {
            context.extend(request.secrets.clone());
        }
        let borrows = match source.and_then(|source| source.r#type.as_ref()) {
            Some(Source::Volume(from)) if self.has(Fault::CloneSharesData) => {
                Some(from.volume_id.clone())
            }
            _ => None,
        };
        Ok(Record {
            id,
            asked: CreateVolumeRequest {
                secrets: Map::new(),
                ..request.clone()
            },
            form,
            capacity,
            first_capacity: capacity,
            context,
            mutable: request.mutable_parameters.clone(),
            attached: Default::default(),
            staged: None,
            published: Default::default(),
            borrows,
        })
    }

    fn origin(&self, state: &State, source: &Source) -> Result<Origin, Status> {
        match source {
            Source::Snapshot(from) => {
                refuse::required("snapshot_id", &from.snapshot_id)?;
                let Some(snapshot) = state.snapshots.get(&from.snapshot_id) else {
                    let message = format!("there is no snapshot {:?}", from.snapshot_id);
                    return Err(match self.has(Fault::RestoreUnknownIsInternal) {
                        true => Status::internal(message),
                        false => Status::not_found(message),
                    });
                };
                let at = match self.has(Fault::SnapshotIsLive) {
                    true => self.store.volume(&snapshot.source),
                    false => self.store.snapshot(&snapshot.id),
                };
                Ok(Origin {
                    at,
                    form: snapshot.form,
                    size: match self.has(Fault::RestoreTooSmall) {
                        true => 0,
                        false => snapshot.size,
                    },
                })
            }
            Source::Volume(from) => {
                refuse::required("volume_id", &from.volume_id)?;
                let Some(volume) = state.volumes.get(&from.volume_id) else {
                    return Err(match self.has(Fault::CloneUnknownIsInvalid) {
                        true => invalid("what volume?"),
                        false => refuse::no_volume(&from.volume_id),
                    });
                };
                self.must_rest(volume)?;
                self.settle(volume);
                Ok(Origin {
                    at: self.store.volume(&volume.id),
                    form: volume.form,
                    size: volume.capacity,
                })
            }
        }
    }

    fn fill(
        &self,
        id: &str,
        origin: &Origin,
        source: Option<&VolumeContentSource>,
    ) -> std::io::Result<()> {
        let restores = matches!(
            source.and_then(|source| source.r#type.as_ref()),
            Some(Source::Snapshot(_))
        );
        let to = self.store.volume(id);
        match self.fault {
            Some(Fault::RestoreLosesData) if restores => Ok(()),
            Some(Fault::CloneLosesData) if !restores => Ok(()),
            Some(Fault::RestoreTooSmall) => store::copy(&origin.at, &to, origin.form).or(Ok(())),
            Some(Fault::RestoreCorruptsData) if restores => {
                store::copy(&origin.at, &to, origin.form)?;
                store::corrupt(&to, origin.form)
            }
            _ => store::copy(&origin.at, &to, origin.form),
        }
    }

    /// Whether a volume is what a repeated call wants.
    fn check_same(&self, known: &Record, request: &CreateVolumeRequest) -> Result<(), Status> {
        let differs = |what: &str| {
            let message = format!("volume {} has the name, but another {what}", known.id);
            Err(match self.has(Fault::CreateConflictIsInternal) {
                true => Status::internal(message),
                false => Status::already_exists(message),
            })
        };
        let asked = &known.asked;
        let range = request.capacity_range.unwrap_or_default();
        let fits = range.required_bytes <= known.capacity
            && (range.limit_bytes == 0 || known.capacity <= range.limit_bytes);
        if self.has(Fault::CreateRepeatFails) {
            return differs("day");
        }
        if !fits && !self.has(Fault::CreateRepeatOtherSize) {
            return differs("size");
        }
        if asked.parameters != request.parameters && !self.has(Fault::CreateRepeatOtherParameters) {
            return differs("set of parameters");
        }
        if asked.volume_content_source != request.volume_content_source
            && !self.has(Fault::CreateRepeatOtherSource)
        {
            return differs("source");
        }
        if asked.volume_capabilities != request.volume_capabilities
            && !self.has(Fault::CreateRepeatOtherForm)
        {
            return differs("set of capabilities");
        }
        if asked.mutable_parameters != request.mutable_parameters {
            return differs("set of mutable parameters");
        }
        Ok(())
    }

    /// A volume as CreateVolume answers it.
    fn show(&self, volume: &Record, request: &CreateVolumeRequest) -> Volume {
        let mut shown = self.volume(volume);
        match self.fault {
            Some(Fault::CreateIdEmpty) => shown.volume_id.clear(),
            Some(Fault::CreateIdTooLong) => {
                shown.volume_id = format!("{}{}", shown.volume_id, "x".repeat(117));
            }
            Some(Fault::CreateContextTooLarge) => {
                shown.volume_context.insert("k".into(), "v".repeat(4096));
            }
            Some(Fault::CreateSourceNotEchoed) => shown.content_source = None,
            Some(Fault::CreateNegativeCapacity) => shown.capacity_bytes = -1,
            Some(Fault::CreateSharesContexts) => {
                shown.volume_context = [("model.csi.example/key".into(), "of-vol-0".into())].into();
            }
            Some(Fault::CreateTopologyElsewhere)
                if request.accessibility_requirements.is_some() =>
            {
                shown.accessible_topology = vec![Topology {
                    segments: [(ZONE.0.to_owned(), "elsewhere".to_owned())].into(),
                }];
            }
            _ => {}
        }
        shown
    }

    /// A volume as it is.
    pub(super) fn volume(&self, volume: &Record) -> Volume {
        let topology = match self.profile {
            Profile::Full | Profile::AtRest => vec![zone()],
            Profile::Least => Vec::new(),
        };
        Volume {
            capacity_bytes: volume.capacity,
            volume_id: volume.id.clone(),
            volume_context: volume.context.clone(),
            content_source: volume.asked.volume_content_source.clone(),
            accessible_topology: topology,
        }
    }

    fn check_name(&self, name: &str) -> Result<(), Status> {
        match self.fault {
            Some(Fault::CreateWithoutName) if name.is_empty() => return Ok(()),
            Some(Fault::CreateNameTooLong) if name.len() > limits::STRING => return Ok(()),
            Some(Fault::CreateLongNameRefused) if name.len() > 100 => {
                return Err(invalid("the name is too long"));
            }
            Some(Fault::CreateUnicodeRefused) if !name.is_ascii() => {
                return Err(invalid("the name is not ASCII"));
            }
            Some(Fault::CreateSlashRefused) if name.contains('/') => {
                return Err(invalid("the name has a slash"));
            }
            Some(Fault::CreateControlCharacter) if !name.is_empty() => {
                return refuse::required("name", name);
            }
            _ => {}
        }
        limits::name("name", name).map_err(|error| limit(&error))
    }

    fn check_capabilities(&self, wanted: &[VolumeCapability]) -> Result<Form, Status> {
        let mut form = None;
        for capability in wanted {
            let skips = match self.fault {
                Some(Fault::CreateWithoutAccessType) => capability.access_type.is_none(),
                Some(Fault::CreateWithoutAccessMode) => refuse::mode(capability).is_none(),
                Some(Fault::CreateUnknownMode) => {
                    capability.access_mode.is_some_and(|mode| mode.mode > 7)
                }
                _ => false,
            };
            let this = match skips {
                true => Form::Mount,
                false => refuse::capability(capability)?,
            };
            if form.is_some_and(|form| form != this) {
                return Err(invalid("a volume is either files or a device, not both"));
            }
            form = Some(this);
        }
        match form {
            Some(form) => Ok(form),
            None if self.has(Fault::CreateWithoutCapabilities) => Ok(Form::Mount),
            None => Err(invalid("volume_capabilities is missing")),
        }
    }

    fn check_range(&self, range: Option<&CapacityRange>) -> Result<(), Status> {
        let Some(range) = range else {
            return Ok(());
        };
        match self.fault {
            Some(Fault::CreateInvertedRange) if range.limit_bytes > 0 => Ok(()),
            Some(Fault::CreateNegativeSize)
                if range.required_bytes < 0 || range.limit_bytes < 0 =>
            {
                Ok(())
            }
            _ => limits::capacity_range(range).map_err(|error| limit(&error)),
        }
    }

    fn size_for(&self, range: Option<&CapacityRange>, least: i64) -> Result<i64, Status> {
        let wanted = range.copied().unwrap_or_default();
        match self.fault {
            Some(Fault::CreateInvertedRange) if wanted.limit_bytes < wanted.required_bytes => {
                Ok(wanted.required_bytes)
            }
            Some(Fault::CreateNegativeSize)
                if wanted.required_bytes < 0 || wanted.limit_bytes < 0 =>
            {
                Ok(UNIT)
            }
            Some(Fault::CreateOverLimit) if wanted.limit_bytes > 0 => {
                Ok(refuse::size(range, least)?.max(wanted.limit_bytes / UNIT * UNIT + UNIT))
            }
            Some(Fault::CreateTooSmall) if wanted.required_bytes > UNIT => {
                Ok(refuse::size(range, least)? - UNIT)
            }
            Some(Fault::CreateHugeSize) if wanted.required_bytes > refuse::LARGEST => {
                Ok(wanted.required_bytes)
            }
            _ => refuse::size(range, least),
        }
    }

    fn check_topology(&self, wanted: Option<&TopologyRequirement>) -> Result<(), Status> {
        let Some(wanted) = wanted else {
            return Ok(());
        };
        for topology in wanted.requisite.iter().chain(&wanted.preferred) {
            limits::topology(&topology.segments).map_err(|error| limit(&error))?;
        }
        let here = |topology: &Topology| {
            let found = topology.segments.get(ZONE.0);
            found.is_some_and(|zone| zone == ZONE.1)
        };
        let all = match wanted.requisite.is_empty() {
            true => &wanted.preferred,
            false => &wanted.requisite,
        };
        if all.is_empty() || all.iter().any(here) || self.has(Fault::CreateTopologyIgnored) {
            return Ok(());
        }
        if wanted.requisite.is_empty() {
            return Ok(());
        }
        Err(Status::resource_exhausted(
            "there is no storage in any of the places asked for",
        ))
    }
}

/// Where the model's volumes are.
pub(super) fn zone() -> Topology {
    Topology {
        segments: [(ZONE.0.to_owned(), ZONE.1.to_owned())].into(),
    }
}
