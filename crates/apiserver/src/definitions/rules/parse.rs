//! From text to a syntax tree.

use super::fault::Fault;
use super::syntax::{Call, Fold, How, Node, Presence, What, Wrap};
use super::tokens::{self, Token, tokens};
use super::value::Value;

/// How deep expressions may nest.
const DEEPEST: usize = 64;
/// How many levels a tree may have, by nesting or by long chains.
const MOST_LEVELS: usize = 128;
/// What can begin an expression, as errors list it.
const BEGINNINGS: &str = "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, \
                          NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}";
/// Words that are kept for the language's future.
pub(super) const RESERVED: [&str; 17] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// Reads an expression.
pub(super) fn parse(text: &str) -> Result<Node, Fault> {
    let mut parser = Parser {
        tokens: tokens(text)?,
        at: 0,
        depth: 0,
    };
    let whole = parser.choice()?;
    match parser.what() {
        tokens::What::End => Ok(whole),
        _ => Err(parser.unexpected("<EOF>")),
    }
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
    depth: usize,
}

impl Parser {
    fn what(&self) -> &tokens::What {
        &self.tokens[self.at].what
    }

    fn place(&self) -> usize {
        self.tokens[self.at].at
    }

    /// Takes a sign, if it is next, and says where it was.
    fn takes(&mut self, sign: &str) -> Option<usize> {
        let here = matches!(self.what(), tokens::What::Sign(found) if *found == sign);
        here.then(|| {
            let place = self.place();
            self.at += 1;
            place
        })
    }

    fn unexpected(&self, wanted: &str) -> Fault {
        let found = self.what().text();
        let why = format!("Syntax error: mismatched input '{found}' expecting {wanted}");
        Fault::new(self.place(), why)
    }

    fn expect(&mut self, sign: &str) -> Result<usize, Fault> {
        match self.takes(sign) {
            Some(place) => Ok(place),
            None => Err(self.unexpected(&format!("'{sign}'"))),
        }
    }

    fn deeper<T>(&mut self, inner: impl FnOnce(&mut Self) -> Result<T, Fault>) -> Result<T, Fault> {
        if self.depth == DEEPEST {
            let why = "expression recursion limit exceeded";
            return Err(Fault::new(self.place(), why));
        }
        self.depth += 1;
        let result = inner(self);
        self.depth -= 1;
        result
    }

    fn choice(&mut self) -> Result<Node, Fault> {
        self.deeper(|parser| {
            let condition = parser.binary(0)?;
            let Some(at) = parser.takes("?") else {
                return Ok(condition);
            };
            let yes = parser.binary(0)?;
            parser.expect(":")?;
            let no = parser.choice()?;
            let parts = Box::new([condition, yes, no]);
            Ok(Node::new(at, What::Choice(parts)))
        })
    }

    /// Operators that bind at least this tightly.
    fn binary(&mut self, tightest: u8) -> Result<Node, Fault> {
        let mut left = self.unary()?;
        while let Some((operator, strength)) = self.operator() {
            if strength < tightest {
                break;
            }
            let at = self.place();
            self.at += 1;
            let right = self.binary(strength + 1)?;
            left = match operator {
                "&&" => Node::new(at, What::And(joined(left, right, "&&"))),
                "||" => Node::new(at, What::Or(joined(left, right, "||"))),
                name => Node::call(at, name, vec![left, right]),
            };
            self.shallow(&left)?;
        }
        Ok(left)
    }

    fn operator(&self) -> Option<(&'static str, u8)> {
        Some(match self.what() {
            tokens::What::Name(name) if name == "in" => ("@in", 2),
            tokens::What::Sign(sign) => match *sign {
                "||" => ("||", 0),
                "&&" => ("&&", 1),
                "==" => ("_==_", 2),
                "!=" => ("_!=_", 2),
                "<" => ("_<_", 2),
                "<=" => ("_<=_", 2),
                ">" => ("_>_", 2),
                ">=" => ("_>=_", 2),
                "+" => ("_+_", 3),
                "-" => ("_-_", 3),
                "*" => ("_*_", 4),
                "/" => ("_/_", 4),
                "%" => ("_%_", 4),
                _ => return None,
            },
            _ => return None,
        })
    }

