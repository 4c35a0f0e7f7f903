//! TLS as libpq does it (`initialize_SSL` in fe-secure-openssl.c), with rustls.

use super::conninfo::SslMode;
use super::error::{Failure, SessionError};
use super::x509::Certificate;
use crate::problem::{IoContext, Problem};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{
    CertificateDer, CertificateRevocationListDer, PrivateKeyDer, ServerName, UnixTime,
};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    SupportedProtocolVersion,
};
use sha2::Digest;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What PostgreSQL registers with ALPN since version 17.
const ALPN: &[u8] = b"postgresql";

/// Where the trusted roots come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Roots {
    File(PathBuf),
    /// `sslrootcert=system`.
    System,
}

/// The `ssl…` keywords.
#[derive(Clone, Debug)]
pub(super) struct TlsSettings {
    pub(super) mode: SslMode,
    /// Given, or the default file.
    pub(super) roots: Option<Roots>,
    pub(super) revoked: Option<PathBuf>,
    pub(super) revoked_directory: Option<PathBuf>,
    pub(super) certificate: Option<PathBuf>,
    pub(super) key: Option<PathBuf>,
    pub(super) sni: bool,
    /// Use TLS from the first byte (`sslnegotiation=direct`).
    pub(super) direct: bool,
    pub(super) versions: Vec<&'static SupportedProtocolVersion>,
}

/// All that TLS needs, read once.
pub(super) struct Tls {
    config: Arc<ClientConfig>,
    pub(super) direct: bool,
}

impl Tls {
    /// Reads the files.
    pub(super) fn load(settings: &TlsSettings) -> Result<Self, Problem> {
        let provider = Arc::new(ring::default_provider());
        let verifier = Verifier::new(settings, &provider)?;
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&settings.versions)
            .map_err(|error| Problem::usage(format!("TLS protocol versions: {error}")))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let mut config = match client_certificate(settings)? {
            Some((chain, key)) => builder
                .with_client_auth_cert(chain, key)
                .map_err(|error| Problem::environment(format!("client certificate: {error}")))?,
            None => builder.with_no_client_auth(),
        };
        config.enable_sni = settings.sni;
        config.alpn_protocols = vec![ALPN.to_vec()];
        Ok(Self {
            config: Arc::new(config),
            direct: settings.direct,
        })
    }

    /// A connection to the server called `host`, before its handshake.
    pub(super) fn client(&self, host: &str) -> Result<rustls::ClientConnection, SessionError> {
        // A name that cannot be in a certificate never passes verify-full, and else is not needed.
        let name = ServerName::try_from(host.to_owned())
            .or_else(|_| ServerName::try_from("invalid"))
            .map_err(|error| failed(error.to_string()))?;
        rustls::ClientConnection::new(Arc::clone(&self.config), name)
            .map_err(|error| failed(error.to_string()))
    }
}

fn failed(message: impl Into<String>) -> SessionError {
    SessionError::new(Failure::Disconnected, message)
}

/// The error of a handshake, in words.
pub(super) fn handshake_failed(error: &std::io::Error, host: &str) -> SessionError {
    let cause = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let (what, hint) = match cause {
        Some(rustls::Error::InvalidCertificate(reason)) => refused_certificate(reason, host),
        Some(rustls::Error::AlertReceived(alert)) => (
            format!("the server refused TLS ({alert:?})"),
            Some("does it want a client certificate (sslcert, sslkey), or another one?"),
        ),
        _ => (format!("TLS handshake failed: {error}"), None),
    };
    let mut error = failed(what);
    error.hint = hint.map(str::to_owned);
    error
}

fn refused_certificate(reason: &CertificateError, host: &str) -> (String, Option<&'static str>) {
    match reason {
        CertificateError::UnknownIssuer => (
            "the server's certificate is not signed by a trusted authority".to_owned(),
            Some("name the authority's certificate with sslrootcert=FILE"),
        ),
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => (
            format!("the server's certificate is not for host \"{host}\""),
            Some("connect by the name in the certificate (hostaddr may give the address)"),
        ),
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            ("the server's certificate has expired".to_owned(), None)
        }
        // webpki's word for a certificate that may sign others, shown by a server.
        CertificateError::Other(other) if other.to_string() == "CaUsedAsEndEntity" => (
            "the server's certificate is that of an authority, and not itself trusted".to_owned(),
            Some("name the server's own certificate with sslrootcert=FILE"),
        ),
        CertificateError::Revoked => ("the server's certificate is revoked".to_owned(), None),
        other => (
            format!("the server's certificate was refused: {other}"),
            None,
        ),
    }
}

