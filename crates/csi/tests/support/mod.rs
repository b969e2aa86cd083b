//! What the tests of the wire share: the compiled proto as lines of facts, in
//! the form that the Go peer prints its own.

use prost::Message;

// prost's own descriptor types drop extensions, and csi_secret is one.

#[derive(Clone, PartialEq, Message)]
struct Files {
    #[prost(message, repeated, tag = "1")]
    file: Vec<File>,
}

#[derive(Clone, PartialEq, Message)]
struct File {
    #[prost(string, tag = "2")]
    package: String,
    #[prost(message, repeated, tag = "4")]
    messages: Vec<MessageType>,
    #[prost(message, repeated, tag = "5")]
    enums: Vec<EnumType>,
    #[prost(message, repeated, tag = "6")]
    services: Vec<ServiceType>,
}

#[derive(Clone, PartialEq, Message)]
struct MessageType {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, repeated, tag = "2")]
    fields: Vec<Field>,
    #[prost(message, repeated, tag = "3")]
    messages: Vec<MessageType>,
    #[prost(message, repeated, tag = "4")]
    enums: Vec<EnumType>,
    #[prost(message, repeated, tag = "8")]
    oneofs: Vec<Named>,
}

#[derive(Clone, PartialEq, Message)]
struct Field {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(int32, tag = "3")]
    number: i32,
    #[prost(int32, tag = "4")]
    label: i32,
    #[prost(int32, tag = "5")]
    kind: i32,
    #[prost(string, tag = "6")]
    type_name: String,
    #[prost(message, optional, tag = "8")]
    options: Option<FieldOptions>,
    #[prost(int32, optional, tag = "9")]
    oneof: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
struct FieldOptions {
    #[prost(bool, tag = "1059")]
    csi_secret: bool,
}

#[derive(Clone, PartialEq, Message)]
struct EnumType {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, repeated, tag = "2")]
    values: Vec<Named>,
}

#[derive(Clone, PartialEq, Message)]
struct Named {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(int32, tag = "2")]
    number: i32,
}

#[derive(Clone, PartialEq, Message)]
struct ServiceType {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, repeated, tag = "2")]
    methods: Vec<MethodType>,
}

#[derive(Clone, PartialEq, Message)]
struct MethodType {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    input: String,
    #[prost(string, tag = "3")]
    output: String,
    #[prost(bool, tag = "6")]
    streams: bool,
}

/// Every message, field, enumeration and call of a package of ours, sorted.
pub(crate) fn facts(package: &str) -> String {
    let bytes = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin")).as_slice();
    let files = Files::decode(bytes).expect("the build wrote it");
    let file = files
        .file
        .iter()
        .find(|file| file.package == package)
        .expect("it is ours");
    let mut lines = Vec::new();
    for message in &file.messages {
        message_facts(package, message, &mut lines);
    }
    for found in &file.enums {
        enum_facts(package, found, &mut lines);
    }
    for service in &file.services {
        for method in &service.methods {
            lines.push(format!(
                "call {package}.{}.{} {} -> {}{}",
                service.name,
                method.name,
                method.input.trim_start_matches('.'),
                if method.streams { "stream " } else { "" },
                method.output.trim_start_matches('.'),
            ));
        }
    }
    lines.sort();
    lines.join("\n")
}

fn message_facts(at: &str, message: &MessageType, lines: &mut Vec<String>) {
    let name = format!("{at}.{}", message.name);
    lines.push(format!("message {name}"));
    for field in &message.fields {
        let label = if field.label == 3 {
            "repeated"
        } else {
            "optional"
        };
        let kind = match field.kind {
            3 => "int64",
            5 => "int32",
            8 => "bool",
            9 => "string",
            11 | 14 => field.type_name.trim_start_matches('.'),
            other => panic!("{name}.{} has the unforeseen type {other}", field.name),
        };
        let oneof = field.oneof.map(|at| {
            format!(
                " in {}",
                message.oneofs[usize::try_from(at).expect("an index")].name
            )
        });
        let secret = field
            .options
            .as_ref()
            .is_some_and(|options| options.csi_secret);
        lines.push(format!(
            "field {name}.{} = {} {label} {kind}{}{}",
            field.name,
            field.number,
            oneof.unwrap_or_default(),
            if secret { " secret" } else { "" },
        ));
    }
    for nested in &message.messages {
        message_facts(&name, nested, lines);
    }
    for nested in &message.enums {
        enum_facts(&name, nested, lines);
    }
}

fn enum_facts(at: &str, found: &EnumType, lines: &mut Vec<String>) {
    for value in &found.values {
        lines.push(format!(
            "enum {at}.{} {} = {}",
            found.name, value.name, value.number
        ));
    }
}
