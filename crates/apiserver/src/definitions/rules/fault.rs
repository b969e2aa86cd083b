//! What is wrong with an expression, and where.

/// A mistake in an expression's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fault {
    /// Where, in characters.
    pub(super) at: usize,
    /// What.
    pub(super) why: String,
}

impl Fault {
    pub(super) fn new(at: usize, why: impl Into<String>) -> Self {
        Self {
            at,
            why: why.into(),
        }
    }

    /// The fault as the original shows it: with the line and a mark below it.
    pub(super) fn shown(&self, text: &str) -> String {
        let (mut line, mut column, mut start) = (1, 0, 0);
        for (at, c) in text.chars().enumerate().take(self.at) {
            column += 1;
            if c == '\n' {
                (line, column, start) = (line + 1, 0, at + 1);
            }
        }
        let source: String = text
            .chars()
            .skip(start)
            .take_while(|c| *c != '\n')
            .collect();
        let wide = |c: char| c.len_utf8() > 1;
        let mut mark: String = source
            .chars()
            .take(column)
            .map(|c| if wide(c) { '\u{ff0e}' } else { '.' })
            .collect();
        let under = source.chars().nth(column);
        mark.push(if under.is_some_and(wide) {
            '\u{ff3e}'
        } else {
            '^'
        });
        format!(
            "ERROR: <input>:{line}:{}: {}\n | {}\n | {mark}",
            column + 1,
            self.why,
            source.replace('\t', " ")
        )
    }
}
