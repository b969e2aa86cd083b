//! Rules in the Common Expression Language, with the functions that Kubernetes has.
//!
//! Text becomes a tree (`tokens`, `parse`), whose types are checked when a definition is
//! written (`check`, by the signatures of `functions.txt`); a value is found when an object
//! is (`evaluate`, `library`), at a price that is limited, so that no rule holds up a write.
//! A rule that isn't understood is refused with its definition, never passed over.

mod check;
mod evaluate;
mod fault;
mod library;
mod parse;
mod signatures;
mod syntax;
#[cfg(test)]
mod tests;
mod tokens;
mod types;
mod value;

use evaluate::{Stop, evaluate};
use serde_json::Value as Json;
use syntax::Node;

use super::structural::Structural;
use crate::refusal::{Fault, FieldError};
pub(crate) use types::Type;
use value::Value;

/// What all rules about one object may cost.
pub(super) const BUDGET: u64 = 10_000_000;
const LONGEST_MESSAGE: usize = 5 * 1024;
const NO_MORE: &str = "no further validation rules will be run";

/// One of `x-kubernetes-validations`.
#[derive(Debug)]
pub(crate) struct Rule {
    text: String,
    message: String,
    reason: String,
    expression: Node,
    message_expression: Option<Node>,
    /// Whether it speaks of the old value.
    pub(super) about_change: bool,
    /// Whether it is asked also when there is no old value.
    optional_old: bool,
    /// The field that it speaks of, if not of the whole.
    pub(super) field_path: String,
}

/// What is wrong with a rule's expression or that of its message.
#[derive(Debug)]
pub(super) struct Refused {
    /// `rule` or `messageExpression`.
    pub(super) field: &'static str,
    pub(super) detail: String,
}

impl Rule {
    /// Reads a rule about values of a type.
    pub(super) fn parse(rule: &Json, of: &Type) -> Result<Self, Refused> {
        let text = |name: &str| rule[name].as_str().unwrap_or("").to_owned();
        let optional_old = rule["optionalOldSelf"] == true;
        let expression = compile(&text("rule"), of, optional_old).map_err(|shown| Refused {
            field: "rule",
            detail: format!("compilation failed: {shown}"),
        })?;
        let (expression, result) = expression;
        if !matches!(result, Type::Bool) {
            let detail = "cel expression must evaluate to a bool".to_owned();
            return Err(Refused {
                field: "rule",
                detail,
            });
        }
        let mut message_expression = None;
        if !text("messageExpression").is_empty() {
            let refused = |detail| Refused {
                field: "messageExpression",
                detail,
            };
            let (node, result) =
                compile(&text("messageExpression"), of, optional_old).map_err(|shown| {
                    refused(format!("messageExpression compilation failed: {shown}"))
                })?;
            if !matches!(result, Type::Text) {
                let detail = "messageExpression must evaluate to a string";
                return Err(refused(detail.to_owned()));
            }
            message_expression = Some(node);
        }
        Ok(Self {
            about_change: expression.mentions("oldSelf"),
            expression,
            message_expression,
            optional_old,
            text: text("rule").trim().to_owned(),
            message: text("message").trim().to_owned(),
            reason: text("reason"),
            field_path: String::new(),
        })
    }

    fn said(&self) -> &str {
        if self.message.is_empty() {
            &self.text
        } else {
            &self.message
        }
    }
}

fn compile(text: &str, of: &Type, optional_old: bool) -> Result<(Node, Type), String> {
    let old = if optional_old {
        Type::Optional(std::sync::Arc::new(of.clone()))
    } else {
        of.clone()
    };
    let mut node = parse::parse(text).map_err(|fault| fault.shown(text))?;
    let names = [("self", of.clone()), ("oldSelf", old)];
    let result = check::check(&mut node, &names).map_err(|faults| {
        let shown: Vec<String> = faults.iter().map(|fault| fault.shown(text)).collect();
        shown.join("\n")
    })?;
    Ok((node, result))
}

