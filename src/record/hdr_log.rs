//! Histograms apart from the JSON: the HdrHistogram log format (version 1.3), which its tools plot.
//!
//! One line is `Tag=kind/profile,start,length,max,histogram`; start is in seconds from the begin
//! of the measurement, max in milliseconds, the histogram V2-deflate in base64 with values in µs.

use super::RunRecord;
use std::fmt::Write as _;

/// Moves all histograms out of `record` into a log.
pub(super) fn take(record: &mut RunRecord) -> String {
    let mut log = format!(
        "#[HdrHistogram log format version 1.3]\n#[StartTime: {} (the begin of the run)]\n\
         \"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\
         \"Interval_Compressed_Histogram\"\n",
        record.started_at
    );
    let names: Vec<String> = record.profiles.iter().map(|p| p.name.clone()).collect();
    let length = record.drive.measurement_s;
    for (profile, name) in record.drive.profiles.iter_mut().zip(&names) {
        for (kind, latency) in [
            ("response", &mut profile.response_time),
            ("service", &mut profile.service_time),
            ("lag", &mut profile.lag),
        ] {
            let hdr = std::mem::take(&mut latency.hdr);
            if !hdr.is_empty() {
                let max = latency.max as f64 / 1000.0;
                let _ = writeln!(log, "Tag={kind}/{name},0,{length},{max},{hdr}");
            }
        }
    }
    for (index, window) in record.drive.windows.iter_mut().enumerate() {
        for (hdr, name) in window.response_hdr.iter_mut().zip(&names) {
            let hdr = std::mem::take(hdr);
            if !hdr.is_empty() {
                let (begin, length) = (window.begin_s, window.length_s);
                let _ = writeln!(log, "Tag=window/{name}/{index},{begin},{length},0,{hdr}");
            }
        }
        window.response_hdr.clear();
    }
    log
}

/// The reverse of [`take`]; lines that belong to nothing are passed over.
pub(super) fn put_back(record: &mut RunRecord, log: &str) {
    let names: Vec<String> = record.profiles.iter().map(|p| p.name.clone()).collect();
    for window in &mut record.drive.windows {
        window.response_hdr = vec![String::new(); names.len()];
    }
    for line in log.lines() {
        let Some((tag, rest)) = line.strip_prefix("Tag=").and_then(|l| l.split_once(',')) else {
            continue;
        };
        let Some((_, hdr)) = rest.rsplit_once(',') else {
            continue;
        };
        let mut parts = tag.split('/');
        let (Some(kind), Some(name)) = (parts.next(), parts.next()) else {
            continue;
        };
        let Some(profile) = names.iter().position(|n| n == name) else {
            continue;
        };
        if let Some(slot) = slot(record, kind, profile, parts.next()) {
            hdr.clone_into(slot);
        }
    }
}

fn slot<'a>(
    record: &'a mut RunRecord,
    kind: &str,
    profile: usize,
    window: Option<&str>,
) -> Option<&'a mut String> {
    if kind == "window" {
        let window = record
            .drive
            .windows
            .get_mut(window?.parse::<usize>().ok()?)?;
        return window.response_hdr.get_mut(profile);
    }
    let profile = record.drive.profiles.get_mut(profile)?;
    match kind {
        "response" => Some(&mut profile.response_time.hdr),
        "service" => Some(&mut profile.service_time.hdr),
        "lag" => Some(&mut profile.lag.hdr),
        _ => None,
    }
}
