//! From text to an expression.

use serde_json::Value;

use super::tokens::{Token, tokens};

/// How deep expressions may nest.
const DEEPEST: usize = 64;

/// A rule's syntax tree.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Expression {
    Literal(Value),
    Name(String),
    List(Vec<Expression>),
    Field(Box<Expression>, String),
    Index(Box<Expression>, Box<Expression>),
    /// `has(x.f)`.
    Has(Box<Expression>, String),
    Not(Box<Expression>),
    Negative(Box<Expression>),
    Binary(Operator, Box<Expression>, Box<Expression>),
    Choice(Box<[Expression; 3]>),
    Call(Function, Vec<Expression>),
    /// `list.all(x, …)` and its like.
    Over(Macro, Box<Expression>, String, Box<Expression>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operator {
    Or,
    And,
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Function {
    Size,
    StartsWith,
    EndsWith,
    Contains,
    Matches,
    String,
    Int,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Macro {
    All,
    Exists,
    ExistsOne,
    Filter,
    Map,
}

impl Expression {
    /// Whether this name occurs.
    pub(super) fn mentions(&self, name: &str) -> bool {
        let any = |all: &[Expression]| all.iter().any(|one| one.mentions(name));
        match self {
            Self::Literal(_) => false,
            Self::Name(found) => found == name,
            Self::List(all) | Self::Call(_, all) => any(all),
            Self::Field(of, _) | Self::Has(of, _) | Self::Not(of) | Self::Negative(of) => {
                of.mentions(name)
            }
            Self::Index(a, b) | Self::Binary(_, a, b) | Self::Over(_, a, _, b) => {
                a.mentions(name) || b.mentions(name)
            }
            Self::Choice(all) => any(all.as_slice()),
        }
    }
}

/// Reads an expression; the error says what isn't understood.
pub(super) fn parse(text: &str) -> Result<Expression, String> {
    let mut parser = Parser {
        tokens: tokens(text)?,
        at: 0,
        depth: 0,
        names: vec!["self".to_owned(), "oldSelf".to_owned()],
    };
    let expression = parser.choice()?;
    match parser.tokens.get(parser.at) {
        None => Ok(expression),
        Some(token) => Err(format!("Syntax error: mismatched input '{}'", token.text())),
    }
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
    depth: usize,
    /// The names in scope.
    names: Vec<String>,
}

impl Parser {
    fn takes(&mut self, sign: &str) -> bool {
        let here = matches!(self.tokens.get(self.at), Some(Token::Sign(found)) if *found == sign);
        self.at += usize::from(here);
        here
    }

    fn expect(&mut self, sign: &str) -> Result<(), String> {
        if self.takes(sign) {
            return Ok(());
        }
        let found = self
            .tokens
            .get(self.at)
            .map_or("<EOF>".to_owned(), Token::text);
        Err(format!(
            "Syntax error: mismatched input '{found}' expecting '{sign}'"
        ))
    }

    fn choice(&mut self) -> Result<Expression, String> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err("the expression is nested too deeply".to_owned());
        }
        let condition = self.binary(0)?;
        let whole = if self.takes("?") {
            let yes = self.binary(0)?;
            self.expect(":")?;
            let no = self.choice()?;
            Expression::Choice(Box::new([condition, yes, no]))
        } else {
            condition
        };
        self.depth -= 1;
        Ok(whole)
    }

    /// Operators that bind at least this tightly.
    fn binary(&mut self, tightest: u8) -> Result<Expression, String> {
        let mut left = self.unary()?;
        while let Some((operator, strength)) = self.operator() {
            if strength < tightest {
                break;
            }
            self.at += 1;
            let right = self.binary(strength + 1)?;
            left = Expression::Binary(operator, Box::new(left), Box::new(right));
        }
        Ok(left)
    }

    fn operator(&self) -> Option<(Operator, u8)> {
        Some(match self.tokens.get(self.at)? {
            Token::Name(name) if name == "in" => (Operator::In, 2),
            Token::Sign(sign) => match *sign {
                "||" => (Operator::Or, 0),
                "&&" => (Operator::And, 1),
                "==" => (Operator::Equal, 2),
                "!=" => (Operator::Unequal, 2),
                "<" => (Operator::Less, 2),
                "<=" => (Operator::LessOrEqual, 2),
                ">" => (Operator::Greater, 2),
                ">=" => (Operator::GreaterOrEqual, 2),
                "+" => (Operator::Add, 3),
                "-" => (Operator::Subtract, 3),
                "*" => (Operator::Multiply, 4),
                "/" => (Operator::Divide, 4),
                "%" => (Operator::Remainder, 4),
                _ => return None,
            },
            _ => return None,
        })
    }

    fn unary(&mut self) -> Result<Expression, String> {
        let mut flips = Vec::new();
        loop {
            if self.takes("!") {
                flips.push(true);
            } else if self.takes("-") {
                flips.push(false);
            } else {
                break;
            }
        }
        if flips.len() > DEEPEST {
            return Err("the expression is nested too deeply".to_owned());
        }
        let mut expression = self.postfix()?;
        for not in flips.into_iter().rev() {
            expression = if not {
                Expression::Not(Box::new(expression))
            } else {
                Expression::Negative(Box::new(expression))
            };
        }
        Ok(expression)
    }

    fn postfix(&mut self) -> Result<Expression, String> {
        let mut whole = self.primary()?;
        loop {
            if self.takes(".") {
                let name = self.name()?;
                whole = if self.takes("(") {
                    self.method(whole, &name)?
                } else {
                    Expression::Field(Box::new(whole), unescape(&name))
                };
            } else if self.takes("[") {
                let index = self.choice()?;
                self.expect("]")?;
                whole = Expression::Index(Box::new(whole), Box::new(index));
            } else {
                return Ok(whole);
            }
        }
    }

    fn name(&mut self) -> Result<String, String> {
        match self.tokens.get(self.at) {
            Some(Token::Name(name)) => {
                self.at += 1;
                Ok(name.clone())
            }
            other => {
                let found = other.map_or("<EOF>".to_owned(), Token::text);
                Err(format!("Syntax error: mismatched input '{found}'"))
            }
        }
    }

    fn arguments(&mut self) -> Result<Vec<Expression>, String> {
        let mut all = Vec::new();
        if self.takes(")") {
            return Ok(all);
        }
        loop {
            all.push(self.choice()?);
            if self.takes(")") {
                return Ok(all);
            }
            self.expect(",")?;
        }
    }

    fn method(&mut self, of: Expression, name: &str) -> Result<Expression, String> {
        let over = match name {
            "all" => Some(Macro::All),
            "exists" => Some(Macro::Exists),
            "exists_one" => Some(Macro::ExistsOne),
            "filter" => Some(Macro::Filter),
            "map" => Some(Macro::Map),
            _ => None,
        };
        if let Some(over) = over {
            let variable = self.name()?;
            self.expect(",")?;
            self.names.push(variable.clone());
            let body = self.choice()?;
            self.names.pop();
            self.expect(")")?;
            return Ok(Expression::Over(
                over,
                Box::new(of),
                variable,
                Box::new(body),
            ));
        }
        let (function, count) = match name {
            "size" => (Function::Size, 0),
            "startsWith" => (Function::StartsWith, 1),
            "endsWith" => (Function::EndsWith, 1),
            "contains" => (Function::Contains, 1),
            "matches" => (Function::Matches, 1),
            _ => return Err(undeclared(name)),
        };
        let mut arguments = vec![of];
        arguments.extend(self.arguments()?);
        if arguments.len() != count + 1 {
            return Err(format!("found no matching overload for '{name}'"));
        }
        Ok(Expression::Call(function, arguments))
    }

    fn primary(&mut self) -> Result<Expression, String> {
        if self.takes("(") {
            let inner = self.choice()?;
            self.expect(")")?;
            return Ok(inner);
        }
        if self.takes("[") {
            let mut items = Vec::new();
            if !self.takes("]") {
                loop {
                    items.push(self.choice()?);
                    if self.takes("]") {
                        break;
                    }
                    self.expect(",")?;
                }
            }
            return Ok(Expression::List(items));
        }
        if let Some(Token::Literal(value)) = self.tokens.get(self.at) {
            let value = value.clone();
            self.at += 1;
            return Ok(Expression::Literal(value));
        }
        let name = self.name()?;
        if !self.takes("(") {
            if self.names.contains(&name) {
                return Ok(Expression::Name(name));
            }
            return Err(undeclared(&name));
        }
        let mut arguments = self.arguments()?;
        let function = match name.as_str() {
            "has" => {
                return match (arguments.pop(), arguments.is_empty()) {
                    (Some(Expression::Field(of, field)), true) => Ok(Expression::Has(of, field)),
                    _ => Err("invalid argument to has() macro".to_owned()),
                };
            }
            "size" => Function::Size,
            "string" => Function::String,
            "int" => Function::Int,
            _ => return Err(undeclared(&name)),
        };
        if arguments.len() != 1 {
            return Err(format!("found no matching overload for '{name}'"));
        }
        Ok(Expression::Call(function, arguments))
    }
}

fn undeclared(name: &str) -> String {
    format!("undeclared reference to '{name}' (in container ''), or not supported by this server")
}

/// Field names that the language can't spell are written in another way.
fn unescape(name: &str) -> String {
    const KEYWORDS: [&str; 20] = [
        "true",
        "false",
        "null",
        "in",
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
    ];
    let keyword = name
        .strip_prefix("__")
        .and_then(|name| name.strip_suffix("__"));
    if let Some(keyword) = keyword.filter(|keyword| KEYWORDS.contains(keyword)) {
        return keyword.to_owned();
    }
    name.replace("__dot__", ".")
        .replace("__dash__", "-")
        .replace("__slash__", "/")
        .replace("__underscores__", "__")
}
