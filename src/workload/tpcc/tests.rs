use super::*;
use crate::record::Mix;

pub(super) fn plan(warehouses: u32) -> RunPlan {
    let cards = [10, 10, 1, 1, 1];
    RunPlan {
        workload: "tpcc".to_owned(),
        dialect: "spec".to_owned(),
        mode: "statements".to_owned(),
        protocol: "prepared".to_owned(),
        isolation: Isolation::ReadCommitted,
        schema: "tpcc".to_owned(),
        warehouses,
        foreign_keys: false,
        seed: 42,
        data_seed: 42,
        connections: 1,
        terminals: 1,
        workers: 1,
        keying_think: false,
        mix: Mix::Deck(
            PROFILES
                .map(|(name, ..)| name.to_owned())
                .into_iter()
                .zip(cards)
                .collect(),
        ),
        ramp_s: 0.0,
        measure_s: 1.0,
        transactions: None,
        window_s: 1.0,
        tries_max: 1,
        defines: BTreeMap::new(),
        settings: BTreeMap::new(),
        labels: BTreeMap::new(),
        target: String::new(),
    }
}

pub(super) fn tpcc(warehouses: u32) -> Tpcc {
    Tpcc::from_plan(&plan(warehouses)).unwrap()
}

/// One line for each input, short enough to read.
fn short(input: &Input) -> String {
    match input {
        Input::NewOrder(input) => {
            let lines: Vec<String> = input
                .lines()
                .iter()
                .map(|line| format!("{}*{}@{}", line.quantity, line.i_id, line.supply_w_id))
                .collect();
            let NewOrder {
                w_id,
                d_id,
                c_id,
                rollback,
                ..
            } = input;
            format!("NO {w_id}/{d_id}/{c_id} {rollback} {}", lines.join(" "))
        }
        Input::Payment(input) => format!(
            "P {}/{} {}/{} {:?} {}",
            input.w_id, input.d_id, input.c_w_id, input.c_d_id, input.customer, input.amount_cents
        ),
        Input::OrderStatus(input) => {
            format!("OS {}/{} {:?}", input.w_id, input.d_id, input.customer)
        }
        Input::Delivery(input) => format!("D {} {}", input.w_id, input.o_carrier_id),
        Input::StockLevel(input) => {
            format!("SL {}/{} {}", input.w_id, input.d_id, input.threshold)
        }
    }
}

#[test]
fn the_first_20_inputs_of_seed_42_are_pinned() {
    let workload = tpcc(10);
    let constants = [
        workload.data.c_load,
        workload.constants.c_last.constant(),
        workload.constants.c_id.constant(),
        workload.constants.ol_i_id.constant(),
    ];
    let mut text = format!("constants {constants:?}\n");
    let mut user = workload.terminal(3, 8, Seed(42));
    for _ in 0..20 {
        text.push_str(&short(&user.draw().1));
        text.push('\n');
    }
    insta::assert_snapshot!(text);
}

