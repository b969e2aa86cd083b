//! The metadata that the server itself needs of every object, packed into one piece of memory.
//!
//! Kept as strings of their own they would weigh as much as a third of the object: there is one of
//! these for each version of each object.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

/// The metadata kept in parsed form beside the text. Clones share it.
///
/// What is in it: a byte that says whether the object is being deleted, the uid, how many labels
/// there are, the labels by key, the uids of the owners. Each string follows its length.
#[derive(Clone, PartialEq, Eq)]
pub struct Meta(Arc<str>);

impl Meta {
    /// What an object's `metadata` says.
    pub fn of(object: &Value) -> Self {
        let metadata = &object["metadata"];
        let labels = metadata["labels"].as_object();
        let mut labels: Vec<(&str, &str)> = labels
            .into_iter()
            .flatten()
            .map(|(key, value)| (key.as_str(), value.as_str().unwrap_or("")))
            .collect();
        labels.sort_unstable();
        let deleting = metadata["deletionTimestamp"].is_string();
        let mut packed = String::with_capacity(128);
        packed.push(if deleting { 'd' } else { '-' });
        put(&mut packed, metadata["uid"].as_str().unwrap_or(""));
        put_number(&mut packed, labels.len());
        for (key, value) in labels {
            put(&mut packed, key);
            put(&mut packed, value);
        }
        let owners = metadata["ownerReferences"].as_array();
        for owner in owners.into_iter().flatten() {
            if let Some(uid) = owner["uid"].as_str() {
                put(&mut packed, uid);
            }
        }
        Self(packed.into())
    }

    /// Whether `metadata.deletionTimestamp` is set.
    pub fn deleting(&self) -> bool {
        self.0.starts_with('d')
    }

    /// `metadata.uid`.
    pub fn uid(&self) -> &str {
        self.strings().next().unwrap_or("")
    }

    /// `metadata.labels`, sorted by key.
    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut strings = self.strings();
        strings.next();
        let count = strings.number();
        (0..count).map_while(move |_| Some((strings.next()?, strings.next()?)))
    }

    /// The uids of `metadata.ownerReferences`.
    pub fn owners(&self) -> impl Iterator<Item = &str> {
        let mut strings = self.strings();
        strings.next();
        let labels = strings.number();
        strings.by_ref().take(2 * labels).for_each(drop);
        strings
    }

    fn strings(&self) -> Strings<'_> {
        Strings(self.0.get(1..).unwrap_or(""))
    }
}

impl Default for Meta {
    fn default() -> Self {
        Self::of(&Value::Null)
    }
}

impl fmt::Debug for Meta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meta")
            .field("uid", &self.uid())
            .field("labels", &self.labels().collect::<Vec<_>>())
            .field("owners", &self.owners().collect::<Vec<_>>())
            .field("deleting", &self.deleting())
            .finish()
    }
}

/// How many bits of a number one character holds. One more says that another follows: seven in
/// all, so that each is a character of one byte.
const BITS: usize = 6;
const MORE: usize = 1 << BITS;

fn put_number(packed: &mut String, number: usize) {
    let mut rest = number;
    loop {
        let more = if rest >= MORE { MORE } else { 0 };
        packed.push(char::from((rest % MORE + more) as u8));
        rest >>= BITS;
        if rest == 0 {
            return;
        }
    }
}

fn put(packed: &mut String, text: &str) {
    put_number(packed, text.len());
    packed.push_str(text);
}

/// Strings, one after the other.
struct Strings<'s>(&'s str);

impl<'s> Strings<'s> {
    fn number(&mut self) -> usize {
        let mut number = 0;
        for (at, byte) in self.0.bytes().enumerate() {
            number |= (byte as usize % MORE) << (at * BITS);
            if byte as usize & MORE == 0 {
                self.0 = &self.0[at + 1..];
                return number;
            }
        }
        self.0 = "";
        0
    }
}

impl<'s> Iterator for Strings<'s> {
    type Item = &'s str;

    fn next(&mut self) -> Option<&'s str> {
        if self.0.is_empty() {
            return None;
        }
        let length = self.number();
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_packed_is_what_the_object_says() {
        let long = "ö".repeat(5000);
        let object = json!({ "metadata": {
            "uid": "u", "deletionTimestamp": "now",
            "labels": { "b": "", "a": long, "\u{0}": "x".repeat(64) },
            "ownerReferences": [{ "uid": "o" }, { "name": "none" }, { "uid": "" }, { "uid": long }],
        } });
        let meta = Meta::of(&object);
        assert!(meta.deleting());
        assert_eq!(meta.uid(), "u");
        let labels: Vec<_> = meta.labels().collect();
        let first = "x".repeat(64);
        assert_eq!(labels, [("\u{0}", &*first), ("a", &*long), ("b", "")]);
        assert_eq!(meta.owners().collect::<Vec<_>>(), ["o", "", &*long]);
        for nothing in [json!(null), json!({}), json!({ "metadata": { "uid": 7 } })] {
            let meta = Meta::of(&nothing);
            assert!(!meta.deleting() && meta.uid().is_empty());
            assert_eq!((meta.labels().count(), meta.owners().count()), (0, 0));
        }
    }

    #[test]
    fn numbers_of_every_length_are_read_as_written() {
        for number in [0, 1, 63, 64, 65, 4095, 4096, 262_143, 262_144, 3 << 20] {
            let mut packed = String::new();
            put_number(&mut packed, number);
            packed.push('x');
            let mut strings = Strings(&packed);
            assert_eq!((strings.number(), strings.0), (number, "x"));
        }
    }
}
