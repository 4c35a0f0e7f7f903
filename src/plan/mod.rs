//! From arguments to a [`RunPlan`]: validated and complete. The only place where defaults live.

pub mod args;

use crate::catalog;
use crate::problem::Problem;
use crate::record::{Isolation, Mix, RunPlan};
use args::{IsolationArg, MeasureArgs, Mode, Protocol, WorkloadArgs};
use std::collections::BTreeMap;
use std::time::Duration;

/// Most warehouses whose ids fit: the specification wants room for twice as many (1.3.1).
const WAREHOUSES_MAX: i64 = i32::MAX as i64 / 2;
const CONNECTIONS_MAX: i64 = 10_000;
const TERMINALS_MAX: i64 = 10_000_000;
const TIME_MAX: Duration = Duration::from_hours(366 * 24);
const INTERVAL_MIN: Duration = Duration::from_millis(100);
/// Windows are kept in memory and in the record.
const WINDOWS_MAX: f64 = 1_000_000.0;

/// Resolves what `load`, `check` and `drop` need: the workload and its data.
pub fn resolve_data(args: &WorkloadArgs) -> Result<RunPlan, Problem> {
    let entry = catalog::find(&args.workload)?;
    let connections = match args.connections {
        Some(n) => in_range("--connections", n, 1, CONNECTIONS_MAX)?,
        None => 2 * cpus(),
    };
    let schema = args.schema.clone().unwrap_or_else(|| entry.name.to_owned());
    check_schema_name(&schema)?;
    let warehouses = in_range(
        "--warehouses",
        args.warehouses.unwrap_or(10),
        1,
        WAREHOUSES_MAX,
    )?;
    Ok(RunPlan {
        workload: entry.name.to_owned(),
        dialect: "spec".to_owned(),
        mode: "statements".to_owned(),
        protocol: "prepared".to_owned(),
        isolation: Isolation::ReadCommitted,
        schema,
        warehouses,
        foreign_keys: !args.no_foreign_keys,
        seed: args.seed,
        data_seed: args.data_seed.unwrap_or(args.seed),
        connections,
        terminals: connections,
        workers: cpus().min(connections),
        keying_think: false,
        mix: Mix::deck(),
        ramp_s: 0.0,
        measure_s: 0.0,
        transactions: None,
        window_s: 1.0,
        tries_max: 1,
        defines: pairs("--define", &args.define)?,
        settings: BTreeMap::new(),
        labels: BTreeMap::new(),
        target: String::new(),
    })
}

/// Resolves a whole run.
pub fn resolve_run(
    workload: &WorkloadArgs,
    measure: &MeasureArgs,
    settings: BTreeMap<String, String>,
) -> Result<RunPlan, Problem> {
    let mut plan = resolve_data(workload)?;
    plan.settings = settings;
    plan.isolation = match measure.isolation {
        None | Some(IsolationArg::Rc) => Isolation::ReadCommitted,
        Some(IsolationArg::Rr) => Isolation::RepeatableRead,
        Some(IsolationArg::Serializable) => Isolation::Serializable,
    };
    plan.mode = match measure.mode {
        Mode::Statements => "statements".to_owned(),
    };
    plan.protocol = match measure.protocol {
        Protocol::Prepared => "prepared".to_owned(),
    };
    plan.keying_think = measure.keying_think;
    plan.terminals = match measure.terminals {
        Some(n) => in_range("--terminals", n, 1, TERMINALS_MAX)?,
        // TPC-C 4.2.2: ten terminals for each warehouse.
        None if measure.keying_think => in_range(
            "--warehouses x 10 terminals",
            i64::from(plan.warehouses) * 10,
            1,
            TERMINALS_MAX,
        )?,
        None => plan.connections,
    };
    if let Some(n) = measure.workers {
        plan.workers = in_range("--workers", n, 1, i64::from(plan.connections))?;
    }
    plan.tries_max = in_range("--max-tries", measure.max_tries, 1, 1_000_000)?;
    resolve_time(&mut plan, measure)?;
    if let Some(mix) = &measure.mix {
        plan.mix = Mix::Weighted(weights(mix)?);
    }
    plan.labels = pairs("--label", &measure.label)?;
    Ok(plan)
}

