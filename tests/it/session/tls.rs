//! TLS: who is believed, and what is done when TLS is not to be had.

use super::{connect, interrupts, prepend_hba, refused, reload, value, write};
use crate::support::{self, Server};
use pgdyno::session::{ConnectOptions, Session, SessionError};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};

/// The certificates of a small world.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// A certificate and its key, as PEM.
    fn issue(&self, common_name: &str, names: &[&str]) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params
            .distinguished_name
            .push(DnType::CommonName, common_name);
        let certificate = params.signed_by(&key, &self.0).unwrap();
        (certificate.pem(), key.serialize_pem())
    }
}

/// A server with TLS on an address of its own, and the client's files.
struct World {
    server: Server,
    address: String,
    files: tempfile::TempDir,
}

const HBA: &str = "\
hostssl   tls_only   all all trust
hostnossl plain_only all all trust
hostssl   cert_only  all all cert
host      scram_only all all scram-sha-256
host      either        all all trust
hostssl   all        all all reject
hostnossl all        all all reject
";

impl World {
    fn new() -> Self {
        // Each server has its own address in 127/8, so that the usual port is free.
        static WORLDS: AtomicU8 = AtomicU8::new(1);
        let world = WORLDS.fetch_add(1, Ordering::Relaxed);
        let [_, _, a, b] = std::process::id().to_be_bytes();
        let address = format!("127.{world}.{a}.{b}");
        let server = support::start("18", &[&format!("listen_addresses={address}")]);
        let world = Self {
            server,
            address,
            files: tempfile::tempdir().unwrap(),
        };
        let authority = Authority::new("the authority");
        world.file("ca.pem", authority.0.pem().as_str());
        world.file(
            "other-ca.pem",
            Authority::new("another authority").0.pem().as_str(),
        );
        let (certificate, key) = authority.issue("postgres", &[]);
        world.file("client.pem", &certificate);
        world.file("client.key", &key);
        for (name, names) in [("server", ["db.test"]), ("wrong", ["other.test"])] {
            let (certificate, key) = authority.issue("db.test", &names);
            world.server_file(&format!("{name}.crt"), &certificate);
            world.server_file(&format!("{name}.key"), &key);
        }
        // What PostgreSQL's manual tells people to make: no alternative name, its own authority.
        let (certificate, key) = self_signed("db.test");
        world.file("self.pem", &certificate);
        world.server_file("self.crt", &certificate);
        world.server_file("self.key", &key);
        world.server_file("ca.crt", &authority.0.pem());
        prepend_hba(&world.server, HBA);
        let mut session = connect(&world.server);
        for database in [
            "tls_only",
            "plain_only",
            "cert_only",
            "scram_only",
            "either",
        ] {
            session
                .query(&format!("CREATE DATABASE {database}"))
                .unwrap();
        }
        session
            .query("CREATE ROLE scram_user LOGIN PASSWORD 'secret'")
            .unwrap();
        session
            .query("ALTER SYSTEM SET ssl_ca_file = 'ca.crt'")
            .unwrap();
        world.show("server");
        session.query("ALTER SYSTEM SET ssl = on").unwrap();
        reload(&mut session);
        world
    }

    /// Makes the server show this certificate from now on.
    fn show(&self, name: &str) {
        let mut session = connect(&self.server);
        for (setting, end) in [("ssl_cert_file", "crt"), ("ssl_key_file", "key")] {
            session
                .query(&format!("ALTER SYSTEM SET {setting} = '{name}.{end}'"))
                .unwrap();
        }
        reload(&mut session);
    }

    fn server_file(&self, name: &str, text: &str) {
        write(&self.server, &self.server.data_dir.join(name), text);
    }

