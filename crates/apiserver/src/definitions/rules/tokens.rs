//! From text to words and signs.

use std::sync::Arc;

use super::fault::Fault;
use super::value::Value;

/// How long a rule may be. Each word can be a level of the tree, and trees are walked by
/// calls that call themselves.
const MOST: usize = 1500;

/// A word or sign, and where it begins, in characters.
#[derive(Debug, Clone)]
pub(super) struct Token {
    pub(super) at: usize,
    pub(super) what: What,
}

/// What a token is.
#[derive(Debug, Clone)]
pub(super) enum What {
    Literal(Value, String),
    Name(String),
    Sign(&'static str),
    End,
}

impl What {
    /// The token as errors quote it.
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Literal(_, written) => written,
            Self::Name(name) => name,
            Self::Sign(sign) => sign,
            Self::End => "<EOF>",
        }
    }
}

/// Longer signs before their beginnings.
const SIGNS: [&str; 24] = [
    "&&", "||", "==", "!=", "<=", ">=", "<", ">", "!", "+", "-", "*", "/", "%", "?", ":", "(", ")",
    "[", "]", "{", "}", ".", ",",
];

/// Takes a text apart; the last token is the end.
pub(super) fn tokens(text: &str) -> Result<Vec<Token>, Fault> {
    let chars: Vec<char> = text.chars().collect();
    let mut found = Vec::new();
    let mut at = 0;
    while at < chars.len() {
        if chars[at].is_whitespace() {
            at += 1;
            continue;
        }
        if chars[at] == '/' && chars.get(at + 1) == Some(&'/') {
            while at < chars.len() && chars[at] != '\n' {
                at += 1;
            }
            continue;
        }
        if found.len() == MOST {
            let why = format!("a rule of more than {MOST} words and signs is not supported");
            return Err(Fault::new(at, why));
        }
        let (what, end) = token(&chars, at)?;
        found.push(Token { at, what });
        at = end;
    }
    found.push(Token {
        at: chars.len(),
        what: What::End,
    });
    Ok(found)
}

fn token(chars: &[char], at: usize) -> Result<(What, usize), Fault> {
    let first = chars[at];
    if let Some((value, end)) = text_literal(chars, at)? {
        let written = chars[at..end].iter().collect();
        return Ok((What::Literal(value, written), end));
    }
    let follows_digit = chars.get(at + 1).is_some_and(char::is_ascii_digit);
    if first.is_ascii_digit() || first == '.' && follows_digit {
        return number(chars, at);
    }
    if first.is_ascii_alphabetic() || first == '_' {
        let end = run(chars, at, |c| c.is_ascii_alphanumeric() || c == '_');
        let name: String = chars[at..end].iter().collect();
        let what = match name.as_str() {
            "true" => What::Literal(Value::Bool(true), name),
            "false" => What::Literal(Value::Bool(false), name),
            "null" => What::Literal(Value::Null, name),
            _ => What::Name(name),
        };
        return Ok((what, end));
    }
    let rest: String = chars[at..chars.len().min(at + 2)].iter().collect();
    match SIGNS.into_iter().find(|sign| rest.starts_with(sign)) {
        Some(sign) => Ok((What::Sign(sign), at + sign.len())),
        None => {
            let why = format!("Syntax error: token recognition error at: '{first}'");
            Err(Fault::new(at, why))
        }
    }
}

/// Where a run of such characters ends.
fn run(chars: &[char], at: usize, fits: impl Fn(char) -> bool) -> usize {
    let rest = chars[at..].iter().position(|c| !fits(*c));
    rest.map_or(chars.len(), |length| at + length)
}