/// The chain and key to show, when there is a certificate file.
fn client_certificate(
    settings: &TlsSettings,
) -> Result<Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>, Problem> {
    // As in libpq, a missing file means no certificate: the server may not want one.
    let Some(file) = settings.certificate.as_ref().filter(|file| file.exists()) else {
        return Ok(None);
    };
    let chain = certificates(file)?;
    let Some(key_file) = settings.key.as_ref().filter(|file| file.exists()) else {
        return Err(Problem::environment(format!(
            "there is a client certificate ({}), but not its private key",
            file.display()
        ))
        .hint("name the key with sslkey=FILE"));
    };
    check_key_permissions(key_file)?;
    let pem = read(key_file)?;
    let key = PrivateKeyDer::from_pem_slice(&pem).map_err(|error| {
        let problem = Problem::environment(format!(
            "no usable private key in {}: {error}",
            key_file.display()
        ));
        if pem.windows(9).any(|window| window == b"ENCRYPTED") {
            return problem
                .hint("keys with a passphrase are not supported: openssl pkey removes it");
        }
        problem
    })?;
    Ok(Some((chain, key)))
}

/// The rule of libpq: others must not read the key; a group may when it belongs to root.
fn check_key_permissions(file: &Path) -> Result<(), Problem> {
    let metadata = std::fs::metadata(file).or_problem(format_args!("read {}", file.display()))?;
    if !metadata.is_file() {
        return Err(Problem::environment(format!(
            "private key file {} is not a regular file",
            file.display()
        )));
    }
    let forbidden = if metadata.uid() == 0 { 0o037 } else { 0o077 };
    if metadata.mode() & forbidden != 0 {
        return Err(Problem::environment(format!(
            "private key file {} has group or world access",
            file.display()
        ))
        .hint("chmod 0600 (or 0640 when it belongs to root)"));
    }
    Ok(())
}

fn read(file: &Path) -> Result<Vec<u8>, Problem> {
    std::fs::read(file).or_problem(format_args!("read {}", file.display()))
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, Problem> {
    let pem = read(file)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(Problem::environment(format!(
            "there is no certificate in {}",
            file.display()
        ))),
        Err(error) => Err(Problem::environment(format!(
            "cannot read the certificates in {}: {error}",
            file.display()
        ))),
    }
}

/// The roots to trust; `None` when the server's certificate is not verified.
fn trusted(settings: &TlsSettings) -> Result<Option<Vec<CertificateDer<'static>>>, Problem> {
    match &settings.roots {
        Some(Roots::System) => {
            let found = rustls_native_certs::load_native_certs().certs;
            if found.is_empty() {
                return Err(
                    Problem::environment("the system has no trusted certificates").hint(
                        "install the package ca-certificates, or name a file with sslrootcert",
                    ),
                );
            }
            Ok(Some(found))
        }
        Some(Roots::File(file)) if file.exists() => certificates(file).map(Some),
        _ if settings.mode < SslMode::VerifyCa => Ok(None),
        roots => {
            let file = match roots {
                Some(Roots::File(file)) => format!("file {} does not exist", file.display()),
                _ => "is not known".to_owned(),
            };
            Err(Problem::environment(format!("the root certificate {file}")).hint(
                "name one with sslrootcert=FILE, trust the system's with sslrootcert=system, or \
                 use sslmode=require, which does not verify",
            ))
        }
    }
}

fn revocations(
    settings: &TlsSettings,
) -> Result<Vec<CertificateRevocationListDer<'static>>, Problem> {
    let mut files: Vec<_> = settings.revoked.iter().cloned().collect();
    if let Some(directory) = &settings.revoked_directory
        && let Ok(entries) = std::fs::read_dir(directory)
    {
        files.extend(entries.filter_map(|entry| Some(entry.ok()?.path())));
    }
    files.sort();
    let mut found = Vec::new();
    for file in files.iter().filter(|file| file.is_file()) {
        let pem = read(file)?;
        for list in CertificateRevocationListDer::pem_slice_iter(&pem) {
            found.push(list.map_err(|error| {
                Problem::environment(format!("revocation list {}: {error}", file.display()))
            })?);
        }
    }
    Ok(found)
}

