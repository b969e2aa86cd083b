//! From an expression and values to a value.

use std::cmp::Ordering;

use serde_json::Value;

use super::parse::{Expression, Function, Macro, Operator};

/// How many steps a rule may take: the size of an object is its author's to choose.
const MOST_STEPS: usize = 1_000_000;

struct Scope<'v> {
    names: Vec<(&'v str, Value)>,
    steps: usize,
}

/// The value of a rule about `value`.
pub(in crate::definitions) fn evaluate(
    expression: &Expression,
    value: &Value,
    old: Option<&Value>,
) -> Result<Value, String> {
    let mut names = vec![("self", value.clone())];
    if let Some(old) = old {
        names.push(("oldSelf", old.clone()));
    }
    Scope { names, steps: 0 }.value(expression)
}

impl<'v> Scope<'v> {
    fn value(&mut self, expression: &'v Expression) -> Result<Value, String> {
        self.steps += 1;
        if self.steps > MOST_STEPS {
            return Err("the rule takes too many steps".to_owned());
        }
        match expression {
            Expression::Literal(value) => Ok(value.clone()),
            Expression::Name(name) => {
                let known = self.names.iter().rev().find(|(known, _)| known == name);
                let (_, value) = known.ok_or_else(|| format!("no such attribute: {name}"))?;
                Ok(value.clone())
            }
            Expression::List(items) => {
                let items: Result<Vec<Value>, String> =
                    items.iter().map(|item| self.value(item)).collect();
                Ok(Value::Array(items?))
            }
            Expression::Field(of, name) => {
                let of = self.value(of)?;
                let found = of.get(name).cloned();
                found.ok_or_else(|| format!("no such key: {name}"))
            }
            Expression::Has(of, name) => {
                let of = self.value(of)?;
                Ok(of.get(name).is_some_and(|value| !value.is_null()).into())
            }
            Expression::Index(of, index) => {
                let (of, index) = (self.value(of)?, self.value(index)?);
                let found = match (&of, &index) {
                    (Value::Array(list), index) => index
                        .as_u64()
                        .and_then(|at| list.get(usize::try_from(at).ok()?)),
                    (Value::Object(map), Value::String(key)) => map.get(key),
                    _ => None,
                };
                found
                    .cloned()
                    .ok_or_else(|| format!("no such key: {index}"))
            }
            Expression::Not(of) => Ok((!self.truth(of)?).into()),
            Expression::Negative(of) => match self.value(of)? {
                Value::Number(number) => match number.as_i64() {
                    Some(int) => int.checked_neg().map(Value::from).ok_or_else(overflow),
                    None => Ok((-number.as_f64().unwrap_or(0.0)).into()),
                },
                _ => Err(no_overload("-_")),
            },
            Expression::Binary(operator, left, right) => self.binary(*operator, left, right),
            Expression::Choice(parts) => {
                let [condition, yes, no] = &**parts;
                if self.truth(condition)? {
                    self.value(yes)
                } else {
                    self.value(no)
                }
            }
            Expression::Call(function, arguments) => {
                let arguments: Result<Vec<Value>, String> =
                    arguments.iter().map(|one| self.value(one)).collect();
                call(*function, &arguments?)
            }
            Expression::Over(over, of, variable, body) => self.over(*over, of, variable, body),
        }
    }

    fn truth(&mut self, expression: &'v Expression) -> Result<bool, String> {
        match self.value(expression)? {
            Value::Bool(truth) => Ok(truth),
            _ => Err(no_overload("bool")),
        }
    }

    fn binary(
        &mut self,
        operator: Operator,
        left: &'v Expression,
        right: &'v Expression,
    ) -> Result<Value, String> {
        // One side that decides is enough, also when the other one fails.
        if matches!(operator, Operator::And | Operator::Or) {
            let deciding = operator == Operator::Or;
            let (left, right) = match self.truth(left) {
                Ok(truth) if truth == deciding => return Ok(deciding.into()),
                other => (other, self.truth(right)),
            };
            return match (left, right) {
                (_, Ok(truth)) if truth == deciding => Ok(deciding.into()),
                (Ok(_), Ok(_)) => Ok((!deciding).into()),
                (Err(error), _) | (_, Err(error)) => Err(error),
            };
        }
        let (left, right) = (self.value(left)?, self.value(right)?);
        let ordered = |wanted: fn(Ordering) -> bool| match compare(&left, &right) {
            Some(ordering) => Ok(wanted(ordering).into()),
            None => Err(no_overload("_<_")),
        };
        match operator {
            Operator::Equal => Ok(equal(&left, &right).into()),
            Operator::Unequal => Ok((!equal(&left, &right)).into()),
            Operator::Less => ordered(Ordering::is_lt),
            Operator::LessOrEqual => ordered(Ordering::is_le),
            Operator::Greater => ordered(Ordering::is_gt),
            Operator::GreaterOrEqual => ordered(Ordering::is_ge),
            Operator::In => match &right {
                Value::Array(list) => Ok(list.iter().any(|item| equal(item, &left)).into()),
                Value::Object(map) => Ok(left
                    .as_str()
                    .is_some_and(|key| map.contains_key(key))
                    .into()),
                _ => Err(no_overload("@in")),
            },
            Operator::Add => add(left, right),
            Operator::Subtract | Operator::Multiply | Operator::Divide | Operator::Remainder => {
                arithmetic(operator, &left, &right)
            }
            Operator::And | Operator::Or => Err(no_overload("_&&_")),
        }
    }

