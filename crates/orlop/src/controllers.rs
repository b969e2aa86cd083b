//! Which of a command's controllers are run, chosen much as kube-controller-manager's are.

use anyhow::{Result, bail};

/// The controllers that a list chooses: `*` is all, `name` that one, `-name` all but that
/// one, also where nothing else is said. What a name says of itself wins over `*`, and `-name`
/// over `name`. Some are chosen by their names only, since elsewhere others run them.
pub(crate) fn choose_also<C: Copy>(
    list: &[String],
    known: &[(&str, C)],
    by_name: &[(&str, C)],
) -> Result<Vec<C>> {
    let names = || known.iter().chain(by_name).map(|(name, _)| *name);
    for word in list {
        let name = word.strip_prefix('-').unwrap_or(word);
        if word != "*" && !names().any(|known| known == name) {
            bail!(
                "--controllers: there is no controller {name:?}; there are {}",
                names().collect::<Vec<_>>().join(", ")
            );
        }
    }
    let says = |word: &str| list.iter().any(|w| w == word);
    let denied = |name: &str| says(&format!("-{name}"));
    // Who only says what to leave out wants the rest.
    let all = says("*") || list.iter().all(|word| word.starts_with('-'));
    let known = known.iter().filter(|(name, _)| says(name) || all);
    let chosen: Vec<C> = known
        .chain(by_name.iter().filter(|(name, _)| says(name)))
        .filter(|(name, _)| !denied(name))
        .map(|(_, controller)| *controller)
        .collect();
    if chosen.is_empty() {
        bail!(
            "--controllers={} leaves nothing to run; name some, or write * for all",
            list.join(",")
        );
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [(&str, char); 3] = [("binder", 'b'), ("attach-detach", 'a'), ("ephemeral", 'e')];

    fn chosen(list: &str) -> Result<String, String> {
        let words: Vec<String> = list.split(',').map(str::to_owned).collect();
        let chosen = choose_also(&words, &KNOWN, &[]).map_err(|error| error.to_string())?;
        Ok(chosen.into_iter().collect())
    }

    #[test]
    fn a_list_chooses_as_in_kube_controller_manager() {
        for (list, expected) in [
            ("*", "bae"),
            ("binder", "b"),
            ("ephemeral,binder", "be"),
            ("*,-attach-detach", "be"),
            ("-attach-detach,*", "be"),
            ("*,binder,-binder", "ae"),
            ("-binder", "ae"),
            ("-binder,-ephemeral", "a"),
            ("binder,-ephemeral", "b"),
        ] {
            assert_eq!(chosen(list).as_deref(), Ok(expected), "{list}");
        }
    }

    #[test]
    fn some_are_chosen_by_their_names_only() {
        let run = |list: &str| {
            let words: Vec<String> = list.split(',').map(str::to_owned).collect();
            choose_also(&words, &KNOWN, &[("job", 'j')]).map(String::from_iter)
        };
        assert_eq!(run("*").unwrap(), "bae");
        assert_eq!(run("*,job").unwrap(), "baej");
        assert_eq!(run("job").unwrap(), "j");
        assert_eq!(run("-binder").unwrap(), "ae");
        assert!(run("job,-job").is_err());
    }

    #[test]
    fn a_name_that_is_none_is_told_with_those_that_are() {
        for list in ["*,-bindr", "bindr", ""] {
            let error = chosen(list).unwrap_err();
            assert!(
                error.ends_with("there are binder, attach-detach, ephemeral"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_list_that_leaves_nothing_is_an_error() {
        for list in ["binder,-binder", "-binder,-attach-detach,-ephemeral"] {
            let error = chosen(list).unwrap_err();
            let start = format!("--controllers={list} leaves nothing to run");
            assert!(error.starts_with(&start), "{error}");
        }
    }
}