#[test]
fn a_terminal_stays_at_its_home_and_draws_what_the_specification_allows() {
    let workload = tpcc(3);
    let mut user = workload.terminal(1, 3, Seed(1));
    let mut seen = [0_u32; 5];
    let (mut rollbacks, mut duplicates, mut orders) = (0, 0, 0);
    let mut remote = [0_u32; 3];
    for _ in 0..100_000 {
        let (profile, input) = user.draw();
        seen[profile.index()] += 1;
        match input {
            Input::NewOrder(input) => {
                assert_eq!((profile, input.w_id), (NEW_ORDER, 2));
                assert!((1..=10).contains(&input.d_id) && (1..=3000).contains(&input.c_id));
                assert!((5..=15).contains(&input.line_count));
                let (last, others) = input.lines().split_last().unwrap();
                assert_eq!(last.i_id == UNUSED_ITEM, input.rollback);
                assert!(others.iter().all(|line| line.i_id <= 100_000));
                for line in input.lines() {
                    assert!((1..=10).contains(&line.quantity) && line.i_id >= 1);
                    remote[random::index(line.supply_w_id - 1)] += 1;
                }
                let mut items: Vec<i32> = input.lines().iter().map(|line| line.i_id).collect();
                items.sort_unstable();
                items.dedup();
                duplicates += u32::from(items.len() < input.line_count);
                rollbacks += u32::from(input.rollback);
                orders += 1;
            }
            Input::Payment(input) => {
                assert_eq!((profile, input.w_id), (PAYMENT, 2));
                assert!((100..=500_000).contains(&input.amount_cents));
                assert!(input.c_w_id != 2 || input.c_d_id == input.d_id);
                assert!((1..=3).contains(&input.c_w_id) && (1..=10).contains(&input.c_d_id));
            }
            Input::OrderStatus(input) => assert_eq!((profile, input.w_id), (ORDER_STATUS, 2)),
            Input::Delivery(input) => {
                assert_eq!((profile, input.w_id), (DELIVERY, 2));
                assert!((1..=10).contains(&input.o_carrier_id));
            }
            Input::StockLevel(input) => {
                assert_eq!((profile, input.w_id, input.d_id), (STOCK_LEVEL, 2, 2));
                assert!((10..=20).contains(&input.threshold));
            }
        }
    }
    assert!(
        seen[0].abs_diff(43_478) <= 10 && seen[3].abs_diff(4_348) <= 1,
        "{seen:?}"
    );
    // 1 %, and 0.9 % by the sum of the squared probabilities of the items.
    assert!((380..490).contains(&rollbacks), "{rollbacks} of {orders}");
    assert!((320..470).contains(&duplicates), "{duplicates} of {orders}");
    // The 1 % of remote lines is spread evenly over the other two warehouses.
    assert!(remote[0].abs_diff(remote[2]) < 5 * 66, "{remote:?}");
}

#[test]
fn with_one_warehouse_nothing_is_remote() {
    let mut user = tpcc(1).terminal(0, 1, Seed(1));
    for _ in 0..2000 {
        match user.draw().1 {
            Input::NewOrder(input) => {
                assert!(input.lines().iter().all(|line| line.supply_w_id == 1));
            }
            Input::Payment(input) => assert_eq!(input.c_w_id, 1),
            _ => {}
        }
    }
}

#[test]
fn terminals_are_dealt_to_the_warehouses() {
    let homes = |warehouses, terminals| -> Vec<i32> {
        let workload = tpcc(warehouses);
        (0..terminals)
            .map(|index| workload.context(index, terminals).w_id)
            .collect()
    };
    assert_eq!(homes(3, 7), [1, 2, 3, 1, 2, 3, 1]);
    assert_eq!(homes(10, 4), [1, 3, 6, 8]);
    assert_eq!(homes(1, 3), [1, 1, 1]);
    assert_eq!(homes(1_000_000, 2), [1, 500_001]);
}

#[test]
fn the_first_ten_terminals_of_a_warehouse_watch_the_stock_of_ten_districts() {
    let workload = tpcc(7);
    let mut seats: Vec<(i32, i16)> = (0..70)
        .map(|index| workload.context(index, 70))
        .map(|context| (context.w_id, context.stock_level_d_id))
        .collect();
    assert!(seats.iter().all(|&(_, d_id)| (1..=10).contains(&d_id)));
    seats.sort_unstable();
    seats.dedup();
    assert_eq!(seats.len(), 70);
}

/// Clauses 5.2.5.4 and 5.2.5.7; other clients swap Delivery's and Order-Status' times, or make
/// the keying time exponential and the think time constant.
#[test]
fn keying_and_think_times_are_those_of_the_specification() {
    let workload = tpcc(1);
    let times: Vec<(&str, u64, u64)> = workload
        .profiles()
        .iter()
        .map(|p| (p.name, p.keying_time.as_secs(), p.think_time_mean.as_secs()))
        .collect();
    let expected = [
        ("new_order", 18, 12),
        ("payment", 3, 12),
        ("order_status", 2, 10),
        ("delivery", 2, 5),
        ("stock_level", 2, 5),
    ];
    assert_eq!(times, expected);

    let mut user = workload.terminal(0, 1, Seed(42));
    let mean = Duration::from_secs(12);
    let n = 100_000;
    let draws: Vec<f64> = (0..n)
        .map(|_| user.think_time(mean).as_secs_f64())
        .collect();
    let average = draws.iter().sum::<f64>() / f64::from(n);
    assert!((11.85..12.15).contains(&average), "{average}");
    // Exponential: a share of 1/e is longer than the mean, e^-3 longer than three means.
    let longer = |seconds: f64| draws.iter().filter(|&&t| t > seconds).count();
    assert!((36_300..37_300).contains(&longer(12.0)), "{}", longer(12.0));
    assert!((4_700..5_300).contains(&longer(36.0)), "{}", longer(36.0));
    assert!(
        draws.iter().all(|&t| t <= 120.0),
        "cut at ten times the mean"
    );
}

