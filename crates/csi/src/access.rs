//! Access modes.