    fn unary(&mut self) -> Result<Node, Fault> {
        let mut signs = Vec::new();
        loop {
            if let Some(at) = self.takes("!") {
                signs.push((at, "!_"));
            } else if let Some(at) = self.takes("-") {
                signs.push((at, "-_"));
            } else {
                break;
            }
        }
        if signs.len() > DEEPEST {
            return Err(Fault::new(
                self.place(),
                "expression recursion limit exceeded",
            ));
        }
        let mut whole = self.postfix()?;
        for (at, sign) in signs.into_iter().rev() {
            whole = match (sign, &whole.what) {
                ("-_", What::Literal(Value::Int(number))) => {
                    Node::new(at, What::Literal(Value::Int(number.wrapping_neg())))
                }
                ("-_", What::Literal(Value::Double(number))) => {
                    Node::new(at, What::Literal(Value::Double(-number)))
                }
                _ => Node::call(at, sign, vec![whole]),
            };
        }
        if let What::Literal(Value::Int(i64::MIN)) = whole.what
            && !matches!(self.tokens[..self.at].iter().rev().nth(1), Some(before)
                if matches!(before.what, tokens::What::Sign("-")))
        {
            return Err(Fault::new(whole.at, "invalid int literal"));
        }
        Ok(whole)
    }

    fn postfix(&mut self) -> Result<Node, Fault> {
        let mut whole = self.primary()?;
        loop {
            if let Some(at) = self.takes(".") {
                let presence = self.presence();
                let name = self.name()?;
                whole = match (presence, self.takes("(")) {
                    (Presence::Expected, Some(open)) => self.method(whole, (open, name))?,
                    (presence, None) => {
                        Node::new(at, What::Select(Box::new(whole), name, presence))
                    }
                    (Presence::Optional, Some(open)) => {
                        return Err(Fault::new(open, "unsupported syntax '.?' for a call"));
                    }
                };
            } else if let Some(at) = self.takes("[") {
                let operator = match self.presence() {
                    Presence::Expected => "_[_]",
                    Presence::Optional => "_[?_]",
                };
                let index = self.choice()?;
                self.expect("]")?;
                whole = Node::call(at, operator, vec![whole, index]);
            } else {
                return Ok(whole);
            }
            self.shallow(&whole)?;
        }
    }

    fn shallow(&self, node: &Node) -> Result<(), Fault> {
        if node.levels > MOST_LEVELS {
            let why = "expression recursion limit exceeded";
            return Err(Fault::new(self.place(), why));
        }
        Ok(())
    }

    fn presence(&mut self) -> Presence {
        match self.takes("?") {
            Some(_) => Presence::Optional,
            None => Presence::Expected,
        }
    }

    fn name(&mut self) -> Result<String, Fault> {
        match self.what() {
            tokens::What::Name(name) => {
                let name = name.clone();
                self.at += 1;
                Ok(name)
            }
            _ => Err(self.unexpected("IDENTIFIER")),
        }
    }

    fn arguments(&mut self, close: &str) -> Result<Vec<Node>, Fault> {
        let mut all = Vec::new();
        if self.takes(close).is_some() {
            return Ok(all);
        }
        loop {
            all.push(self.choice()?);
            if self.takes(close).is_some() {
                return Ok(all);
            }
            self.expect(",")?;
        }
    }

    fn method(&mut self, of: Node, (open, name): (usize, String)) -> Result<Node, Fault> {
        let mut arguments = self.arguments(")")?;
        if let Some(node) = expand(&of, open, &name, &mut arguments)? {
            return Ok(node);
        }
        arguments.insert(0, of);
        let call = Call { name, method: true };
        Ok(Node::new(open, What::Call(call, arguments)))
    }

