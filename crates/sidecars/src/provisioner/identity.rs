//! Who a provisioner is.

/// Who a provisioner is, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Who says so in events.
    pub component: String,
    /// Who made a volume, in the volume's attributes.
    pub maker: String,
}

impl Identity {
    /// That of its driver, for one that needs no other.
    pub fn of_driver(driver: &str, _node: Option<&str>) -> Self {
        Self {
            component: driver.to_owned(),
            maker: driver.to_owned(),
        }
    }
}
