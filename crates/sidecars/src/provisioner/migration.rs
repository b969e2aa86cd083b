//! Classes of plugins that were once part of Kubernetes, in this driver's words: the model's table,
//! with refusals as parameters are refused.

use std::borrow::Cow;

use orlop_model::{
    StorageClass,
    migration::{self, Twice},
};

use super::parameters::ParameterError;

/// The class as the driver understands it.
pub(super) fn translate<'a>(
    class: &'a StorageClass,
    driver: &str,
) -> Result<Cow<'a, StorageClass>, ParameterError> {
    migration::class(class, driver).map_err(|Twice(one, other)| ParameterError::Twice(one, other))
}
