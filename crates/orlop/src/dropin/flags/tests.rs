use super::*;

fn flag(name: &'static str, kind: Kind, default: &'static str) -> Flag {
    Flag {
        name: name.into(),
        kind,
        default,
        help: Cow::Borrowed("What it does."),
        support: Support::Done,
    }
}

fn flags() -> Vec<Flag> {
    vec![
        flag("leader-election", Kind::Bool, "false"),
        flag("timeout", Kind::Duration, "10s"),
        flag("kube-api-qps", Kind::Float, "5"),
        flag("workers", Kind::Int, "10"),
        flag("csi-address", Kind::Text, "/run/csi/socket"),
        flag("feature-gates", Kind::Gates, ""),
        flag("v", Kind::Int, "0"),
    ]
}

fn parsed(dialect: Dialect, line: &str) -> Result<String, Stop> {
    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    let given = parse(&flags(), dialect, &words)?;
    let pairs: Vec<String> = given.iter().map(|(n, v)| format!("{n}={v}")).collect();
    Ok(pairs.join(" "))
}

fn wrong(text: &str) -> Result<String, Stop> {
    Err(Stop::Wrong(text.to_owned()))
}

#[test]
fn gos_own_flags_are_read_in_all_their_forms() {
    for (line, expected) in [
        ("", ""),
        ("-timeout=1m30s", "timeout=1m30s"),
        ("--timeout 90s", "timeout=1m30s"),
        ("-timeout 1s --timeout=2s", "timeout=2s"),
        ("-leader-election", "leader-election=true"),
        ("--leader-election=false", "leader-election=false"),
        ("-leader-election=T -v 5", "leader-election=true v=5"),
        // A boolean takes no next word: that word ends the flags.
        ("-leader-election true -v=5", "leader-election=true"),
        ("-v=5 -- -nonsense", "v=5"),
        ("-v=5 - -nonsense", "v=5"),
        ("-workers=0x10", "workers=16"),
        ("-workers=-1", "workers=-1"),
        ("-workers -1", "workers=-1"),
        ("-kube-api-qps=2.5", "kube-api-qps=2.5"),
        ("-csi-address=", "csi-address="),
        ("-csi-address=a=b", "csi-address=a=b"),
        (
            "-feature-gates=A=true -feature-gates=B=false,A=0",
            "feature-gates=A=false,B=false",
        ),
    ] {
        assert_eq!(parsed(Dialect::Go, line).as_deref(), Ok(expected), "{line}");
    }
}

#[test]
fn a_wrong_word_is_told_as_go_tells_it() {
    for (line, expected) in [
        ("-nonsense", "flag provided but not defined: -nonsense"),
        ("--nonsense=1", "flag provided but not defined: -nonsense"),
        ("---v=1", "bad flag syntax: ---v=1"),
        ("-=1", "bad flag syntax: -=1"),
        ("-timeout", "flag needs an argument: -timeout"),
        (
            "-timeout=10",
            "invalid value \"10\" for flag -timeout: time: invalid duration \"10\"",
        ),
        (
            "-workers=ten",
            "invalid value \"ten\" for flag -workers: parse error",
        ),
        (
            "-leader-election=yes",
            "invalid boolean value \"yes\" for -leader-election: parse error",
        ),
        (
            "-feature-gates=A",
            "invalid value \"A\" for flag -feature-gates: malformed pair, expect string=bool: A",
        ),
    ] {
        assert_eq!(parsed(Dialect::Go, line), wrong(expected), "{line}");
    }
    for help in ["-h", "-help", "--help"] {
        assert_eq!(parsed(Dialect::Go, help), Err(Stop::Help), "{help}");
    }
}

#[test]
fn pflags_are_read_in_all_their_forms() {
    for (line, expected) in [
        ("--timeout=1m30s", "timeout=1m30s"),
        ("--timeout 90s", "timeout=1m30s"),
        ("-v=5", "v=5"),
        ("-v5", "v=5"),
        ("-v 5", "v=5"),
        ("--v=5", "v=5"),
        // Flags may follow words that are none.
        ("--leader-election true --v=5", "leader-election=true v=5"),
        ("--v=5 -- --nonsense", "v=5"),
    ] {
        assert_eq!(
            parsed(Dialect::Pflag, line).as_deref(),
            Ok(expected),
            "{line}"
        );
    }
    for (line, expected) in [
        ("--nonsense", "unknown flag: --nonsense"),
        ("-timeout=1s", "unknown shorthand flag: 't' in -timeout=1s"),
        ("--timeout", "flag needs an argument: --timeout"),
        ("-v", "flag needs an argument: 'v' in -v"),
        ("--=1", "bad flag syntax: --=1"),
        (
            "--timeout=x",
            "invalid argument \"x\" for \"--timeout\" flag: time: invalid duration \"x\"",
        ),
    ] {
        assert_eq!(parsed(Dialect::Pflag, line), wrong(expected), "{line}");
    }
    for help in ["-h", "--help"] {
        assert_eq!(parsed(Dialect::Pflag, help), Err(Stop::Help), "{help}");
    }
}

#[test]
fn help_names_every_flag_with_its_default() {
    let go = usage(&flags(), Dialect::Go);
    assert!(
        go.contains("  -csi-address string\n    \tWhat it does. (default \"/run/csi/socket\")\n"),
        "{go}"
    );
    assert!(go.contains("  -timeout duration\n    \tWhat it does. (default 10s)\n"));
    assert!(
        go.contains("  -leader-election\n    \tWhat it does.\n"),
        "{go}"
    );
    let pflag = usage(&flags(), Dialect::Pflag);
    assert!(pflag.contains("    --timeout duration  "), "{pflag}");
    assert!(pflag.contains("      -v int  "), "{pflag}");
}

#[test]
fn labels_are_pairs_or_the_command_line_is_wrong() {
    for right in ["", "a:b", "a:b,c:d"] {
        assert_eq!(
            read(Kind::Labels, right),
            Ok(Value::Text(right.to_owned())),
            "{right}"
        );
    }
    for (wrong, item) in [("a", "a"), ("a:b,", ""), ("a:b:c", "a:b:c")] {
        let said = format!("malformed item in list of labels: {item}");
        assert_eq!(read(Kind::Labels, wrong), Err(said), "{wrong}");
    }
}