/// Verifies as much of the server's certificate as `sslmode` asks for.
#[derive(Debug)]
struct Verifier {
    /// `None`: nothing is verified, as there is no root to begin from.
    chain: Option<Arc<WebPkiServerVerifier>>,
    roots: Vec<CertificateDer<'static>>,
    /// Must the certificate be for the host (`verify-full`)?
    name: bool,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Verifier {
    fn new(settings: &TlsSettings, provider: &Arc<CryptoProvider>) -> Result<Self, Problem> {
        let mut verifier = Self {
            chain: None,
            roots: Vec::new(),
            name: settings.mode == SslMode::VerifyFull,
            algorithms: provider.signature_verification_algorithms,
        };
        let Some(roots) = trusted(settings)? else {
            return Ok(verifier);
        };
        let mut store = RootCertStore::empty();
        let (usable, _) = store.add_parsable_certificates(roots.iter().cloned());
        if usable == 0 {
            return Err(Problem::environment("no root certificate is usable"));
        }
        let chain =
            WebPkiServerVerifier::builder_with_provider(Arc::new(store), Arc::clone(provider))
                .with_crls(revocations(settings)?)
                .build()
                .map_err(|error| Problem::environment(format!("root certificates: {error}")))?;
        verifier.chain = Some(chain);
        verifier.roots = roots;
        Ok(verifier)
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(chain) = &self.chain else {
            return Ok(ServerCertVerified::assertion());
        };
        if self.roots.iter().any(|root| root == end_entity) {
            // A self-signed certificate that is itself trusted: OpenSSL accepts it, webpki would
            // not, because it may be an authority too.
            check_validity(end_entity, now)?;
        } else {
            let verified = chain.verify_server_cert(
                end_entity,
                intermediates,
                server_name,
                ocsp_response,
                now,
            );
            match verified {
                // The name is checked last, and below.
                Err(rustls::Error::InvalidCertificate(
                    CertificateError::NotValidForName
                    | CertificateError::NotValidForNameContext { .. },
                ))
                | Ok(_) => {}
                Err(error) => return Err(error),
            }
        }
        if self.name {
            check_name(end_entity, server_name)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

fn check_validity(der: &CertificateDer<'_>, now: UnixTime) -> Result<(), rustls::Error> {
    let bad = |reason| Err(rustls::Error::InvalidCertificate(reason));
    let Some(certificate) = Certificate::parse(der) else {
        return bad(CertificateError::BadEncoding);
    };
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    match certificate.validity {
        (begin, _) if now < begin => bad(CertificateError::NotValidYet),
        (_, end) if now > end => bad(CertificateError::Expired),
        _ => Ok(()),
    }
}

/// The alternative names decide; without one of type dNSName the common name does (libpq's
/// `pgtls_verify_peer_name_matches_certificate_guts`, RFC 6125 6.4.4).
fn check_name(der: &CertificateDer<'_>, name: &ServerName<'_>) -> Result<(), rustls::Error> {
    let by_alternative = ParsedCertificate::try_from(der)
        .and_then(|parsed| rustls::client::verify_server_name(&parsed, name));
    let Err(error) = by_alternative else {
        return Ok(());
    };
    let common_name = Certificate::parse(der)
        .filter(|certificate| !certificate.has_dns_name)
        .and_then(|certificate| certificate.common_name);
    match common_name {
        Some(pattern) if name_matches(pattern, &name.to_str()) => Ok(()),
        _ => Err(error),
    }
}

/// `*` stands for the whole first label and nothing else.
fn name_matches(pattern: &str, name: &str) -> bool {
    if pattern.eq_ignore_ascii_case(name) {
        return true;
    }
    match (pattern.strip_prefix("*."), name.split_once('.')) {
        (Some(pattern), Some((label, rest))) => {
            !label.is_empty() && pattern.contains('.') && pattern.eq_ignore_ascii_case(rest)
        }
        _ => false,
    }
}

/// The hash of a certificate for channel binding `tls-server-end-point` (RFC 5929 4.1): that of
/// its signature, or SHA-256 where that is weaker. `None` when the signature names no hash.
pub(super) fn certificate_hash(der: &[u8]) -> Option<Vec<u8>> {
    /// 1.2.840.113549.1.1: RSA with …
    const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1];
    /// 1.2.840.10045.4: ECDSA with …
    const ECDSA: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 4];
    let algorithm = Certificate::parse(der)?.signature_algorithm;
    let hash = if let Some(rest) = algorithm.strip_prefix(RSA) {
        match rest {
            // MD5, SHA-1, SHA-256
            [4 | 5 | 11] => 256,
            [12] => 384,
            [13] => 512,
            _ => return None,
        }
    } else {
        match algorithm.strip_prefix(ECDSA)? {
            // SHA-1, SHA-256
            [1] | [3, 2] => 256,
            [3, 3] => 384,
            [3, 4] => 512,
            _ => return None,
        }
    };
    Some(match hash {
        256 => sha2::Sha256::digest(der).to_vec(),
        384 => sha2::Sha384::digest(der).to_vec(),
        _ => sha2::Sha512::digest(der).to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wildcard_stands_for_one_label() {
        for (pattern, name, matches) in [
            ("db.example.com", "db.example.com", true),
            ("DB.example.com", "db.EXAMPLE.com", true),
            ("*.example.com", "db.example.com", true),
            ("*.example.com", "example.com", false),
            ("*.example.com", "a.b.example.com", false),
            ("*.com", "example.com", false),
            ("*", "example", false),
            ("db", "db2", false),
        ] {
            assert_eq!(name_matches(pattern, name), matches, "{pattern} {name}");
        }
    }
}
