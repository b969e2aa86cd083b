//! The build's derivations from the proto's marks: a hiding `Debug` for each
//! message that may carry secrets, and `About` for each request.

use crate::proto::*;

include!(concat!(env!("OUT_DIR"), "/redaction.rs"));