fn resolve_time(plan: &mut RunPlan, measure: &MeasureArgs) -> Result<(), Problem> {
    if measure.time.is_zero() || measure.time > TIME_MAX {
        return Err(Problem::usage(
            "--time must be more than 0 and at most 366 days",
        ));
    }
    if measure.ramp > TIME_MAX {
        return Err(Problem::usage("--ramp must be at most 366 days"));
    }
    if measure.interval < INTERVAL_MIN {
        return Err(Problem::usage("--interval must be at least 100ms"));
    }
    let windows = (measure.time + measure.ramp).as_secs_f64() / measure.interval.as_secs_f64();
    if windows > WINDOWS_MAX {
        return Err(Problem::usage(format!("{windows:.0} windows are too many"))
            .hint("use a longer --interval, for example 1s or 10s"));
    }
    plan.measure_s = measure.time.as_secs_f64();
    plan.ramp_s = measure.ramp.as_secs_f64();
    plan.window_s = measure.interval.as_secs_f64();
    plan.transactions = match measure.transactions {
        Some(n) if n < 1 => {
            return Err(Problem::usage(format!(
                "--transactions must be at least 1, not {n}"
            )));
        }
        Some(n) => u64::try_from(n).ok(),
        None => None,
    };
    Ok(())
}

impl Mix {
    /// The deck of TPC-C 5.2.4.2: 10 New-Order, 10 Payment and one each of the others.
    pub fn deck() -> Mix {
        let cards = [
            ("new_order", 10),
            ("payment", 10),
            ("order_status", 1),
            ("delivery", 1),
            ("stock_level", 1),
        ];
        Mix::Deck(
            cards
                .iter()
                .map(|&(name, n)| (name.to_owned(), n))
                .collect(),
        )
    }
}

/// Logical CPUs that this process may use.
pub fn cpus() -> u32 {
    std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(u32::MAX))
}

fn in_range(what: &str, value: i64, low: i64, high: i64) -> Result<u32, Problem> {
    if (low..=high).contains(&value) {
        return u32::try_from(value).map_err(|_| Problem::defect(format!("{what}: bad limits")));
    }
    Err(Problem::usage(format!(
        "{what} must be between {low} and {high}, not {value}"
    )))
}

/// `NAME=VALUE` arguments; a name given twice keeps the last value.
pub fn pairs(flag: &str, items: &[String]) -> Result<BTreeMap<String, String>, Problem> {
    let mut map = BTreeMap::new();
    for item in items {
        match item.split_once('=') {
            Some((name, value)) if !name.trim().is_empty() => {
                map.insert(name.trim().to_owned(), value.trim().to_owned());
            }
            _ => {
                return Err(
                    Problem::usage(format!("{flag} \"{item}\" is not NAME=VALUE"))
                        .hint(format!("for example {flag} name=value")),
                );
            }
        }
    }
    Ok(map)
}

fn weights(text: &str) -> Result<BTreeMap<String, f64>, Problem> {
    let items: Vec<String> = text.split(',').map(str::to_owned).collect();
    let mut weights = BTreeMap::new();
    for (name, value) in pairs("--mix", &items)? {
        match value.parse::<f64>() {
            Ok(weight) if weight.is_finite() && weight >= 0.0 => {
                weights.insert(name.replace('-', "_"), weight);
            }
            _ => {
                return Err(Problem::usage(format!(
                    "--mix: \"{value}\" is not a weight for {name}"
                ))
                .hint("weights are numbers of 0 or more, for example new_order=45,payment=43"));
            }
        }
    }
    if weights.values().sum::<f64>() <= 0.0 {
        return Err(Problem::usage("--mix: all weights are 0")
            .hint("give at least one profile a weight above 0"));
    }
    Ok(weights)
}

