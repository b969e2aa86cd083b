//! Label selectors: `a=b,c!=d,e in (f,g),h notin (i),j,!k,l>1`.

use super::SelectorError;
use crate::admission::{LABEL_VALUE, key_fault};
use serde_json::Value;
use std::collections::BTreeSet;

/// A parsed label selector; the default selects everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Labels {
    requirements: Vec<Requirement>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    key: String,
    wants: Wants,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Wants {
    Present,
    Absent,
    In(BTreeSet<String>),
    /// Satisfied by an object without the label, too.
    NotIn(BTreeSet<String>),
    Above(i64),
    Below(i64),
}

impl Labels {
    /// Parses a selector; the empty text selects everything.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let mut tokens = Tokens::new(text);
        let mut requirements = Vec::new();
        match tokens.peek() {
            Token::End => return Ok(Self { requirements }),
            Token::Word(_) | Token::Not => {}
            other => return Err(misplaced(other, "!, identifier, or 'end of string'")),
        }
        loop {
            requirements.push(requirement(&mut tokens)?);
            match tokens.next() {
                Token::End => return Ok(Self { requirements }),
                Token::Comma if matches!(tokens.peek(), Token::Word(_) | Token::Not) => {}
                Token::Comma => return Err(misplaced(tokens.peek(), "identifier after ','")),
                other => return Err(misplaced(&other, "',' or 'end of string'")),
            }
        }
    }

    /// Whether everything is selected.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Whether the object's labels satisfy every requirement.
    pub fn matches(&self, object: &Value) -> bool {
        let labels = object
            .pointer("/metadata/labels")
            .and_then(Value::as_object);
        let value = |key: &str| labels.and_then(|l| l.get(key)).and_then(Value::as_str);
        self.requirements.iter().all(|r| r.holds(value(&r.key)))
    }

    /// Whether these labels, sorted by key, satisfy every requirement.
    pub fn match_pairs<'l, L>(&self, labels: impl Fn() -> L) -> bool
    where
        L: Iterator<Item = (&'l str, &'l str)>,
    {
        let value = |key: &str| {
            let mut pairs = labels().skip_while(|(label, _)| *label < key);
            pairs.next().filter(|(label, _)| *label == key)
        };
        let value = |key: &str| value(key).map(|(_, value)| value);
        self.requirements.iter().all(|r| r.holds(value(&r.key)))
    }
}

impl Requirement {
    fn holds(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|v| v.parse::<i64>().ok());
        match &self.wants {
            Wants::Present => value.is_some(),
            Wants::Absent => value.is_none(),
            Wants::In(values) => value.is_some_and(|v| values.contains(v)),
            Wants::NotIn(values) => value.is_none_or(|v| !values.contains(v)),
            Wants::Above(bound) => number().is_some_and(|n| n > *bound),
            Wants::Below(bound) => number().is_some_and(|n| n < *bound),
        }
    }
}

fn requirement(tokens: &mut Tokens<'_>) -> Result<Requirement, SelectorError> {
    if tokens.peek() == &Token::Not {
        tokens.next();
        return Ok(Requirement {
            key: key(tokens)?,
            wants: Wants::Absent,
        });
    }
    let key = key(tokens)?;
    let wants = match tokens.peek() {
        Token::End | Token::Comma => Wants::Present,
        _ => match tokens.next() {
            Token::Equals | Token::SameAs => Wants::In(BTreeSet::from([value(tokens, &key)?])),
            Token::NotEquals => Wants::NotIn(BTreeSet::from([value(tokens, &key)?])),
            Token::Above => Wants::Above(number(tokens, &key)?),
            Token::Below => Wants::Below(number(tokens, &key)?),
            Token::Word("in") => Wants::In(values(tokens, &key)?),
            Token::Word("notin") => Wants::NotIn(values(tokens, &key)?),
            other => {
                return Err(expected(&other, "in, notin, =, ==, !=, gt, lt"));
            }
        },
    };
    Ok(Requirement { key, wants })
}

fn key(tokens: &mut Tokens<'_>) -> Result<String, SelectorError> {
    match tokens.next() {
        Token::Word(word) => match key_fault(word) {
            None => Ok(word.to_owned()),
            Some(fault) => Err(SelectorError::MalformedLabels(format!(
                "<nil>: Invalid value: {word:?}: {fault}"
            ))),
        },
        other => Err(expected(&other, "identifier")),
    }
}

