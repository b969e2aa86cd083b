//! What a driver answered, and whether it may.

use orlop_csi::client::{Origin, Refusal};
use orlop_csi::{Unary, code_name};
use tonic::Code;

use crate::case::{Outcome, Trouble};
use crate::words;

/// Between what is wrong and the request that it is about.
pub(crate) const REQUEST: &str = "; the request was ";

/// An answer with the question that it belongs to.
#[derive(Debug)]
pub(crate) struct Answer<R: Unary> {
    /// The request in words.
    pub(crate) asked: String,
    pub(crate) result: Result<R::Reply, Refusal>,
}

impl<R: Unary> Answer<R> {
    pub(crate) fn code(&self) -> Code {
        self.result
            .as_ref()
            .err()
            .map_or(Code::Ok, |refusal| refusal.code)
    }

    pub(crate) fn is_ok(&self) -> bool {
        self.result.is_ok()
    }

    /// The answer in words.
    pub(crate) fn words(&self) -> String {
        match &self.result {
            Ok(_) => "OK".to_owned(),
            Err(refusal) => words::refusal(refusal),
        }
    }

    /// The driver answered something else than it may.
    pub(crate) fn against(&self, must: &str) -> Trouble {
        Trouble::Against(format!(
            "{} was answered with {}; {must}{REQUEST}{}",
            R::METHOD,
            self.words(),
            self.asked
        ))
    }

    /// The reply, since there is no reason to refuse.
    pub(crate) fn ok(self) -> Result<R::Reply, Trouble> {
        match self.result {
            Ok(reply) => Ok(reply),
            Err(_) => Err(self.against("nothing is wrong with the request, so it must succeed")),
        }
    }

    /// The reply; `because` says why there must be one.
    pub(crate) fn ok_because(self, because: &str) -> Result<R::Reply, Trouble> {
        match self.result {
            Ok(reply) => Ok(reply),
            Err(_) => Err(self.against(because)),
        }
    }

    /// The request must be refused with this code.
    pub(crate) fn refused(&self, code: Code, because: &str) -> Outcome {
        self.refused_with_any(&[code], because)
    }

    /// The request must be refused with one of these codes.
    pub(crate) fn refused_with_any(&self, codes: &[Code], because: &str) -> Outcome {
        if codes.contains(&self.code()) && !self.is_ok() && !self.is_silence() {
            return Ok(());
        }
        Err(self.against(&format!(
            "it must be refused with {}: {because}",
            names(codes)
        )))
    }

    /// Success, or a refusal with one of these codes; the reply if there is one.
    pub(crate) fn ok_or_any(
        self,
        codes: &[Code],
        because: &str,
    ) -> Result<Option<R::Reply>, Trouble> {
        match &self.result {
            Ok(_) => Ok(self.result.ok()),
            Err(refusal) if codes.contains(&refusal.code) && !self.is_silence() => Ok(None),
            Err(_) => Err(self.against(&format!("only OK or {} fit: {because}", names(codes)))),
        }
    }

    /// No answer came from the driver at all.
    pub(crate) fn is_silence(&self) -> bool {
        matches!(&self.result, Err(refusal) if refusal.origin != Origin::Driver)
    }
}

fn names(codes: &[Code]) -> String {
    let names: Vec<_> = codes.iter().map(|code| code_name(*code)).collect();
    names.join(" or ")
}
