//! Names that follow from what they are for, so that a repeated request meets what the first
//! one made.

use serde_json::Value;

/// No vowels, so that no words come about, and nothing that looks like another.
const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX: u32 = 5;
/// The longest prefix that leaves room for a suffix within a host name.
const LONGEST_PREFIX: usize = 63 - 1 - SUFFIX as usize;
/// The longest name of a controller within a name of a revision.
const LONGEST_OWNER: usize = 223;

/// FNV-1a, 32 bits.
fn fnv32(bytes: impl IntoIterator<Item = u8>) -> u32 {
    bytes.into_iter().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

/// A number as letters that are safe in a name.
fn letters(number: u32) -> String {
    let digits = number.to_string();
    let letter = |byte: u8| char::from(LETTERS[usize::from(byte) % LETTERS.len()]);
    digits.bytes().map(letter).collect()
}

/// What tells templates apart. A map's text is in the order of its keys, so equal templates
/// have equal hashes. `collisions` makes another hash where a name was taken.
pub(crate) fn hash(template: &Value, collisions: i32) -> String {
    let salt = (collisions > 0).then(|| collisions.to_le_bytes());
    let text = template.to_string().into_bytes();
    letters(fnv32(text.into_iter().chain(salt.into_iter().flatten())))
}

/// The name of a revision.
pub(crate) fn revision(owner: &str, hash: &str) -> String {
    let end = owner.floor_char_boundary(LONGEST_OWNER);
    format!("{}-{hash}", &owner[..end])
}

/// The name of an owner's `n`th pod. It is drawn from the owner's uid, so that an owner that
/// is made anew under the same name doesn't wait for the pods of the earlier one.
pub(crate) fn numbered(owner: &str, uid: &str, n: u32) -> String {
    let end = owner.floor_char_boundary(LONGEST_PREFIX);
    let mut number = fnv32(format!("{uid}/{n}").into_bytes());
    let mut name = format!("{}-", &owner[..end]);
    let base = LETTERS.len() as u32;
    for _ in 0..SUFFIX {
        name.push(char::from(LETTERS[(number % base) as usize]));
        number /= base;
    }
    name
}

/// The first `count` names of an owner's pods that aren't taken.
pub(crate) fn free(
    (owner, uid): (&str, &str),
    count: usize,
    taken: impl Fn(&str) -> bool,
) -> Vec<String> {
    let mut free = Vec::with_capacity(count);
    for n in 0.. {
        if free.len() == count {
            break;
        }
        let name = numbered(owner, uid, n);
        if !taken(&name) && !free.contains(&name) {
            free.push(name);
        }
    }
    free
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn equal_templates_have_equal_hashes() {
        let one = json!({"a": 1, "b": {"c": 2, "d": 3}});
        let other = serde_json::from_str(r#"{"b":{"d":3,"c":2},"a":1}"#).unwrap();
        assert_eq!(hash(&one, 0), hash(&other, 0));
        assert_ne!(hash(&one, 0), hash(&one, 1));
        assert_ne!(hash(&one, 0), hash(&json!({"a": 2}), 0));
    }

    #[test]
    fn names_are_the_same_each_time_and_pass_over_taken_ones() {
        let three = free(("web", "u"), 3, |_| false);
        assert_eq!(three, free(("web", "u"), 3, |_| false));
        let more = free(("web", "u"), 3, |name| name == three[1]);
        assert_eq!(more[..2], [three[0].clone(), three[2].clone()]);
        assert_ne!(three, free(("web", "v"), 3, |_| false));
        assert!(
            three
                .iter()
                .all(|name| name.starts_with("web-") && name.len() == 9)
        );
        assert_eq!(numbered(&"x".repeat(90), "u", 0).len(), 63);
    }
}
