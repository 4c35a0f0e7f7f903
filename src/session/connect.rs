//! From options to a session: hosts, addresses, encryption, authentication.

use super::Session;
use super::blocking::{Blocker, Deadline, interrupted};
use super::channel::Channel;
use super::conninfo::{ConnectOptions, HostAddress};
use super::error::{self, Failure, SessionError};
use super::socket::{Endpoint, Socket};
use crate::wire::auth::{AuthError, Conversation, Credentials};
use crate::wire::backend::Message;
use crate::wire::frontend;
use std::net::ToSocketAddrs;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// How long a cancel request may take.
const CANCEL_LIMIT: Duration = Duration::from_secs(5);

/// What is needed to send a cancel request for a session.
pub(super) struct CancelTarget {
    endpoint: Endpoint,
    process_id: i32,
    secret: Vec<u8>,
}

impl CancelTarget {
    pub(super) fn process_id(&self) -> i32 {
        self.process_id
    }

    /// Asks the server to cancel what the session is doing; there is no answer.
    pub(super) fn cancel(&self) -> Result<(), SessionError> {
        let wait = Attempt {
            uninterruptible: true,
            deadline: Some(Deadline::after(CANCEL_LIMIT)),
        };
        let socket = wait.open(&self.endpoint)?;
        let mut channel = Channel::new(socket);
        frontend::cancel_request(&mut channel.output, self.process_id, &self.secret);
        let blocker = wait.blocker(&channel);
        // The server closes when it has sent the signal.
        blocker.run(|| channel.poll_send())?;
        let _ = blocker.run(|| channel.poll_frame());
        Ok(())
    }
}

/// What to do after a failed attempt.
enum Refusal {
    /// Try the next address or host.
    Next(SessionError),
    /// No other attempt makes sense.
    Final(SessionError),
    /// The server wants a password that nobody has given.
    PasswordMissing(usize),
}

/// Connects as [`Session::connect`] says.
pub(super) fn connect(options: &ConnectOptions) -> Result<Session, SessionError> {
    match connect_once(options) {
        Err(Refusal::Next(error) | Refusal::Final(error)) => Err(error),
        Err(Refusal::PasswordMissing(_)) => Err(no_password(options)),
        Ok(session) => Ok(session),
    }
}

fn no_password(options: &ConnectOptions) -> SessionError {
    let mut error = SessionError::new(
        Failure::Disconnected,
        format!("the server wants a password for user {}", options.user),
    );
    error.hint = Some("set PGPASSWORD or add a line to ~/.pgpass".to_owned());
    error
}

fn connect_once(options: &ConnectOptions) -> Result<Session, Refusal> {
    let mut errors = Vec::new();
    for (index, (host, port)) in options.hosts.iter().enumerate() {
        let endpoints = match endpoints(host, *port) {
            Ok(endpoints) => endpoints,
            Err(error) => {
                errors.push(error);
                continue;
            }
        };
        for endpoint in endpoints {
            match try_endpoint(options, index, &endpoint) {
                Err(Refusal::Next(error)) => errors.push(error),
                done => return done,
            }
        }
    }
    Err(Refusal::Next(combined(errors)))
}

/// All that went wrong, in one error.
fn combined(errors: Vec<SessionError>) -> SessionError {
    let messages: Vec<_> = errors.iter().map(|e| e.message.clone()).collect();
    let mut error = errors
        .into_iter()
        .next_back()
        .unwrap_or_else(|| SessionError::new(Failure::Disconnected, "no host to connect to"));
    error.message = messages.join("; ");
    error
}

fn endpoints(host: &HostAddress, port: u16) -> Result<Vec<Endpoint>, SessionError> {
    match host {
        HostAddress::Unix(directory) => Ok(vec![Endpoint::unix(directory, port)]),
        HostAddress::Tcp {
            addr: Some(addr), ..
        } => Ok(vec![Endpoint::Tcp((*addr, port).into())]),
        HostAddress::Tcp { host, addr: None } => {
            let found = (host.as_str(), port).to_socket_addrs().map_err(|error| {
                SessionError::new(
                    Failure::Disconnected,
                    format!("cannot find the address of host \"{host}\": {error}"),
                )
            })?;
            Ok(found.map(Endpoint::Tcp).collect())
        }
    }
}

