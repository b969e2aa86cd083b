//! Words on the wire: big-endian numbers, and bytes filled up to fours.

use std::io;

/// What is to be said.
#[derive(Debug, Default)]
pub(super) struct Writer(pub(super) Vec<u8>);

impl Writer {
    pub(super) fn number(&mut self, value: u32) -> &mut Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(super) fn long(&mut self, value: u64) -> &mut Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(super) fn fixed(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend(bytes);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    pub(super) fn opaque(&mut self, bytes: &[u8]) -> &mut Self {
        // What is longer than any message is refused by whoever gets it.
        self.number(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        self.fixed(bytes)
    }
}

/// What was said, as far as it was not heard yet.
#[derive(Debug)]
pub(super) struct Reader {
    bytes: Vec<u8>,
    at: usize,
}

impl Reader {
    pub(super) fn new(bytes: Vec<u8>) -> Self {
        Self { bytes, at: 0 }
    }

    fn take(&mut self, length: usize) -> io::Result<&[u8]> {
        let end = length
            .checked_next_multiple_of(4)
            .and_then(|filled| self.at.checked_add(filled))
            .filter(|end| *end <= self.bytes.len())
            .ok_or_else(|| nonsense("it is cut short"))?;
        let taken = &self.bytes[self.at..self.at + length];
        self.at = end;
        Ok(taken)
    }

    pub(super) fn array<const LENGTH: usize>(&mut self) -> io::Result<[u8; LENGTH]> {
        let taken = self.take(LENGTH)?;
        taken.try_into().map_err(|_| nonsense("it is cut short"))
    }

    pub(super) fn number(&mut self) -> io::Result<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(super) fn long(&mut self) -> io::Result<u64> {
        self.array().map(u64::from_be_bytes)
    }

    pub(super) fn flag(&mut self) -> io::Result<bool> {
        self.number().map(|number| number != 0)
    }

    pub(super) fn opaque(&mut self) -> io::Result<Vec<u8>> {
        let length = self.number()?;
        let length = usize::try_from(length).map_err(io::Error::other)?;
        self.take(length).map(<[u8]>::to_vec)
    }

    pub(super) fn skip(&mut self, length: usize) -> io::Result<()> {
        self.take(length).map(drop)
    }
}

/// The server says what nobody should.
pub(super) fn nonsense(what: &str) -> io::Error {
    let told = format!("the server's answer is not understood: {what}");
    io::Error::new(io::ErrorKind::InvalidData, told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_heard_and_no_more() {
        let mut said = Writer::default();
        said.number(7)
            .long(1 << 40)
            .opaque(b"hello")
            .fixed(&[9; 16]);
        assert_eq!(said.0.len(), 4 + 8 + 4 + 8 + 16);
        let mut heard = Reader::new(said.0);
        assert_eq!(heard.number().unwrap(), 7);
        assert_eq!(heard.long().unwrap(), 1 << 40);
        assert_eq!(heard.opaque().unwrap(), b"hello");
        assert_eq!(heard.array::<16>().unwrap(), [9; 16]);
        assert!(heard.number().is_err());
    }

    #[test]
    fn a_length_that_is_a_lie_is_no_panic() {
        for length in [5, 1 << 20, u32::MAX] {
            let mut said = Writer::default();
            said.number(length).number(0);
            assert!(Reader::new(said.0).opaque().is_err());
        }
    }
}
