use serde_json::{Value as Json, json};

use super::*;
use crate::definitions::structural::Structural;

/// Everything that the rules below speak of.
fn schema() -> Structural {
    Structural::parse(&json!({ "type": "object", "properties": {
        "a": { "type": "integer" },
        "s": { "type": "string" },
        "l": { "type": "array", "items": { "type": "integer" } },
        "namespace": { "type": "string" },
        "a-b.c/d": { "type": "string" },
        "n": { "type": "number" },
        "t": { "type": "string", "format": "date-time" },
        "d": { "type": "string", "format": "duration" },
        "m": { "type": "object", "additionalProperties": { "type": "integer" } },
        "set": { "type": "array", "x-kubernetes-list-type": "set", "items": { "type": "string" } },
        "keyed": { "type": "array", "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["k"], "items": { "type": "object",
                "required": ["k"], "properties": {
                    "k": { "type": "string" }, "v": { "type": "integer" } } } },
        "any": { "x-kubernetes-int-or-string": true },
        "gone": { "type": "boolean" },
    } }))
}

fn object() -> Json {
    json!({
        "a": 1, "s": "text", "l": [1, 2], "namespace": "n", "a-b.c/d": "x", "n": -1.5,
        "t": "2024-02-29T12:30:45.5Z", "d": "1h30m", "m": { "x": 1, "y": 2 },
        "set": ["a", "b"], "keyed": [{ "k": "x", "v": 1 }, { "k": "y", "v": 2 }],
        "any": "50%",
    })
}

fn compiled(text: &str) -> Result<(Node, Type), String> {
    let schema = schema();
    let of = Type::of(&schema, false).expect("a type");
    compile(text, &of, false)
}

fn eval(text: &str) -> Result<Value, Stop> {
    let (node, _) = compiled(text).map_err(Stop::Error)?;
    let schema = schema();
    let this = Value::of(&object(), &schema, false);
    let old = Value::of(&json!({ "a": 1, "gone": true }), &schema, false);
    evaluate(&node, &[("self", this), ("oldSelf", old)]).0
}