#[test]
fn waiting_does_not_change_the_inputs() {
    let workload = tpcc(5);
    let mut waiting = workload.terminal(0, 1, Seed(9));
    let mut hurrying = workload.terminal(0, 1, Seed(9));
    for _ in 0..100 {
        waiting.think_time(Duration::from_secs(5));
        assert_eq!(waiting.draw(), hurrying.draw());
    }
}

#[test]
fn terminals_differ_and_so_do_seeds() {
    let workload = tpcc(5);
    let first = |index, seed| {
        let mut user = workload.terminal(index, 10, Seed(seed));
        (0..5).map(|_| short(&user.draw().1)).collect::<Vec<_>>()
    };
    assert_eq!(first(0, 1), first(0, 1));
    assert_ne!(first(0, 1), first(5, 1));
    assert_ne!(first(0, 1), first(0, 2));
}

#[test]
fn what_the_workload_cannot_do_is_refused() {
    type Change = fn(&mut RunPlan);
    let cases: [(Change, &str); 7] = [
        (
            |p| p.dialect = "sysbench".to_owned(),
            "no dialect \"sysbench\"",
        ),
        (|p| p.mode = "pipeline".to_owned(), "no mode \"pipeline\""),
        (
            |p| p.protocol = "simple".to_owned(),
            "no protocol \"simple\"",
        ),
        (|p| p.warehouses = 0, "0 warehouses are impossible"),
        (
            |p| p.warehouses = u32::MAX,
            "4294967295 warehouses are impossible",
        ),
        (
            |p| drop(p.defines.insert("x".to_owned(), "1".to_owned())),
            "knows no \"x\"",
        ),
        (
            |p| p.mix = Mix::Deck(BTreeMap::new()),
            "the mix has no profile",
        ),
    ];
    for (change, message) in cases {
        let mut plan = plan(2);
        change(&mut plan);
        let problem = Tpcc::from_plan(&plan).unwrap_err();
        assert!(problem.message.contains(message), "{problem}");
        assert!(problem.hint.is_some(), "{problem}");
        assert_eq!(problem.exit_code(), 2);
    }
}

#[test]
fn a_session_finds_the_tables_and_takes_the_isolation_level() {
    let mut plan = plan(2);
    plan.schema = "my \"own\"".to_owned();
    plan.isolation = Isolation::RepeatableRead;
    assert_eq!(
        Tpcc::from_plan(&plan).unwrap().session_setup(),
        [
            "SET search_path = \"my \"\"own\"\"\"",
            "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL repeatable read",
        ]
    );
}

#[test]
fn the_parameters_tell_whatever_makes_other_data() {
    let parameters = |change: fn(&mut RunPlan)| {
        let mut plan = plan(2);
        change(&mut plan);
        Tpcc::from_plan(&plan).unwrap().data.parameters()
    };
    let base = parameters(|_| {});
    assert_eq!(base["warehouses"], "2");
    assert_ne!(base, parameters(|p| p.warehouses = 3));
    assert_ne!(base, parameters(|p| p.data_seed = 43));
    assert_ne!(base, parameters(|p| p.foreign_keys = true));
    assert_eq!(
        base,
        parameters(|p| p.seed = 43),
        "the inputs of a run are not in the data"
    );
}

#[test]
fn a_billion_warehouses_have_a_size() {
    let bytes = tpcc(1_000_000_000).data.bytes_estimate();
    assert!(bytes > 100_000_000_000_000_000, "{bytes}");
}
