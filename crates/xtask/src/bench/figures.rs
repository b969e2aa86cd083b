//! Figures: how a sample is summed up, and how a process tells them to another.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

/// Named numbers.
#[derive(Debug, Default, Clone, PartialEq)]
pub(super) struct Figures(BTreeMap<String, f64>);

impl Figures {
    pub(super) fn set(&mut self, name: &str, value: f64) {
        self.0.insert(name.to_owned(), value);
    }

    pub(super) fn get(&self, name: &str) -> Option<f64> {
        self.0.get(name).copied()
    }

    /// Median and the slowest hundredth of a sample, in milliseconds.
    pub(super) fn sample(&mut self, name: &str, sample: Vec<Duration>) {
        let mut sample = sample;
        sample.sort_unstable();
        for (suffix, part) in [("p50", 50), ("p99", 99)] {
            if let Some(at) =
                sample.get((sample.len() * part / 100).min(sample.len().saturating_sub(1)))
            {
                self.set(&format!("{name} {suffix}"), at.as_secs_f64() * 1e3);
            }
        }
    }

    /// These too, each under a longer name.
    pub(super) fn add(&mut self, prefix: &str, others: &Self) {
        for (name, value) in &others.0 {
            self.set(&format!("{prefix}{name}"), *value);
        }
    }

    pub(super) fn to_line(&self) -> String {
        json!(self.0).to_string()
    }

    pub(super) fn from_line(line: &str) -> Result<Self> {
        let read: Value = serde_json::from_str(line).context("the client did not tell figures")?;
        let fields = read
            .as_object()
            .context("the client did not tell figures")?;
        let number = |(name, value): (&String, &Value)| Some((name.clone(), value.as_f64()?));
        Ok(Self(fields.iter().filter_map(number).collect()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_sample_is_summed_up_by_its_median_and_its_slowest_hundredth() {
        let mut figures = Figures::default();
        figures.sample("get", (1..=200).rev().map(Duration::from_millis).collect());
        assert_eq!(figures.get("get p50"), Some(101.0));
        assert_eq!(figures.get("get p99"), Some(199.0));
        figures.sample("none", Vec::new());
        assert_eq!(figures.get("none p50"), None);
    }

    #[test]
    fn figures_arrive_as_they_were_sent() {
        let mut figures = Figures::default();
        figures.set("rate", 12.5);
        assert_eq!(Figures::from_line(&figures.to_line()).unwrap(), figures);
        assert!(Figures::from_line("error").is_err());
    }
}
