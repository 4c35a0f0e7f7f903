//! Asking a server to cancel what a session is doing.

use super::channel::Channel;
use super::conninfo::ConnectOptions;
use super::error::SessionError;
use super::socket::Endpoint;
use super::startup::Attempt;
use crate::wire::frontend;
use std::time::Duration;

/// How long a cancel request may take.
const LIMIT: Duration = Duration::from_secs(5);

/// What is needed to send a cancel request for a session.
pub(super) struct CancelTarget {
    pub(super) options: ConnectOptions,
    pub(super) host: usize,
    pub(super) endpoint: Endpoint,
    /// Is the session encrypted? Then the request is too.
    pub(super) encrypted: bool,
    pub(super) process_id: i32,
    pub(super) secret: Vec<u8>,
}

impl CancelTarget {
    /// Sends the request and waits until the server has taken it; there is no other answer.
    pub(super) fn cancel(&self) -> Result<(), SessionError> {
        let mut options = self.options.uninterruptible();
        options.connect_timeout = Some(LIMIT);
        let attempt = Attempt::new(&options, self.host, &self.endpoint);
        let socket = attempt.open(self.encrypted)?;
        let mut channel = Channel::new(socket);
        frontend::cancel_request(&mut channel.output, self.process_id, &self.secret);
        let blocker = attempt.blocker(&channel);
        blocker.run(|| channel.poll_send())?;
        // The server closes when it has sent the signal.
        let _ = blocker.run(|| channel.poll_frame());
        Ok(())
    }
}
