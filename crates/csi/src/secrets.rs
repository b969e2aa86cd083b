//! Values that must not be seen.
//!
//! Owns the one type that carries credentials through a role, and the means by
//! which messages and drivers' error texts lose them. Nothing here has a way to
//! print a value.

use std::collections::BTreeMap;
use std::fmt;

/// The key of a volume's context under which Kubernetes hands pod tokens to a
/// driver. The context is otherwise public; this value is not.
pub const SERVICE_ACCOUNT_TOKENS: &str = "csi.storage.k8s.io/serviceAccount.tokens";

/// What stands in the place of a hidden value; the Go sidecars use the same word.
const STRIPPED: &str = "***stripped***";

/// Shorter values are left alone in a driver's text: replacing every "a" would
/// make it unreadable, and such a value hides nothing.
const SHORTEST_SCRUBBED: usize = 4;

/// A long run within a quoted or many-lined value is worth hiding by itself:
/// drivers echo a key's line or a token out of its JSON.
const SHORTEST_PART: usize = 16;

/// Credentials for a driver, from a Kubernetes Secret to the request that
/// carries them.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secrets(BTreeMap<String, String>);

impl Secrets {
    /// No credentials.
    pub fn none() -> Self {
        Self::default()
    }

    /// Whether there are any.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Hands the values over to a request's `secrets` field, whose message
    /// hides them in turn.
    pub fn into_request(self) -> BTreeMap<String, String> {
        self.0
    }
}

impl From<BTreeMap<String, String>> for Secrets {
    fn from(values: BTreeMap<String, String>) -> Self {
        Self(values)
    }
}

impl FromIterator<(String, String)> for Secrets {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(values: I) -> Self {
        Self(values.into_iter().collect())
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Hidden::of(self.0.len()).fmt(f)
    }
}

/// A field that is not shown; says only whether there is something.
pub(crate) enum Hidden {
    Nothing,
    Something,
}

impl Hidden {
    pub(crate) fn of(length: usize) -> Self {
        if length == 0 {
            Self::Nothing
        } else {
            Self::Something
        }
    }
}

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => "{}",
            Self::Something => STRIPPED,
        })
    }
}

/// A volume's context, shown without the pod's tokens.
pub(crate) struct WithoutTokens<'a>(pub(crate) &'a BTreeMap<String, String>);

impl fmt::Debug for WithoutTokens<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(self.0.iter().map(|(key, value)| match key.as_str() {
                SERVICE_ACCOUNT_TOKENS => (key, STRIPPED),
                _ => (key, value.as_str()),
            }))
            .finish()
    }
}

/// The secret values of one request, kept while it is under way so that a
/// driver which echoes one in its error text does not spread it.
#[derive(Default)]
pub struct Sensitive(Vec<String>);

impl Sensitive {
    pub(crate) fn add_secrets(&mut self, secrets: &BTreeMap<String, String>) {
        for value in secrets.values() {
            self.add(value);
        }
    }

    pub(crate) fn add_tokens(&mut self, context: &BTreeMap<String, String>) {
        if let Some(tokens) = context.get(SERVICE_ACCOUNT_TOKENS) {
            self.add(tokens);
        }
    }

    fn add(&mut self, value: &str) {
        let whole = Some(value).filter(|value| value.len() >= SHORTEST_SCRUBBED);
        let parts = value
            .split(['"', '\n', '\r'])
            .filter(|part| part.len() >= SHORTEST_PART);
        self.0
            .extend(whole.into_iter().chain(parts).map(str::to_owned));
    }

    /// The text without any of the values.
    pub(crate) fn scrub(&self, text: &str) -> String {
        // Longest first: a value may contain another, whose removal would
        // leave the rest of the longer one standing.
        let mut values: Vec<_> = self.0.iter().collect();
        values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        values.into_iter().fold(text.to_owned(), |text, value| {
            if text.contains(value.as_str()) {
                text.replace(value.as_str(), STRIPPED)
            } else {
                text
            }
        })
    }
}

#[cfg(test)]
mod tests;
