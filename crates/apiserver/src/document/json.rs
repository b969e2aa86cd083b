//! JSON, with an eye on fields that stand twice and on the order of fields.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::error::Category;
use serde_json::{Map, Value};

use super::{DEEPEST, Unreadable};

/// Marks the one mistake that is ours among the parser's.
const DEEP: &str = "nested too deep";

/// The value, and the paths of fields that stand twice; the last one counts.
pub(super) fn read(text: &[u8]) -> Result<(Value, Vec<Mistake>), Unreadable> {
    let place = RefCell::new(Place::default());
    let mut parser = serde_json::Deserializer::from_slice(text);
    let value = Node(&place)
        .deserialize(&mut parser)
        .and_then(|value| parser.end().map(|()| value))
        .map_err(|error| unreadable(&error))?;
    Ok((value, place.into_inner().mistakes))
}

/// The fields of a text that stand twice and those that are unknown, in the text's order;
/// those that it doesn't hold, such as what a patch found, come last.
pub(super) fn in_order(text: &[u8], unknown: &BTreeSet<String>) -> Vec<Mistake> {
    let unknown = unknown.clone();
    let place = RefCell::new(Place {
        unknown,
        ..Place::default()
    });
    let mut parser = serde_json::Deserializer::from_slice(text);
    // It was read before, and what can't be read has no order.
    let _ = Node(&place).deserialize(&mut parser);
    let Place {
        mut mistakes,
        unknown,
        ..
    } = place.into_inner();
    mistakes.extend(unknown.into_iter().map(Mistake::Unknown));
    mistakes
}

/// What is wrong with a field, by its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Mistake {
    Repeated(String),
    Unknown(String),
}

fn unreadable(error: &serde_json::Error) -> Unreadable {
    let text = error.to_string();
    match error.classify() {
        Category::Eof => Unreadable::End,
        _ if text.starts_with(DEEP) || text.starts_with("recursion limit") => Unreadable::Deep,
        _ => Unreadable::Malformed(text),
    }
}

/// Where the reader is, and what it noticed on its way.
#[derive(Default)]
struct Place {
    path: Vec<Step>,
    /// Unknown fields that weren't come by yet.
    unknown: BTreeSet<String>,
    mistakes: Vec<Mistake>,
}

enum Step {
    Field(String),
    Item(usize),
}

impl Place {
    fn text(&self) -> String {
        let mut text = String::new();
        for step in &self.path {
            match step {
                Step::Field(name) if text.is_empty() => text.push_str(name),
                Step::Field(name) => {
                    text.push('.');
                    text.push_str(name);
                }
                Step::Item(at) => text.push_str(&format!("[{at}]")),
            }
        }
        text
    }

    fn enter<E: serde::de::Error>(&mut self, step: Step) -> Result<(), E> {
        // A step into something makes it an object or a list, which counts as a level.
        if self.path.len() >= DEEPEST {
            return Err(E::custom(DEEP));
        }
        self.path.push(step);
        Ok(())
    }

    /// Keeps what is wrong with the field that begins here.
    fn notice(&mut self, repeated: bool) {
        if self.unknown.is_empty() && !repeated {
            return;
        }
        let path = self.text();
        if self.unknown.remove(&path) {
            self.mistakes.push(Mistake::Unknown(path.clone()));
        }
        let repeated = repeated.then_some(Mistake::Repeated(path));
        let told = |mistake: &Mistake| self.mistakes.contains(mistake);
        self.mistakes.extend(repeated.filter(|one| !told(one)));
    }
}

struct Node<'p>(&'p RefCell<Place>);

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        loop {
            self.0
                .borrow_mut()
                .enter::<A::Error>(Step::Item(items.len()))?;
            let item = list.next_element_seed(Node(self.0))?;
            self.0.borrow_mut().path.pop();
            match item {
                Some(item) => items.push(item),
                None => return Ok(items.into()),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(name) = map.next_key::<String>()? {
            {
                let mut place = self.0.borrow_mut();
                place.enter::<A::Error>(Step::Field(name.clone()))?;
                place.notice(fields.contains_key(&name));
            }
            let value = map.next_value_seed(Node(self.0))?;
            fields.insert(name, value);
            self.0.borrow_mut().path.pop();
        }
        Ok(fields.into())
    }
}
