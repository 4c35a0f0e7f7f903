//! Reading files of a Maven repository: over HTTP(S) or from a directory.

use super::Progress;
use crate::interrupt;
use crate::problem::{IoContext, Problem};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

/// How often a file is tried before the repository counts as unreachable.
const ATTEMPTS: u32 = 3;
/// Metadata and checksums are small; more than this is not one of them.
const SMALL_MAX: usize = 4 << 20;
const CHUNK: usize = 64 << 10;

/// A Maven repository.
pub(crate) struct Repository {
    base: Base,
}

enum Base {
    Directory(PathBuf),
    Http { url: String, agent: ureq::Agent },
}

/// What the reading thread tells; it may hang in the network, we may not.
enum Event {
    /// The answer begins, with this status and the bytes that follow as far as known.
    Begin(u16, Option<u64>),
    Chunk(Vec<u8>),
    End,
    Failed(String),
}

/// One attempt's end.
enum Outcome {
    Complete,
    Absent,
    /// Worth another attempt.
    Broken(String),
}

impl Repository {
    /// `https://…`, `http://…`, `file://…` or a directory.
    pub(crate) fn open(url: &str) -> Result<Repository, Problem> {
        let url = url.trim_end_matches('/');
        let base = if url.starts_with("http://") || url.starts_with("https://") {
            Base::Http {
                url: url.to_owned(),
                agent: agent(),
            }
        } else {
            let path = PathBuf::from(url.strip_prefix("file://").unwrap_or(url));
            if !path.is_absolute() {
                return Err(Problem::environment(format!(
                    "PGDYNO_MAVEN_URL: \"{url}\" is neither a URL nor an absolute path"
                ))
                .hint("use https://…, file:///… or the full path of a directory"));
            }
            Base::Directory(path)
        };
        Ok(Repository { base })
    }

    /// The content of a small text file; `None` when the repository has no such file.
    pub(crate) fn text(&self, path: &str) -> Result<Option<String>, Problem> {
        let mut content = Vec::new();
        let found = self.read(path, &mut content, &mut |_, _| ())?;
        if content.len() > SMALL_MAX {
            return Err(self.unreachable(path, "the answer is too long"));
        }
        Ok(found.then(|| String::from_utf8_lossy(&content).into_owned()))
    }

    /// Copies a file into `to`; `false` when the repository has no such file.
    pub(crate) fn download(
        &self,
        path: &str,
        to: &mut File,
        progress: &mut dyn Progress,
    ) -> Result<bool, Problem> {
        self.read(path, to, &mut |done, total| progress.bytes(done, total))
    }

    fn read(
        &self,
        path: &str,
        sink: &mut dyn Sink,
        told: &mut dyn FnMut(u64, Option<u64>),
    ) -> Result<bool, Problem> {
        let mut reason = String::new();
        for attempt in 0..ATTEMPTS {
            if attempt > 0 {
                pause(Duration::from_millis(200 << attempt))?;
            }
            match self.attempt(path, sink, told)? {
                Outcome::Complete => return Ok(true),
                Outcome::Absent => return Ok(false),
                Outcome::Broken(why) => reason = why,
            }
        }
        Err(self.unreachable(path, &reason))
    }

    /// Reads on from where the last attempt stopped, when the server can do that.
    fn attempt(
        &self,
        path: &str,
        sink: &mut dyn Sink,
        told: &mut dyn FnMut(u64, Option<u64>),
    ) -> Result<Outcome, Problem> {
        let mut done = sink.written();
        let events = self.request(path, done)?;
        let mut total = None;
        loop {
            interrupt::check()?;
            let event = match events.recv_timeout(Duration::from_millis(100)) {
                Ok(event) => event,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => {
                    return Ok(Outcome::Broken("the reading thread ended".into()));
                }
            };
            match event {
                Event::Begin(206, length) => total = length.map(|length| done + length),
                Event::Begin(200, length) => {
                    sink.restart()?;
                    (done, total) = (0, length);
                }
                Event::Begin(404 | 410, _) => return Ok(Outcome::Absent),
                Event::Begin(416, _) => {
                    sink.restart()?;
                    return Ok(Outcome::Broken("HTTP status 416".into()));
                }
                Event::Begin(status, _) => {
                    return Ok(Outcome::Broken(format!("HTTP status {status}")));
                }
                Event::Chunk(bytes) => {
                    sink.append(&bytes)?;
                    done += bytes.len() as u64;
                    told(done, total);
                }
                Event::End if total.is_none_or(|total| total == done) => {
                    return Ok(Outcome::Complete);
                }
                Event::End => return Ok(Outcome::Broken("the transfer ended early".into())),
                Event::Failed(why) => return Ok(Outcome::Broken(why)),
            }
        }
    }

