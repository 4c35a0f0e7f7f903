//! Ctrl-C and SIGTERM, as a flag that every long loop looks at.

use crate::problem::Problem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

fn flag() -> &'static Arc<AtomicBool> {
    static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();
    FLAG.get_or_init(|| Arc::new(AtomicBool::new(false)))
}

/// Installs the handlers for SIGINT, SIGTERM and SIGHUP. Signals only raise the flag, however
/// many come: the loops that look at it end in bounded time and the server is stopped on the way
/// out.
pub fn install() -> std::io::Result<()> {
    for signal in [
        signal_hook::consts::SIGINT,
        signal_hook::consts::SIGTERM,
        signal_hook::consts::SIGHUP,
    ] {
        signal_hook::flag::register(signal, Arc::clone(flag()))?;
    }
    Ok(())
}

/// Has somebody asked to stop?
pub fn requested() -> bool {
    flag().load(Ordering::Relaxed)
}

/// `Err` when somebody asked to stop; for the head of long loops.
pub fn check() -> Result<(), Problem> {
    if requested() {
        Err(Problem::interrupted("interrupted"))
    } else {
        Ok(())
    }
}
