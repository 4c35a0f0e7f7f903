//! What the machine is: read, never changed.

use procfs::Current;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Facts of this host for the record (name → value); what cannot be read is left out.
pub fn facts(data_dir: Option<&Path>) -> BTreeMap<String, String> {
    let mut facts = BTreeMap::new();
    let mut add = |name: &str, value: Option<String>| {
        if let Some(value) = value.filter(|v| !v.is_empty()) {
            facts.insert(name.to_owned(), value);
        }
    };
    let uname = rustix::system::uname();
    add(
        "kernel",
        Some(uname.release().to_string_lossy().into_owned()),
    );
    add(
        "architecture",
        Some(uname.machine().to_string_lossy().into_owned()),
    );
    add("os", os_name());
    let cpu = procfs::CpuInfo::current().ok();
    add(
        "cpu_model",
        cpu.as_ref()
            .and_then(|c| c.model_name(0).map(str::to_owned)),
    );
    add("cpus", cpu.as_ref().map(|c| c.num_cores().to_string()));
    add(
        "cpus_usable",
        std::thread::available_parallelism()
            .ok()
            .map(|n| n.to_string()),
    );
    add(
        "memory_bytes",
        procfs::Meminfo::current()
            .ok()
            .map(|m| m.mem_total.to_string()),
    );
    add(
        "load_average",
        procfs::LoadAverage::current()
            .ok()
            .map(|l| format!("{:.2}", l.one)),
    );
    add(
        "transparent_huge_pages",
        selected("/sys/kernel/mm/transparent_hugepage/enabled"),
    );
    add(
        "cpu_governor",
        line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
    );
    add(
        "clock_source",
        line("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
    );
    if let Some(mount) = data_dir.and_then(mount_of) {
        add("data_filesystem", Some(mount.fs_type));
        add("data_device", Some(mount.source));
        add("data_mount_options", Some(mount.options));
    }
    facts
}

struct Mount {
    source: String,
    fs_type: String,
    options: String,
}

/// The mount that `path` lies on: the longest mount point that is a prefix, the newest of equals.
fn mount_of(path: &Path) -> Option<Mount> {
    let path = path.canonicalize().ok()?;
    let mounts = procfs::process::Process::myself().ok()?.mountinfo().ok()?;
    let best = mounts
        .into_iter()
        .filter(|m| path.starts_with(&m.mount_point))
        .max_by_key(|m| m.mount_point.components().count())?;
    let mut options: Vec<String> = best
        .mount_options
        .iter()
        .chain(&best.super_options)
        .map(|(name, value)| match value {
            Some(value) => format!("{name}={value}"),
            None => name.clone(),
        })
        .collect();
    options.sort_unstable();
    options.dedup();
    Some(Mount {
        source: best.mount_source.unwrap_or_default(),
        fs_type: best.fs_type,
        options: options.join(","),
    })
}

/// Bytes that an unprivileged process may still write on the filesystem of `path`.
pub fn space_free(path: &Path) -> Option<u64> {
    // The nearest ancestor that exists: the directory itself may not have been made yet.
    let existing = path.ancestors().find(|p| p.exists())?;
    let stat = rustix::fs::statvfs(existing).ok()?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}

fn os_name() -> Option<String> {
    let text = fs::read_to_string("/etc/os-release").ok()?;
    let name = text.lines().find_map(|l| l.strip_prefix("PRETTY_NAME="))?;
    Some(name.trim_matches('"').to_owned())
}

fn line(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

/// The word in brackets: `always [madvise] never`.
fn selected(path: &str) -> Option<String> {
    let text = line(path)?;
    let (_, rest) = text.split_once('[')?;
    Some(rest.split_once(']')?.0.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_has_a_kernel_cpus_and_memory() {
        let facts = facts(Some(Path::new("/tmp")));
        for name in ["kernel", "cpus", "memory_bytes", "data_filesystem"] {
            assert!(facts.contains_key(name), "{name} is missing in {facts:?}");
        }
        assert!(facts["memory_bytes"].parse::<u64>().unwrap() > 1 << 20);
    }

    #[test]
    fn free_space_is_known_even_where_nothing_exists_yet() {
        assert!(space_free(Path::new("/tmp/not/there/yet")).unwrap() > 0);
    }
}