/// A value may be left out: `a=` selects the empty one.
fn value(tokens: &mut Tokens<'_>, key: &str) -> Result<String, SelectorError> {
    match tokens.peek() {
        Token::End | Token::Comma => Ok(String::new()),
        Token::Word(word) => {
            let word = label_value(word, (0, key))?;
            tokens.next();
            Ok(word)
        }
        other => Err(expected(other, "identifier")),
    }
}

fn number(tokens: &mut Tokens<'_>, key: &str) -> Result<i64, SelectorError> {
    let text = value(tokens, key)?;
    text.parse().map_err(|_| {
        SelectorError::MalformedLabels(format!(
            "values[0]: Invalid value: {text:?}: for 'Gt', 'Lt' operators, the value must be an integer"
        ))
    })
}

fn values(tokens: &mut Tokens<'_>, key: &str) -> Result<BTreeSet<String>, SelectorError> {
    match tokens.next() {
        Token::Open => {}
        other => {
            let found = other.text();
            let why = format!("found '{found}' expected: '('");
            return Err(SelectorError::MalformedLabels(why));
        }
    }
    let mut values = BTreeSet::new();
    loop {
        match tokens.next() {
            Token::Word(word) => {
                let word = label_value(word, (values.len(), key))?;
                values.insert(word);
                match tokens.next() {
                    Token::Comma if tokens.peek() == &Token::Close => {
                        values.insert(String::new());
                    }
                    Token::Comma => {}
                    Token::Close => return Ok(values),
                    other => return Err(expected(&other, "',' or ')'")),
                }
            }
            Token::Comma => {
                values.insert(String::new());
            }
            Token::Close => {
                if values.is_empty() {
                    values.insert(String::new());
                }
                return Ok(values);
            }
            other => return Err(expected(&other, "',', ')' or identifier")),
        }
    }
}

fn expected(found: &Token<'_>, wanted: &str) -> SelectorError {
    SelectorError::MalformedLabels(format!("found '{}', expected: {wanted}", found.text()))
}

/// What stands where no requirement can.
fn misplaced(found: &Token<'_>, wanted: &str) -> SelectorError {
    SelectorError::MisplacedLabels(format!("found '{}', expected: {wanted}", found.text()))
}

fn is_name(text: &str) -> bool {
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    text.len() <= 63
        && edge(text.chars().next())
        && edge(text.chars().next_back())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

fn label_value(text: &str, (at, key): (usize, &str)) -> Result<String, SelectorError> {
    if text.is_empty() || is_name(text) {
        return Ok(text.to_owned());
    }
    Err(SelectorError::MalformedLabels(format!(
        "values[{at}][{key}]: Invalid value: {text:?}: {LABEL_VALUE}"
    )))
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token<'a> {
    Word(&'a str),
    Comma,
    Open,
    Close,
    Not,
    Equals,
    SameAs,
    NotEquals,
    Above,
    Below,
    End,
}

impl Token<'_> {
    fn text(&self) -> &str {
        match self {
            Self::Word(word) => word,
            Self::Comma => ",",
            Self::Open => "(",
            Self::Close => ")",
            Self::Not => "!",
            Self::Equals => "=",
            Self::SameAs => "==",
            Self::NotEquals => "!=",
            Self::Above => ">",
            Self::Below => "<",
            Self::End => "",
        }
    }
}

struct Tokens<'a> {
    rest: &'a str,
    ahead: Token<'a>,
}

impl<'a> Tokens<'a> {
    fn new(text: &'a str) -> Self {
        let mut tokens = Self {
            rest: text,
            ahead: Token::End,
        };
        tokens.next();
        tokens
    }

    fn peek(&self) -> &Token<'a> {
        &self.ahead
    }

    fn next(&mut self) -> Token<'a> {
        let ahead = self.scan();
        std::mem::replace(&mut self.ahead, ahead)
    }

    fn scan(&mut self) -> Token<'a> {
        const SYMBOLS: [(&str, Token<'static>); 9] = [
            ("==", Token::SameAs),
            ("!=", Token::NotEquals),
            ("=", Token::Equals),
            ("!", Token::Not),
            (",", Token::Comma),
            ("(", Token::Open),
            (")", Token::Close),
            (">", Token::Above),
            ("<", Token::Below),
        ];
        self.rest = self.rest.trim_start();
        if self.rest.is_empty() {
            return Token::End;
        }
        for (text, token) in SYMBOLS {
            if let Some(rest) = self.rest.strip_prefix(text) {
                self.rest = rest;
                return token;
            }
        }
        let end = self
            .rest
            .find(|c: char| c.is_whitespace() || "=!,()><".contains(c))
            .unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        Token::Word(word)
    }
}
