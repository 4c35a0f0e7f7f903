//! What a crash may cost under the settings in force.

use crate::record::{Durability, DurabilityClass, Setting};
use std::collections::BTreeMap;

/// Decides the class from `pg_settings` and the unlogged tables of the data set. The worst
/// reason decides; every reason is told.
pub fn classify(settings: &BTreeMap<String, Setting>, unlogged: &[String]) -> Durability {
    let value = |name: &str| settings.get(name).map(|s| s.value.as_str());
    if value("fsync").is_none() || value("synchronous_commit").is_none() {
        return Durability {
            class: DurabilityClass::Unknown,
            reasons: vec!["fsync or synchronous_commit could not be read".to_owned()],
        };
    }
    let mut class = DurabilityClass::Preserved;
    let mut reasons = Vec::new();
    let mut add = |found: DurabilityClass, reason: String| {
        class = class.max(found);
        reasons.push(reason);
    };
    if value("fsync") == Some("off") {
        add(
            DurabilityClass::RisksCorruption,
            "fsync = off: a power loss may corrupt the cluster".to_owned(),
        );
    }
    if value("full_page_writes") == Some("off") {
        add(
            DurabilityClass::RisksCorruption,
            "full_page_writes = off: a torn page stays torn unless the filesystem writes pages \
             atomically"
                .to_owned(),
        );
    }
    if !unlogged.is_empty() {
        add(
            DurabilityClass::RisksCorruption,
            format!(
                "unlogged tables are empty after a crash: {}",
                unlogged.join(", ")
            ),
        );
    }
    match value("synchronous_commit") {
        Some("off") => add(
            DurabilityClass::LosesRecentCommits,
            "synchronous_commit = off: acknowledged commits of up to three times \
             wal_writer_delay are lost in a crash"
                .to_owned(),
        ),
        Some("local") if value("synchronous_standby_names").is_some_and(|n| !n.is_empty()) => add(
            DurabilityClass::LosesRecentCommits,
            "synchronous_commit = local: commits are not waited for on the synchronous standby"
                .to_owned(),
        ),
        _ => {}
    }
    if reasons.is_empty() {
        reasons.push("fsync, full_page_writes and synchronous_commit are on".to_owned());
    }
    Durability { class, reasons }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(overrides: &[(&str, &str)]) -> BTreeMap<String, Setting> {
        let mut all = BTreeMap::from([
            ("fsync", "on"),
            ("full_page_writes", "on"),
            ("synchronous_commit", "on"),
            ("synchronous_standby_names", ""),
        ]);
        all.extend(overrides.iter().copied());
        all.into_iter()
            .map(|(name, value)| {
                let setting = Setting {
                    value: value.to_owned(),
                    unit: None,
                    source: "default".to_owned(),
                    context: "user".to_owned(),
                };
                (name.to_owned(), setting)
            })
            .collect()
    }

    #[test]
    fn the_worst_setting_decides_the_class() {
        use DurabilityClass::{LosesRecentCommits, Preserved, RisksCorruption};
        for (overrides, unlogged, class, reasons) in [
            (&[][..], &[][..], Preserved, 1),
            (&[("synchronous_commit", "off")], &[], LosesRecentCommits, 1),
            (&[("synchronous_commit", "local")], &[], Preserved, 1),
            (
                &[
                    ("synchronous_commit", "local"),
                    ("synchronous_standby_names", "s1"),
                ],
                &[],
                LosesRecentCommits,
                1,
            ),
            (&[("full_page_writes", "off")], &[], RisksCorruption, 1),
            (
                &[("fsync", "off"), ("synchronous_commit", "off")],
                &[],
                RisksCorruption,
                2,
            ),
            (&[], &["stock"], RisksCorruption, 1),
        ] {
            let unlogged: Vec<String> = unlogged.iter().map(|&t| str::to_owned(t)).collect();
            let found = classify(&settings(overrides), &unlogged);
            assert_eq!(
                (found.class, found.reasons.len()),
                (class, reasons),
                "{overrides:?}"
            );
        }
    }

    #[test]
    fn settings_that_could_not_be_read_are_not_called_safe() {
        assert_eq!(
            classify(&BTreeMap::new(), &[]).class,
            DurabilityClass::Unknown
        );
    }
}
