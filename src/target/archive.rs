//! The embedded builds: fetched from a Maven repository, verified, unpacked, cached.
//!
//! Group `io.zonky.test.postgres`; one jar for each version, holding one tar.xz with `bin`, `lib`
//! and `share`.

use super::Progress;
use super::fetch::Repository;
use super::files;
use super::home::Places;
use super::lease::Lease;
use super::version::{NEWEST_MAJOR, Version, Wanted};
use crate::interrupt;
use crate::problem::{IoContext, Problem};
use sha2::Digest;
use std::fs::{self, File, Permissions};
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const GROUP: &str = "io/zonky/test/postgres";
/// Directories under way begin with this; whoever holds the lock may remove them.
const TEMPORARY: &str = ".tmp-";

/// The builds in the cache, ascending.
pub(crate) fn cached(builds: &Path) -> Vec<Version> {
    let mut versions: Vec<Version> = files::names(builds)
        .iter()
        .filter_map(|name| {
            let version = Version::parse(name)?;
            (version.to_string() == *name && complete(&builds.join(name))).then_some(version)
        })
        .collect();
    versions.sort();
    versions
}

fn complete(build: &Path) -> bool {
    build.join("bin/postgres").exists() && build.join("bin/initdb").exists()
}

/// The `bin` directory of a cached build.
pub(crate) fn bindir(builds: &Path, version: Version) -> PathBuf {
    builds.join(version.to_string()).join("bin")
}

/// The versions that the repository lists, ascending.
pub(crate) fn published(places: &Places) -> Result<Vec<Version>, Problem> {
    let repository = Repository::open(&places.maven_url)?;
    let path = format!("{GROUP}/{}/maven-metadata.xml", artifact()?);
    let text = repository
        .text(&path)
        .map_err(|problem| problem.hint(NO_NETWORK))?
        .ok_or_else(|| {
            Problem::environment(format!("there is no {}", repository.address(&path)))
                .hint("PGDYNO_MAVEN_URL must name a Maven repository with the embedded builds")
        })?;
    let mut versions: Vec<Version> = text
        .split("<version>")
        .skip(1)
        .filter_map(|rest| Version::parse(rest.split_once("</version>")?.0.trim()))
        .filter(|version| !version.too_old())
        .collect();
    versions.sort();
    if versions.is_empty() {
        return Err(Problem::environment(format!(
            "{} lists no versions",
            repository.address(&path)
        ))
        .hint("PGDYNO_MAVEN_URL must name a Maven repository with the embedded builds"));
    }
    Ok(versions)
}

const NO_NETWORK: &str = "without a network, use an installed PostgreSQL with --pg-bindir DIR or \
                          --pg found, a running one with --target CONNINFO, or a mirror with \
                          PGDYNO_MAVEN_URL";

/// The build that was asked for: from the cache, else fetched.
pub(crate) fn obtain(
    places: &Places,
    wanted: &Wanted,
    progress: &mut dyn Progress,
) -> Result<Version, Problem> {
    if let Some(version) = wanted.best(cached(&places.builds)) {
        return Ok(version);
    }
    let lock = places.builds.join(".lock");
    let _lease = Lease::take(&lock, |_| {
        progress.step("waiting for another pgdyno that is fetching");
    })?;
    remove_leftovers(&places.builds)?;
    // The one that we waited for may have fetched it.
    if let Some(version) = wanted.best(cached(&places.builds)) {
        return Ok(version);
    }
    let known = published(places)
        .map_err(|problem| problem.context(format_args!("PostgreSQL {wanted} is not cached")))?;
    let version = wanted
        .best(known.iter().copied())
        .ok_or_else(|| unknown(wanted, &known))?;
    fetch(places, version, progress)?;
    Ok(version)
}

/// Directories that a killed pgdyno left; the lock is held.
fn remove_leftovers(builds: &Path) -> Result<(), Problem> {
    for name in files::names(builds) {
        if name.starts_with(TEMPORARY) {
            files::remove(&builds.join(name))?;
        }
    }
    Ok(())
}

