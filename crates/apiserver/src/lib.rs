//! placeholder

pub mod discovery;
pub mod kinds;
pub mod openapi;
pub mod patch;
pub mod schema;
pub mod selector;
pub mod table;