/// The schema's name is put into SQL and into `search_path`; plain names need no quoting rules.
fn check_schema_name(name: &str) -> Result<(), Problem> {
    let plain = name
        .bytes()
        .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    let first = name
        .bytes()
        .next()
        .is_some_and(|b| b.is_ascii_lowercase() || b == b'_');
    if !plain || !first || name.len() > 63 || name.starts_with("pg_") {
        return Err(
            Problem::usage(format!("--schema \"{name}\" is not a plain schema name"))
                .hint("lower-case letters, digits and _, at most 63, not starting with pg_"),
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        workload: WorkloadArgs,
        #[command(flatten)]
        measure: MeasureArgs,
    }

    fn resolve(line: &str) -> Result<RunPlan, Problem> {
        let line = Line::try_parse_from(std::iter::once("run").chain(line.split_whitespace()))
            .map_err(|e| Problem::usage(e.to_string()))?;
        resolve_run(&line.workload, &line.measure, BTreeMap::new())
    }

    #[test]
    fn a_plan_has_every_default_filled_in() {
        let plan = resolve("tpcc").unwrap();
        assert_eq!(plan.warehouses, 10);
        assert_eq!(plan.connections, 2 * cpus());
        assert_eq!(plan.terminals, plan.connections);
        assert_eq!(
            (plan.measure_s, plan.ramp_s, plan.window_s),
            (60.0, 10.0, 1.0)
        );
        assert_eq!((plan.seed, plan.data_seed), (42, 42));
        assert_eq!(plan.isolation, Isolation::ReadCommitted);
        assert!(plan.foreign_keys);
    }

    #[test]
    fn keying_and_think_bring_ten_terminals_a_warehouse() {
        assert_eq!(resolve("tpcc -w 7 --keying-think").unwrap().terminals, 70);
        assert_eq!(
            resolve("tpcc -w 7 --keying-think --terminals 9")
                .unwrap()
                .terminals,
            9
        );
    }

    #[test]
    fn absurd_numbers_are_refused_by_name() {
        for (line, named) in [
            ("tpcc -c 0", "--connections"),
            ("tpcc -c -3", "--connections"),
            ("tpcc -c 100000", "--connections"),
            ("tpcc -w 0", "--warehouses"),
            ("tpcc -w -1", "--warehouses"),
            ("tpcc -w 3000000000", "--warehouses"),
            ("tpcc --terminals 0", "--terminals"),
            ("tpcc -t 0", "--time"),
            ("tpcc -t 0s", "--time"),
            ("tpcc -t 1000000d", "--time"),
            ("tpcc -t abc", "abc"),
            ("tpcc --ramp -1", "--ramp"),
            ("tpcc --interval 1ms", "--interval"),
            ("tpcc --interval 100ms -t 300d", "windows"),
            ("tpcc --transactions 0", "--transactions"),
            ("tpcc --transactions 5 -t 5s", "--transactions"),
            ("tpcc --workers 0", "--workers"),
            ("tpcc --workers 99 -c 2", "--workers"),
            ("tpcc --max-tries 0", "--max-tries"),
            ("tpcc --mix new_order", "--mix"),
            ("tpcc --mix new_order=x", "--mix"),
            ("tpcc --mix new_order=-1", "--mix"),
            ("tpcc --mix new_order=0", "--mix"),
            ("tpcc --label x", "--label"),
            ("tpcc --schema Tpcc", "--schema"),
            ("tpcc --schema pg_x", "--schema"),
            ("tpcc --schema a;b", "--schema"),
            ("tpcc --isolation ru", "--isolation"),
            ("tpcc --dialect oracle", "--dialect"),
            ("nothing", "nothing"),
        ] {
            let problem = resolve(line).map(|_| ()).expect_err(line);
            assert_eq!(problem.exit_code(), 2, "{line}");
            assert!(problem.to_string().contains(named), "{line}: {problem}");
        }
    }
}