fn try_endpoint(
    options: &ConnectOptions,
    index: usize,
    endpoint: &Endpoint,
) -> Result<Session, Refusal> {
    let attempt = Attempt {
        uninterruptible: false,
        deadline: options.connect_timeout.map(Deadline::after),
    };
    let socket = attempt
        .open(endpoint)
        .map_err(|error| match error.failure {
            Failure::Interrupted => Refusal::Final(error),
            _ => Refusal::Next(error),
        })?;
    attempt.start(options, index, endpoint, socket)
}

/// The waiting of one attempt.
struct Attempt {
    uninterruptible: bool,
    deadline: Option<Deadline>,
}

impl Attempt {
    fn blocker(&self, channel: &Channel) -> Blocker {
        Blocker {
            fd: channel.socket.raw_fd(),
            waits: Arc::clone(&channel.waits),
            cancel: None,
            uninterruptible: self.uninterruptible,
            deadline: self.deadline,
        }
    }

    fn open(&self, endpoint: &Endpoint) -> Result<Socket, SessionError> {
        let refused = |error: &std::io::Error| {
            let mut error = SessionError::new(
                Failure::Disconnected,
                format!("cannot connect to {}: {error}", name(endpoint)),
            );
            error.hint = Some("is the server running there and does it accept connections?".into());
            error
        };
        let socket = Socket::open(endpoint).map_err(|error| refused(&error))?;
        let waits = Arc::<super::Waits>::default();
        waits.wants_write.set(true);
        let blocker = Blocker {
            fd: socket.raw_fd(),
            waits,
            cancel: None,
            uninterruptible: self.uninterruptible,
            deadline: self.deadline,
        };
        let mut waited = false;
        blocker.run(|| {
            if std::mem::replace(&mut waited, true) {
                Poll::Ready(Ok(()))
            } else {
                Poll::Pending
            }
        })?;
        socket.connected().map_err(|error| refused(&error))?;
        Ok(socket)
    }

    /// Sends the startup message and answers until the server is ready.
    fn start(
        &self,
        options: &ConnectOptions,
        index: usize,
        endpoint: &Endpoint,
        socket: Socket,
    ) -> Result<Session, Refusal> {
        let mut channel = Channel::new(socket);
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
        let mut conversation = Conversation::new(Credentials {
            user: &options.user,
            password: options.password(index),
            channel_binding: options.channel_binding,
            tls: false,
            certificate_hash: None,
            methods: &options.methods,
        });
        let blocker = self.blocker(&channel);
        let mut target = CancelTarget {
            endpoint: endpoint.clone(),
            process_id: 0,
            secret: Vec::new(),
        };
        loop {
            let range =
                blocker
                    .run(|| channel.poll_frame())
                    .map_err(|error| match error.failure {
                        Failure::Interrupted => Refusal::Final(interrupted()),
                        _ => Refusal::Next(error),
                    })?;
            let mut answer = Vec::new();
            match channel.message(range.clone()).map_err(Refusal::Final)? {
                Message::Authentication(request) => {
                    conversation
                        .answer(request, &mut answer)
                        .map_err(|error| refusal(error, index))?;
                }
                Message::BackendKeyData { process_id, secret } => {
                    target.process_id = process_id;
                    target.secret = secret.to_vec();
                }
                Message::ErrorResponse(fields) => {
                    let mut error = error::from_server(&fields);
                    error.failure = Failure::Disconnected;
                    return Err(if error.is("57P03") {
                        Refusal::Next(error)
                    } else {
                        Refusal::Final(error)
                    });
                }
                Message::ReadyForQuery(_) => break,
                _ => {}
            }
            channel
                .note(range)
                .map_err(|malformed| Refusal::Final(malformed.into()))?;
            channel.output.extend_from_slice(&answer);
        }
        channel.forget_scanned();
        Ok(Session::new(
            channel,
            Arc::new(target),
            host_name(options, index),
        ))
    }
}

fn host_name(options: &ConnectOptions, index: usize) -> String {
    match &options.hosts[index].0 {
        HostAddress::Tcp { host, .. } => host.clone(),
        HostAddress::Unix(path) => path.display().to_string(),
    }
}

fn refusal(error: AuthError, index: usize) -> Refusal {
    match error {
        AuthError::PasswordMissing => Refusal::PasswordMissing(index),
        AuthError::Refused { message, hint } => {
            let mut error = SessionError::new(Failure::Disconnected, message);
            error.hint = hint;
            Refusal::Final(error)
        }
    }
}

fn name(endpoint: &Endpoint) -> String {
    match endpoint {
        Endpoint::Tcp(address) => address.to_string(),
        Endpoint::Unix(path) => path.display().to_string(),
    }
}
