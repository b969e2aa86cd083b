//! From an expression and values to a value, at a price.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::library;
use super::syntax::{Fold, How, Node, Presence, What, Wrap};
use super::value::{Key, Value};

/// What one evaluation may cost, as in the original.
pub(super) const MOST: u64 = 1_000_000;

/// How long one may take, whatever it costs: prices are estimates. A rule that keeps to its
/// price is done in a fraction of it.
const LONGEST: Duration = Duration::from_secs(10);

/// Why there is no value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stop {
    /// It makes no sense for these values.
    Error(String),
    /// It costs too much.
    Cost,
}

impl From<String> for Stop {
    fn from(error: String) -> Self {
        Self::Error(error)
    }
}

/// A value, or why there is none, and what it cost.
pub(super) fn evaluate(node: &Node, names: &[(&str, Value)]) -> (Result<Value, Stop>, u64) {
    let mut scope = Scope {
        names: names.to_vec(),
        cost: 0,
        made: 0,
        began: Instant::now(),
    };
    let result = scope.value(node);
    (result, scope.cost)
}

struct Scope<'n> {
    names: Vec<(&'n str, Value)>,
    cost: u64,
    /// The bytes of all that was made.
    made: u64,
    began: Instant,
}

fn no_such_key(key: &str) -> Stop {
    Stop::Error(format!("no such key: {key}"))
}

fn no_overload() -> Stop {
    Stop::Error("no such overload".to_owned())
}

impl<'n> Scope<'n> {
    fn pay(&mut self, price: u64) -> Result<(), Stop> {
        self.cost = self.cost.saturating_add(price);
        if self.cost > MOST || self.began.elapsed() > LONGEST {
            Err(Stop::Cost)
        } else {
            Ok(())
        }
    }

    /// Takes room for what is about to be made. What was let go isn't given back, so that
    /// this is a bound of the work, too.
    fn make(&mut self, bytes: u64) -> Result<(), Stop> {
        self.made = self.made.saturating_add(bytes);
        if self.made > library::ROOM {
            // As much as there is was spent.
            self.cost = self.cost.max(MOST + 1);
            Err(Stop::Cost)
        } else {
            Ok(())
        }
    }

    fn value(&mut self, node: &'n Node) -> Result<Value, Stop> {
        match &node.what {
            What::Literal(value) => Ok(value.clone()),
            What::Name(name) => {
                self.pay(1)?;
                let known = self.names.iter().rev().find(|(known, _)| known == name);
                match known {
                    Some((_, value)) => Ok(value.clone()),
                    None => match library::type_named(name) {
                        Some(of) => Ok(Value::Type(of)),
                        None => Err(Stop::Error(format!("no such attribute(s): {name}"))),
                    },
                }
            }
            What::Select(of, field, presence) => {
                let of = self.value(of)?;
                self.pay(1)?;
                select(&of, field, *presence)
            }
            What::Has(of, field) => {
                let of = self.value(of)?;
                match unwrap(&of) {
                    Some(of) => Ok(Value::Bool(get(&of, field).is_some())),
                    None => Ok(Value::Bool(false)),
                }
            }
            What::Call(call, arguments) => {
                let mut values = Vec::with_capacity(arguments.len());
                for argument in arguments {
                    values.push(self.value(argument)?);
                }
                let made = library::made(&call.name, &values);
                self.pay(library::price(&call.name, &values, made))?;
                self.make(made)?;
                match call.name.as_str() {
                    "_[_]" => index(&values[0], &values[1], Presence::Expected),
                    "_[?_]" => index(&values[0], &values[1], Presence::Optional),
                    name => Ok(library::call(name, &values)?),
                }
            }
            What::List(items) => {
                self.pay(10)?;
                self.make(library::ITEM * items.len() as u64)?;
                let mut values = Vec::with_capacity(items.len());
                for (item, optional) in items {
                    values.extend(self.item(item, *optional)?);
                }
                Ok(Value::list(values))
            }
            What::Map(entries) => {
                self.pay(30)?;
                self.make(2 * library::ITEM * entries.len() as u64)?;
                let mut map = BTreeMap::new();
                for (key, value, optional) in entries {
                    let key = self.value(key)?;
                    if let Some(value) = self.item(value, *optional)? {
                        insert(&mut map, &key, value)?;
                    }
                }
                Ok(Value::Map(Arc::new(map)))
            }
            What::And(terms) => self.decide(terms, false),
            What::Or(terms) => self.decide(terms, true),
            What::Choice(parts) => {
                let [condition, yes, no] = &**parts;
                let chosen = if self.truth(condition)? { yes } else { no };
                self.value(chosen)
            }
            What::Fold(fold) => self.fold(fold),
            What::Unwrapped(of, name, body, wrap) => match self.value(of)? {
                Value::Optional(Some(inner)) => {
                    self.names.push((name, (*inner).clone()));
                    let result = self.value(body);
                    self.names.pop();
                    Ok(match wrap {
                        Wrap::Wrap => Value::some(result?),
                        Wrap::Wrapped => result?,
                    })
                }
                Value::Optional(None) => Ok(Value::Optional(None)),
                _ => Err(no_overload()),
            },
        }
    }

