//! A driver's volumes and snapshots, page by page.

use std::collections::BTreeSet;

use orlop_csi::{
    CallError, Driver,
    proto::{ListSnapshotsRequest, ListVolumesRequest, Snapshot, list_volumes_response::Entry},
};

/// Why a list could not be had.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// The driver refused a page.
    #[error("the driver does not list them")]
    Call(#[from] CallError),
    /// The driver's pages have no end.
    #[error("the driver's list goes round in circles: it gave the token {0:?} twice")]
    Circle(String),
}

/// The tokens of a list, each of which must be new.
#[derive(Default)]
struct Tokens(BTreeSet<String>);

impl Tokens {
    /// The token of the next page, if there is one.
    fn next(&mut self, token: String) -> Result<Option<String>, ListError> {
        if token.is_empty() {
            return Ok(None);
        }
        if self.0.insert(token.clone()) {
            Ok(Some(token))
        } else {
            Err(ListError::Circle(token))
        }
    }
}

/// All of a driver's volumes, with their state, so many at a time; 0 leaves that to the driver.
///
/// # Errors
/// A page is refused, or there is no last one.
pub async fn volumes(driver: &Driver, max_entries: i32) -> Result<Vec<Entry>, ListError> {
    let (mut all, mut tokens) = (Vec::new(), Tokens::default());
    let mut token = Some(String::new());
    while let Some(starting_token) = token {
        let page = driver
            .list_volumes(ListVolumesRequest {
                max_entries,
                starting_token,
            })
            .await?;
        all.extend(page.entries);
        token = tokens.next(page.next_token)?;
    }
    Ok(all)
}

/// All of a driver's snapshots.
///
/// # Errors
/// A page is refused, or there is no last one.
pub async fn snapshots(driver: &Driver) -> Result<Vec<Snapshot>, ListError> {
    let (mut all, mut tokens) = (Vec::new(), Tokens::default());
    let mut token = Some(String::new());
    while let Some(starting_token) = token {
        let page = driver
            .list_snapshots(ListSnapshotsRequest {
                starting_token,
                ..ListSnapshotsRequest::default()
            })
            .await?;
        all.extend(page.entries.into_iter().filter_map(|entry| entry.snapshot));
        token = tokens.next(page.next_token)?;
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_goes_round_in_circles_is_given_up() {
        let mut tokens = Tokens::default();
        assert!(matches!(tokens.next("a".into()), Ok(Some(_))));
        assert!(matches!(tokens.next("b".into()), Ok(Some(_))));
        assert!(matches!(tokens.next("a".into()), Err(ListError::Circle(_))));
        assert!(matches!(tokens.next(String::new()), Ok(None)));
    }
}
