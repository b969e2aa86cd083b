//! The names of the Go sidecars and of csi-driver-nfs, their flags and ways to end: changing the image
//! is the whole migration.
//!
//! Called by one of their names, as the program or as its first word, we are that program.

pub(crate) mod duration;
mod flags;
mod lead;
mod liveness;
mod nfs;
mod parts;
mod programs;
mod registrar;
mod settings;
mod sidecars;
mod voice;

use std::{path::Path, process::ExitCode};

use anyhow::Result;

use flags::{Dialect, Flag, Given, Stop, parse, usage};
pub(crate) use lead::Standing;
use programs::{CONTROLLERS, ON_NODES, Program, Role, Together};
use settings::View;
pub(crate) use voice::as_loud_as;

/// The name of the program that is all sidecars of a driver.
const ALL_IN_ONE: &str = "csi-sidecars";
/// What a wrong command line ends with, in Go.
const MISUSE: u8 = 2;

/// Runs as one of the originals, if called by its name.
pub(crate) fn called() -> Option<ExitCode> {
    let words: Vec<String> = std::env::args_os()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let (own, rest) = words.split_first()?;
    if Path::new(own)
        .file_name()
        .is_some_and(|name| name == ALL_IN_ONE)
    {
        return Some(controller(rest, None));
    }
    if let Some(program) = programs::called(own) {
        return Some(stand_in(program, own, rest));
    }
    let (first, rest) = rest.split_first()?;
    if first == ALL_IN_ONE {
        return Some(controller(rest, None));
    }
    // A path in the first place is no name.
    let program = programs::called(first).filter(|program| program.name == first)?;
    Some(stand_in(program, first, rest))
}

/// Runs as one of the originals.
fn stand_in(program: &'static Program, own: &str, words: &[String]) -> ExitCode {
    let given = match read(&program.flags(), program.dialect, own, words) {
        Ok(given) => given,
        Err(code) => return code,
    };
    let view = View {
        given: &given,
        program,
        prefix: None,
    };
    ended(start(&view))
}

fn start(view: &View<'_>) -> Result<()> {
    voice::tune(view, None)?;
    match view.program.role {
        Role::Registrar => registrar::main(view, registrar::Care::Registration),
        Role::LivenessProbe => liveness::main(view),
        Role::NfsDriver => nfs::main(view),
        _ => sidecars::alone(view),
    }
}

/// `orlop controller`: many controllers beside one driver.
pub(crate) fn controller(words: &[String], log: Option<&str>) -> ExitCode {
    let given = match read(
        &Together::new().flags,
        Dialect::Go,
        "orlop controller",
        words,
    ) {
        Ok(given) => given,
        Err(code) => return code,
    };
    ended(sidecars::together(&given, log))
}

/// `orlop node-registrar`: the registrar, which also cares for the driver's health.
pub(crate) fn node_registrar(words: &[String], log: Option<&str>) -> ExitCode {
    let program = programs::of(Role::Registrar);
    let given = match read(&program.flags(), Dialect::Go, "orlop node-registrar", words) {
        Ok(given) => given,
        Err(code) => return code,
    };
    let view = View {
        given: &given,
        program,
        prefix: None,
    };
    let run = || {
        voice::tune(&view, log)?;
        registrar::main(&view, registrar::Care::RegistrationAndDriver)
    };
    ended(run())
}

/// Reads the words; tells what is wrong with them, or what was asked of them alone.
fn read(flags: &[Flag], dialect: Dialect, own: &str, words: &[String]) -> Result<Given, ExitCode> {
    match parse(flags, dialect, words) {
        Ok(given) if given.get("version") == Some(&flags::Value::Bool(true)) => {
            println!("{own} v{}", env!("CARGO_PKG_VERSION"));
            Err(ExitCode::SUCCESS)
        }
        Ok(given) => Ok(given),
        Err(stop) => {
            let (said, code) = match stop {
                Stop::Help => (String::new(), ExitCode::SUCCESS),
                Stop::Wrong(why) => (format!("{why}\n"), ExitCode::from(MISUSE)),
            };
            eprint!("{said}Usage of {own}:\n{}", usage(flags, dialect));
            Err(code)
        }
    }
}

fn ended(outcome: Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", said(&error));
            ExitCode::FAILURE
        }
    }
}

/// An error and its causes, each said once: many say their cause's words themselves.
fn said(error: &anyhow::Error) -> String {
    let mut said = String::new();
    for part in error.chain().map(ToString::to_string) {
        if said.contains(&part) {
            continue;
        }
        if !said.is_empty() {
            said.push_str(": ");
        }
        said.push_str(&part);
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_that_was_said_already_is_not_said_again() {
        let inner = anyhow::anyhow!("no such file");
        let error = inner
            .context("failed to read /x: no such file")
            .context("no cluster");
        assert_eq!(said(&error), "no cluster: failed to read /x: no such file");
    }
}