fn number(chars: &[char], at: usize) -> Result<(What, usize), Fault> {
    let digit = |c: char| c.is_ascii_digit();
    let bad = |what: &str, text: &str| Fault::new(at, format!("invalid {what} literal: {text}"));
    if chars[at] == '0' && matches!(chars.get(at + 1), Some('x' | 'X')) {
        let end = run(chars, at + 2, |c| c.is_ascii_hexdigit());
        let digits: String = chars[at + 2..end].iter().collect();
        let value = u64::from_str_radix(&digits, 16).map_err(|_| bad("int", &digits))?;
        if matches!(chars.get(end), Some('u' | 'U')) {
            return Ok((What::Literal(Value::Uint(value), digits), end + 1));
        }
        let value = i64::try_from(value).map_err(|_| bad("int", &digits))?;
        return Ok((What::Literal(Value::Int(value), digits), end));
    }
    let mut end = run(chars, at, digit);
    let mut is_double = false;
    if chars.get(end) == Some(&'.') && chars.get(end + 1).is_some_and(char::is_ascii_digit) {
        is_double = true;
        end = run(chars, end + 1, digit);
    }
    if matches!(chars.get(end), Some('e' | 'E')) {
        let sign = usize::from(matches!(chars.get(end + 1), Some('+' | '-')));
        if chars.get(end + 1 + sign).is_some_and(char::is_ascii_digit) {
            is_double = true;
            end = run(chars, end + 1 + sign, digit);
        }
    }
    let written: String = chars[at..end].iter().collect();
    if is_double {
        let value = written.parse().map_err(|_| bad("double", &written))?;
        return Ok((What::Literal(Value::Double(value), written), end));
    }
    if matches!(chars.get(end), Some('u' | 'U')) {
        let value = written.parse().map_err(|_| bad("uint", &written))?;
        return Ok((What::Literal(Value::Uint(value), written), end + 1));
    }
    // The least number is read without its sign, and is one more than the greatest.
    let value: u64 = written.parse().map_err(|_| bad("int", &written))?;
    let value = match i64::try_from(value) {
        Ok(value) => value,
        Err(_) if value == i64::MIN.unsigned_abs() => i64::MIN,
        Err(_) => return Err(bad("int", &written)),
    };
    Ok((What::Literal(Value::Int(value), written), end))
}

/// A quoted text or bytes, with their prefixes; none if there is no quote here.
fn text_literal(chars: &[char], at: usize) -> Result<Option<(Value, usize)>, Fault> {
    let mut quote = at;
    let (mut raw, mut bytes) = (false, false);
    while quote < at + 2 {
        match chars.get(quote) {
            Some('r' | 'R') if !raw => raw = true,
            Some('b' | 'B') if !bytes => bytes = true,
            _ => break,
        }
        quote += 1;
    }
    let Some(mark @ ('"' | '\'')) = chars.get(quote).copied() else {
        return Ok(None);
    };
    let triple = chars.get(quote..quote + 3) == Some(&[mark; 3]);
    let marks = if triple { 3 } else { 1 };
    let mut text = Vec::new();
    let mut here = quote + marks;
    let open = || {
        Fault::new(
            at,
            format!("Syntax error: token recognition error at: '{mark}'"),
        )
    };
    loop {
        let c = *chars.get(here).ok_or_else(open)?;
        if c == mark && (!triple || chars.get(here..here + 3) == Some(&[mark; 3])) {
            here += marks;
            break;
        }
        if c == '\n' && !triple {
            return Err(open());
        }
        if c == '\\' && !raw {
            here = escape(chars, here + 1, bytes, &mut text)?;
        } else {
            text.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            here += 1;
        }
    }
    let value = if bytes {
        Value::Bytes(text.into())
    } else {
        let text = String::from_utf8(text).map_err(|_| open())?;
        Value::Text(Arc::from(text))
    };
    Ok(Some((value, here)))
}

/// Reads what follows a backslash; says where it ends.
fn escape(chars: &[char], at: usize, bytes: bool, text: &mut Vec<u8>) -> Result<usize, Fault> {
    let bad = || Fault::new(at, "Syntax error: unable to unescape string");
    let c = *chars.get(at).ok_or_else(bad)?;
    let simple = match c {
        'a' => 7,
        'b' => 8,
        'f' => 12,
        'n' => b'\n',
        'r' => b'\r',
        't' => b'\t',
        'v' => 11,
        '\\' | '\'' | '"' | '`' | '?' => c as u8,
        _ => 0,
    };
    if simple != 0 {
        text.push(simple);
        return Ok(at + 1);
    }
    let (start, length, radix) = match c {
        'x' | 'X' => (at + 1, 2, 16),
        'u' => (at + 1, 4, 16),
        'U' => (at + 1, 8, 16),
        '0'..='3' => (at, 3, 8),
        _ => return Err(bad()),
    };
    let digits: String = chars
        .get(start..start + length)
        .ok_or_else(bad)?
        .iter()
        .collect();
    let code = u32::from_str_radix(&digits, radix).map_err(|_| bad())?;
    if bytes && matches!(c, 'x' | 'X' | '0'..='3') {
        text.push(u8::try_from(code).map_err(|_| bad())?);
    } else {
        let c = char::from_u32(code).ok_or_else(bad)?;
        text.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
    }
    Ok(start + length)
}
