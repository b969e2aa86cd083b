//! What a snapshot and a group of them have in common, so that one shell leads both.

use orlop_model::{Key, Kind, snapshot::DeletionPolicy};
use orlop_runtime::{ApiError, Outcome};
use serde_json::Value;

use super::{
    bench::Bench,
    decide::{View, Words},
};

/// What a user asks for: a snapshot, or a group of them.
pub(super) trait Wish: Kind {
    /// Its other half.
    type Content: Half;
    /// How it is made.
    type Class: Kind;
    const WORDS: Words;

    fn view<'a>(&'a self, content: Option<&'a Self::Content>) -> View<'a>;
    /// The content that it is bound to, names, or would be given.
    fn content_name(&self) -> String;
    /// Whom a content belongs to.
    fn owner(content: &Self::Content) -> Key;
    /// The class that it names.
    fn class_name(&self) -> Option<&str>;
    fn error_message(&self) -> Option<&str>;
    fn is_created(&self) -> bool;
    fn is_ready(&self) -> bool;
    /// The finalizers that it must have beside this content.
    fn finalizers(policy: DeletionPolicy) -> Vec<&'static str>;
    /// The change of the status that follows from the content; `None` if it stands already.
    fn status(&self, content: &Self::Content, group: Option<&str>) -> Option<Value>;

    /// Makes the content, or says why not.
    fn make(
        bench: &Bench<Self>,
        wish: &Self,
    ) -> impl Future<Output = Result<Outcome, ApiError>> + Send;
    /// Sees to it that what may have been cut for one that goes is found, though its content is missing;
    /// `None` if it may go.
    fn search(
        bench: &Bench<Self>,
        wish: &Self,
    ) -> impl Future<Output = Result<Option<Outcome>, ApiError>> + Send;
    /// What must be there before the status is told.
    fn prepare(
        bench: &Bench<Self>,
        wish: &Self,
        content: &Self::Content,
    ) -> impl Future<Output = Result<Prepared, ApiError>> + Send;
    /// A look at one that is ready.
    fn attend(
        bench: &Bench<Self>,
        wish: &Self,
    ) -> impl Future<Output = Result<Outcome, ApiError>> + Send;
    /// Leads one that is deleted to its end.
    fn depart(
        bench: &Bench<Self>,
        wish: &Self,
    ) -> impl Future<Output = Result<Outcome, ApiError>> + Send;
}

/// Whether the status may be told.
pub(super) enum Prepared {
    /// Yes, with the name of the group that it belongs to.
    Ready(Option<String>),
    /// Not yet.
    Later(Outcome),
}

/// A content.
pub(super) trait Half: Kind {
    /// The kind whose other half it is.
    const FINALIZER: &'static str;
    const BEING_DELETED: &'static str;
    /// The field that names its owner.
    const OWNER_FIELD: &'static str;
    const CLASS_FIELD: &'static str;
    /// The reason and the words of the event about unclear sources.
    const UNCLEAR: (&'static str, &'static str);

    fn policy(&self) -> DeletionPolicy;
    fn driver(&self) -> &str;
    fn owner_uid(&self) -> &str;
    /// Exactly one source is named.
    fn is_clear(&self) -> bool;
    /// It was made for its owner, and the driver is not known to have made anything for it.
    fn is_empty(&self) -> bool;
}
