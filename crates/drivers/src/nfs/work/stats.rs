//! Measuring what a path of this node shows.

use std::io;
use std::path::Path;

use orlop_host::Folder;
use tonic::Code;

use crate::nfs::failure::Failure;
use crate::nfs::order::Answer;

pub(super) fn stats(path: &Path) -> Result<Answer, Failure> {
    // A server may not let us read it.
    let measured = Folder::hold(path).and_then(|folder| {
        folder.itself()?;
        folder.usage()
    });
    match measured {
        Ok(usage) => Ok(Answer::Usage(usage.into())),
        Err(error) if error.kind() == io::ErrorKind::StaleNetworkFileHandle => Ok(Answer::Stale),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Answer::Nothing),
        Err(error) => Err(Failure::new(
            Code::Internal,
            format!("could not measure {}: {error}", path.display()),
        )),
    }
}