    /// Starts a thread that reads; it ends by itself when nobody listens any more.
    fn request(&self, path: &str, offset: u64) -> Result<Receiver<Event>, Problem> {
        let (sender, receiver) = sync_channel(8);
        match &self.base {
            Base::Directory(base) => {
                if !base.is_dir() {
                    return Err(self.unreachable(path, "there is no such directory"));
                }
                let file = base.join(path);
                std::thread::spawn(move || read_file(&file, &sender));
            }
            Base::Http { url, agent } => {
                let (url, agent) = (format!("{url}/{path}"), agent.clone());
                std::thread::spawn(move || read_http(&agent, &url, offset, &sender));
            }
        }
        Ok(receiver)
    }

    /// The whole address of `path`, for messages.
    pub(crate) fn address(&self, path: &str) -> String {
        match &self.base {
            Base::Directory(base) => base.join(path).display().to_string(),
            Base::Http { url, .. } => format!("{}/{path}", without_password(url)),
        }
    }

    fn unreachable(&self, path: &str, reason: &str) -> Problem {
        Problem::environment(format!("cannot fetch {}: {reason}", self.address(path)))
    }
}

/// Where fetched bytes go.
trait Sink {
    fn written(&mut self) -> u64;
    fn restart(&mut self) -> Result<(), Problem>;
    fn append(&mut self, bytes: &[u8]) -> Result<(), Problem>;
}

impl Sink for Vec<u8> {
    fn written(&mut self) -> u64 {
        self.len() as u64
    }

    fn restart(&mut self) -> Result<(), Problem> {
        self.clear();
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), Problem> {
        if self.len() <= SMALL_MAX {
            self.extend_from_slice(bytes);
        }
        Ok(())
    }
}

impl Sink for File {
    fn written(&mut self) -> u64 {
        self.stream_position().unwrap_or(0)
    }

    fn restart(&mut self) -> Result<(), Problem> {
        self.set_len(0)
            .and_then(|()| self.seek(SeekFrom::Start(0)))
            .map(drop)
            .or_problem("store the download")
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), Problem> {
        self.write_all(bytes).or_problem("store the download")
    }
}

/// Proxies come from the environment, as ureq's default has it; trust comes from the system.
fn agent() -> ureq::Agent {
    let tls = ureq::tls::TlsConfig::builder()
        .root_certs(ureq::tls::RootCerts::PlatformVerifier)
        .build();
    ureq::Agent::config_builder()
        .tls_config(tls)
        .http_status_as_error(false)
        .timeout_resolve(Some(Duration::from_secs(10)))
        .timeout_connect(Some(Duration::from_secs(10)))
        .timeout_recv_response(Some(Duration::from_secs(30)))
        .timeout_per_read(Some(Duration::from_secs(30)))
        .user_agent(concat!("pgdyno/", env!("CARGO_PKG_VERSION")))
        .build()
        .into()
}

fn read_http(agent: &ureq::Agent, url: &str, offset: u64, events: &SyncSender<Event>) {
    let mut request = agent.get(url);
    if offset > 0 {
        request = request.header("range", format!("bytes={offset}-"));
    }
    let _ = match request.call() {
        Err(error) => events.send(Event::Failed(error.to_string())),
        Ok(response) => {
            let status = response.status().as_u16();
            let length = response
                .headers()
                .get("content-length")
                .and_then(|value| value.to_str().ok()?.parse().ok());
            let begun = events.send(Event::Begin(status, length));
            begun.and_then(|()| forward(&mut response.into_body().into_reader(), events))
        }
    };
}

