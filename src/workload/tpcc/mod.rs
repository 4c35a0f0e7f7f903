//! TPC-C by the specification (revision 5.11): nine tables, five profiles, twelve conditions.
//!
//! Clause numbers in this folder are those of the specification.

mod customer;
mod delivery;
mod invariants;
pub mod load;
mod new_order;
mod order_status;
mod payment;
pub mod random;
mod schema;
mod sheet;
mod statements;
mod stock_level;

pub use customer::Customer;
pub use delivery::Input as Delivery;
pub use new_order::{Input as NewOrder, Line, UNUSED_ITEM};
pub use order_status::Input as OrderStatus;
pub use payment::Input as Payment;
pub use sheet::Tally;
pub use stock_level::Input as StockLevel;

use super::copy::CopyBuffer;
use super::mix::Chooser;
use super::{
    DataCounter, DataSet, Ddl, Invariant, Outcome, Profile, ProfileId, Table, Terminal, Workload,
};
use crate::problem::Problem;
use crate::record::{Isolation, RunPlan, SheetLine};
use crate::rng::{Rng, Seed};
use crate::session::{Session, SessionError};
use load::{DISTRICTS, Population};
use random::Constants;
use std::collections::BTreeMap;
use std::time::Duration;

/// Profile indexes.
const NEW_ORDER: ProfileId = ProfileId(0);
const PAYMENT: ProfileId = ProfileId(1);
const ORDER_STATUS: ProfileId = ProfileId(2);
const DELIVERY: ProfileId = ProfileId(3);
const STOCK_LEVEL: ProfileId = ProfileId(4);

/// Name, keying time, mean think time and response time limit in seconds (5.2.5.7), deferred.
/// Delivery's limit is that of its deferred part (2.7.2.2): its interactive part, the queueing,
/// never waits for the server.
const PROFILES: [(&str, u64, u64, u64, bool); 5] = [
    ("new_order", 18, 12, 5, false),
    ("payment", 3, 12, 5, false),
    ("order_status", 2, 10, 5, false),
    ("delivery", 2, 5, 80, true),
    ("stock_level", 2, 5, 20, false),
];

/// Think times are cut off at this many times their mean (5.2.5.4).
const THINK_TIME_CUT: f64 = 10.0;

/// Identifiers must be able to hold twice the warehouses that are populated (1.3.1).
const WAREHOUSES_MAX: u32 = i32::MAX.unsigned_abs() / 2;

/// The workload, its parameters resolved.
#[derive(Debug)]
pub struct Tpcc {
    profiles: Vec<Profile>,
    chooser: Chooser,
    constants: Constants,
    isolation: Isolation,
    data: TpccData,
}

impl Workload for Tpcc {
    const NAME: &'static str = "tpcc";
    const SUMMARY: &'static str =
        "TPC-C: wholesale orders over nine tables and five transaction profiles";
    const DATA_VERSION: u32 = 1;

    type Terminal = User;

    fn from_plan(plan: &RunPlan) -> Result<Self, Problem> {
        only("dialect", &plan.dialect, "spec")?;
        only("mode", &plan.mode, "statements")?;
        only("protocol", &plan.protocol, "prepared")?;
        if let Some(name) = plan.defines.keys().next() {
            return Err(
                Problem::usage(format!("the workload tpcc knows no \"{name}\""))
                    .hint("it has no -D definitions"),
            );
        }
        if !(1..=WAREHOUSES_MAX).contains(&plan.warehouses) {
            return Err(
                Problem::usage(format!("{} warehouses are impossible", plan.warehouses))
                    .hint(format!("choose 1 to {WAREHOUSES_MAX}")),
            );
        }
        let profiles: Vec<Profile> = PROFILES.iter().map(profile).collect();
        let chooser = Chooser::new(&plan.mix, &profiles)?;
        let data = TpccData::new(plan);
        Ok(Self {
            chooser,
            profiles,
            constants: Constants::for_run(Seed(plan.seed), data.c_load),
            isolation: plan.isolation,
            data,
        })
    }

    fn profiles(&self) -> &[Profile] {
        &self.profiles
    }

    fn session_setup(&self) -> Vec<String> {
        let schema = self.data.schema.replace('"', "\"\"");
        vec![
            format!("SET search_path = \"{schema}\""),
            format!(
                "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL {}",
                self.isolation.sql()
            ),
        ]
    }

