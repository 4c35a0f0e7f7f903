//! Asking for a password on the terminal, so that Ctrl-C still works and the echo comes back.

use crate::interrupt;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use std::fs::File;
use std::io::{self, Read, Write};
use std::time::Duration;

/// How often the interrupt flag is looked at.
const SLICE: Duration = Duration::from_millis(100);

/// The terminal of this process, when somebody can answer there.
pub(super) fn terminal() -> Option<File> {
    use std::io::IsTerminal;
    if !io::stdin().is_terminal() {
        return None;
    }
    File::options().read(true).write(true).open("/dev/tty").ok()
}

/// Shows `question`, reads one line without echo. `Ok(None)` after an interrupt.
pub(super) fn password(mut terminal: File, question: &str) -> io::Result<Option<String>> {
    let quiet = Quiet::begin(terminal.try_clone()?)?;
    terminal.write_all(question.as_bytes())?;
    let mut line = Vec::new();
    let answer = loop {
        if interrupt::requested() {
            break None;
        }
        if !super::socket::wait(&terminal, true, false, SLICE)? {
            continue;
        }
        let mut bytes = [0; 256];
        let count = terminal.read(&mut bytes)?;
        line.extend_from_slice(&bytes[..count]);
        if count == 0 || line.ends_with(b"\n") {
            break Some(
                String::from_utf8_lossy(&line)
                    .trim_end_matches(['\r', '\n'])
                    .to_owned(),
            );
        }
    };
    drop(quiet);
    terminal.write_all(b"\n")?;
    Ok(answer)
}

/// A terminal without echo, until dropped.
struct Quiet {
    terminal: File,
    before: Termios,
}

impl Quiet {
    fn begin(terminal: File) -> io::Result<Self> {
        let before = tcgetattr(&terminal)?;
        let mut quiet = before.clone();
        quiet.local_modes.remove(LocalModes::ECHO);
        tcsetattr(&terminal, OptionalActions::Flush, &quiet)?;
        Ok(Self { terminal, before })
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        let _ = tcsetattr(&self.terminal, OptionalActions::Flush, &self.before);
    }
}