fn unknown(wanted: &Wanted, known: &[Version]) -> Problem {
    let near: Vec<String> = known
        .iter()
        .filter(|version| version.major() == wanted.major())
        .map(ToString::to_string)
        .collect();
    let list = if near.is_empty() {
        let mut majors: Vec<String> = known.iter().map(|version| version.major()).collect();
        majors.dedup();
        format!("there are builds of {}", majors.join(", "))
    } else {
        format!("of {} there are {}", wanted.major(), near.join(", "))
    };
    Problem::usage(format!("there is no embedded build of PostgreSQL {wanted}")).hint(list)
}

/// Fetches, verifies and unpacks one version; the lock is held.
fn fetch(places: &Places, version: Version, progress: &mut dyn Progress) -> Result<(), Problem> {
    let artifact = artifact()?;
    let path = format!("{GROUP}/{artifact}/{version}/{artifact}-{version}.jar");
    let repository = Repository::open(&places.maven_url)?;
    let temporary = tempfile::Builder::new()
        .prefix(TEMPORARY)
        .tempdir_in(&places.builds)
        .or_problem(format_args!("write to {}", places.builds.display()))?;
    progress.step(&format!("fetching PostgreSQL {version}"));
    let mut jar = tempfile::tempfile_in(temporary.path()).or_problem("store the download")?;
    let found =
        repository
            .download(&path, &mut jar, progress)
            .map_err(|problem| match problem.hint {
                None if problem.exit_code() == 3 => problem.hint(NO_NETWORK),
                _ => problem,
            })?;
    if !found {
        return Err(Problem::environment(format!(
            "the repository lists PostgreSQL {version} but has no {}",
            repository.address(&path)
        ))
        .hint("ask for another version with --pg; `pgdyno server versions` lists them"));
    }
    verify(&repository, &path, &mut jar)?;
    progress.step(&format!("unpacking PostgreSQL {version}"));
    let unpacked = temporary.path().join("build");
    unpack(jar, &unpacked).map_err(|problem| problem.context(repository.address(&path)))?;
    let destination = places.builds.join(version.to_string());
    // An incomplete directory of that name would have been taken from the cache otherwise.
    files::remove(&destination)?;
    fs::rename(&unpacked, &destination).or_problem(format_args!("write {}", destination.display()))
}

/// Holds the jar against the checksum that the repository publishes beside it.
fn verify(repository: &Repository, path: &str, jar: &mut File) -> Result<(), Problem> {
    let sha256 = format!("{path}.sha256");
    let sha1 = format!("{path}.sha1");
    let (kind, published, actual) = if let Some(text) = repository.text(&sha256)? {
        ("SHA-256", text, digest::<sha2::Sha256>(jar))
    } else if let Some(text) = repository.text(&sha1)? {
        ("SHA-1", text, digest::<sha1::Sha1>(jar))
    } else {
        return Err(Problem::environment(format!(
            "there is no checksum for {}",
            repository.address(path)
        ))
        .hint("the repository must publish .sha256 or .sha1 files"));
    };
    let actual = actual.or_problem("read the download back")?;
    // Some repositories put the file's name behind the digits.
    let published = published.split_whitespace().next().unwrap_or("");
    if !published.eq_ignore_ascii_case(&actual) {
        return Err(Problem::environment(format!(
            "the {kind} of {} is {actual}, but \"{published}\" is published: the download is \
             damaged or was tampered with",
            repository.address(path)
        ))
        .hint("nothing was kept; try again, or fetch from another mirror with PGDYNO_MAVEN_URL"));
    }
    Ok(())
}

