//! Which name was meant by somebody who misspelt one.

/// So many letters may be wrong in a name that was meant.
const MISSPELT: usize = 2;
/// Of a name of so many letters one may be wrong: a short one is soon like any other.
const PER_LETTER: usize = 3;

/// Of the names, the one that was meant, if one is near enough.
pub(super) fn meant<'a>(
    missing: &str,
    names: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let near = names.into_iter().filter_map(|name| {
        let longer = missing.chars().count().max(name.chars().count());
        let bearable = MISSPELT.min(longer / PER_LETTER);
        // Letter by letter only what can be near: there may be many names.
        if missing.len().abs_diff(name.len()) > bearable * char::MAX.len_utf8() {
            return None;
        }
        let wrong = distance(missing, name);
        (wrong <= bearable).then_some((wrong, name))
    });
    near.min().map(|(_, name)| name)
}

/// How many letters must be added, dropped, changed or swapped with their neighbour to get from
/// one name to the other.
fn distance(from: &str, to: &str) -> usize {
    let (from, to): (Vec<char>, Vec<char>) = (from.chars().collect(), to.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=to.len()).collect()];
    for (i, letter) in from.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, wanted) in to.iter().enumerate() {
            let changed = rows[i][j] + usize::from(letter != wanted);
            let mut least = changed.min(rows[i][j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *letter == to[j - 1] && from[i - 1] == *wanted {
                least = least.min(rows[i - 1][j - 1] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[from.len()][to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_name_is_not_taken_for_another_that_has_few_of_its_letters() {
        for (missing, name, near) in [
            ("zz", "xv", false),
            ("gold", "goal", false),
            ("gold", "gol", true),
            ("ab", "abc", true),
            ("fsat", "fast", true),
            ("manaul", "manual", true),
            ("provsioned-ssd", "provisioned-sd", true),
            ("block", "slack", false),
        ] {
            assert_eq!(
                meant(missing, [name]),
                near.then_some(name),
                "{missing} {name}"
            );
        }
    }
}
