//! File name patterns as Go's `filepath.Match` has them: `*`, `?`, `[a-z]`, `\x`.

/// A pattern that is no pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no file name pattern")]
pub struct BadPattern(pub String);

/// One of several patterns must match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Patterns(Vec<Vec<Piece>>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Many,
    One,
    Of {
        not: bool,
        ranges: Vec<(char, char)>,
    },
    This(char),
}

impl Patterns {
    /// Patterns, parted by commas.
    ///
    /// # Errors
    /// One of them is none.
    pub fn parse(text: &str) -> Result<Self, BadPattern> {
        let parts = text.split(',').filter(|part| !part.is_empty());
        let parsed = parts.map(|part| parse(part).ok_or_else(|| BadPattern(part.to_owned())));
        parsed.collect::<Result<_, _>>().map(Self)
    }

    /// Whether a name matches any of them.
    pub fn match_name(&self, name: &str) -> bool {
        let name: Vec<char> = name.chars().collect();
        self.0.iter().any(|pattern| matches(pattern, &name))
    }
}

fn parse(text: &str) -> Option<Vec<Piece>> {
    let mut pieces = Vec::new();
    let mut rest = text.chars();
    while let Some(next) = rest.next() {
        pieces.push(match next {
            '*' => Piece::Many,
            '?' => Piece::One,
            '\\' => Piece::This(rest.next()?),
            '[' => one_of(&mut rest)?,
            other => Piece::This(other),
        });
    }
    Some(pieces)
}

fn one_of(rest: &mut std::str::Chars<'_>) -> Option<Piece> {
    let not = rest.clone().next() == Some('^');
    if not {
        rest.next();
    }
    let mut ranges = Vec::new();
    loop {
        let low = match rest.next()? {
            ']' if !ranges.is_empty() => return Some(Piece::Of { not, ranges }),
            ']' | '-' => return None,
            '\\' => rest.next()?,
            low => low,
        };
        let high = match rest.clone().next()? {
            '-' => {
                rest.next();
                match rest.next()? {
                    ']' => return None,
                    '\\' => rest.next()?,
                    high => high,
                }
            }
            _ => low,
        };
        ranges.push((low, high));
    }
}

fn matches(pattern: &[Piece], name: &[char]) -> bool {
    let Some((piece, later)) = pattern.split_first() else {
        return name.is_empty();
    };
    let fits = |letter: char| match piece {
        Piece::Many => false,
        Piece::One => true,
        Piece::This(this) => *this == letter,
        Piece::Of { not, ranges } => {
            let within = |(low, high): &(char, char)| (*low..=*high).contains(&letter);
            ranges.iter().any(within) != *not
        }
    };
    match piece {
        Piece::Many => (0..=name.len()).any(|skip| matches(later, &name[skip..])),
        Piece::One | Piece::This(_) | Piece::Of { .. } => name
            .split_first()
            .is_some_and(|(letter, rest)| fits(*letter) && matches(later, rest)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_as_in_go() {
        for (patterns, name, expected) in [
            ("*", "anything", true),
            ("nvme*", "nvme0n1", true),
            ("nvme*", "sda", false),
            ("nvme*,sd?", "sda", true),
            ("sd?", "sdaa", false),
            ("sd[a-c]", "sdb", true),
            ("sd[^a-c]", "sdb", false),
            ("sd[ac]", "sdb", false),
            ("a\\*", "a*", true),
            ("a\\*", "ab", false),
            ("*-disk-*", "x-disk-1", true),
            ("", "x", false),
        ] {
            let parsed = Patterns::parse(patterns).unwrap();
            assert_eq!(parsed.match_name(name), expected, "{patterns} {name}");
        }
        for wrong in ["[", "[]", "[a", "[a-]", "x\\", "[-a]"] {
            assert_eq!(Patterns::parse(wrong), Err(BadPattern(wrong.into())));
        }
    }
}