fn digest<D: Digest>(file: &mut File) -> std::io::Result<String> {
    file.seek(SeekFrom::Start(0))?;
    let mut digest = D::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            n => digest.update(&buffer[..n]),
        }
    }
    Ok(digest
        .finalize()
        .iter()
        .fold(String::new(), |hex, byte| hex + &format!("{byte:02x}")))
}

/// jar → txz → tar → files, all in one stream.
fn unpack(jar: File, to: &Path) -> Result<(), Problem> {
    let malformed = |error: &dyn std::fmt::Display| {
        Problem::environment(format!("the archive is malformed: {error}"))
    };
    let mut jar = zip::ZipArchive::new(BufReader::new(jar)).map_err(|e| malformed(&e))?;
    let name = jar
        .file_names()
        .find(|name| Path::new(name).extension().is_some_and(|e| e == "txz"))
        .map(str::to_owned)
        .ok_or_else(|| malformed(&"there is no .txz in it"))?;
    let txz = jar.by_name(&name).map_err(|e| malformed(&e))?;
    files::make_directory(to, 0o755)?;
    let mut tar = tar::Archive::new(liblzma::read::XzDecoder::new(BufReader::new(txz)));
    tar.set_preserve_permissions(true);
    for entry in tar.entries().or_problem("unpack the archive")? {
        interrupt::check()?;
        let mut entry = entry.or_problem("unpack the archive")?;
        entry.unpack_in(to).map_err(|error| {
            // tar names the file and hides the reason levels down.
            let first = std::error::Error::source(&error);
            let reason = std::iter::successors(first, |error| error.source())
                .last()
                .map_or_else(String::new, |reason| format!(": {reason}"));
            Problem::environment(format!("cannot unpack: {error}{reason}"))
        })?;
    }
    open_to_all(to).or_problem(format_args!("set the modes below {}", to.display()))?;
    if complete(to) {
        Ok(())
    } else {
        Err(malformed(&"bin/postgres or bin/initdb is missing"))
    }
}

/// Directories that the archive does not list come with the umask's mode, and the server's user
/// could not enter them.
fn open_to_all(directory: &Path) -> std::io::Result<()> {
    fs::set_permissions(directory, Permissions::from_mode(0o755))?;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            open_to_all(&entry.path())?;
        }
    }
    Ok(())
}

/// The artifact for this machine.
fn artifact() -> Result<String, Problem> {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64v8",
        "powerpc64" => "ppc64le",
        other => {
            return Err(Problem::environment(format!(
                "there are no embedded builds of PostgreSQL for {other}"
            ))
            .hint(NO_NETWORK));
        }
    };
    Ok(format!("embedded-postgres-binaries-linux-{architecture}"))
}

