//! TPC-C by the specification.

use super::{DataSet, Outcome, Profile, ProfileId, Terminal, Workload};
use crate::problem::Problem;
use crate::record::{RunPlan, SheetLine};
use crate::rng::Seed;
use crate::session::{Session, SessionError};
use std::time::Duration;

pub struct Tpcc;
pub struct User;

impl Workload for Tpcc {
    const NAME: &'static str = "tpcc";
    const SUMMARY: &'static str = "";
    const DATA_VERSION: u32 = 1;
    type Terminal = User;
    fn from_plan(_plan: &RunPlan) -> Result<Self, Problem> {
        todo!()
    }
    fn profiles(&self) -> &[Profile] {
        todo!()
    }
    fn session_setup(&self) -> Vec<String> {
        todo!()
    }
    fn statements(&self) -> &[&'static str] {
        todo!()
    }
    fn terminal(&self, _index: u32, _terminals: u32, _seed: Seed) -> User {
        todo!()
    }
    fn data_set(&self) -> Option<&dyn DataSet> {
        todo!()
    }
    fn run_sheet(&self, _tally: &()) -> Vec<SheetLine> {
        todo!()
    }
}

impl Terminal for User {
    type Input = ();
    type Output = ();
    type Tally = ();
    fn draw(&mut self) -> (ProfileId, ()) {
        todo!()
    }
    fn think_time(&mut self, _mean: Duration) -> Duration {
        todo!()
    }
    async fn execute(
        _input: &(),
        _session: &mut Session,
        _output: &mut (),
    ) -> Result<Outcome, SessionError> {
        todo!()
    }
    fn tally(_input: &(), _output: &(), _outcome: Outcome, _tally: &mut ()) {}
    fn merge(_tally: &mut (), _other: ()) {}
}