    fn over(
        &mut self,
        over: Macro,
        of: &'v Expression,
        variable: &'v str,
        body: &'v Expression,
    ) -> Result<Value, String> {
        let items: Vec<Value> = match self.value(of)? {
            Value::Array(items) => items,
            // Over a map, the keys.
            Value::Object(map) => map.into_iter().map(|(key, _)| key.into()).collect(),
            _ => return Err("expression is not a list or a map".to_owned()),
        };
        let mut results = Vec::with_capacity(items.len());
        for item in &items {
            self.names.push((variable, item.clone()));
            let result = self.value(body);
            self.names.pop();
            results.push(result?);
        }
        if over == Macro::Map {
            return Ok(Value::Array(results));
        }
        let truths: Option<Vec<bool>> = results.iter().map(Value::as_bool).collect();
        let truths = truths.ok_or_else(|| no_overload("bool"))?;
        let count = truths.iter().filter(|truth| **truth).count();
        Ok(match over {
            Macro::All => (count == truths.len()).into(),
            Macro::Exists => (count > 0).into(),
            Macro::ExistsOne => (count == 1).into(),
            Macro::Filter | Macro::Map => {
                let kept = items.into_iter().zip(truths).filter(|(_, keep)| *keep);
                kept.map(|(item, _)| item).collect()
            }
        })
    }
}

fn no_overload(what: &str) -> String {
    format!("no such overload: {what}")
}

fn overflow() -> String {
    "integer overflow".to_owned()
}

/// 1 and 1.0 are equal here, and two lists of them.
fn equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(a), Value::Number(b)) => match (a.as_i64(), b.as_i64()) {
            (Some(a), Some(b)) => a == b,
            _ => a.as_f64() == b.as_f64(),
        },
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            let same = |(key, a): (&String, &Value)| b.get(key).is_some_and(|b| equal(a, b));
            a.len() == b.len() && a.iter().all(same)
        }
        _ => left == right,
    }
}

fn compare(left: &Value, right: &Value) -> Option<Ordering> {
    match (left, right) {
        (Value::Number(a), Value::Number(b)) => match (a.as_i64(), b.as_i64()) {
            (Some(a), Some(b)) => Some(a.cmp(&b)),
            _ => a.as_f64()?.partial_cmp(&b.as_f64()?),
        },
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
        _ => None,
    }
}

fn add(left: Value, right: Value) -> Result<Value, String> {
    match (left, right) {
        (Value::String(a), Value::String(b)) => Ok((a + &b).into()),
        (Value::Array(mut a), Value::Array(b)) => {
            a.extend(b);
            Ok(Value::Array(a))
        }
        (left, right) => arithmetic(Operator::Add, &left, &right),
    }
}

fn arithmetic(operator: Operator, left: &Value, right: &Value) -> Result<Value, String> {
    if let (Some(a), Some(b)) = (left.as_i64(), right.as_i64()) {
        let by_zero = matches!(operator, Operator::Divide | Operator::Remainder) && b == 0;
        let result = match operator {
            Operator::Add => a.checked_add(b),
            Operator::Subtract => a.checked_sub(b),
            Operator::Multiply => a.checked_mul(b),
            Operator::Divide => a.checked_div(b),
            Operator::Remainder => a.checked_rem(b),
            _ => return Err(no_overload("arithmetic")),
        };
        return match result {
            Some(number) => Ok(number.into()),
            None if by_zero => Err("division by zero".to_owned()),
            None => Err(overflow()),
        };
    }
    match (left.as_f64(), right.as_f64(), operator) {
        (Some(a), Some(b), Operator::Add) => Ok((a + b).into()),
        (Some(a), Some(b), Operator::Subtract) => Ok((a - b).into()),
        (Some(a), Some(b), Operator::Multiply) => Ok((a * b).into()),
        (Some(a), Some(b), Operator::Divide) => Ok((a / b).into()),
        _ => Err(no_overload("arithmetic")),
    }
}

fn call(function: Function, arguments: &[Value]) -> Result<Value, String> {
    let texts = || match arguments {
        [Value::String(of), Value::String(with)] => Ok((of.as_str(), with.as_str())),
        _ => Err(no_overload("string function")),
    };
    match function {
        Function::Size => match arguments {
            [Value::String(text)] => Ok(text.chars().count().into()),
            [Value::Array(list)] => Ok(list.len().into()),
            [Value::Object(map)] => Ok(map.len().into()),
            _ => Err(no_overload("size")),
        },
        Function::StartsWith => texts().map(|(of, with)| of.starts_with(with).into()),
        Function::EndsWith => texts().map(|(of, with)| of.ends_with(with).into()),
        Function::Contains => texts().map(|(of, with)| of.contains(with).into()),
        Function::Matches => {
            let (of, pattern) = texts()?;
            let pattern = regex::Regex::new(pattern).map_err(|error| error.to_string())?;
            Ok(pattern.is_match(of).into())
        }
        Function::String => match arguments {
            [Value::String(text)] => Ok(text.as_str().into()),
            [scalar @ (Value::Number(_) | Value::Bool(_))] => Ok(scalar.to_string().into()),
            _ => Err(no_overload("string")),
        },
        Function::Int => match arguments {
            [Value::String(text)] => text
                .parse::<i64>()
                .map(Value::from)
                .map_err(|error| error.to_string()),
            [Value::Number(number)] => match number.as_i64() {
                Some(int) => Ok(int.into()),
                None => Ok((number.as_f64().unwrap_or(0.0) as i64).into()),
            },
            _ => Err(no_overload("int")),
        },
    }
}