    fn primary(&mut self) -> Result<Node, Fault> {
        if self.takes("(").is_some() {
            let inner = self.choice()?;
            self.expect(")")?;
            return Ok(inner);
        }
        if let Some(at) = self.takes("[") {
            return self.list(at);
        }
        if let Some(at) = self.takes("{") {
            return self.map(at);
        }
        let at = self.place();
        if let tokens::What::Literal(value, _) = self.what() {
            let value = value.clone();
            self.at += 1;
            return Ok(Node::new(at, What::Literal(value)));
        }
        self.takes(".");
        let tokens::What::Name(name) = self.what().clone() else {
            return Err(self.unexpected(BEGINNINGS));
        };
        if RESERVED.contains(&name.as_str()) {
            return Err(Fault::new(at, format!("reserved identifier: {name}")));
        }
        self.at += 1;
        let Some(open) = self.takes("(") else {
            return Ok(Node::new(at, What::Name(name)));
        };
        let mut arguments = self.arguments(")")?;
        if name != "has" {
            return Ok(Node::call(open, &name, arguments));
        }
        let at = arguments.first().map_or(open, |first| first.at);
        match (arguments.pop(), arguments.is_empty()) {
            (
                Some(Node {
                    what: What::Select(of, field, Presence::Expected),
                    ..
                }),
                true,
            ) => Ok(Node::new(open, What::Has(of, field))),
            _ => Err(Fault::new(at, "invalid argument to has() macro")),
        }
    }

    fn list(&mut self, at: usize) -> Result<Node, Fault> {
        let mut items = Vec::new();
        while self.takes("]").is_none() {
            let optional = self.takes("?").is_some();
            items.push((self.choice()?, optional));
            if self.takes(",").is_none() {
                self.expect("]")?;
                break;
            }
        }
        Ok(Node::new(at, What::List(items)))
    }

    fn map(&mut self, at: usize) -> Result<Node, Fault> {
        let mut entries = Vec::new();
        while self.takes("}").is_none() {
            let optional = self.takes("?").is_some();
            let key = self.choice()?;
            self.expect(":")?;
            entries.push((key, self.choice()?, optional));
            if self.takes(",").is_none() {
                self.expect("}")?;
                break;
            }
        }
        Ok(Node::new(at, What::Map(entries)))
    }
}

/// The terms of a chain of one operator.
fn joined(left: Node, right: Node, operator: &str) -> Vec<Node> {
    match (left.what, operator) {
        (What::And(mut terms), "&&") | (What::Or(mut terms), "||") => {
            terms.push(right);
            terms
        }
        (what, _) => vec![Node::new(left.at, what), right],
    }
}

/// Makes of a call what its macro stands for; none if there is no such macro.
fn expand(
    of: &Node,
    open: usize,
    name: &str,
    arguments: &mut Vec<Node>,
) -> Result<Option<Node>, Fault> {
    let (how, names) = match (name, arguments.len()) {
        ("all", 2 | 3) => (How::All, arguments.len() - 1),
        ("exists", 2 | 3) => (How::Exists, arguments.len() - 1),
        ("exists_one" | "existsOne", 2 | 3) => (How::ExistsOne, arguments.len() - 1),
        ("filter", 2) => (How::Filter, 1),
        ("map", 2 | 3) => (How::List, 1),
        ("transformList", 3 | 4) => (How::List, 2),
        ("transformMap", 3 | 4) => (How::Map, 2),
        ("transformMapEntry", 3 | 4) => (How::Entries, 2),
        ("sortBy", 2) => (How::SortBy, 1),
        ("optMap" | "optFlatMap", 2) => {
            let body = arguments.remove(1);
            let variable = variable(&arguments[0])?;
            let wrap = if name == "optMap" {
                Wrap::Wrap
            } else {
                Wrap::Wrapped
            };
            let what = What::Unwrapped(Box::new(of.clone()), variable, Box::new(body), wrap);
            return Ok(Some(Node::new(open, what)));
        }
        _ => return Ok(None),
    };
    let mut rest = arguments.split_off(names);
    let first = variable(&arguments[0])?;
    let second = arguments.get(1).map(variable).transpose()?;
    let Some(body) = rest.pop() else {
        return Ok(None);
    };
    let fold = Fold {
        how,
        of: of.clone(),
        names: (first, second),
        filter: rest.pop(),
        body,
    };
    Ok(Some(Node::new(open, What::Fold(Box::new(fold)))))
}

fn variable(node: &Node) -> Result<String, Fault> {
    match &node.what {
        What::Name(name) => Ok(name.clone()),
        _ => Err(Fault::new(node.at, "argument must be a simple name")),
    }
}
