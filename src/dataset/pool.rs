//! Buffers for batches on their way, recycled: their number bounds the memory of a load.

use super::crew::GLANCE;
use crate::workload::copy::{CopyBuffer, CopyFormat};
use std::sync::{Condvar, Mutex, PoisonError};

/// A fixed number of buffers. Whoever holds one either fills it or has handed it to a sender that
/// waits for nothing else, so that one always comes back.
pub(super) struct Pool {
    free: Mutex<Vec<CopyBuffer>>,
    returned: Condvar,
}

impl Pool {
    pub(super) fn new(buffers: usize, format: CopyFormat) -> Pool {
        Pool {
            free: Mutex::new((0..buffers).map(|_| CopyBuffer::new(format)).collect()),
            returned: Condvar::new(),
        }
    }

    /// An empty buffer; `None` once `stopped` says so.
    pub(super) fn take(&self, stopped: &dyn Fn() -> bool) -> Option<CopyBuffer> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        while !stopped() {
            if let Some(mut buffer) = free.pop() {
                buffer.clear();
                return Some(buffer);
            }
            free = self
                .returned
                .wait_timeout(free, GLANCE)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        None
    }

    pub(super) fn give_back(&self, buffer: CopyBuffer) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.push(buffer);
        self.returned.notify_one();
    }
}