    /// The value of an item, unless it is an optional one without a value.
    fn item(&mut self, node: &'n Node, optional: bool) -> Result<Option<Value>, Stop> {
        let value = self.value(node)?;
        match (optional, value) {
            (false, value) => Ok(Some(value)),
            (true, Value::Optional(inner)) => Ok(inner.map(|inner| (*inner).clone())),
            (true, _) => Err(no_overload()),
        }
    }

    fn truth(&mut self, node: &'n Node) -> Result<bool, Stop> {
        match self.value(node)? {
            Value::Bool(truth) => Ok(truth),
            _ => Err(no_overload()),
        }
    }

    /// One term that decides is enough, also when others fail.
    fn decide(&mut self, terms: &'n [Node], deciding: bool) -> Result<Value, Stop> {
        let mut failed = None;
        for term in terms {
            match self.truth(term) {
                Ok(truth) if truth == deciding => return Ok(Value::Bool(deciding)),
                Ok(_) => {}
                Err(Stop::Cost) => return Err(Stop::Cost),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(Value::Bool(!deciding)), Err)
    }

    fn fold(&mut self, fold: &'n Fold) -> Result<Value, Stop> {
        let of = self.value(&fold.of)?;
        // One after the other: the first may decide.
        let items: Box<dyn Iterator<Item = (Value, Value)> + '_> = match &of {
            Value::List(list) => {
                let indexed = list.values.iter().enumerate();
                Box::new(indexed.map(|(at, item)| (Value::size(at), item.clone())))
            }
            Value::Map(map) => {
                Box::new(map.iter().map(|(key, value)| (key.value(), value.clone())))
            }
            _ => return Err(no_overload()),
        };
        let over_map = matches!(of, Value::Map(_));
        let mut gathered = Gathered::new(fold.how);
        for (key, value) in items {
            // The loop itself: its condition and its step.
            self.pay(2)?;
            let depth = self.names.len();
            let (first, second) = &fold.names;
            let item = match second {
                Some(second) => {
                    self.names.push((first, key.clone()));
                    self.names.push((second, value));
                    key
                }
                None => {
                    let item = if over_map { key } else { value };
                    self.names.push((first, item.clone()));
                    item
                }
            };
            let kept = match &fold.filter {
                Some(filter) => self.truth(filter),
                None => Ok(true),
            };
            let result = match kept {
                Ok(true) => self.value(&fold.body).map(Some),
                Ok(false) => Ok(None),
                Err(stop) => Err(stop),
            };
            self.names.truncate(depth);
            let kept = match (fold.how, &result) {
                (How::Filter | How::List, _) => 1,
                (How::SortBy | How::Map, _) => 2,
                (How::Entries, Ok(Some(Value::Map(entries)))) => 2 * entries.len() as u64,
                _ => 0,
            };
            self.make(kept.saturating_mul(library::ITEM))?;
            if gathered.take(item, result)? {
                break;
            }
        }
        gathered.finish()
    }
}

/// What a fold has so far.
struct Gathered {
    how: How,
    count: usize,
    error: Option<Stop>,
    decided: bool,
    values: Vec<Value>,
    sorted: Vec<(Value, Value)>,
    map: BTreeMap<Key, Value>,
}

impl Gathered {
    fn new(how: How) -> Self {
        Self {
            how,
            count: 0,
            error: None,
            decided: false,
            values: Vec::new(),
            sorted: Vec::new(),
            map: BTreeMap::new(),
        }
    }

