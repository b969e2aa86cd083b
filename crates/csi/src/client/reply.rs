//! Decodes replies, and marks the ones that cannot be decoded.
//!
//! tonic reports a garbled reply as a plain `INTERNAL`, which a caller could
//! not tell from a driver's own and would take for "nothing happened".

use std::marker::PhantomData;
use std::sync::Arc;

use tonic::Status;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder};
use tonic_prost::{ProstCodec, ProstDecoder, ProstEncoder};

/// The reply was no message of its type.
#[derive(Debug, thiserror::Error)]
#[error("the reply is garbled")]
pub(super) struct Garbled;

/// Encodes requests `Q`, decodes replies `R`.
pub(super) struct ReplyCodec<Q, R>(PhantomData<(Q, R)>);

impl<Q, R> Default for ReplyCodec<Q, R> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<Q, R> Codec for ReplyCodec<Q, R>
where
    Q: prost::Message + 'static,
    R: prost::Message + Default + 'static,
{
    type Encode = Q;
    type Decode = R;
    type Encoder = ProstEncoder<Q>;
    type Decoder = ReplyDecoder<R>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<Q, R>::raw_encoder(BufferSettings::default())
    }

    fn decoder(&mut self) -> Self::Decoder {
        ReplyDecoder(ProstCodec::<Q, R>::raw_decoder(BufferSettings::default()))
    }
}

pub(super) struct ReplyDecoder<R>(ProstDecoder<R>);

impl<R: prost::Message + Default> Decoder for ReplyDecoder<R> {
    type Item = R;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<R>, Status> {
        self.0.decode(from).map_err(|mut status| {
            status.set_source(Arc::new(Garbled));
            status
        })
    }

    fn buffer_settings(&self) -> BufferSettings {
        self.0.buffer_settings()
    }
}
