//! Compiles the protos without a system protoc, and derives from their marks
//! what the generated code must never show.
//!
//! `redaction.rs`, written beside the generated messages, holds for every
//! message with something sensitive a `Debug` that hides it, and for every
//! request of a call what it is about and which of its values are secret.

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::{env, fs};

use protox::prost_reflect::{DescriptorPool, FieldDescriptor, MessageDescriptor};

/// Fields that name what a request is about, most telling first.
const SUBJECTS: [&str; 6] = [
    "volume_id",
    "snapshot_id",
    "group_snapshot_id",
    "name",
    "source_volume_id",
    "target_snapshot_id",
];

/// How much of a field may be shown.
enum Showing {
    Everything,
    /// Marked as secret in the proto, or allowed to be sensitive by the spec.
    Nothing,
    /// Kubernetes puts pod tokens under one key of it.
    AllButTokens,
}

fn main() -> Result<(), Box<dyn Error>> {
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    println!("cargo::rerun-if-changed=proto");

    let mut compiler = protox::Compiler::new(["proto"])?;
    compiler.include_source_info(true).include_imports(true);
    compiler.open_files(["csi.proto", "pluginregistration.proto"])?;
    let pool = compiler.descriptor_pool();
    let guarded: Vec<_> = pool
        .all_messages()
        .filter(|m| is_ours(m) && is_guarded(m))
        .collect();

    fs::write(out.join("redaction.rs"), redaction(&pool, &guarded)?)?;

    // For the tests that hold our protos against the protocol as others know it.
    fs::write(
        out.join("descriptors.bin"),
        compiler.encode_file_descriptor_set(),
    )?;

    tonic_prost_build::configure()
        .btree_map(".")
        .skip_debug(guarded.iter().map(|m| format!(".{}", m.full_name())))
        .build_transport(false)
        // A call that a driver doesn't have answers UNIMPLEMENTED by itself.
        .generate_default_stubs(true)
        .compile_fds(compiler.file_descriptor_set())?;
    Ok(())
}

fn is_ours(message: &MessageDescriptor) -> bool {
    message.package_name() == "csi.v1" && !message.is_map_entry()
}

fn is_guarded(message: &MessageDescriptor) -> bool {
    message
        .fields()
        .any(|field| !matches!(showing(&field), Showing::Everything))
}

fn showing(field: &FieldDescriptor) -> Showing {
    let marked = field
        .parent_pool()
        .get_extension_by_name("csi.v1.csi_secret")
        .is_some_and(|mark| field.options().get_extension(&mark).as_bool() == Some(true));
    match field.name() {
        _ if marked => Showing::Nothing,
        "mount_flags" => Showing::Nothing,
        "volume_context" => Showing::AllButTokens,
        _ => Showing::Everything,
    }
}

fn redaction(
    pool: &DescriptorPool,
    guarded: &[MessageDescriptor],
) -> Result<String, Box<dyn Error>> {
    let mut code = String::new();
    for message in guarded {
        write_debug(&mut code, message)?;
    }
    let requests: BTreeSet<_> = pool
        .services()
        .filter(|service| service.package_name() == "csi.v1")
        .flat_map(|service| {
            service
                .methods()
                .map(|m| m.input().name().to_owned())
                .collect::<Vec<_>>()
        })
        .collect();
    for name in requests {
        let request = pool
            .get_message_by_name(&format!("csi.v1.{name}"))
            .ok_or_else(|| format!("{name} is not a message of csi.v1"))?;
        write_about(&mut code, &request)?;
    }
    Ok(code)
}

fn write_debug(code: &mut String, message: &MessageDescriptor) -> Result<(), Box<dyn Error>> {
    writeln!(
        code,
        "impl ::core::fmt::Debug for {} {{",
        rust_path(message)
    )?;
    writeln!(
        code,
        "    fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {{"
    )?;
    writeln!(code, "        f.debug_struct({:?})", message.name())?;
    for field in message.fields() {
        let name = field.name();
        let shown = match showing(&field) {
            Showing::Everything => format!("&self.{name}"),
            Showing::Nothing => format!("&crate::secrets::Hidden::of(self.{name}.len())"),
            Showing::AllButTokens => format!("&crate::secrets::WithoutTokens(&self.{name})"),
        };
        writeln!(code, "            .field({name:?}, {shown})")?;
    }
    writeln!(code, "            .finish()\n    }}\n}}")?;
    Ok(())
}

fn write_about(code: &mut String, request: &MessageDescriptor) -> Result<(), Box<dyn Error>> {
    writeln!(
        code,
        "impl crate::method::About for {} {{",
        rust_path(request)
    )?;
    let subject = SUBJECTS
        .iter()
        .find(|name| request.get_field_by_name(name).is_some());
    if let Some(subject) = subject {
        writeln!(code, "    fn subject(&self) -> &str {{ &self.{subject} }}")?;
    }
    if request.get_field_by_name("volume_id").is_some() {
        writeln!(
            code,
            "    fn volume_id(&self) -> Option<&str> {{ Some(&self.volume_id) }}"
        )?;
    }
    let fields: Vec<_> = request.fields().collect();
    let wants = |name: &str| fields.iter().any(|field| field.name() == name);
    if wants("secrets") || wants("volume_context") {
        writeln!(
            code,
            "    fn sensitive(&self, found: &mut crate::secrets::Sensitive) {{"
        )?;
        for field in &fields {
            let name = field.name();
            match showing(field) {
                Showing::Nothing => writeln!(code, "        found.add_secrets(&self.{name});")?,
                Showing::AllButTokens => writeln!(code, "        found.add_tokens(&self.{name});")?,
                Showing::Everything => {}
            }
        }
        writeln!(code, "    }}")?;
    }
    writeln!(code, "}}")?;
    Ok(())
}

/// Where prost puts a message: nested ones live in a module named after the outer one.
fn rust_path(message: &MessageDescriptor) -> String {
    match message.parent_message() {
        Some(outer) => format!("{}::{}", snake_case(&rust_path(&outer)), message.name()),
        None => message.name().to_owned(),
    }
}

fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for (at, letter) in name.char_indices() {
        if letter.is_ascii_uppercase() && at > 0 {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}
