//! Carries messages as bytes, decodes replies, and marks the ones that cannot be decoded.
//!
//! tonic reports a garbled reply as a plain `INTERNAL`, which a caller could
//! not tell from a driver's own and would take for "nothing happened".

use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes};
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

/// The reply was no message of its type.
#[derive(Debug, thiserror::Error)]
#[error("the reply is garbled")]
pub(super) struct Garbled;

/// Carries encoded messages. The machinery of a call is then compiled once, and not once
/// for each of the protocol's messages.
#[derive(Default)]
pub(super) struct BytesCodec;

impl Codec for BytesCodec {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for BytesCodec {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put(message);
        Ok(())
    }
}

impl Decoder for BytesCodec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        let length = from.remaining();
        Ok(Some(from.copy_to_bytes(length)))
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::default()
    }
}

/// Reads a reply.
pub(super) fn decode<R: prost::Message + Default>(reply: Bytes) -> Result<R, Status> {
    R::decode(reply).map_err(|error| {
        let mut status = Status::internal(error.to_string());
        status.set_source(Arc::new(Garbled));
        status
    })
}
