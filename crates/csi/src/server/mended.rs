//! A connection whose requests have an authority that HTTP/2 takes.
//!
//! Follows the frames (RFC 9113) that come in, holds back those that begin a request until
//! they are whole, and hands everything on, in its length unchanged.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::authority;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const FRAME_HEADER: usize = 9;
/// The longest frame that the server, which asks for no more, is sent.
const LONGEST_FRAME: usize = 16 * 1024;
const HEADERS: u8 = 1;
const PADDED: u8 = 0x08;
const PRIORITY: u8 = 0x20;
/// As much as is read at once.
const CHUNK: usize = 8 * 1024;

/// A connection whose requests have an authority that HTTP/2 takes.
pub(super) struct Mended<C> {
    connection: C,
    /// What came in and was not handed on.
    held: BytesMut,
    /// How much of it may be handed on.
    ready: usize,
    next: Next,
}

/// What comes next, after what may be handed on.
enum Next {
    Preface,
    Frame,
    /// The rest of a frame that is of no interest.
    Rest(usize),
    /// Not HTTP/2, or its end: whatever it is.
    Anything,
    End,
}

impl<C> Mended<C> {
    pub(super) fn new(connection: C) -> Self {
        Self {
            connection,
            held: BytesMut::new(),
            ready: 0,
            next: Next::Preface,
        }
    }

    /// Decides on what is held.
    fn look(&mut self) {
        loop {
            let rest = &mut self.held[self.ready..];
            let (ready, next) = match self.next {
                Next::Preface if rest.len() >= PREFACE.len() && rest.starts_with(PREFACE) => {
                    (PREFACE.len(), Next::Frame)
                }
                Next::Preface if PREFACE.starts_with(rest) => return,
                Next::Preface => (0, Next::Anything),
                Next::Frame => match frame(rest) {
                    Some(found) => found,
                    None => return,
                },
                Next::Rest(left) if rest.is_empty() && left > 0 => return,
                Next::Rest(left) => match left.min(rest.len()) {
                    all if all == left => (all, Next::Frame),
                    some => (some, Next::Rest(left - some)),
                },
                Next::Anything | Next::End => {
                    self.ready = self.held.len();
                    return;
                }
            };
            self.ready += ready;
            self.next = next;
        }
    }
}

/// How much of a frame may be handed on, and what comes then; `None` if that can't be told
/// yet.
fn frame(bytes: &mut [u8]) -> Option<(usize, Next)> {
    let &[a, b, c, kind, flags, ..] = &*bytes else {
        return None;
    };
    if bytes.len() < FRAME_HEADER {
        return None;
    }
    let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
    if kind != HEADERS || length > LONGEST_FRAME {
        return Some((FRAME_HEADER, Next::Rest(length)));
    }
    let whole = FRAME_HEADER + length;
    let mut block = bytes.get_mut(FRAME_HEADER..whole)?;
    if flags & PADDED != 0
        && let [padding, rest @ ..] = block
    {
        let end = rest.len().saturating_sub(usize::from(*padding));
        block = &mut rest[..end];
    }
    if flags & PRIORITY != 0 {
        let skip = block.len().min(5);
        block = &mut block[skip..];
    }
    authority::mend(block);
    Some((whole, Next::Frame))
}

impl<C: AsyncRead + Unpin> AsyncRead for Mended<C> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        while this.ready == 0 && !matches!(this.next, Next::End) {
            let mut chunk = [0; CHUNK];
            let mut read = ReadBuf::new(&mut chunk);
            ready!(Pin::new(&mut this.connection).poll_read(cx, &mut read))?;
            if read.filled().is_empty() {
                this.next = Next::End;
            }
            this.held.extend_from_slice(read.filled());
            this.look();
        }
        let now = this.ready.min(out.remaining());
        out.put_slice(&this.held[..now]);
        this.held.advance(now);
        this.ready -= now;
        Poll::Ready(Ok(()))
    }
}

impl<C: AsyncWrite + Unpin> AsyncWrite for Mended<C> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().connection).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().connection).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().connection).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().connection).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.connection.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// A frame with a length, a kind and flags.
    fn framed(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![0, 0, payload.len() as u8, kind, flags, 0, 0, 0, 1];
        frame.extend_from_slice(payload);
        frame
    }

    fn headers(value: &[u8]) -> Vec<u8> {
        let mut block = vec![0x83, 0x41, value.len() as u8];
        block.extend_from_slice(value);
        block
    }

    fn stream(value: &[u8]) -> Vec<u8> {
        let mut bytes = PREFACE.to_vec();
        bytes.extend(framed(4, 0, &[0; 6]));
        bytes.extend(framed(HEADERS, 4, &headers(value)));
        // Data that looks like a request is data.
        bytes.extend(framed(0, 1, &framed(HEADERS, 4, &headers(b"/a/b"))));
        bytes.extend(framed(
            HEADERS,
            4 | PRIORITY,
            &[&[0; 5], &headers(value)[..]].concat(),
        ));
        bytes.extend(framed(
            HEADERS,
            4 | PADDED,
            &[&[2], &headers(value)[..], &[0, 0]].concat(),
        ));
        bytes.extend(framed(0, 1, b""));
        bytes
    }

    /// What comes out of what goes in, in pieces of a length.
    async fn through(bytes: &[u8], piece: usize) -> Vec<u8> {
        let (mut near, far) = tokio::io::duplex(piece);
        let sender = bytes.to_vec();
        let sending = tokio::spawn(async move { near.write_all(&sender).await.unwrap() });
        let mut out = Vec::new();
        Mended::new(far).read_to_end(&mut out).await.unwrap();
        sending.await.unwrap();
        out
    }

    #[tokio::test]
    async fn requests_are_mended_however_they_are_cut_up_and_nothing_else_is() {
        for piece in [1, 2, 7, 9, 10, 31, 4096] {
            assert_eq!(
                through(&stream(b"/a/b"), piece).await,
                stream(b"-a-b"),
                "{piece}"
            );
            assert_eq!(
                through(&stream(b"host"), piece).await,
                stream(b"host"),
                "{piece}"
            );
        }
    }

    #[tokio::test]
    async fn what_ends_early_or_is_not_http2_is_handed_on() {
        let whole = stream(b"host");
        for end in 0..whole.len() {
            assert_eq!(through(&whole[..end], 4096).await, whole[..end]);
        }
        let other = b"GET / HTTP/1.1\r\n\r\n";
        assert_eq!(through(other, 3).await, other);
    }
}