fn read_file(path: &std::path::Path, events: &SyncSender<Event>) {
    let _ = match File::open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            events.send(Event::Begin(404, None))
        }
        Err(error) => events.send(Event::Failed(error.to_string())),
        Ok(mut file) => {
            let length = file.metadata().ok().map(|metadata| metadata.len());
            let begun = events.send(Event::Begin(200, length));
            begun.and_then(|()| forward(&mut file, events))
        }
    };
}

fn forward(
    from: &mut dyn Read,
    events: &SyncSender<Event>,
) -> Result<(), std::sync::mpsc::SendError<Event>> {
    loop {
        let mut chunk = vec![0; CHUNK];
        match from.read(&mut chunk) {
            Ok(0) => return events.send(Event::End),
            Ok(n) => {
                chunk.truncate(n);
                events.send(Event::Chunk(chunk))?;
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return events.send(Event::Failed(error.to_string())),
        }
    }
}

/// A mirror's URL may carry credentials; messages do not.
fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    let authority_end = rest.find('/').unwrap_or(rest.len());
    match rest[..authority_end].rfind('@') {
        Some(at) => format!("{scheme}://{}", &rest[at + 1..]),
        None => url.to_owned(),
    }
}

fn pause(duration: Duration) -> Result<(), Problem> {
    let step = Duration::from_millis(100);
    let mut left = duration;
    while !left.is_zero() {
        interrupt::check()?;
        crate::clock::pause(left.min(step));
        left = left.saturating_sub(step);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::net::TcpListener;

    struct Quiet;
    impl Progress for Quiet {
        fn step(&mut self, _what: &str) {}
        fn bytes(&mut self, _done: u64, _total: Option<u64>) {}
    }

    /// Answers one connection after the other with the given bytes; returns the requests' ranges.
    fn serve(answers: Vec<&'static str>) -> (String, std::thread::JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let mut ranges = Vec::new();
            for answer in answers {
                let (mut stream, _) = listener.accept().unwrap();
                let mut range = String::new();
                for line in BufReader::new(stream.try_clone().unwrap()).lines() {
                    let line = line.unwrap().to_lowercase();
                    if let Some(value) = line.strip_prefix("range: ") {
                        value.clone_into(&mut range);
                    }
                    if line.is_empty() {
                        break;
                    }
                }
                ranges.push(range);
                stream.write_all(answer.as_bytes()).unwrap();
            }
            ranges
        });
        (url, server)
    }

    #[test]
    fn a_download_that_breaks_off_is_resumed_where_it_stopped() {
        let (url, server) = serve(vec![
            "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n01234",
            "HTTP/1.1 503 Busy\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
            "HTTP/1.1 206 Partial\r\ncontent-length: 5\r\n\r\n56789",
        ]);
        let repository = Repository::open(&url).unwrap();
        let mut file = tempfile::tempfile().unwrap();
        assert!(repository.download("x", &mut file, &mut Quiet).unwrap());
        let mut content = String::new();
        file.seek(SeekFrom::Start(0)).unwrap();
        file.read_to_string(&mut content).unwrap();
        assert_eq!(content, "0123456789");
        assert_eq!(server.join().unwrap(), ["", "bytes=5-", "bytes=5-"]);
    }

    #[test]
    fn a_missing_file_is_told_from_an_unreachable_repository() {
        let (url, server) = serve(vec!["HTTP/1.1 404 No\r\ncontent-length: 0\r\n\r\n"]);
        let repository = Repository::open(&url).unwrap();
        assert_eq!(repository.text("x").unwrap(), None);
        server.join().unwrap();
        let problem = repository.text("x").unwrap_err();
        assert!(problem.message.contains(&url), "{problem}");

        let directory = tempfile::tempdir().unwrap();
        let url = format!("file://{}/", directory.path().display());
        assert_eq!(Repository::open(&url).unwrap().text("x").unwrap(), None);
        assert!(Repository::open("/no/where").unwrap().text("x").is_err());
        assert!(Repository::open("not/absolute").is_err());
    }

    #[test]
    fn a_mirrors_password_is_not_told() {
        assert_eq!(
            without_password("https://user:secret@host/maven"),
            "https://host/maven"
        );
        assert_eq!(without_password("https://host/a@b"), "https://host/a@b");
    }
}