    fn statements(&self) -> &[&'static str] {
        statements::ALL
    }

    fn terminal(&self, index: u32, terminals: u32, seed: Seed) -> User {
        let index = u64::from(index);
        let stream = |name| seed.stream(name, index);
        User {
            context: self.context(index, u64::from(terminals)),
            chooser: self.chooser.clone(),
            choice: stream("tpcc.terminal.choice"),
            input: stream("tpcc.terminal.input"),
            think: stream("tpcc.terminal.think"),
        }
    }

    fn data_set(&self) -> Option<&dyn DataSet> {
        Some(&self.data)
    }

    fn run_sheet(&self, tally: &Tally) -> Vec<SheetLine> {
        sheet::lines(tally, self)
    }
}

impl Tpcc {
    /// Where terminal `index` sits for the whole run (2.4.1.1, 2.8.1.1): terminals are dealt to
    /// the warehouses in turn, or spread evenly when they are fewer. The district of Stock-Level
    /// is its own among the first ten terminals of a warehouse.
    fn context(&self, index: u64, terminals: u64) -> Context {
        let warehouses = u64::from(self.data.population.warehouses.unsigned_abs());
        let home = if terminals >= warehouses {
            index % warehouses
        } else {
            index * warehouses / terminals
        };
        let seat = index / warehouses;
        let to_i32 = |n: u64| i32::try_from(n).unwrap_or(i32::MAX);
        Context {
            warehouses: self.data.population.warehouses,
            w_id: to_i32(home + 1),
            stock_level_d_id: narrow(to_i32((seat + home) % 10 + 1)),
            constants: self.constants,
        }
    }
}

/// Refuses any other value than `supported`.
fn only(what: &str, given: &str, supported: &str) -> Result<(), Problem> {
    if given == supported {
        Ok(())
    } else {
        Err(
            Problem::usage(format!("the workload tpcc has no {what} \"{given}\""))
                .hint(format!("use --{what} {supported}")),
        )
    }
}

fn profile(
    &(name, keying, think, limit, deferred): &(&'static str, u64, u64, u64, bool),
) -> Profile {
    Profile {
        name,
        keying_time: Duration::from_secs(keying),
        think_time_mean: Duration::from_secs(think),
        response_time_limit: Some(Duration::from_secs(limit)),
        deferred,
    }
}

/// A small number drawn as an `i32`.
#[allow(
    clippy::cast_possible_truncation,
    reason = "districts, carriers, quantities and thresholds are at most 20"
)]
fn narrow(value: i32) -> i16 {
    value as i16
}

/// What a terminal's inputs are drawn from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context {
    warehouses: i32,
    /// The home warehouse.
    w_id: i32,
    stock_level_d_id: i16,
    constants: Constants,
}

impl Context {
    /// Uniform over the districts of a warehouse.
    fn district(&self, rng: &mut Rng) -> i16 {
        narrow(rng.int(1, i32::from(DISTRICTS)))
    }

    /// Uniform over the warehouses that are not home; home when there is no other.
    fn other_warehouse(&self, rng: &mut Rng) -> i32 {
        if self.warehouses == 1 {
            return self.w_id;
        }
        let other = rng.int(1, self.warehouses - 1);
        other + i32::from(other >= self.w_id)
    }
}

/// One emulated user.
#[derive(Debug)]
pub struct User {
    context: Context,
    chooser: Chooser,
    // Streams of their own, so that neither the mix nor waiting changes the inputs.
    choice: Rng,
    input: Rng,
    think: Rng,
}

/// Input of one transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    NewOrder(NewOrder),
    Payment(Payment),
    OrderStatus(OrderStatus),
    Delivery(Delivery),
    StockLevel(StockLevel),
}

/// What one attempt found out. Each profile fills in what it has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// The order entered (New-Order) or shown (Order-Status).
    pub o_id: i32,
    /// The customer, by whichever way he was found.
    pub c_id: i32,
    /// New-Order: the total with discount and taxes. Order-Status: the sum of the lines.
    pub total_cents: i64,
    /// New-Order: lines whose item and stock are both brand "ORIGINAL".
    pub brand_lines: u8,
    /// The customer's balance (Payment: after it).
    pub balance_cents: i64,
    pub districts_delivered: u8,
    /// Districts without an undelivered order (2.7.4.2).
    pub districts_skipped: u8,
    /// Stock-Level: items below the threshold.
    pub low_stock: i64,
}

