//! One attempt at one address: socket, encryption, authentication.

use super::Session;
use super::blocking::{Blocker, Deadline};
use super::cancel::CancelTarget;
use super::channel::Channel;
use super::conninfo::{ConnectOptions, HostAddress, SslMode, place};
use super::error::{self, Failure, SessionError};
use super::socket::{Endpoint, Socket};
use super::{Waits, account, tls};
use crate::wire::auth::{AuthError, Conversation, Credentials};
use crate::wire::backend::Message;
use crate::wire::frontend;
use std::io;
use std::sync::Arc;
use std::task::Poll;

/// Why an attempt failed, by what makes sense next.
#[derive(Debug)]
pub(super) enum Refusal {
    /// This address does not answer: try the next one.
    Unreachable(SessionError),
    /// The server, or TLS, said no: perhaps not with another encryption (`allow`, `prefer`).
    Rejected(SessionError),
    /// No other attempt makes sense.
    Final(SessionError),
    /// The server wants a password that nobody has given.
    PasswordMissing,
}

impl Refusal {
    pub(super) fn into_error(self) -> SessionError {
        match self {
            Refusal::Unreachable(error) | Refusal::Rejected(error) | Refusal::Final(error) => error,
            Refusal::PasswordMissing => {
                SessionError::new(Failure::Disconnected, "the server wants a password")
            }
        }
    }
}

impl From<SessionError> for Refusal {
    /// A lost connection may be a dying server.
    fn from(error: SessionError) -> Self {
        match error.failure {
            Failure::Interrupted => Refusal::Final(error),
            _ => Refusal::Unreachable(error),
        }
    }
}

/// The waiting of one attempt.
pub(super) struct Attempt<'a> {
    options: &'a ConnectOptions,
    host: usize,
    endpoint: &'a Endpoint,
    deadline: Option<Deadline>,
}

impl<'a> Attempt<'a> {
    /// Begins the time limit.
    pub(super) fn new(options: &'a ConnectOptions, host: usize, endpoint: &'a Endpoint) -> Self {
        Self {
            options,
            host,
            endpoint,
            deadline: options.connect_timeout.map(Deadline::after),
        }
    }

    /// Connects, with TLS or without it.
    pub(super) fn session(&self, encrypted: bool) -> Result<Session, Refusal> {
        let socket = self.connected()?;
        self.check_peer(&socket)?;
        let socket = if encrypted {
            self.encrypted(socket)?
        } else {
            socket
        };
        self.authenticate(Channel::new(socket))
    }

    /// A socket that is ready for the first message.
    pub(super) fn open(&self, encrypted: bool) -> Result<Socket, SessionError> {
        let socket = self.connected()?;
        if encrypted {
            return self.encrypted(socket).map_err(Refusal::into_error);
        }
        Ok(socket)
    }

    pub(super) fn blocker(&self, channel: &Channel) -> Blocker {
        self.waiting(&channel.socket, Arc::clone(&channel.waits))
    }

    fn waiting(&self, socket: &Socket, waits: Arc<Waits>) -> Blocker {
        Blocker {
            fd: Some(socket.fd()),
            waits,
            cancel: None,
            uninterruptible: self.options.uninterruptible,
            deadline: self.deadline,
        }
    }

