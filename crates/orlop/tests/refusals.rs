//! What `orlop up` says when it can't start: the cause, and what to do about it.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::{net::TcpListener, process::Command};

use support::Machine;

fn refused(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_orlop"))
        .args(arguments)
        .output()
        .unwrap();
    assert!(!output.status.success(), "it started");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_taken_port_is_named_with_the_flag_that_helps() {
    needs_a_machine!();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let folder = tempfile::tempdir().unwrap();
    let said = refused(&[
        "up",
        "--data-dir",
        folder.path().to_str().unwrap(),
        "--listen",
        &address,
    ]);
    assert!(
        said.contains(&address) && said.contains("--listen"),
        "{said}"
    );
}

#[test]
fn a_folder_in_use_is_refused_and_its_owner_left_alone() {
    needs_a_machine!();
    let machine = Machine::up(&[]);
    let said = refused(&[
        "up",
        "--listen",
        "127.0.0.1:0",
        "--data-dir",
        machine.path().to_str().unwrap(),
    ]);
    assert!(
        said.contains("another instance") && said.contains("--data-dir"),
        "{said}"
    );
    machine.kubectl(&["get", "nodes"]);
}

#[test]
fn a_folder_too_deep_for_sockets_is_refused() {
    needs_a_machine!();
    let folder = tempfile::tempdir().unwrap();
    let deep = folder.path().join("x".repeat(100));
    let said = refused(&[
        "up",
        "--listen",
        "127.0.0.1:0",
        "--data-dir",
        deep.to_str().unwrap(),
    ]);
    assert!(
        said.contains("too long") && said.contains("--data-dir"),
        "{said}"
    );
}

#[test]
fn a_driver_that_is_not_there_is_named() {
    needs_a_machine!();
    let folder = tempfile::tempdir().unwrap();
    let said = refused(&[
        "up",
        "--listen",
        "127.0.0.1:0",
        "--data-dir",
        folder.path().to_str().unwrap(),
        "--driver",
        "unix:///nowhere/csi.sock",
    ]);
    assert!(said.contains("/nowhere/csi.sock"), "{said}");
}

#[test]
fn nonsense_on_the_command_line_is_refused() {
    for arguments in [
        &["up", "--nodes", "0"][..],
        &["up", "--listen", "here"],
        &["sail"],
    ] {
        let said = refused(arguments);
        assert!(said.contains("error:"), "{said}");
    }
}