    /// Takes what the body made of an item; says whether that decides.
    fn take(&mut self, item: Value, result: Result<Option<Value>, Stop>) -> Result<bool, Stop> {
        let deciding = match self.how {
            How::All => Some(false),
            How::Exists => Some(true),
            _ => None,
        };
        if let Some(deciding) = deciding {
            match result {
                Ok(Some(Value::Bool(truth))) => self.decided |= truth == deciding,
                Err(Stop::Cost) => return Err(Stop::Cost),
                Err(error) => self.error = Some(error),
                Ok(_) => self.error = Some(no_overload()),
            }
            return Ok(self.decided);
        }
        let Some(value) = result? else {
            return Ok(false);
        };
        match (self.how, &value) {
            (How::ExistsOne, Value::Bool(truth)) => self.count += usize::from(*truth),
            (How::Filter, Value::Bool(truth)) => self.values.extend(truth.then_some(item)),
            (How::List, _) => self.values.push(value),
            (How::SortBy, _) => self.sorted.push((value, item)),
            (How::Map, _) => insert(&mut self.map, &item, value)?,
            (How::Entries, Value::Map(entries)) => {
                for (key, value) in entries.iter() {
                    insert(&mut self.map, &key.value(), value.clone())?;
                }
            }
            _ => return Err(no_overload()),
        }
        Ok(false)
    }

    fn finish(mut self) -> Result<Value, Stop> {
        match self.how {
            How::All | How::Exists => match self.error {
                Some(error) if !self.decided => Err(error),
                _ => Ok(Value::Bool(self.decided == (self.how == How::Exists))),
            },
            How::ExistsOne => Ok(Value::Bool(self.count == 1)),
            How::Filter | How::List => Ok(Value::list(self.values)),
            How::Map | How::Entries => Ok(Value::Map(Arc::new(self.map))),
            How::SortBy => {
                let keys: Vec<Value> = self.sorted.iter().map(|(key, _)| key.clone()).collect();
                library::comparable(&keys)?;
                self.sorted
                    .sort_by(|(a, _), (b, _)| a.compare(b).unwrap_or(std::cmp::Ordering::Equal));
                Ok(Value::list(
                    self.sorted.into_iter().map(|(_, item)| item).collect(),
                ))
            }
        }
    }
}

fn insert(map: &mut BTreeMap<Key, Value>, key: &Value, value: Value) -> Result<(), Stop> {
    let found = Key::of(key).ok_or_else(|| Stop::Error("unsupported key type".to_owned()))?;
    match map.insert(found, value) {
        None => Ok(()),
        Some(_) => {
            let key = library::shown(key);
            Err(Stop::Error(format!(
                "insert failed: key {key} already exists"
            )))
        }
    }
}

/// What is inside of an optional; the value itself, if it is none.
fn unwrap(value: &Value) -> Option<Value> {
    match value {
        Value::Optional(inner) => inner.as_deref().cloned(),
        other => Some(other.clone()),
    }
}

fn get(of: &Value, field: &str) -> Option<Value> {
    match of {
        Value::Map(map) => map.get(&Key::Text(field.into())).cloned(),
        _ => None,
    }
}

/// A field; of an optional, an optional one.
fn select(of: &Value, field: &str, presence: Presence) -> Result<Value, Stop> {
    let optional = presence == Presence::Optional || matches!(of, Value::Optional(_));
    let found = match unwrap(of) {
        Some(of @ Value::Map(_)) => get(&of, field),
        Some(_) => return Err(no_overload()),
        None => None,
    };
    match (found, optional) {
        (Some(found), false) => Ok(found),
        (Some(found), true) => Ok(Value::some(found)),
        (None, true) => Ok(Value::Optional(None)),
        (None, false) => Err(no_such_key(field)),
    }
}

fn index(of: &Value, at: &Value, presence: Presence) -> Result<Value, Stop> {
    let optional = presence == Presence::Optional || matches!(of, Value::Optional(_));
    let found = match unwrap(of) {
        Some(Value::List(list)) => {
            let Some(Key::Int(at)) = Key::of(at) else {
                return Err(no_overload());
            };
            let found = usize::try_from(at).ok();
            let found = found.and_then(|at| list.values.get(at).cloned());
            if found.is_none() && !optional {
                return Err(Stop::Error(format!("index out of bounds: {at}")));
            }
            found
        }
        Some(Value::Map(map)) => Key::of(at).and_then(|key| map.get(&key).cloned()),
        Some(_) => return Err(no_overload()),
        None => None,
    };
    match (found, optional) {
        (Some(found), false) => Ok(found),
        (Some(found), true) => Ok(Value::some(found)),
        (None, true) => Ok(Value::Optional(None)),
        (None, false) => Err(no_such_key(&library::shown(at))),
    }
}