    /// Runs an I/O step until it no longer would block.
    fn wait_for<T>(
        &self,
        socket: &mut Socket,
        mut step: impl FnMut(&mut Socket) -> io::Result<T>,
    ) -> Result<io::Result<T>, SessionError> {
        let waits = Arc::<Waits>::default();
        let blocker = self.waiting(socket, Arc::clone(&waits));
        blocker.run(|| match step(socket) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let write = socket.wants_write();
                waits.wants_write.set(write);
                waits.wants_read.set(!write);
                Poll::Pending
            }
            done => Poll::Ready(Ok(done)),
        })
    }

    fn connected(&self) -> Result<Socket, SessionError> {
        let (host, port) = &self.options.hosts[self.host];
        let refused = |error: &io::Error| {
            let place = match (self.endpoint, host) {
                (Endpoint::Tcp(address), HostAddress::Tcp { host, .. })
                    if *host != address.ip().to_string() && !host.is_empty() =>
                {
                    format!("{} ({})", place(self.address(), *port), address.ip())
                }
                _ => place(self.address(), *port),
            };
            let mut error = SessionError::new(
                Failure::Disconnected,
                format!("cannot connect to {place}: {error}"),
            );
            error.hint = Some("is the server running there, and does it listen?".to_owned());
            error
        };
        let mut socket = Socket::open(self.endpoint).map_err(|error| refused(&error))?;
        self.wait_for(&mut socket, Socket::connected)
            .map_err(|error| match error.failure {
                Failure::Interrupted => error,
                _ => SessionError {
                    message: format!(
                        "cannot connect to {}: {}",
                        place(host, *port),
                        error.message
                    ),
                    ..error
                },
            })?
            .map_err(|error| refused(&error))?;
        Ok(socket)
    }

    fn address(&self) -> &HostAddress {
        &self.options.hosts[self.host].0
    }

    /// `requirepeer`: does the server on the Unix socket run as this user?
    fn check_peer(&self, socket: &Socket) -> Result<(), Refusal> {
        let Some(required) = &self.options.require_peer else {
            return Ok(());
        };
        if !matches!(self.endpoint, Endpoint::Unix(_)) {
            return Ok(());
        }
        let account = socket.peer_uid().ok().and_then(account::by_uid);
        match account {
            Some(account) if account.name == *required => Ok(()),
            other => Err(Refusal::Final(SessionError::new(
                Failure::Disconnected,
                format!(
                    "requirepeer={required}, but the server runs as {}",
                    other.map_or("an unknown user".to_owned(), |account| account.name)
                ),
            ))),
        }
    }

    /// Asks for TLS and shakes hands; the socket as it is when the server has none and `sslmode`
    /// is content with that.
    fn encrypted(&self, mut socket: Socket) -> Result<Socket, Refusal> {
        let host = match self.address() {
            HostAddress::Tcp { host, .. } if !host.is_empty() => host.clone(),
            other => other.to_string(),
        };
        let direct = self.options.tls().is_ok_and(|tls| tls.direct);
        if !direct && !self.offers_tls(&mut socket)? {
            if self.options.ssl_mode >= SslMode::Require {
                let mut error = SessionError::new(
                    Failure::Disconnected,
                    "the server does not support TLS, but sslmode requires it",
                );
                error.hint = Some("switch TLS on in the server (ssl = on)".to_owned());
                return Err(Refusal::Final(error));
            }
            return Ok(socket);
        }
        let tls = self.options.tls().map_err(Refusal::Rejected)?;
        socket.encrypt(tls.client(&host).map_err(Refusal::Rejected)?);
        self.wait_for(&mut socket, Socket::shake_hands)?
            .map_err(|error| Refusal::Rejected(tls::handshake_failed(&error, &host)))?;
        Ok(socket)
    }

    /// Sends `SSLRequest`. Exactly one byte is read: whatever follows it in clear is not ours to
    /// believe (CVE-2021-23222), and makes the handshake fail.
    fn offers_tls(&self, socket: &mut Socket) -> Result<bool, Refusal> {
        let mut request = Vec::new();
        frontend::ssl_request(&mut request);
        let failed = |error: io::Error| Refusal::Unreachable(error::lost(Some(&error)));
        let mut sent = 0;
        while sent < request.len() {
            let count = self
                .wait_for(socket, |socket| socket.write(&request[sent..]))?
                .map_err(failed)?;
            sent += count;
        }
        let mut answer = [0];
        let count = self
            .wait_for(socket, |socket| socket.read(&mut answer))?
            .map_err(failed)?;
        match (count, answer) {
            (0, _) => Err(Refusal::Unreachable(error::lost(None))),
            (_, [b'S']) => Ok(true),
            (_, [b'N']) => Ok(false),
            (_, [b'E']) => Err(Refusal::Rejected(SessionError::new(
                Failure::Disconnected,
                "the server answered the request for TLS with an error",
            ))),
            _ => Err(Refusal::Final(SessionError::from(
                crate::wire::Malformed::new("answer to the request for TLS"),
            ))),
        }
    }

    /// Sends the startup message and answers until the server is ready.
    fn authenticate(&self, mut channel: Channel) -> Result<Session, Refusal> {
        let options = self.options;
        let encrypted = channel.socket.tls().is_some();
        let password = options.password(self.host);
        let certificate_hash = channel.socket.certificate().and_then(tls::certificate_hash);
        let mut conversation = Conversation::new(Credentials {
            user: &options.user,
            password: password.as_ref().map(super::conninfo::Secret::reveal),
            channel_binding: options.channel_binding,
            tls: encrypted,
            certificate_hash: certificate_hash.as_deref(),
            methods: &options.methods,
        });
        let mut target = CancelTarget {
            options: options.clone(),
            host: self.host,
            endpoint: self.endpoint.clone(),
            encrypted,
            process_id: 0,
            secret: Vec::new(),
        };
        self.send_startup(&mut channel);
        let blocker = self.blocker(&channel);
        loop {
            let range = blocker.run(|| channel.poll_frame())?;
            let mut answer = Vec::new();
            let broken = |error: SessionError| Refusal::Final(error);
            match channel.message(range.clone()).map_err(broken)? {
                Message::Authentication(request) => {
                    conversation
                        .answer(request, &mut answer)
                        .map_err(refused_auth)?;
                }
                Message::BackendKeyData { process_id, secret } => {
                    target.process_id = process_id;
                    target.secret = secret.to_vec();
                }
                Message::ErrorResponse(fields) => {
                    return Err(self.rejected(error::from_server(&fields)));
                }
                Message::ReadyForQuery(_) => break,
                _ => {}
            }
            channel.note(range).map_err(|error| broken(error.into()))?;
            channel.output.extend_from_slice(&answer);
        }
        channel.forget_scanned();
        let host = self.address().to_string();
        Ok(Session::new(channel, Arc::new(target), host))
    }

    fn send_startup(&self, channel: &mut Channel) {
        let options = self.options;
        let mut parameters = vec![
            ("user", options.user.as_str()),
            ("database", options.database.as_str()),
            ("application_name", options.application_name.as_str()),
            ("client_encoding", "UTF8"),
        ];
        if let Some(text) = &options.options {
            parameters.push(("options", text));
        }
        frontend::startup(&mut channel.output, &parameters);
    }

    /// An `ErrorResponse` before the server was ready.
    fn rejected(&self, mut error: SessionError) -> Refusal {
        error.failure = Failure::Disconnected;
        let (host, port) = &self.options.hosts[self.host];
        error.message = format!("{} refused: {}", place(host, *port), error.message);
        // The server is starting, stopping or recovering: libpq goes on with the next host.
        if error.is("57P03") {
            Refusal::Unreachable(error)
        } else {
            Refusal::Rejected(error)
        }
    }
}

fn refused_auth(error: AuthError) -> Refusal {
    match error {
        AuthError::PasswordMissing => Refusal::PasswordMissing,
        AuthError::Refused { message, hint } => Refusal::Final(SessionError {
            hint,
            ..SessionError::new(Failure::Disconnected, message)
        }),
    }
}