/// A value, and the one that it follows.
#[derive(Clone, Copy)]
pub(super) struct Subject<'v> {
    pub(super) schema: &'v Structural,
    pub(super) value: &'v Json,
    pub(super) old: Option<&'v Json>,
    /// Whether it, or something around it, stayed as it was.
    pub(super) same: bool,
}

/// Applies the rules of a schema to one value. The error is that there is no budget left.
pub(super) fn apply(
    subject: Subject<'_>,
    path: &str,
    budget: &mut u64,
    errors: &mut Vec<FieldError>,
) -> Result<(), ()> {
    let schema = subject.schema;
    if schema.rules.is_empty() {
        return Ok(());
    }
    let kind = Json::from(schema.kind.map_or("", |kind| kind.name()));
    let seen = |value| Value::of(value, schema, schema.embedded);
    let (this, old) = (seen(subject.value), subject.old.map(seen));
    for rule in &schema.rules {
        let no_past = rule.about_change && old.is_none() && !rule.optional_old;
        // What was wrong before may stay so.
        if no_past || !rule.about_change && subject.same {
            continue;
        }
        let mut names = vec![("self", this.clone())];
        match (&old, rule.optional_old) {
            (Some(old), false) => names.push(("oldSelf", old.clone())),
            (Some(old), true) => names.push(("oldSelf", Value::some(old.clone()))),
            (None, true) => names.push(("oldSelf", Value::Optional(None))),
            (None, false) => {}
        }
        let mut broken = |detail: String| {
            let field = if path.is_empty() { "<nil>" } else { path };
            errors.push(FieldError::invalid(field, &kind, detail));
        };
        let (result, cost) = evaluate(&rule.expression, &names);
        if cost > *budget {
            broken(format!(
                "validation failed due to running out of cost budget, {NO_MORE}"
            ));
            return Err(());
        }
        *budget -= cost;
        match result {
            Ok(Value::Bool(true)) => {}
            Ok(_) => errors.push(refusal(rule, subject.value, path, &names)),
            Err(Stop::Cost) => {
                broken(format!(
                    "'operation cancelled: actual cost limit exceeded': {NO_MORE} due to call \
                     cost exceeds limit for rule: {}",
                    rule.said()
                ));
                return Err(());
            }
            Err(Stop::Error(error)) if error.starts_with("no such overload") => broken(format!(
                "'{error}': call arguments did not match a supported operator, function or \
                 macro signature for rule: {}",
                rule.said()
            )),
            Err(Stop::Error(error)) => broken(format!("{error} evaluating rule: {}", rule.said())),
        }
    }
    Ok(())
}

/// What to say of a rule that doesn't hold.
fn refusal(rule: &Rule, value: &Json, path: &str, names: &[(&str, Value)]) -> FieldError {
    let computed = rule.message_expression.as_ref();
    let computed = computed.and_then(|node| match evaluate(node, names).0 {
        Ok(Value::Text(text)) => Some(text.trim().to_owned()),
        _ => None,
    });
    let fits =
        |text: &String| !text.is_empty() && text.len() <= LONGEST_MESSAGE && !text.contains('\n');
    let detail = match computed.filter(fits) {
        Some(text) => text,
        None if !rule.message.is_empty() => rule.message.clone(),
        None => format!("failed rule: {}", rule.text),
    };
    let field = match (path, rule.field_path.as_str()) {
        ("", "") => "<nil>".to_owned(),
        (path, "") => path.to_owned(),
        ("", inner) => inner.to_owned(),
        (path, inner) => format!("{path}.{inner}"),
    };
    let shown = match value {
        Json::Object(_) | Json::Array(_) => Fault::Unsaid,
        scalar => Fault::Invalid(scalar.clone()),
    };
    let (fault, detail) = match rule.reason.as_str() {
        "FieldValueForbidden" => (Fault::Forbidden, detail),
        "FieldValueRequired" => (Fault::Required, detail),
        "FieldValueDuplicate" => match shown {
            Fault::Invalid(value) => (Fault::Duplicate(value), String::new()),
            _ => (Fault::Duplicate(Json::Null), String::new()),
        },
        _ => (shown, detail),
    };
    FieldError {
        field,
        fault,
        detail,
    }
}
