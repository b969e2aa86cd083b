//! From text to words and signs.

use serde_json::Value;

/// How long a rule may be. Each word can be a level of the tree, and trees are walked by
/// calls that call themselves.
const MOST: usize = 400;

/// A word or sign.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token {
    Literal(Value),
    Name(String),
    Sign(&'static str),
}

impl Token {
    pub(super) fn text(&self) -> String {
        match self {
            Self::Literal(value) => value.to_string(),
            Self::Name(name) => name.clone(),
            Self::Sign(sign) => (*sign).to_owned(),
        }
    }
}

/// Longer signs before their beginnings.
const SIGNS: [&str; 23] = [
    "&&", "||", "==", "!=", "<=", ">=", "<", ">", "!", "+", "-", "*", "/", "%", "?", ":", "(", ")",
    "[", "]", ".", ",", "{",
];

/// Takes a text apart.
pub(super) fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut found = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        if found.len() == MOST {
            return Err(format!(
                "a rule of more than {MOST} words and signs is not supported"
            ));
        }
        let length = if first == '"' || first == '\'' {
            let (literal, length) = string(rest, first)?;
            found.push(Token::Literal(literal.into()));
            length
        } else if first.is_ascii_digit() {
            let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.');
            let end = end.unwrap_or(rest.len());
            let number: Value = serde_json::from_str(&rest[..end])
                .map_err(|_| format!("Syntax error: token recognition error at '{rest}'"))?;
            found.push(Token::Literal(number));
            end
        } else if first.is_ascii_alphabetic() || first == '_' {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let end = end.unwrap_or(rest.len());
            found.push(match &rest[..end] {
                "true" => Token::Literal(true.into()),
                "false" => Token::Literal(false.into()),
                "null" => Token::Literal(Value::Null),
                name => Token::Name(name.to_owned()),
            });
            end
        } else {
            let sign = SIGNS.into_iter().find(|sign| rest.starts_with(sign));
            let sign =
                sign.ok_or_else(|| format!("Syntax error: token recognition error at '{first}'"))?;
            found.push(Token::Sign(sign));
            sign.len()
        };
        rest = rest[length..].trim_start();
    }
    Ok(found)
}

/// A quoted text and its length in the source.
fn string(source: &str, quote: char) -> Result<(String, usize), String> {
    let mut text = String::new();
    let mut chars = source.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            c if c == quote => return Ok((text, at + 1)),
            '\\' => match chars.next() {
                Some((_, 'n')) => text.push('\n'),
                Some((_, 't')) => text.push('\t'),
                Some((_, c @ ('\\' | '\'' | '"'))) => text.push(c),
                _ => return Err("Syntax error: unknown escape in a string".to_owned()),
            },
            c => text.push(c),
        }
    }
    Err("Syntax error: a string without an end".to_owned())
}
