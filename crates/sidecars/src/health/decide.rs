//! What is to be said of a volume.

use std::collections::BTreeMap;

use orlop_csi::proto::VolumeCondition;
use orlop_model::Event;
use orlop_runtime::EventType;

/// The reasons of the original's events.
const ABNORMAL: &str = "VolumeConditionAbnormal";
const NORMAL: &str = "VolumeConditionNormal";

/// What was last said of a claim's volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    Ill,
    Well,
}

/// What is to be said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct News {
    pub(super) type_: EventType,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl News {
    /// What has been said once this is.
    pub(super) fn told(&self) -> Told {
        match self.type_ {
            EventType::Warning => Told::Ill,
            EventType::Normal => Told::Well,
        }
    }
}

/// Illness is said every time, since events are forgotten; recovery once.
pub(super) fn decide(told: Option<&Told>, condition: Option<&VolumeCondition>) -> Option<News> {
    let condition = condition?;
    match (condition.abnormal, told) {
        (true, _) => Some(News {
            type_: EventType::Warning,
            reason: ABNORMAL,
            message: match condition.message.as_str() {
                "" => "the driver says that the volume is abnormal, and nothing more".to_owned(),
                message => message.to_owned(),
            },
        }),
        (false, Some(Told::Ill)) => Some(News {
            type_: EventType::Normal,
            reason: NORMAL,
            message: "The Volume returns to the healthy state".to_owned(),
        }),
        (false, Some(Told::Well) | None) => None,
    }
}

/// What a component said of claims, by their uids: of each the last.
pub(super) fn remembered(events: &[Event], component: &str) -> BTreeMap<String, Told> {
    let mut said: Vec<&Event> = events
        .iter()
        .filter(|event| event.source.component == component)
        .filter(|event| event.involved_object.kind == "PersistentVolumeClaim")
        .collect();
    said.sort_by_key(|event| event.last_timestamp);
    let told = said.into_iter().filter_map(|event| {
        let told = match event.reason.as_str() {
            ABNORMAL => Told::Ill,
            NORMAL => Told::Well,
            _ => return None,
        };
        Some((event.involved_object.uid.clone(), told))
    });
    told.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(abnormal: bool, message: &str) -> Option<VolumeCondition> {
        Some(VolumeCondition {
            abnormal,
            message: message.to_owned(),
        })
    }

    #[test]
    fn illness_is_told_every_time_and_recovery_once() {
        let reason = |told: Option<Told>, condition: Option<VolumeCondition>| {
            decide(told.as_ref(), condition.as_ref()).map(|news| news.reason)
        };
        for (told, condition, expected) in [
            (None, None, None),
            (Some(Told::Ill), None, None),
            (None, says(false, ""), None),
            (Some(Told::Well), says(false, ""), None),
            (Some(Told::Ill), says(false, ""), Some(NORMAL)),
            (None, says(true, "x"), Some(ABNORMAL)),
            (Some(Told::Well), says(true, "x"), Some(ABNORMAL)),
            (Some(Told::Ill), says(true, "x"), Some(ABNORMAL)),
        ] {
            assert_eq!(
                reason(told, condition.clone()),
                expected,
                "{told:?} {condition:?}"
            );
        }
        let silent = decide(None, says(true, "").as_ref());
        assert!(silent.is_some_and(|news| !news.message.is_empty()));
    }

    #[test]
    fn a_new_monitor_knows_what_the_last_one_said() {
        let event = |uid: &str, reason: &str, component: &str, second: i64| {
            let mut event = Event::default();
            event.involved_object.kind = "PersistentVolumeClaim".to_owned();
            event.involved_object.uid = uid.to_owned();
            event.reason = reason.to_owned();
            event.source.component = component.to_owned();
            event.last_timestamp = jiff::Timestamp::from_second(second).ok();
            event
        };
        let events = [
            event("a", NORMAL, "me", 2),
            event("a", ABNORMAL, "me", 1),
            event("b", ABNORMAL, "me", 3),
            event("c", ABNORMAL, "other", 3),
            event("d", "NodeFailed", "me", 3),
        ];
        let told = remembered(&events, "me");
        let expected = [("a".to_owned(), Told::Well), ("b".to_owned(), Told::Ill)];
        assert_eq!(told, BTreeMap::from(expected));
    }
}