impl Terminal for User {
    type Input = Input;
    type Output = Output;
    type Tally = Tally;

    fn draw(&mut self) -> (ProfileId, Input) {
        let profile = self.chooser.draw(&mut self.choice);
        let (context, rng) = (&self.context, &mut self.input);
        let input = match profile {
            NEW_ORDER => Input::NewOrder(NewOrder::draw(context, rng)),
            PAYMENT => Input::Payment(Payment::draw(context, rng)),
            ORDER_STATUS => Input::OrderStatus(OrderStatus::draw(context, rng)),
            DELIVERY => Input::Delivery(Delivery::draw(context, rng)),
            _ => Input::StockLevel(StockLevel::draw(context, rng)),
        };
        (profile, input)
    }

    fn think_time(&mut self, mean: Duration) -> Duration {
        mean.mul_f64((-self.think.unit().ln()).min(THINK_TIME_CUT))
    }

    async fn execute(
        input: &Input,
        session: &mut Session,
        output: &mut Output,
    ) -> Result<Outcome, SessionError> {
        match input {
            Input::NewOrder(input) => new_order::execute(input, session, output).await,
            Input::Payment(input) => payment::execute(input, session, output).await,
            Input::OrderStatus(input) => order_status::execute(input, session, output).await,
            Input::Delivery(input) => delivery::execute(input, session, output).await,
            Input::StockLevel(input) => stock_level::execute(input, session, output).await,
        }
    }

    fn tally(input: &Input, output: &Output, outcome: Outcome, tally: &mut Tally) {
        tally.add(input, output, outcome);
    }

    fn merge(tally: &mut Tally, other: Tally) {
        tally.merge(&other);
    }
}

/// The initial data.
#[derive(Debug)]
pub struct TpccData {
    schema: String,
    population: Population,
    c_load: i32,
    foreign_keys: bool,
    tables: Vec<Table>,
}

impl TpccData {
    fn new(plan: &RunPlan) -> Self {
        let seed = Seed(plan.data_seed);
        let c_load = random::c_load(seed);
        let warehouses = i32::try_from(plan.warehouses).unwrap_or(i32::MAX);
        Self {
            schema: plan.schema.clone(),
            population: Population::new(warehouses, seed, c_load),
            c_load,
            foreign_keys: plan.foreign_keys,
            tables: schema::tables(plan.warehouses),
        }
    }
}

impl DataSet for TpccData {
    fn tables(&self) -> &[Table] {
        &self.tables
    }

    fn schema(&self) -> &str {
        &self.schema
    }

    fn fill(&self, table: usize, batch: u64, out: &mut CopyBuffer) {
        self.population.fill(table, batch, out);
    }

    fn indexes(&self) -> Vec<Ddl> {
        schema::indexes()
    }

    fn foreign_keys(&self) -> Vec<Ddl> {
        if self.foreign_keys {
            schema::foreign_keys()
        } else {
            Vec::new()
        }
    }

    /// Foreign keys are among them: they change what a run measures.
    fn parameters(&self) -> BTreeMap<String, String> {
        [
            ("dialect", "spec".to_owned()),
            ("warehouses", self.population.warehouses.to_string()),
            ("seed", self.population.seed.0.to_string()),
            ("c_load", self.c_load.to_string()),
            ("foreign_keys", self.foreign_keys.to_string()),
        ]
        .map(|(key, value)| (key.to_owned(), value))
        .into()
    }

    fn invariants(&self) -> &[Invariant] {
        invariants::INVARIANTS
    }

    /// Each committed New-Order takes one number of its district; rolled back ones give it back.
    fn counters(&self) -> &[DataCounter] {
        &[DataCounter {
            name: "d_next_o_id",
            sql: "SELECT sum(d_next_o_id) FROM district",
            profile: "new_order",
        }]
    }

    fn bytes_estimate(&self) -> u64 {
        u64::from(self.population.warehouses.unsigned_abs()) * schema::BYTES_PER_WAREHOUSE
            + schema::BYTES_FIXED
    }
}

#[cfg(test)]
mod tests;