    fn path(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    fn file(&self, name: &str, text: &str) {
        std::fs::File::create(self.path(name))
            .and_then(|mut file| std::io::Write::write_all(&mut file, text.as_bytes()))
            .unwrap();
        permissions(&self.path(name), 0o600);
    }

    /// Options for the server under the name `db.test`; `@name` in `more` is one of the files.
    fn options(&self, database: &str, more: &str) -> ConnectOptions {
        let more = more.replace('@', &format!("{}/", self.files.path().display()));
        // No file of the user who runs the tests may play a part.
        let mut target = format!(
            "host=db.test hostaddr={} port={} dbname={database} user=postgres {more}",
            self.address, self.server.port
        );
        for (name, default) in [("sslrootcert", ""), ("sslcert", "none"), ("sslkey", "none")] {
            if !target.contains(name) {
                target = format!("{target} {name}=/nonexistent/{default}");
            }
        }
        ConnectOptions::parse(&target).unwrap()
    }

    /// Did it connect, and how?
    fn outcome(&self, database: &str, more: &str) -> Outcome {
        match Session::connect(&self.options(database, more)) {
            Ok(mut session) => {
                let sql = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
                let encrypted = value(&mut session, sql) == "t";
                assert_eq!(session.tls().is_some(), encrypted);
                if encrypted {
                    Outcome::Tls
                } else {
                    Outcome::Plain
                }
            }
            Err(error) => Outcome::Refused(error),
        }
    }
}

#[derive(Debug)]
enum Outcome {
    Tls,
    Plain,
    Refused(SessionError),
}

fn permissions(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn self_signed(common_name: &str) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
        .distinguished_name
        .push(DnType::CommonName, common_name);
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

/// How a connection is expected to come about: `tls`, `plain`, or a word of the error.
fn check(world: &World, table: &[(&str, &str, &str)]) {
    for (database, more, expected) in table {
        let outcome = world.outcome(database, more);
        let fits = match (&outcome, *expected) {
            (Outcome::Tls, "tls") | (Outcome::Plain, "plain") => true,
            (Outcome::Refused(error), word) => error.message.contains(word),
            _ => false,
        };
        assert!(
            fits,
            "{database} {more}: {expected} expected, found {outcome:?}"
        );
    }
}

#[test]
fn every_sslmode_does_what_libpq_does() {
    let world = World::new();
    check(
        &world,
        &[
            ("either", "sslmode=disable", "plain"),
            ("either", "sslmode=allow", "plain"),
            ("either", "sslmode=prefer", "tls"),
            ("either", "", "tls"),
            ("either", "sslmode=require", "tls"),
            ("tls_only", "sslmode=disable", "pg_hba.conf"),
            ("tls_only", "sslmode=allow", "tls"),
            ("tls_only", "sslmode=prefer", "tls"),
            ("plain_only", "sslmode=allow", "plain"),
            ("plain_only", "sslmode=prefer", "plain"),
            ("plain_only", "sslmode=require", "pg_hba.conf"),
            // A root certificate that is there makes every mode verify.
            ("either", "sslmode=require sslrootcert=@ca.pem", "tls"),
            (
                "either",
                "sslmode=require sslrootcert=@other-ca.pem",
                "trusted authority",
            ),
            (
                "either",
                "sslmode=prefer sslrootcert=@other-ca.pem",
                "plain",
            ),
            (
                "tls_only",
                "sslmode=prefer sslrootcert=@other-ca.pem",
                "trusted authority",
            ),
            ("either", "sslmode=verify-ca sslrootcert=@ca.pem", "tls"),
            (
                "either",
                "sslmode=verify-ca sslrootcert=@other-ca.pem",
                "trusted authority",
            ),
            ("either", "sslmode=verify-ca", "does not exist"),
            (
                "either",
                "sslmode=verify-ca sslrootcert=@client.key",
                "no certificate",
            ),
            ("either", "sslmode=verify-full sslrootcert=@ca.pem", "tls"),
            (
                "either",
                "sslmode=verify-full sslrootcert=@ca.pem sslsni=0",
                "tls",
            ),
            ("either", "sslrootcert=system", "trusted authority"),
        ],
    );
    let versions = [
        ("ssl_max_protocol_version=TLSv1.2", "TLSv1.2 TLS_ECDHE"),
        ("ssl_min_protocol_version=TLSv1.3", "TLSv1.3 TLS13_"),
        ("sslnegotiation=direct", "TLSv1.3"),
    ];
    for (more, expected) in versions {
        let options = world.options("either", &format!("sslmode=require {more}"));
        let session = Session::connect(&options).unwrap();
        let tls = session.tls().unwrap();
        assert!(tls.starts_with(expected), "{more}: {tls}");
    }
}

#[test]
fn the_certificate_must_be_for_the_host_only_with_verify_full() {
    let world = World::new();
    world.show("wrong");
    check(
        &world,
        &[
            ("either", "sslmode=verify-ca sslrootcert=@ca.pem", "tls"),
            (
                "either",
                "sslmode=verify-full sslrootcert=@ca.pem",
                "not for host \"db.test\"",
            ),
        ],
    );
    world.show("self");
    check(
        &world,
        &[
            (
                "either",
                "sslmode=verify-ca sslrootcert=@ca.pem",
                "not itself trusted",
            ),
            ("either", "sslmode=verify-ca sslrootcert=@self.pem", "tls"),
            // The common name counts where there is no alternative name.
            ("either", "sslmode=verify-full sslrootcert=@self.pem", "tls"),
        ],
    );
    let elsewhere = format!(
        "host={} port={} dbname=either user=postgres sslmode=verify-full sslrootcert={}",
        world.address,
        world.server.port,
        world.path("self.pem").display()
    );
    let error = refused(&ConnectOptions::parse(&elsewhere).unwrap());
    assert!(error.message.contains("not for host"), "{error}");
}

#[test]
fn a_client_certificate_logs_in() {
    let world = World::new();
    let with = "sslmode=require sslcert=@client.pem sslkey=@client.key";
    check(
        &world,
        &[
            ("cert_only", with, "tls"),
            (
                "cert_only",
                &format!("{with} sslcertmode=disable"),
                "certificate",
            ),
            ("cert_only", "sslmode=require", "certificate"),
            (
                "either",
                "sslmode=require sslcert=@client.pem",
                "private key",
            ),
            (
                "either",
                "sslmode=require sslcert=@client.pem sslkey=@ca.pem",
                "private key",
            ),
        ],
    );
    permissions(&world.path("client.key"), 0o644);
    let error = refused(&world.options("cert_only", with));
    assert!(error.message.contains("group or world access"), "{error}");
    assert!(error.hint.unwrap().contains("0600"));
}

#[test]
fn a_scram_login_is_bound_to_the_certificate() {
    let world = World::new();
    let connects = |more: &str| {
        let options = world.options(
            "scram_only",
            &format!("user=scram_user password=secret {more}"),
        );
        Session::connect(&options).map(|session| session.tls().is_some())
    };
    for binding in ["disable", "prefer", "require"] {
        let done = connects(&format!("sslmode=require channel_binding={binding}"));
        assert!(done.unwrap(), "{binding}");
    }
    let error = connects("sslmode=disable channel_binding=require").unwrap_err();
    assert!(error.message.contains("not encrypted"), "{error}");
}

#[test]
fn everything_works_the_same_under_tls() {
    use pgdyno::session::{Param, Statement};
    let world = World::new();
    let mut session = Session::connect(&world.options("either", "sslmode=require")).unwrap();
    session.query("CREATE TABLE t (a text)").unwrap();
    session.prepare_all(&["SELECT $1::text"]).unwrap();
    let long = "x".repeat(2_000_000);
    for _ in 0..3 {
        session
            .block_on(async |session| {
                for text in ["short", &long, "", &long] {
                    session.queue(Statement(0), &[Param::Text(text)]);
                }
                let mut reply = session.flush().await?;
                for text in ["short", &long, "", &long] {
                    assert_eq!(reply.next_result()?.one()?.text(0)?, text);
                }
                Ok(())
            })
            .unwrap();
    }
    let mut copy = session.copy_in("COPY t FROM STDIN").unwrap();
    for _ in 0..100 {
        copy.send("some text\n".repeat(10_000).as_bytes()).unwrap();
    }
    assert_eq!(copy.finish().unwrap(), 1_000_000);
    let mut copy = session.copy_in("COPY t FROM STDIN").unwrap();
    copy.send(b"more\n").unwrap();
    drop(copy);
    assert_eq!(value(&mut session, "SELECT count(*) FROM t"), "1000000");
    session.query("DROP TABLE t").unwrap();
    interrupts::run_child(&world.options("either", "sslmode=require"));
    interrupts::check_left(&mut session);
    let sql = format!("SELECT pg_terminate_backend({})", session.backend_pid());
    value(&mut connect(&world.server), &sql);
    let error = session.query("SELECT 1").unwrap_err();
    assert!(error.is("57P01"), "{error}");
}
