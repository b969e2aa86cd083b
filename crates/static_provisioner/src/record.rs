//! How far the cleaning of a volume's disk has come, kept on the volume.

use orlop_model::{Volume, well_known};
use serde::{Deserialize, Serialize};

/// How far cleaning has come.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Record {
    /// The uid of the claim whose data it is.
    pub claim: String,
    /// The disk; another one in its place is cleaned from the start.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub disk: String,
    /// How it is cleaned; in another way, it is cleaned from the start.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub how: String,
    /// So much is done.
    pub done: u64,
    /// Of so much.
    pub of: u64,
    /// Nothing is left to do.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub clean: bool,
}

impl Record {
    /// What stands on a volume about the data of the claim that it has now.
    pub fn of(volume: &Volume) -> Option<Self> {
        let text = volume.metadata.annotation(well_known::LOCAL_CLEANING)?;
        let record: Self = serde_json::from_str(text).ok()?;
        let claim = volume.spec.claim_ref.as_ref()?;
        (record.claim == claim.uid).then_some(record)
    }

    /// As an annotation.
    pub fn text(&self) -> String {
        // A struct of texts and numbers.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// In hundredths.
    pub fn percent(&self) -> u64 {
        match self.of {
            0 => 0,
            of => self.done.saturating_mul(100) / of,
        }
    }
}

#[cfg(test)]
mod tests {
    use orlop_model::ObjectRef;

    use super::*;

    #[test]
    fn a_record_counts_for_the_claim_that_it_is_of() {
        let record = Record {
            claim: "uid-1".into(),
            disk: "boot/7".into(),
            how: "zero".into(),
            done: 5,
            of: 10,
            clean: true,
        };
        let mut volume = Volume::default();
        let annotations = &mut volume.metadata.annotations;
        annotations.insert(well_known::LOCAL_CLEANING.into(), record.text());
        assert_eq!(Record::of(&volume), None);
        volume.spec.claim_ref = Some(ObjectRef {
            uid: "uid-1".into(),
            ..ObjectRef::default()
        });
        assert_eq!(Record::of(&volume), Some(record.clone()));
        assert_eq!(record.percent(), 50);
        // The volume was given to another claim, which wrote to it.
        volume.spec.claim_ref = Some(ObjectRef {
            uid: "uid-2".into(),
            ..ObjectRef::default()
        });
        assert_eq!(Record::of(&volume), None);
    }
}
