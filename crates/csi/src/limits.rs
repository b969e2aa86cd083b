//! The bounds that the specification sets.
