use serde_json::{Value, json};

use super::*;

fn eval(text: &str, value: &Value, old: Option<&Value>) -> Result<Value, String> {
    evaluate(&parse::parse(text)?, value, old)
}

#[test]
fn rules_hold_or_not_as_in_the_original() {
    let value = json!({ "a": 1, "s": "text", "l": [1, 2], "namespace": "n", "n": -1.5 });
    let old = json!({ "a": 1, "gone": true });
    for text in [
        "self.a == oldSelf.a",
        "!has(self.gone) || has(oldSelf.gone)",
        "has(self.s) && has(self.__namespace__)",
        "size(self.l) == 2 && self.s.size() > 3",
        "self.a > 0 ? self.s == 'text' : false",
        "self.l.all(x, x > 0) && self.l.exists(x, x == 2) && self.l.exists_one(x, x == 1)",
        "self.s.startsWith(\"te\") && self.s.endsWith('xt') && self.s.matches('^t.*$')",
        "'a' in self && 2 in self.l && !(3 in [1, 2])",
        "self.l.map(x, x * 2) == [2, 4] && self.l.filter(x, x > 1)[0] == 2",
        "1 + 2 * 3 - 4 / 2 == 5 && 7 % 4 == 3 && -self.a == -1 && self.n < 0",
        "string(self.a) + 'x' == '1x' && int('4') == 4 && 1 == 1.0",
        // Either side may decide.
        "self.missing == 1 || true",
    ] {
        assert_eq!(eval(text, &value, Some(&old)), Ok(true.into()), "{text}");
    }
    assert_eq!(
        eval("self == oldSelf", &value, Some(&old)),
        Ok(false.into())
    );
    assert!(eval("self.missing == 1", &value, None).is_err());
    assert!(eval("1 / 0 == 1", &value, None).is_err());
}

#[test]
fn what_is_not_understood_is_refused() {
    for text in [
        "",
        "self.",
        "self == ",
        "other == 1",
        "duration('1s') > self",
        "self.foo()",
        "self ? 1",
        "'open",
        "self == 1 1",
        "{'a': 1}",
        "has(self)",
        "self @ 1",
    ] {
        assert!(parse::parse(text).is_err(), "{text}");
    }
    let deep = format!("{}1{}", "(".repeat(1000), ")".repeat(1000));
    assert!(parse::parse(&deep).is_err());
    for long in [
        format!("self{}", ".a".repeat(100_000)),
        "1 + ".repeat(100_000) + "1",
    ] {
        assert!(parse::parse(&long).is_err());
    }
}

#[test]
fn the_longest_rules_are_evaluated() {
    let sum = "1 + ".repeat(199) + "1";
    assert_eq!(eval(&sum, &json!({}), None), Ok(200.into()));
}

#[test]
fn whatever_a_rule_says_it_is_understood_or_refused() {
    let corpus: &[&[u8]] = &[
        b"self.replicas <= 10 && has(self.a) || !(oldSelf.b in ['x', \"y\"])",
        b"self.list.all(x, x.name.startsWith('a') ? size(x.name) > 1 : x.n % 2 == 0)",
        b"self.map(x, x + 1).filter(y, y > 2)[0] == -3 * (4 - 5) / 6",
        b"string(self.a) + 'b' == 'c' && int('5') < 9223372036854775807",
        b"self.exists_one(x, x.matches('^[a-z]+$')) && self.contains('b').endsWith(\"c\")",
    ];
    let values = [
        json!({ "replicas": 3, "a": "x", "list": [{ "name": "ab", "n": 2 }], "b": "x" }),
        json!([1, 2, 3]),
        json!("text"),
        json!(i64::MAX),
    ];
    crate::fuzz::run("rules", corpus, |bytes| {
        let Ok(text) = std::str::from_utf8(bytes) else {
            return;
        };
        let Ok(rule) = Rule::parse(&json!({ "rule": text })) else {
            return;
        };
        for value in &values {
            let first = evaluate(&rule.expression, value, Some(value));
            // What a rule says depends on nothing but the values.
            assert_eq!(first, evaluate(&rule.expression, value, Some(value)));
        }
    });
}