#[test]
fn expressions_hold_as_in_the_original() {
    let all = include_str!("tests/hold.txt");
    let lines = all
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    let broken: Vec<String> = lines
        .map(|line| (line, eval(line)))
        .filter(|(_, result)| *result != Ok(Value::Bool(true)))
        .map(|(line, result)| format!("{line}\n    {result:?}"))
        .collect();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn what_makes_no_sense_for_a_value_says_why() {
    for (text, why) in [
        ("self.gone == true", "no such key: gone"),
        ("self.l[5] == 1", "index out of bounds: 5"),
        ("self.m['z'] == 1", "no such key: z"),
        ("1 / (self.a - 1) == 1", "division by zero"),
        ("9223372036854775807 + self.a == 1", "integer overflow"),
        (
            "int(self.s) == 1",
            "type conversion error from 'string' to 'int'",
        ),
        ("self.any + 1 == 2", "no such overload"),
        (
            "optional.none().value() == 1",
            "optional.none() dereference",
        ),
        ("[].min() == 1", "min called on empty list"),
        ("self.s.charAt(9) == ''", "index out of range: 9"),
    ] {
        assert_eq!(eval(text), Err(Stop::Error(why.to_owned())), "{text}");
    }
}

#[test]
fn what_does_not_fit_is_refused_with_the_place() {
    for (text, why) in [
        (
            "self.a == 'x'",
            "1:8: found no matching overload for '_==_' applied to '(int, string)'",
        ),
        (
            "self.s + 1 == 'x'",
            "1:8: found no matching overload for '_+_' applied to '(string, int)'",
        ),
        ("self.b == 1", "1:5: undefined field 'b'"),
        (
            "other == 1",
            "1:1: undeclared reference to 'other' (in container '')",
        ),
        (
            "self.s.foo()",
            "1:11: undeclared reference to 'foo' (in container '')",
        ),
        (
            "self.a.startsWith('x')",
            "1:18: found no matching overload for 'startsWith' applied to 'int.(string)'",
        ),
        (
            "self.a.b == 1",
            "1:7: type 'int' does not support field selection",
        ),
        (
            "self.a.all(x, true)",
            "1:5: expression of type 'int' cannot be range of a comprehension (must be list, map, \
          or dynamic)",
        ),
        (
            "[1, 'a'].size() == 2",
            "1:5: expected type 'int' but found 'string'",
        ),
        (
            "self.a && true",
            "1:5: expected type 'bool' but found 'int'",
        ),
        (
            "self == ",
            "1:9: Syntax error: mismatched input '<EOF>' expecting {'['",
        ),
        ("has(self)", "1:5: invalid argument to has() macro"),
        (
            "self @ 1",
            "1:6: Syntax error: token recognition error at: '@'",
        ),
        (
            "self ? 1",
            "1:9: Syntax error: mismatched input '<EOF>' expecting ':'",
        ),
    ] {
        let found = compiled(text).map(|(_, of)| of.to_string());
        let found = found.expect_err(text);
        assert!(
            found.starts_with(&format!("ERROR: <input>:{why}")),
            "{text}: {found}"
        );
    }
    let deep = format!("{}1{}", "(".repeat(1000), ")".repeat(1000));
    let long = "1 + ".repeat(100_000) + "1";
    let dots = format!("self{}", ".a".repeat(100_000));
    for text in [deep, long, dots] {
        assert!(compiled(&text).is_err());
    }
}

#[test]
fn a_rule_says_what_it_is_about() {
    let of = Type::of(&schema(), false).expect("a type");
    let parse = |rule: Json| Rule::parse(&rule, &of);
    let refused = |rule: Json| parse(rule).expect_err("refused");
    assert_eq!(
        refused(json!({ "rule": "self.a" })).detail,
        "cel expression must evaluate to a bool"
    );
    let found = refused(json!({ "rule": "true", "messageExpression": "self.a" }));
    assert_eq!(found.field, "messageExpression");
    assert_eq!(found.detail, "messageExpression must evaluate to a string");
    let changing = parse(json!({ "rule": "self.l.all(x, x in oldSelf.l)" })).expect("a rule");
    assert!(changing.about_change);
    let hidden = parse(json!({ "rule": "self.l.all(oldSelf, oldSelf > 0)" })).expect("a rule");
    assert!(!hidden.about_change);
    let optional = json!({ "rule": "oldSelf.?a.orValue(1) == self.a", "optionalOldSelf": true });
    assert!(parse(optional).expect("a rule").about_change);
}

#[test]
fn no_rule_runs_for_long() {
    let nested = "lists.range(1000).all(a, lists.range(1000).all(b, lists.range(1000).all(c, a + b \
                  + c >= 0)))";
    assert_eq!(eval(nested), Err(Stop::Cost));
    assert_eq!(
        eval("lists.range(999999).size() > lists.range(999999).size()"),
        Err(Stop::Cost)
    );
}

#[test]
fn no_rule_makes_more_than_there_is_room_for() {
    let mut object = object();
    object["s"] = "a".repeat(1500).into();
    object["l"] = (0..500).collect::<Vec<_>>().into();
    let schema = schema();
    let this = Value::of(&object, &schema, false);
    // Each of them would take minutes, or gigabytes.
    let twice = "map(x, [x, x])";
    let doubled = format!("[[1]]{}", format!(".{twice}").repeat(25));
    let texts = "self.l.map(x, self.s.replace('a', 'aaaaaaaaaa'))";
    for text in [
        "size(self.s.replace('a', self.s).replace('a', self.s)) > 0".to_owned(),
        "self.s.replace('', self.s).replace('a', self.s, 100000) != ''".to_owned(),
        "self.l.map(x, self.s).join(self.s + self.s).split('') == []".to_owned(),
        format!("{texts}.map(x, x + x + x + x) == []"),
        format!("'%s%s%s'.format([{texts}, {texts}, {texts}]) == ''"),
        format!("self.l.map(x, {texts}).flatten().map(x, x + x) == []"),
        "self.l.map(x, self.l.map(y, self.l)).flatten(2) == []".to_owned(),
        "self.l.map(x, (self.s + self.s).split('')) == []".to_owned(),
        "self.l.map(x, (self.s + self.s).findAll('a')) == []".to_owned(),
        "self.l.map(x, url('/?' + self.s.replace('a', 'a&')).getQuery()) == []".to_owned(),
        format!("{doubled} == {doubled}"),
        format!("{doubled} in [{doubled}]"),
        format!("'%s'.format([{doubled}]) == ''"),
        format!("[{doubled}].flatten(100) == []"),
    ] {
        let (node, _) = compiled(&text).unwrap_or_else(|why| panic!("{text}: {why}"));
        let (found, _) = evaluate(&node, &[("self", this.clone())]);
        assert_eq!(found, Err(Stop::Cost), "{text}");
    }
    for text in [
        "size(self.s.replace('a', 'bb')) == 3000",
        "self.l.map(x, string(x)).join(',').split(',').size() == 500",
        "self.l.all(x, x in self.l) && self.l.map(x, self.s.matches('^a+$')).all(x, x)",
    ] {
        let (node, _) = compiled(text).unwrap_or_else(|why| panic!("{text}: {why}"));
        let (found, _) = evaluate(&node, &[("self", this.clone())]);
        assert_eq!(found, Ok(Value::Bool(true)), "{text}");
    }
}

#[test]
fn the_longest_rules_are_evaluated() {
    let sum = "1 + ".repeat(100) + "1 == 101";
    assert_eq!(eval(&sum), Ok(Value::Bool(true)));
    let many = "self.a == 1 && ".repeat(200) + "true";
    assert_eq!(eval(&many), Ok(Value::Bool(true)));
}

#[test]
fn whatever_a_rule_says_it_is_understood_or_refused() {
    let corpus: &[&[u8]] = &[
        b"self.a <= 10 && has(self.s) || !(oldSelf.s in ['x', \"y\"])",
        b"self.keyed.all(x, x.k.startsWith('a') ? size(x.k) > 1 : x.v % 2 == 0)",
        b"self.l.map(x, x + 1).filter(y, y > 2)[0] == -3 * (4 - 5) / 6",
        b"string(self.a) + 'b' == 'c' && int('5') < 9223372036854775807",
        b"self.set.exists_one(x, x.matches('^[a-z]+$')) && self.s.contains('b')",
        b"self.?s.orValue('x').split(',', 2).join('-').format([1, 2.5]) == r'\\n'",
        b"{'a': 1, ?'b': self.?a}.transformMap(k, v, v > 1, v * 2).size() == 0x1f",
        b"quantity('1.5Gi').add(3).isGreaterThan(quantity(self.s)) && ip('::1').isLoopback()",
        b"cidr('10.0.0.0/8').containsIP('10.1.1.1') && url(self.s).getQuery()['a'][0] == b'\\x01'",
        b"timestamp('2024-01-01T00:00:00Z') - duration('1h') > self.t && self.l.sort().sum() > 1u",
    ];
    let schema = schema();
    let of = Type::of(&schema, false).expect("a type");
    let this = Value::of(&object(), &schema, false);
    crate::fuzz::run("rules", corpus, |bytes| {
        let Ok(text) = std::str::from_utf8(bytes) else {
            return;
        };
        let Ok((node, _)) = compile(text, &of, false) else {
            return;
        };
        let names = [("self", this.clone()), ("oldSelf", this.clone())];
        let (first, cost) = evaluate(&node, &names);
        // What a rule says depends on nothing but the values.
        let (again, price) = evaluate(&node, &names);
        assert_eq!((first.is_ok(), cost), (again.is_ok(), price));
    });
}
