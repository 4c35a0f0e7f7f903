//! CPU time of a local server: the postmaster, its children, and those it has already reaped.

use procfs::process::{Process, all_processes};

/// The postmaster whose processes are summed up.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServerCpu {
    postmaster: i32,
    ticks_per_second: f64,
}

impl ServerCpu {
    /// Finds the postmaster as the parent of a backend; the reason when it is not visible here
    /// (a container's process ids, for example, are not ours).
    pub(super) fn of_backend(backend: i32) -> Result<ServerCpu, String> {
        let unseen = || format!("backend process {backend} is not visible on this host");
        let stat = Process::new(backend)
            .and_then(|p| p.stat())
            .map_err(|_| unseen())?;
        if !stat.comm.contains("postgres") && !stat.comm.contains("postmaster") {
            return Err(unseen());
        }
        Ok(ServerCpu {
            postmaster: stat.ppid,
            ticks_per_second: procfs::ticks_per_second() as f64,
        })
    }

    /// Seconds since the server started; `None` when it is gone.
    pub(super) fn seconds(&self) -> Option<f64> {
        let own = Process::new(self.postmaster).and_then(|p| p.stat()).ok()?;
        // Children that ended are in the postmaster's cutime, living ones are not.
        let reaped = u64::try_from(own.cutime.max(0) + own.cstime.max(0)).unwrap_or(0);
        let mut ticks = own.utime + own.stime + reaped;
        for process in all_processes().ok()?.flatten() {
            // A process may end between the listing and the reading.
            if let Ok(stat) = process.stat()
                && stat.ppid == self.postmaster
            {
                ticks += stat.utime + stat.stime;
            }
        }
        Some(ticks as f64 / self.ticks_per_second)
    }
}