/// For `server versions`: what can be had, what is here.
pub(crate) fn versions(
    places: &Places,
    progress: &mut dyn Progress,
) -> Result<Vec<(Version, bool)>, Problem> {
    let cached = cached(&places.builds);
    progress.step("reading the list of versions");
    let mut all = match published(places) {
        Ok(published) => published,
        Err(problem) if cached.is_empty() || interrupt::requested() => return Err(problem),
        Err(problem) => {
            progress.step(&format!(
                "{}; only what is cached is listed",
                problem.message
            ));
            Vec::new()
        }
    };
    all.extend(&cached);
    all.sort();
    all.dedup();
    let supported = Version::parse(&format!("{}", NEWEST_MAJOR + 1));
    all.retain(|version| supported.is_none_or(|end| *version < end));
    Ok(all
        .into_iter()
        .map(|version| (version, cached.contains(&version)))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[derive(Default)]
    struct Steps(Vec<String>);
    impl Progress for Steps {
        fn step(&mut self, what: &str) {
            self.0.push(what.to_owned());
        }
        fn bytes(&mut self, _done: u64, _total: Option<u64>) {}
    }

    /// A repository in a directory, and an empty cache.
    struct Scene {
        directory: tempfile::TempDir,
        places: Places,
    }

    impl Scene {
        fn new(listed: &[&str]) -> Scene {
            let directory = tempfile::tempdir().unwrap();
            let at = |name: &str| directory.path().join(name);
            let places = Places {
                builds: at("builds"),
                clusters: at("clusters"),
                maven_url: format!("file://{}", at("maven").display()),
            };
            files::make_directories(&places.builds).unwrap();
            let scene = Scene { directory, places };
            let items = format!(
                "<version>{}</version>",
                listed.join("</version>\n<version>")
            );
            scene.publish("maven-metadata.xml", items.as_bytes());
            scene
        }

        fn publish(&self, path: &str, content: &[u8]) {
            let artifact = self.directory.path().join("maven").join(GROUP);
            let path = artifact.join(artifact_name()).join(path);
            files::make_directories(path.parent().unwrap()).unwrap();
            files::replace(&path, content, 0o644).unwrap();
        }

        /// A jar with programs that do nothing, and a checksum of the given kind.
        fn publish_build(&self, version: &str, checksum: &str, value: Option<&str>) {
            let jar = jar();
            let name = format!("{version}/{}-{version}.jar", artifact_name());
            let digits = match (value, checksum) {
                (Some(value), _) => value.to_owned(),
                (None, "sha1") => digest::<sha1::Sha1>(&mut as_file(&jar)).unwrap(),
                (None, _) => digest::<sha2::Sha256>(&mut as_file(&jar)).unwrap(),
            };
            self.publish(&name, &jar);
            self.publish(&format!("{name}.{checksum}"), digits.as_bytes());
        }

        fn obtain(&self, wanted: &str) -> Result<String, Problem> {
            let wanted = Wanted::parse(wanted).unwrap();
            obtain(&self.places, &wanted, &mut Steps::default()).map(|v| v.to_string())
        }

        fn cache(&self) -> Vec<String> {
            let mut names = files::names(&self.places.builds);
            names.retain(|name| name != ".lock");
            names
        }
    }

    fn artifact_name() -> String {
        artifact().unwrap()
    }

    fn as_file(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    fn jar() -> Vec<u8> {
        let xz = liblzma::write::XzEncoder::new(Vec::new(), 1);
        let mut tar = tar::Builder::new(xz);
        for name in ["bin/postgres", "bin/initdb", "share/deep/file"] {
            let mut header = tar::Header::new_gnu();
            header.set_size(10);
            header.set_mode(0o755);
            tar.append_data(&mut header, name, &b"#!/bin/sh\n"[..])
                .unwrap();
        }
        let txz = tar.into_inner().unwrap().finish().unwrap();
        let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
        let options = zip::write::SimpleFileOptions::default();
        zip.start_file("META-INF/MANIFEST.MF", options).unwrap();
        zip.start_file("postgres-linux.txz", options).unwrap();
        zip.write_all(&txz).unwrap();
        zip.finish().unwrap().into_inner()
    }

    #[test]
    fn the_newest_build_that_fits_is_fetched_once_and_then_needs_no_repository() {
        let scene = Scene::new(&["13.9.0", "14.2.0", "14.10.0", "15.1.0"]);
        scene.publish_build("14.10.0", "sha256", None);
        assert_eq!(scene.obtain("14").unwrap(), "14.10.0");
        assert_eq!(scene.cache(), ["14.10.0"]);
        let bin = bindir(&scene.places.builds, cached(&scene.places.builds)[0]);
        let mode = bin.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o755);
        let offline = Scene {
            places: Places {
                maven_url: "/no/where".into(),
                ..scene.places.clone()
            },
            ..scene
        };
        assert_eq!(offline.obtain("14").unwrap(), "14.10.0");
        assert_eq!(offline.obtain("14.10").unwrap(), "14.10.0");
        let listed = versions(&offline.places, &mut Steps::default()).unwrap();
        assert_eq!(listed.len(), 1);
        let problem = offline.obtain("14.2").unwrap_err();
        assert_eq!(problem.exit_code(), 3);
    }

    #[test]
    fn without_cache_and_network_the_other_ways_are_named() {
        let mut scene = Scene::new(&[]);
        scene.places.maven_url = "http://127.0.0.1:9/maven2".into();
        let problem = scene.obtain("14").unwrap_err();
        assert_eq!(problem.exit_code(), 3);
        assert!(problem.message.contains("14 is not cached"), "{problem}");
        let hint = problem.hint.unwrap();
        assert!(
            hint.contains("--pg-bindir") && hint.contains("--target"),
            "{hint}"
        );
        assert!(versions(&scene.places, &mut Steps::default()).is_err());
    }

    #[test]
    fn nothing_is_kept_of_a_damaged_download() {
        let scene = Scene::new(&["14.2.0", "14.3.0", "14.4.0"]);
        scene.publish_build("14.2.0", "sha256", Some(&"0".repeat(64)));
        scene.publish_build("14.3.0", "sha1", Some(""));
        scene.publish_build("14.4.0", "md5", Some("irrelevant"));
        for (wanted, words) in [
            ("14.2", "SHA-256"),
            ("14.3", "SHA-1"),
            ("14.4", "no checksum"),
        ] {
            let problem = scene.obtain(wanted).unwrap_err();
            assert_eq!(problem.exit_code(), 3);
            assert!(problem.message.contains(words), "{problem}");
            assert!(scene.cache().is_empty());
        }
    }

    #[test]
    fn a_repository_with_sha1_only_is_good_enough() {
        let scene = Scene::new(&["14.2.0"]);
        scene.publish_build("14.2.0", "sha1", None);
        assert_eq!(scene.obtain("14.2.0").unwrap(), "14.2.0");
    }

    #[test]
    fn a_version_that_does_not_exist_lists_its_neighbours() {
        let scene = Scene::new(&["13.9.0", "14.2.0", "14.10.0"]);
        let problem = scene.obtain("14.99").unwrap_err();
        assert_eq!(problem.exit_code(), 2);
        assert!(problem.hint.unwrap().contains("14.2.0, 14.10.0"));
        let problem = scene.obtain("12").unwrap_err();
        assert!(problem.hint.unwrap().contains("13, 14"));
        // Listed, but the jar itself is missing.
        let problem = scene.obtain("14.2").unwrap_err();
        assert!(problem.message.contains("14.2.0.jar"), "{problem}");
        assert!(scene.cache().is_empty());
    }

    #[test]
    fn leftovers_of_killed_fetches_are_removed() {
        let scene = Scene::new(&["14.2.0"]);
        scene.publish_build("14.2.0", "sha256", None);
        files::make_directories(&scene.places.builds.join(".tmp-1/build/bin")).unwrap();
        // Incomplete, as after a power loss.
        files::make_directories(&scene.places.builds.join("14.2.0/bin")).unwrap();
        assert_eq!(scene.obtain("14").unwrap(), "14.2.0");
        assert_eq!(scene.cache(), ["14.2.0"]);
        assert!(complete(&scene.places.builds.join("14.2.0")));
    }

    #[test]
    fn two_at_once_fetch_one_build() {
        let scene = Scene::new(&["14.2.0"]);
        scene.publish_build("14.2.0", "sha256", None);
        let fetches: usize = std::thread::scope(|scope| {
            let fetch = || {
                let mut steps = Steps::default();
                obtain(&scene.places, &Wanted::parse("14").unwrap(), &mut steps).unwrap();
                steps.0.iter().filter(|s| s.starts_with("fetching")).count()
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(fetch)).collect();
            threads.into_iter().map(|t| t.join().unwrap()).sum()
        });
        assert_eq!(fetches, 1);
    }

    #[test]
    fn what_is_no_archive_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let problem = unpack(as_file(b"no zip"), &directory.path().join("x")).unwrap_err();
        assert!(problem.message.contains("malformed"), "{problem}");
    }
}
