//! The registry of workloads, bound to the driver. Adding a workload: its file, and one line here.

use crate::driver::{self, DrivePlan, Driven, Watcher};
use crate::problem::Problem;
use crate::record::RunPlan;
use crate::workload::{DataSet, Profile, Workload, synthetic, tpcc};

/// All workloads, sorted by name.
pub static WORKLOADS: &[WorkloadEntry] = &[
    WorkloadEntry::of::<synthetic::Synthetic>(),
    WorkloadEntry::of::<tpcc::Tpcc>(),
];

/// What the command line knows of a workload before it is made.
pub struct WorkloadEntry {
    pub name: &'static str,
    pub summary: &'static str,
    pub data_version: u32,
    pub from_plan: fn(&RunPlan) -> Result<Box<dyn AnyWorkload>, Problem>,
}

impl WorkloadEntry {
    const fn of<W: Workload>() -> Self {
        Self {
            name: W::NAME,
            summary: W::SUMMARY,
            data_version: W::DATA_VERSION,
            from_plan: |plan| Ok(Box::new(W::from_plan(plan)?)),
        }
    }
}

/// The workload called `name`.
pub fn find(name: &str) -> Result<&'static WorkloadEntry, Problem> {
    WORKLOADS
        .iter()
        .find(|entry| entry.name == name)
        .ok_or_else(|| {
            let names: Vec<&str> = WORKLOADS.iter().map(|entry| entry.name).collect();
            Problem::usage(format!("unknown workload \"{name}\""))
                .hint(format!("one of: {}", names.join(", ")))
        })
}

/// [`Workload`] with its type erased at the edge: one virtual call per run, none per transaction.
pub trait AnyWorkload: Send + Sync {
    fn profiles(&self) -> &[Profile];
    fn needs_server(&self) -> bool;
    fn data_set(&self) -> Option<&dyn DataSet>;
    fn drive(&self, plan: &DrivePlan, watcher: &mut dyn Watcher) -> Result<Driven, Problem>;
}

impl<W: Workload> AnyWorkload for W {
    fn profiles(&self) -> &[Profile] {
        Workload::profiles(self)
    }

    fn needs_server(&self) -> bool {
        !self.statements().is_empty()
    }

    fn data_set(&self) -> Option<&dyn DataSet> {
        Workload::data_set(self)
    }

    fn drive(&self, plan: &DrivePlan, watcher: &mut dyn Watcher) -> Result<Driven, Problem> {
        driver::drive(self, plan, watcher)
    }
}
