use std::fmt::Debug;

use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FieldDescriptorProto};

use super::*;
use crate::method::{MessageVisitor, visit_messages};
use crate::testing::descriptors;

const CANARY: &str = "canary-7f3a";
const PLAIN: &str = "plain-to-see";

/// Builds messages from the proto's descriptors with a canary in every place
/// that may be secret, nested messages included.
struct Canaries {
    messages: BTreeMap<String, DescriptorProto>,
    /// Places filled with a canary, and with something that may be seen.
    hidden: usize,
    shown: usize,
}

impl Canaries {
    fn new() -> Self {
        fn gather(
            at: &str,
            found: &[DescriptorProto],
            all: &mut BTreeMap<String, DescriptorProto>,
        ) {
            for message in found {
                let name = format!("{at}.{}", message.name());
                gather(&name, &message.nested_type, all);
                all.insert(name, message.clone());
            }
        }
        let mut messages = BTreeMap::new();
        gather(".csi.v1", &descriptors().message_type, &mut messages);
        Self {
            messages,
            hidden: 0,
            shown: 0,
        }
    }

    fn encode(&mut self, name: &str) -> Vec<u8> {
        let Some(message) = self.messages.get(name).cloned() else {
            return Vec::new();
        };
        let mut bytes = Vec::new();
        for field in &message.field {
            for value in self.values(field) {
                encode_key(
                    field.number().unsigned_abs(),
                    WireType::LengthDelimited,
                    &mut bytes,
                );
                encode_varint(value.len() as u64, &mut bytes);
                bytes.extend(value);
            }
        }
        bytes
    }

    fn values(&mut self, field: &FieldDescriptorProto) -> Vec<Vec<u8>> {
        let pair = |key: &str, value: &str| {
            let mut entry = Vec::new();
            prost::encoding::string::encode(1, &key.to_owned(), &mut entry);
            prost::encoding::string::encode(2, &value.to_owned(), &mut entry);
            entry
        };
        match (field.name(), field.r#type()) {
            ("secrets", Type::Message) => {
                self.hidden += 1;
                vec![pair("password", CANARY)]
            }
            ("mount_flags", Type::String) => {
                self.hidden += 1;
                vec![CANARY.into()]
            }
            ("volume_context", Type::Message) => {
                self.hidden += 1;
                self.shown += 1;
                vec![pair(SERVICE_ACCOUNT_TOKENS, CANARY), pair("share", PLAIN)]
            }
            (_, Type::Message) => {
                let in_oneof = field.oneof_index.is_some() && field.label() == Label::Optional;
                let nested = self.encode(field.type_name());
                // Of a oneof the last one set stays: leave out the empty ones.
                if in_oneof && nested.is_empty() {
                    Vec::new()
                } else {
                    vec![nested]
                }
            }
            _ => Vec::new(),
        }
    }
}

impl MessageVisitor for Canaries {
    fn visit<M: Message + Default + Debug>(&mut self, name: &str) {
        let bytes = self.encode(&format!(".csi.v1.{name}"));
        let message = M::decode(bytes.as_slice()).expect("built from the same proto");
        // The canaries are really in there.
        assert_eq!(message.encode_to_vec().len(), bytes.len(), "{name}");
        for text in [format!("{message:?}"), format!("{message:#?}")] {
            assert!(!text.contains(CANARY), "{name} shows a secret: {text}");
            if bytes
                .windows(PLAIN.len())
                .any(|window| window == PLAIN.as_bytes())
            {
                assert!(
                    text.contains(PLAIN),
                    "{name} hides what may be seen: {text}"
                );
            }
        }
    }
}

#[test]
fn no_message_shows_a_secret() {
    let mut canaries = Canaries::new();
    visit_messages(&mut canaries);
    let secrets = descriptors()
        .message_type
        .iter()
        .filter(|message| message.field.iter().any(|field| field.name() == "secrets"))
        .count();
    assert_eq!(secrets, 19, "messages with secrets in CSI 1.12");
    assert!(canaries.hidden > secrets, "{} canaries", canaries.hidden);
    assert!(canaries.shown > 5, "{} plain values", canaries.shown);
}

#[test]
fn secrets_print_nothing_of_themselves() {
    let secrets: Secrets = [("password".to_owned(), CANARY.to_owned())]
        .into_iter()
        .collect();
    assert_eq!(
        format!("{secrets:?} {secrets:#?}"),
        "***stripped*** ***stripped***"
    );
    assert_eq!(format!("{:?}", Secrets::none()), "{}");
    assert_eq!(secrets.into_request()["password"], CANARY);
}

#[test]
fn a_text_loses_every_secret_of_its_request() {
    let mut sensitive = Sensitive::default();
    let key = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQE\n-----END KEY-----";
    let tokens = r#"{"vault":{"token":"eyJhbGciOiJSUzI1NiJ9.e30.sig","expires":"soon"}}"#;
    let map = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
    sensitive.add_secrets(&map("password", "hunter2"));
    sensitive.add_secrets(&map("longer", "hunter2-and-more"));
    sensitive.add_secrets(&map("key", key));
    sensitive.add_secrets(&map("short", "a"));
    sensitive.add_tokens(&map(SERVICE_ACCOUNT_TOKENS, tokens));
    sensitive.add_tokens(&map("share", "public-share"));

    let text = format!(
        "a hunter2, b hunter2-and-more, c MIIEvQIBADANBgkqhkiG9w0BAQE, \
         d eyJhbGciOiJSUzI1NiJ9.e30.sig, e public-share, f {key:?}"
    );
    assert_eq!(
        sensitive.scrub(&text),
        "a ***stripped***, b ***stripped***, c ***stripped***, d ***stripped***, \
         e public-share, f \"***stripped***\\n***stripped***\\n***stripped***\""
    );
}
