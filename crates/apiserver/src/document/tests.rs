use super::*;
use serde_json::json;

fn parsed(form: Form, text: &str) -> Result<Document, Unreadable> {
    read(form, &Bytes::copy_from_slice(text.as_bytes()))
}

fn yaml(text: &str) -> Value {
    parsed(Form::Yaml, text).expect(text).value
}

#[test]
fn a_field_that_stands_twice_is_told_with_its_path_and_the_last_counts() {
    let text = r#"{"a":{"b":[{"c":1,"c":2}],"b":[]},"d":1,"d":2,"d":3}"#;
    let read = parsed(Form::Json, text).expect("valid");
    assert_eq!(read.value, json!({ "a": { "b": [] }, "d": 3 }));
    let told = read.source.warnings(&BTreeSet::new());
    let paths = ["a.b[0].c", "a.b", "d"];
    assert_eq!(
        told,
        paths.map(|path| format!("duplicate field \"{path}\""))
    );
    let read = parsed(Form::Yaml, "a:\n  b: 1\n  b: 2\nc: 3\nc: 4\n").expect("valid");
    assert_eq!(read.value, json!({ "a": { "b": 2 }, "c": 4 }));
    let lines = [3, 5].map(|line| {
        let key = if line == 3 { "b" } else { "c" };
        format!("line {line}: key {key:?} already set in map")
    });
    assert_eq!(read.source.warnings(&BTreeSet::new()), lines);
    assert_eq!(
        read.source.error(&["x".to_owned()].into()),
        format!(
            "yaml: unmarshal errors:\n  {}, unknown field \"x\"",
            lines.join("\n  ")
        )
    );
}

#[test]
fn unknown_fields_are_told_in_the_order_of_the_text() {
    let read = parsed(Form::Json, r#"{"z":1,"a":{"y":1,"b":2},"z":2,"c":3}"#).expect("valid");
    let unknown = ["a.b", "a.y", "c", "z"].map(str::to_owned).into();
    assert_eq!(
        read.source.error(&unknown),
        "unknown field \"z\", unknown field \"a.y\", unknown field \"a.b\", duplicate field \
         \"z\", unknown field \"c\""
    );
}

#[test]
fn what_is_nested_too_deep_is_refused_in_every_form() {
    for (form, open, close) in [
        (Form::Json, "[", "]"),
        (Form::Json, r#"{"a":"#, "}"),
        (Form::Yaml, "[", "]"),
        (Form::Yaml, "{a: ", "}"),
    ] {
        let nested = |levels: usize| format!("{}1{}", open.repeat(levels), close.repeat(levels));
        let read = parsed(form, &nested(DEEPEST)).expect("as deep as may be");
        assert_eq!(depth(&read.value), DEEPEST);
        for levels in [DEEPEST + 1, 10 * DEEPEST, 100_000] {
            let refused = parsed(form, &nested(levels)).expect_err("too deep");
            assert_eq!(refused, Unreadable::Deep, "{form:?} {levels}");
        }
    }
    let block: String = (0..DEEPEST + 1)
        .map(|level| format!("{}a:\n", "  ".repeat(level)))
        .collect();
    let refused = parsed(Form::Yaml, &format!("{block}{}1", "  ".repeat(DEEPEST + 1)));
    assert_eq!(refused.expect_err("too deep"), Unreadable::Deep);
}

#[test]
fn references_can_not_fill_the_memory_nor_nest_without_end() {
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let below = format!("*a{}, ", level - 1).repeat(8);
        bomb.push_str(&format!("a{level}: &a{level} [{below}]\n"));
    }
    assert_eq!(
        parsed(Form::Yaml, &bomb).expect_err("a bomb"),
        Unreadable::Aliases
    );
    let mut chain = "a0: &a0 [x]\n".to_owned();
    for level in 1..DEEPEST + 5 {
        chain.push_str(&format!("a{level}: &a{level} [*a{}]\n", level - 1));
    }
    assert_eq!(
        parsed(Form::Yaml, &chain).expect_err("deep"),
        Unreadable::Deep
    );
    assert!(parsed(Form::Yaml, "a: &a [*a]").is_err());
}

#[test]
fn yaml_says_what_json_would() {
    let text = "
# a claim
metadata:
  name: \"yes\"
  labels: {a: 'b', 1: on}
spec: &spec
  modes:
  - ReadWriteOnce
  - !!str 12
  text: |
    two
    lines
  folded: >-
    one
    line
other:
  <<: *spec
  text: mine
same: *spec
---
second: document
";
    let spec =
        json!({ "modes": ["ReadWriteOnce", "12"], "text": "two\nlines\n", "folded": "one line" });
    let other = json!({ "modes": ["ReadWriteOnce", "12"], "text": "mine", "folded": "one line" });
    assert_eq!(
        yaml(text),
        json!({
            "metadata": { "name": "yes", "labels": { "a": "b", "1": true } },
            "spec": spec, "other": other, "same": spec,
        })
    );
    assert_eq!(yaml(""), Value::Null);
    assert_eq!(
        yaml("a: |\n  x\nb: |\n  y"),
        json!({ "a": "x\n", "b": "y" })
    );
    assert_eq!(
        yaml(r#"{"a": [1, null, "x"]}"#),
        json!({ "a": [1, null, "x"] })
    );
}

#[test]
fn what_is_no_document_is_refused() {
    for (form, text) in [
        (Form::Json, ""),
        (Form::Json, "{\"a\":"),
        (Form::Json, "{} {}"),
        (Form::Json, "nul"),
        (Form::Yaml, "a: [1, 2"),
        (Form::Yaml, "a: *nothing"),
        (Form::Yaml, "a: .inf"),
        (Form::Yaml, "? [a, b]\n: c"),
        (Form::Yaml, "~: c"),
        (Form::Yaml, "<<: 1"),
        (Form::Yaml, "a: b: c"),
    ] {
        assert!(parsed(form, text).is_err(), "{text}");
    }
    assert_eq!(
        parsed(Form::Json, "[1").expect_err("short"),
        Unreadable::End
    );
    let bytes = Bytes::from_static(b"a: \xff");
    assert!(read(Form::Yaml, &bytes).is_err());
    assert!(read(Form::Json, &Bytes::from_static(b"\"\xff\"")).is_err());
}
