//! A non-blocking stream socket, plain or under TLS.

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// One address of one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Endpoint {
    Tcp(SocketAddr),
    /// The socket file; a leading `@` means the abstract namespace.
    Unix(PathBuf),
}

impl Endpoint {
    /// The socket of a server in `directory`.
    pub(super) fn unix(directory: &Path, port: u16) -> Self {
        Endpoint::Unix(directory.join(format!(".s.PGSQL.{port}")))
    }
}

/// The transport of one connection.
pub(super) struct Socket {
    fd: Arc<OwnedFd>,
    tls: Option<Box<rustls::ClientConnection>>,
}

impl Socket {
    /// Begins to connect; the socket becomes writable when that has ended
    /// (see [`Self::connected`]).
    pub(super) fn open(endpoint: &Endpoint) -> io::Result<Self> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let family = match endpoint {
            Endpoint::Tcp(SocketAddr::V4(_)) => AddressFamily::INET,
            Endpoint::Tcp(SocketAddr::V6(_)) => AddressFamily::INET6,
            Endpoint::Unix(_) => AddressFamily::UNIX,
        };
        let fd = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
        let begun = match endpoint {
            Endpoint::Tcp(address) => {
                sockopt::set_tcp_nodelay(&fd, true)?;
                sockopt::set_socket_keepalive(&fd, true)?;
                rustix::net::connect(&fd, address)
            }
            Endpoint::Unix(path) => rustix::net::connect(&fd, &unix_address(path)?),
        };
        match begun {
            Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(Self {
                fd: Arc::new(fd),
                tls: None,
            }),
            Err(error) => Err(error.into()),
        }
    }

    /// How connecting has ended; `WouldBlock` while it is under way.
    pub(super) fn connected(&mut self) -> io::Result<()> {
        sockopt::socket_error(&self.fd)?.map_err(io::Error::from)?;
        match rustix::net::getpeername(&self.fd) {
            Err(rustix::io::Errno::NOTCONN) => Err(io::ErrorKind::WouldBlock.into()),
            done => Ok(done.map(|_| ())?),
        }
    }

    /// The descriptor, to wait for while the socket itself is borrowed.
    pub(super) fn fd(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.fd)
    }

    /// After `WouldBlock`: does it wait for room to send rather than for bytes?
    pub(super) fn wants_write(&self) -> bool {
        match &self.tls {
            Some(tls) => tls.wants_write(),
            None => rustix::net::getpeername(&self.fd).is_err(),
        }
    }

    /// The server's certificate.
    pub(super) fn certificate(&self) -> Option<&[u8]> {
        let chain = self.tls.as_ref()?.peer_certificates()?;
        chain.first().map(AsRef::as_ref)
    }

    pub(super) fn raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// User id of the process at the other end of a Unix socket.
    pub(super) fn peer_uid(&self) -> io::Result<u32> {
        Ok(sockopt::socket_peercred(&self.fd)?.uid.as_raw())
    }

    /// From here on all bytes go through `tls`.
    pub(super) fn encrypt(&mut self, tls: rustls::ClientConnection) {
        self.tls = Some(Box::new(tls));
    }

    pub(super) fn tls(&self) -> Option<&rustls::ClientConnection> {
        self.tls.as_deref()
    }

    /// Reads what is there; 0 at the end, `WouldBlock` when nothing is there.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else {
            return Plain(&self.fd).receive(buffer);
        };
        loop {
            match io::Read::read(&mut tls.reader(), buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // The peer closed the TCP connection without close_notify, as PostgreSQL does.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                done => return done,
            }
            if tls.read_tls(&mut Plain(&self.fd))? == 0 && !tls.is_handshaking() {
                return Ok(0);
            }
            if let Err(error) = tls.process_new_packets() {
                // Tell the server why, as far as it still listens.
                let _ = tls.write_tls(&mut Plain(&self.fd));
                return Err(io::Error::new(io::ErrorKind::InvalidData, error));
            }
        }
    }

    /// Writes some of `bytes`; `WouldBlock` when the send buffer is full.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else {
            return Plain(&self.fd).send(bytes);
        };
        while tls.wants_write() {
            tls.write_tls(&mut Plain(&self.fd))?;
        }
        io::Write::write(&mut tls.writer(), bytes)
    }

    /// Sends what TLS holds back; `WouldBlock` when the send buffer is full.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        if let Some(tls) = &mut self.tls {
            while tls.wants_write() {
                tls.write_tls(&mut Plain(&self.fd))?;
            }
        }
        Ok(())
    }

    /// Goes on with the TLS handshake until it is complete.
    pub(super) fn shake_hands(&mut self) -> io::Result<()> {
        let Some(tls) = &mut self.tls else {
            return Ok(());
        };
        while tls.is_handshaking() {
            while tls.wants_write() {
                tls.write_tls(&mut Plain(&self.fd))?;
            }
            if !tls.is_handshaking() {
                break;
            }
            if tls.read_tls(&mut Plain(&self.fd))? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if let Err(error) = tls.process_new_packets() {
                let _ = tls.write_tls(&mut Plain(&self.fd));
                return Err(io::Error::new(io::ErrorKind::InvalidData, error));
            }
        }
        self.flush()
    }

    /// Takes leave: the last bytes and TLS's `close_notify`, as far as they go without waiting.
    pub(super) fn close(&mut self, last: &[u8]) {
        let _ = self.write(last);
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
        }
        let _ = self.flush();
    }
}

/// The socket below TLS.
struct Plain<'a>(&'a OwnedFd);

impl Plain<'_> {
    fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match rustix::net::recv(self.0, &mut *buffer, rustix::net::RecvFlags::empty()) {
                Ok((length, _)) => return Ok(length),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match rustix::net::send(self.0, bytes, rustix::net::SendFlags::NOSIGNAL) {
                Err(rustix::io::Errno::INTR) => {}
                done => return Ok(done?),
            }
        }
    }
}

impl io::Read for Plain<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.receive(buffer)
    }
}

impl io::Write for Plain<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.send(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn unix_address(path: &Path) -> io::Result<SocketAddrUnix> {
    let bytes = std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str());
    let address = match bytes.strip_prefix(b"@") {
        Some(name) => SocketAddrUnix::new_abstract_name(name)?,
        None => SocketAddrUnix::new(path)?,
    };
    Ok(address)
}

/// Waits until `fd` is ready or `timeout` is over; `true` when it is ready. A signal ends the
/// wait early.
pub(super) fn wait(fd: impl AsFd, read: bool, write: bool, timeout: Duration) -> io::Result<bool> {
    let mut flags = PollFlags::empty();
    flags.set(PollFlags::IN, read);
    flags.set(PollFlags::OUT, write);
    let timeout = Timespec::try_from(timeout).unwrap_or_default();
    let mut fds = [PollFd::new(&fd, flags)];
    match rustix::event::poll(&mut fds, Some(&timeout)) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
