//! Rules in the Common Expression Language: the part of it that definitions of storage
//! kinds use. What isn't understood is refused when the definition is written, so that no
//! rule is ever passed over in silence.
//!
//! Known: literals, lists, `self`, `oldSelf`, fields, indexes, `has`, `size`, `in`,
//! arithmetic, comparison, `!`, `&&`, `||`, `?:`, `all`, `exists`, `exists_one`, `filter`,
//! `map`, `startsWith`, `endsWith`, `contains`, `matches`, `string`, `int`.

mod evaluate;
mod parse;
#[cfg(test)]
mod tests;
mod tokens;

pub(super) use evaluate::evaluate;
use parse::Expression;
use serde_json::Value;

/// One of `x-kubernetes-validations`.
#[derive(Debug)]
pub(crate) struct Rule {
    pub(super) text: String,
    pub(super) expression: Expression,
    /// Whether it speaks of the old value.
    pub(super) about_change: bool,
    pub(super) field_path: String,
    message: String,
    message_expression: Option<Expression>,
}

impl Rule {
    /// Reads a rule; the error says what isn't understood.
    pub(super) fn parse(rule: &Value) -> Result<Self, String> {
        let text = |name: &str| rule[name].as_str().unwrap_or("").to_owned();
        if rule["optionalOldSelf"] == true {
            return Err("optionalOldSelf is not supported by this server".to_owned());
        }
        let expression = parse::parse(&text("rule"))?;
        let message_expression = match text("messageExpression") {
            none if none.is_empty() => None,
            text => Some(parse::parse(&text)?),
        };
        Ok(Self {
            about_change: expression.mentions("oldSelf"),
            expression,
            text: text("rule"),
            field_path: text("fieldPath"),
            message: text("message"),
            message_expression,
        })
    }

    /// What to say when the rule doesn't hold.
    pub(super) fn explain(&self, value: &Value, old: Option<&Value>) -> String {
        let computed = self.message_expression.as_ref();
        let computed = computed.and_then(|expression| evaluate(expression, value, old).ok());
        match computed {
            Some(Value::String(text)) if !text.trim().is_empty() => text,
            _ if !self.message.is_empty() => self.message.clone(),
            _ => format!("failed rule: {}", self.text),
        }
    }
}
