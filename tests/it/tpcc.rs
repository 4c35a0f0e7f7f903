//! TPC-C on a real server: each profile's effects, and the invariants' sight.

use crate::support::{self, Server};
use pgdyno::record::{Isolation, Mix, RunPlan};
use pgdyno::rng::Seed;
use pgdyno::session::{Failure, Session, SessionError};
use pgdyno::workload::copy::{BINARY_HEADER, BINARY_TRAILER, CopyBuffer, CopyFormat};
use pgdyno::workload::tpcc::{
    Customer, Delivery, Input, Line, NewOrder, OrderStatus, Output, Payment, StockLevel, Tpcc,
    UNUSED_ITEM, User,
};
use pgdyno::workload::{Outcome, Terminal, Workload};
use std::collections::{BTreeMap, BTreeSet};

const WAREHOUSES: u32 = 2;

fn plan() -> RunPlan {
    let cards = [
        ("new_order", 10),
        ("payment", 10),
        ("order_status", 1),
        ("delivery", 1),
        ("stock_level", 1),
    ];
    RunPlan {
        workload: "tpcc".to_owned(),
        dialect: "spec".to_owned(),
        mode: "statements".to_owned(),
        protocol: "prepared".to_owned(),
        isolation: Isolation::ReadCommitted,
        schema: "tpcc".to_owned(),
        warehouses: WAREHOUSES,
        foreign_keys: true,
        seed: 42,
        data_seed: 42,
        connections: 1,
        terminals: 1,
        workers: 1,
        keying_think: false,
        mix: Mix::Deck(cards.map(|(name, n)| (name.to_owned(), n)).into()),
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

/// A loaded server and one session on it.
struct Bench {
    session: Session,
    workload: Tpcc,
    server: Server,
}

impl Bench {
    fn new(version: &str, foreign_keys: bool) -> Self {
        let mut plan = plan();
        plan.foreign_keys = foreign_keys;
        let workload = Tpcc::from_plan(&plan).unwrap();
        let server = support::start(version, &["shared_buffers=256MB", "max_wal_size=4GB"]);
        load(
            &mut Session::connect(&server.connect("postgres")).unwrap(),
            &workload,
        );
        let session = open(&server, &workload);
        Self {
            session,
            workload,
            server,
        }
    }

    /// Runs one transaction.
    fn run(&mut self, input: &Input) -> (Outcome, Output) {
        attempt(&mut self.session, input).unwrap()
    }

    /// Runs `n` transactions of a terminal and gives its sheet.
    fn drive(&mut self, n: u32) -> Vec<pgdyno::record::SheetLine> {
        let mut user = self.workload.terminal(0, 1, Seed(42));
        let mut tally = Default::default();
        for _ in 0..n {
            let (_, input) = user.draw();
            let (outcome, output) = self.run(&input);
            User::tally(&input, &output, outcome, &mut tally);
        }
        self.workload.run_sheet(&tally)
    }

    /// The only row of a query.
    fn row(&mut self, sql: &str) -> Vec<String> {
        let mut results = self.session.query(sql).unwrap();
        let rows = results.remove(0).rows;
        assert_eq!(rows.len(), 1, "{sql}");
        rows[0]
            .iter()
            .map(|v| v.clone().unwrap_or_default())
            .collect()
    }

    fn number(&mut self, sql: &str) -> i64 {
        self.row(sql)[0].replace('.', "").parse().unwrap()
    }

    /// Names of the invariants that are violated.
    fn violated(&mut self) -> BTreeSet<&'static str> {
        let data = self.workload.data_set().unwrap();
        let mut violated = BTreeSet::new();
        for invariant in data.invariants() {
            let results = self.session.query(invariant.violations_sql).unwrap();
            if !results[0].rows.is_empty() {
                violated.insert(invariant.name);
            }
        }
        violated
    }
}

fn attempt(session: &mut Session, input: &Input) -> Result<(Outcome, Output), SessionError> {
    let mut output = Output::default();
    let outcome =
        session.block_on(async |session| User::execute(input, session, &mut output).await);
    Ok((outcome?, output))
}

/// A session as a worker has it.
fn open(server: &Server, workload: &Tpcc) -> Session {
    let mut session = Session::connect(&server.connect("postgres")).unwrap();
    for sql in workload.session_setup() {
        session.query(&sql).unwrap();
    }
    session.prepare_all(workload.statements()).unwrap();
    session
}

fn load(session: &mut Session, workload: &Tpcc) {
    let data = workload.data_set().unwrap();
    session.query("CREATE SCHEMA tpcc").unwrap();
    session.query("SET search_path = tpcc").unwrap();
    session.query("SET maintenance_work_mem = '256MB'").unwrap();
    for (index, table) in data.tables().iter().enumerate() {
        session.query(&table.ddl).unwrap();
        for batch in 0..table.batches {
            // Both forms, in turn, so that the server judges both.
            let format = [CopyFormat::Csv, CopyFormat::Binary][usize::try_from(batch % 2).unwrap()];
            let mut rows = CopyBuffer::new(format);
            data.fill(index, batch, &mut rows);
            let (name, columns) = (table.name, table.columns.join(", "));
            let form = if format == CopyFormat::Csv {
                "csv"
            } else {
                "binary"
            };
            let sql = format!("COPY {name} ({columns}) FROM STDIN WITH (FORMAT {form})");
            let mut copy = session.copy_in(&sql).unwrap();
            if format == CopyFormat::Binary {
                copy.send(&BINARY_HEADER).unwrap();
            }
            copy.send(&rows.bytes).unwrap();
            if format == CopyFormat::Binary {
                copy.send(&BINARY_TRAILER).unwrap();
            }
            assert_eq!(copy.finish().unwrap(), rows.rows);
        }
    }
    for ddl in data.indexes().into_iter().chain(data.foreign_keys()) {
        session.query(&ddl.sql).unwrap();
    }
    session.query("VACUUM ANALYZE").unwrap();
}

fn payment(customer: Customer, amount_cents: i64) -> Payment {
    Payment {
        w_id: 1,
        d_id: 3,
        c_w_id: 2,
        c_d_id: 5,
        customer,
        amount_cents,
    }
}

fn new_order(lines: &[(i32, i32, i16)]) -> NewOrder {
    let mut order = NewOrder {
        w_id: 1,
        d_id: 4,
        c_id: 77,
        rollback: lines.last().is_some_and(|line| line.0 == UNUSED_ITEM),
        line_count: lines.len(),
        lines: [Line::default(); 15],
    };
    for (slot, &(i_id, supply_w_id, quantity)) in order.lines.iter_mut().zip(lines) {
        *slot = Line {
            i_id,
            supply_w_id,
            quantity,
        };
    }
    order
}

#[test]
fn thousands_of_transactions_keep_every_invariant() {
    for version in ["18", "9.6"] {
        let mut bench = Bench::new(version, true);
        assert_eq!(
            bench.violated(),
            BTreeSet::new(),
            "after the load on {version}"
        );
        for line in bench.drive(6_000) {
            let expected = line.name == "home_warehouses";
            assert_eq!(
                line.status != pgdyno::record::VerdictStatus::Pass,
                expected,
                "{line:?}"
            );
        }
        assert_eq!(
            bench.violated(),
            BTreeSet::new(),
            "after the run on {version}"
        );
        let orders = bench.number("SELECT count(*) - 60000 FROM orders");
        assert!(orders > 2_500, "{orders}");
    }
}

#[test]
fn transactions_do_what_the_specification_says() {
    let mut bench = Bench::new("18", false);
    the_estimate_of_the_size_is_right(&mut bench);
    payment_changes_exactly_four_rows(&mut bench);
    payment_by_name_pays_for_the_middle_row(&mut bench);
    payment_rewrites_the_data_of_bad_credit_only(&mut bench);
    new_order_with_an_item_twice_is_right(&mut bench);
    the_total_and_the_brand_are_those_of_the_rows(&mut bench);
    a_rolled_back_order_leaves_nothing_and_did_the_work(&mut bench);
    order_status_shows_the_newest_order(&mut bench);
    delivery_delivers_the_oldest_and_skips_what_is_empty(&mut bench);
    stock_level_counts_distinct_items_of_the_last_20_orders(&mut bench);
    the_plans_are_look_ups(&mut bench);
    wrong_data_is_a_wrong_result(&mut bench);
}

fn the_estimate_of_the_size_is_right(bench: &mut Bench) {
    let total = |of: &str| {
        format!(
            "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c \
         JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname = 'tpcc' AND relkind = 'r' {of}"
        )
    };
    let real = bench.number(&total(""));
    let estimate = bench.workload.data_set().unwrap().bytes_estimate();
    let ratio = estimate as f64 / real as f64;
    assert!((1.0..1.1).contains(&ratio), "{estimate} for {real} bytes");
}

fn payment_changes_exactly_four_rows(bench: &mut Bench) {
    let state = |bench: &mut Bench| {
        [
            "SELECT w_ytd FROM warehouse WHERE w_id = 1",
            "SELECT d_ytd FROM district WHERE d_w_id = 1 AND d_id = 3",
            "SELECT c_ytd_payment FROM customer WHERE (c_w_id, c_d_id, c_id) = (2, 5, 9)",
            "SELECT c_balance FROM customer WHERE (c_w_id, c_d_id, c_id) = (2, 5, 9)",
            "SELECT c_payment_cnt FROM customer WHERE (c_w_id, c_d_id, c_id) = (2, 5, 9)",
            "SELECT count(*) FROM history",
            "SELECT sum(w_ytd) FROM warehouse",
            "SELECT sum(d_ytd) FROM district",
            "SELECT sum(c_ytd_payment) FROM customer",
        ]
        .map(|sql| bench.number(sql))
    };
    let before = state(bench);
    let trips = bench.session.round_trips();
    let (outcome, output) = bench.run(&Input::Payment(payment(Customer::ById(9), 12_345)));
    assert_eq!(bench.session.round_trips() - trips, 5);
    assert_eq!(outcome, Outcome::Committed);
    let after = state(bench);
    let delta: Vec<i64> = after.iter().zip(before).map(|(a, b)| a - b).collect();
    assert_eq!(
        delta,
        [
            12_345, 12_345, 12_345, -12_345, 1, 1, 12_345, 12_345, 12_345
        ]
    );
    assert_eq!((output.c_id, output.balance_cents), (9, after[3]));
    let history = bench.row(
        "SELECT h_c_id, h_c_d_id, h_c_w_id, h_d_id, h_w_id, h_amount, \
         h_data = (SELECT w_name FROM warehouse WHERE w_id = 1) || '    ' \
         || (SELECT d_name FROM district WHERE d_w_id = 1 AND d_id = 3), \
         h_date BETWEEN now() - interval '1 minute' AND now() \
         FROM history ORDER BY h_date DESC LIMIT 1",
    );
    assert_eq!(history, ["9", "5", "2", "3", "1", "123.45", "t", "t"]);
}

fn payment_by_name_pays_for_the_middle_row(bench: &mut Bench) {
    let result = bench.session.query(
        "SELECT c_last, count(*), (array_agg(c_id ORDER BY c_first, c_id))[(count(*) + 1) / 2] \
         FROM customer WHERE c_w_id = 2 AND c_d_id = 5 GROUP BY c_last",
    );
    let rows = result.unwrap().remove(0).rows;
    let middle: BTreeMap<String, (i64, i32)> = rows
        .into_iter()
        .map(|row| row.into_iter().map(Option::unwrap).collect::<Vec<_>>())
        .map(|row| {
            (
                row[0].clone(),
                (row[1].parse().unwrap(), row[2].parse().unwrap()),
            )
        })
        .collect();
    let mut seen = BTreeSet::new();
    for number in 0..1000 {
        let name = pgdyno::workload::tpcc::random::LastName::new(number);
        let (n, c_id) = middle[name.as_str()];
        let trips = bench.session.round_trips();
        let input = Input::Payment(payment(Customer::ByName(number), 100));
        assert_eq!(
            bench.run(&input).1.c_id,
            c_id,
            "{n} customers {}",
            name.as_str()
        );
        assert_eq!(bench.session.round_trips() - trips, 6);
        seen.insert(n);
    }
    assert!(
        seen.contains(&1) && seen.contains(&2) && seen.contains(&3),
        "{seen:?}"
    );
}

fn payment_rewrites_the_data_of_bad_credit_only(bench: &mut Bench) {
    for (credit, changed) in [("BC", true), ("GC", false)] {
        let key = "c_w_id = 2 AND c_d_id = 5";
        let c_id = bench.number(&format!(
            "SELECT max(c_id) FROM customer WHERE {key} AND c_credit = '{credit}'"
        ));
        let data = format!("SELECT c_data FROM customer WHERE {key} AND c_id = {c_id}");
        let before = bench.row(&data)[0].clone();
        let customer = Customer::ById(i32::try_from(c_id).unwrap());
        bench.run(&Input::Payment(payment(customer, 123_405)));
        bench.run(&Input::Payment(payment(customer, 99)));
        let after = bench.row(&data)[0].clone();
        let notes = format!("{c_id} 5 2 3 1 0.99|{c_id} 5 2 3 1 1234.05|");
        let expected: String = notes.chars().chain(before.chars()).take(500).collect();
        assert_eq!(after, if changed { expected } else { before });
    }
}

fn new_order_with_an_item_twice_is_right(bench: &mut Bench) {
    let stock = |bench: &mut Bench, w_id: i32, i_id: i32| -> Vec<i64> {
        let columns = "s_quantity, s_ytd, s_order_cnt, s_remote_cnt";
        let key = format!("s_w_id = {w_id} AND s_i_id = {i_id}");
        bench
            .row(&format!("SELECT {columns} FROM stock WHERE {key}"))
            .iter()
            .map(|v| v.parse().unwrap())
            .collect()
    };
    let before = [
        stock(bench, 1, 500),
        stock(bench, 2, 500),
        stock(bench, 1, 7),
    ];
    let order = new_order(&[(500, 1, 3), (7, 1, 10), (500, 2, 2), (500, 1, 4), (9, 1, 1)]);
    let trips = bench.session.round_trips();
    let (outcome, output) = bench.run(&Input::NewOrder(order));
    assert_eq!(bench.session.round_trips() - trips, 5 + 8);
    assert_eq!((outcome, output.c_id), (Outcome::Committed, 77));
    let refill = |mut quantity: i64, takes: &[i64]| {
        for take in takes {
            quantity -= take;
            quantity += if quantity < 10 { 91 } else { 0 };
        }
        quantity
    };
    let after = [
        stock(bench, 1, 500),
        stock(bench, 2, 500),
        stock(bench, 1, 7),
    ];
    for ((after, before), (takes, remote)) in
        after
            .iter()
            .zip(&before)
            .zip([(&[3, 4][..], 0), (&[2], 1), (&[10], 0)])
    {
        let n = i64::try_from(takes.len()).unwrap();
        let sum: i64 = takes.iter().sum();
        let expected = [
            refill(before[0], takes),
            before[1] + sum,
            before[2] + n,
            before[3] + remote,
        ];
        assert_eq!(after[..], expected);
    }
    let key = format!("ol_w_id = 1 AND ol_d_id = 4 AND ol_o_id = {}", output.o_id);
    let lines = bench.row(&format!(
        "SELECT string_agg(ol_number || ':' || ol_i_id || '@' || ol_supply_w_id || '*' \
         || ol_quantity, ' ' ORDER BY ol_number), \
         bool_and(ol_amount = ol_quantity * i_price), bool_and(ol_delivery_d IS NULL), \
         bool_and(ol_dist_info = s_dist_04) \
         FROM order_line JOIN item ON i_id = ol_i_id \
         JOIN stock ON s_w_id = ol_supply_w_id AND s_i_id = ol_i_id WHERE {key}"
    ));
    let expected = "1:500@1*3 2:7@1*10 3:500@2*2 4:500@1*4 5:9@1*1";
    assert_eq!(lines, [expected, "t", "t", "t"]);
    let head = bench.row(&format!(
        "SELECT o_c_id, o_carrier_id, o_ol_cnt, o_all_local, (SELECT count(*) FROM new_order \
         WHERE (no_w_id, no_d_id, no_o_id) = (1, 4, o_id)), \
         (SELECT d_next_o_id - o_id FROM district WHERE d_w_id = 1 AND d_id = 4) \
         FROM orders WHERE (o_w_id, o_d_id, o_id) = (1, 4, {})",
        output.o_id
    ));
    assert_eq!(head, ["77", "", "5", "0", "1", "1"]);
}

fn the_total_and_the_brand_are_those_of_the_rows(bench: &mut Bench) {
    let original = "(SELECT i_id FROM item JOIN stock ON s_i_id = i_id AND s_w_id = 1 \
                    WHERE i_data LIKE '%ORIGINAL%' AND s_data LIKE '%ORIGINAL%' LIMIT 1)";
    let branded = i32::try_from(bench.number(&format!("SELECT {original}"))).unwrap();
    let lines = [
        (branded, 1, 7),
        (1, 1, 3),
        (2, 1, 3),
        (3, 1, 9),
        (branded, 1, 1),
    ];
    let (_, output) = bench.run(&Input::NewOrder(new_order(&lines)));
    let total = bench.number(&format!(
        "SELECT round(sum(ol_amount) * (1 - min(c_discount)) * (1 + min(w_tax) + min(d_tax)), 2) \
         FROM order_line, customer, warehouse, district \
         WHERE (ol_w_id, ol_d_id, ol_o_id) = (1, 4, {}) AND (c_w_id, c_d_id, c_id) = (1, 4, 77) \
         AND w_id = 1 AND d_w_id = 1 AND d_id = 4",
        output.o_id
    ));
    assert_eq!(output.total_cents, total);
    let others = bench.number(
        "SELECT count(*) FROM item JOIN stock ON s_i_id = i_id AND s_w_id = 1 \
         WHERE i_id <= 3 AND i_data LIKE '%ORIGINAL%' AND s_data LIKE '%ORIGINAL%'",
    );
    assert_eq!(i64::from(output.brand_lines), 2 + others);
}

fn a_rolled_back_order_leaves_nothing_and_did_the_work(bench: &mut Bench) {
    let state = "SELECT (SELECT sum(d_next_o_id) FROM district), (SELECT count(*) FROM orders), \
                 (SELECT count(*) FROM new_order), (SELECT count(*) FROM order_line), \
                 (SELECT sum(s_ytd) + sum(s_quantity) + sum(s_order_cnt) FROM stock)";
    let before = bench.row(state);
    let trips = bench.session.round_trips();
    let lines = [
        (5, 1, 1),
        (6, 2, 2),
        (7, 1, 3),
        (8, 1, 4),
        (UNUSED_ITEM, 1, 5),
    ];
    let (outcome, output) = bench.run(&Input::NewOrder(new_order(&lines)));
    assert_eq!(outcome, Outcome::RolledBack);
    // The four valid lines were processed to the end (2.4.2.3): items, 4 stocks, district,
    // warehouse, customer, order, new order, lines, rollback.
    assert_eq!(bench.session.round_trips() - trips, 4 + 8);
    assert!(!bench.session.in_transaction());
    assert!(output.o_id > 3000 && output.total_cents > 0, "{output:?}");
    assert_eq!(bench.row(state), before);
    let mut valid = lines;
    valid[4].0 = 9;
    let (_, next) = bench.run(&Input::NewOrder(new_order(&valid)));
    assert_eq!(next.o_id, output.o_id, "the number is used again");
}

fn order_status_shows_the_newest_order(bench: &mut Bench) {
    for (customer, trips) in [(Customer::ById(77), 4), (Customer::ByName(76), 5)] {
        let begin = bench.session.round_trips();
        let status = OrderStatus {
            w_id: 1,
            d_id: 4,
            customer,
        };
        let (outcome, output) = bench.run(&Input::OrderStatus(status));
        assert_eq!(bench.session.round_trips() - begin, trips);
        assert_eq!(outcome, Outcome::Committed);
        let expected = bench.row(&format!(
            "SELECT o_id, sum(ol_amount), (SELECT c_balance FROM customer \
             WHERE (c_w_id, c_d_id, c_id) = (1, 4, {})) FROM orders \
             JOIN order_line ON (ol_w_id, ol_d_id, ol_o_id) = (o_w_id, o_d_id, o_id) \
             WHERE (o_w_id, o_d_id, o_c_id) = (1, 4, {}) GROUP BY o_id ORDER BY o_id DESC LIMIT 1",
            output.c_id, output.c_id
        ));
        let cents = |n: i64| {
            format!(
                "{}{}.{:02}",
                if n < 0 { "-" } else { "" },
                n.abs() / 100,
                n.abs() % 100
            )
        };
        let shown = [
            output.o_id.to_string(),
            cents(output.total_cents),
            cents(output.balance_cents),
        ];
        assert_eq!(shown[..], expected);
    }
}

fn delivery_delivers_the_oldest_and_skips_what_is_empty(bench: &mut Bench) {
    let delivery = Input::Delivery(Delivery {
        w_id: 2,
        o_carrier_id: 7,
    });
    let customer = bench.row(
        "SELECT o_c_id, c_balance, c_delivery_cnt, (SELECT sum(ol_amount) FROM order_line \
         WHERE (ol_w_id, ol_d_id, ol_o_id) = (2, 1, 2101)) FROM orders \
         JOIN customer ON (c_w_id, c_d_id, c_id) = (o_w_id, o_d_id, o_c_id) \
         WHERE (o_w_id, o_d_id, o_id) = (2, 1, 2101)",
    );
    let trips = bench.session.round_trips();
    let (outcome, output) = bench.run(&delivery);
    assert_eq!(bench.session.round_trips() - trips, 41);
    assert_eq!(outcome, Outcome::Committed);
    assert_eq!(
        (output.districts_delivered, output.districts_skipped),
        (10, 0)
    );
    let delivered = bench.row(&format!(
        "SELECT c_balance - {}, c_delivery_cnt - {}, (SELECT count(*) FROM orders \
         WHERE o_w_id = 2 AND o_id = 2101 AND o_carrier_id = 7), (SELECT count(*) FROM order_line \
         WHERE ol_w_id = 2 AND ol_o_id = 2101 AND ol_delivery_d IS NULL), \
         (SELECT min(no_o_id) FROM new_order WHERE no_w_id = 2) \
         FROM customer WHERE (c_w_id, c_d_id, c_id) = (2, 1, {})",
        customer[1], customer[2], customer[0]
    ));
    assert_eq!(delivered, [&customer[3], "1", "10", "0", "2102"]);

    let drained = "DELETE FROM new_order WHERE no_w_id = 2 AND no_d_id IN (2, 9)";
    bench.session.query(drained).unwrap();
    let (outcome, output) = bench.run(&delivery);
    assert_eq!(outcome, Outcome::Committed);
    assert_eq!(
        (output.districts_delivered, output.districts_skipped),
        (8, 2)
    );
    bench
        .session
        .query(
            "INSERT INTO new_order SELECT o_id, o_d_id, o_w_id FROM orders \
         WHERE o_w_id = 2 AND o_d_id IN (2, 9) AND o_carrier_id IS NULL",
        )
        .unwrap();
    assert_eq!(
        bench.violated(),
        BTreeSet::new(),
        "the drained districts are as before"
    );
}

fn stock_level_counts_distinct_items_of_the_last_20_orders(bench: &mut Bench) {
    for (d_id, threshold) in [(1, 10), (4, 20), (10, 15)] {
        let level = StockLevel {
            w_id: 1,
            d_id,
            threshold,
        };
        let trips = bench.session.round_trips();
        let (_, output) = bench.run(&Input::StockLevel(level));
        assert_eq!(bench.session.round_trips() - trips, 3);
        let expected = bench.number(&format!(
            "SELECT count(DISTINCT s_i_id) FROM district \
             JOIN order_line ON ol_w_id = d_w_id AND ol_d_id = d_id \
             AND ol_o_id BETWEEN d_next_o_id - 20 AND d_next_o_id - 1 \
             JOIN stock ON s_w_id = 1 AND s_i_id = ol_i_id \
             WHERE d_w_id = 1 AND d_id = {d_id} AND s_quantity < {threshold}"
        ));
        assert_eq!(output.low_stock, expected);
        assert!(
            threshold > 10 || expected == 0,
            "the refill rule leaves nothing below 10"
        );
    }
}

/// With generic plans forced, which is what a prepared statement gets after five executions.
fn the_plans_are_look_ups(bench: &mut Bench) {
    let statements = bench.workload.statements();
    let mut session = Session::connect(&bench.server.connect("postgres")).unwrap();
    session.query("SET search_path = tpcc").unwrap();
    session
        .query("SET plan_cache_mode = force_generic_plan")
        .unwrap();
    for (number, sql) in statements.iter().enumerate().skip(4) {
        session
            .query(&format!("PREPARE s{number} AS {sql}"))
            .unwrap();
        let parameters = (1..).take_while(|n| sql.contains(&format!("${n}"))).count();
        let nulls = vec!["NULL"; parameters].join(", ");
        let explain = format!("EXPLAIN EXECUTE s{number} ({nulls})");
        let plan: Vec<String> = session.query(&explain).unwrap()[0]
            .rows
            .iter()
            .map(|row| row[0].clone().unwrap())
            .collect();
        let plan = plan.join("\n");
        for scan in [
            "Seq Scan on item",
            "Seq Scan on stock",
            "Seq Scan on customer",
            "Seq Scan on order",
            "Seq Scan on new_order",
            "Hash Join",
        ] {
            assert!(!plan.contains(scan), "{sql}\n{plan}");
        }
    }
}

fn wrong_data_is_a_wrong_result(bench: &mut Bench) {
    let mut order = new_order(&[(1, 1, 1); 5]);
    order.w_id = 99;
    let unknown = Customer::ById(99_999);
    let status = OrderStatus {
        w_id: 1,
        d_id: 1,
        customer: unknown,
    };
    let mut unused = new_order(&[(1, 1, 1); 5]);
    unused.rollback = true;
    for (input, message) in [
        (Input::NewOrder(order), "one row expected, 0 found"),
        (
            Input::NewOrder(new_order(&[(UNUSED_ITEM + 1, 1, 1), (1, 1, 1)])),
            "item 100002",
        ),
        (Input::NewOrder(unused), "item 100001 exists"),
        (
            Input::Payment(payment(unknown, 1)),
            "one row expected, 0 found",
        ),
        (Input::OrderStatus(status), "one row expected, 0 found"),
    ] {
        let error = attempt(&mut bench.session, &input).unwrap_err();
        assert_eq!(error.failure, Failure::WrongResult, "{error}");
        assert!(error.message.contains(message), "{error}");
        bench
            .session
            .block_on(async |session| session.rollback().await)
            .unwrap();
    }
    bench.session.query(
        "DELETE FROM order_line WHERE (ol_w_id, ol_d_id, ol_o_id) = (1, 1, 2101) AND ol_number = 3",
    ).unwrap();
    let delivery = Input::Delivery(Delivery {
        w_id: 1,
        o_carrier_id: 7,
    });
    let error = attempt(&mut bench.session, &delivery).unwrap_err();
    assert!(error.message.contains("lines instead of"), "{error}");
}

/// Each fault is one statement; the invariants that must see it, and no others.
const FAULTS: &[(&str, &[&str])] = &[
    (
        "UPDATE warehouse SET w_ytd = w_ytd + 0.01 WHERE w_id = 2",
        &["w_ytd_equals_sum_of_d_ytd", "w_ytd_equals_history"],
    ),
    (
        "UPDATE district SET d_ytd = d_ytd - 1 WHERE d_w_id = 1 AND d_id = 10",
        &["w_ytd_equals_sum_of_d_ytd", "d_ytd_equals_history"],
    ),
    (
        "UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = 2 AND d_id = 1",
        &["d_next_o_id_follows_newest_order"],
    ),
    (
        "DELETE FROM new_order WHERE (no_w_id, no_d_id, no_o_id) = (1, 1, 2900)",
        &[
            "new_orders_have_no_gap",
            "orders_without_carrier_are_new_orders",
            "delivered_orders_equal_c_delivery_cnt",
        ],
    ),
    (
        "DELETE FROM new_order WHERE no_w_id = 1 AND no_d_id = 1 \
      AND no_o_id = (SELECT min(no_o_id) FROM new_order WHERE no_w_id = 1 AND no_d_id = 1)",
        &[
            "orders_without_carrier_are_new_orders",
            "delivered_orders_equal_c_delivery_cnt",
        ],
    ),
    (
        "DELETE FROM order_line WHERE (ol_w_id, ol_d_id, ol_o_id, ol_number) = (1, 1, 5, 2)",
        &[
            "order_lines_equal_sum_of_o_ol_cnt",
            "o_ol_cnt_equals_order_lines",
        ],
    ),
    (
        "DELETE FROM order_line WHERE (ol_w_id, ol_d_id, ol_o_id, ol_number) = (1, 1, 2101, 2)",
        &[
            "order_lines_equal_sum_of_o_ol_cnt",
            "o_ol_cnt_equals_order_lines",
            "c_balance_equals_delivered_less_paid",
            "c_balance_plus_paid_equals_delivered",
        ],
    ),
    (
        "UPDATE orders SET o_carrier_id = 3 WHERE (o_w_id, o_d_id, o_id) = (1, 1, 2999)",
        &[
            "orders_without_carrier_are_new_orders",
            "lines_are_delivered_with_their_order",
        ],
    ),
    (
        "UPDATE order_line SET ol_delivery_d = NULL \
      WHERE (ol_w_id, ol_d_id, ol_o_id, ol_number) = (1, 1, 5, 2)",
        &["lines_are_delivered_with_their_order"],
    ),
    (
        "DELETE FROM history WHERE ctid = (SELECT min(ctid) FROM history)",
        &[
            "w_ytd_equals_history",
            "d_ytd_equals_history",
            "c_balance_equals_delivered_less_paid",
            "c_payment_cnt_equals_history",
            "c_ytd_payment_equals_history",
        ],
    ),
    (
        "UPDATE customer SET c_balance = c_balance + 1 WHERE (c_w_id, c_d_id, c_id) = (1, 1, 1)",
        &[
            "c_balance_equals_delivered_less_paid",
            "c_balance_plus_paid_equals_delivered",
        ],
    ),
    (
        "UPDATE customer SET c_ytd_payment = 0 WHERE (c_w_id, c_d_id, c_id) = (1, 1, 1)",
        &[
            "c_balance_plus_paid_equals_delivered",
            "c_ytd_payment_equals_history",
        ],
    ),
    (
        "UPDATE customer SET c_delivery_cnt = 9 WHERE (c_w_id, c_d_id, c_id) = (1, 1, 1)",
        &["delivered_orders_equal_c_delivery_cnt"],
    ),
    (
        "UPDATE customer SET c_payment_cnt = 0 WHERE (c_w_id, c_d_id, c_id) = (1, 1, 1)",
        &["c_payment_cnt_equals_history"],
    ),
    (
        "DELETE FROM orders WHERE (o_w_id, o_d_id, o_id) = (1, 1, 5)",
        &[
            "order_lines_equal_sum_of_o_ol_cnt",
            "lines_are_delivered_with_their_order",
            "delivered_orders_equal_c_delivery_cnt",
            "order_line_has_order",
        ],
    ),
    (
        "UPDATE stock SET s_quantity = 110 WHERE (s_w_id, s_i_id) = (1, 1)",
        &["s_quantity_is_from_10_to_100"],
    ),
    (
        "UPDATE stock SET s_quantity = 9 WHERE (s_w_id, s_i_id) = (1, 1)",
        &["s_quantity_is_from_10_to_100"],
    ),
    (
        "UPDATE stock SET s_ytd = s_ytd + 1 WHERE (s_w_id, s_i_id) = (2, 1)",
        &["stock_counters_equal_order_lines"],
    ),
    (
        "UPDATE stock SET s_order_cnt = s_order_cnt + 1 WHERE (s_w_id, s_i_id) = (2, 1)",
        &["stock_counters_equal_order_lines"],
    ),
    (
        "UPDATE stock SET s_remote_cnt = s_remote_cnt + 1 WHERE (s_w_id, s_i_id) = (2, 1)",
        &["stock_counters_equal_order_lines"],
    ),
    (
        "UPDATE orders SET o_all_local = 0 WHERE (o_w_id, o_d_id, o_id) = (1, 1, 5)",
        &["o_all_local_matches_order_lines"],
    ),
    (
        "UPDATE order_line SET ol_supply_w_id = 2 \
      WHERE (ol_w_id, ol_d_id, ol_o_id, ol_number) = (1, 1, 5, 1)",
        &["o_all_local_matches_order_lines"],
    ),
    (
        "UPDATE order_line SET ol_amount = ol_amount + 1 \
      WHERE (ol_w_id, ol_d_id, ol_o_id, ol_number) = (1, 1, 3001, 1)",
        &["ol_amount_is_quantity_times_price"],
    ),
    (
        "UPDATE item SET i_price = i_price + 1 WHERE i_id = (SELECT ol_i_id FROM order_line \
      WHERE (ol_w_id, ol_d_id, ol_o_id, ol_number) = (1, 1, 3001, 1))",
        &["ol_amount_is_quantity_times_price"],
    ),
    (
        "DELETE FROM item WHERE i_id = (SELECT i_id FROM item LEFT JOIN order_line \
      ON ol_i_id = i_id AND ol_o_id > 3000 WHERE ol_o_id IS NULL LIMIT 1)",
        &["stock_has_item", "there_are_100000_items"],
    ),
    (
        "UPDATE history SET h_c_id = 3001 WHERE ctid = (SELECT min(ctid) FROM history)",
        &[
            "c_balance_equals_delivered_less_paid",
            "c_payment_cnt_equals_history",
            "c_ytd_payment_equals_history",
            "history_has_customer",
        ],
    ),
    (
        "UPDATE orders SET o_c_id = 3001 WHERE (o_w_id, o_d_id, o_id) = (1, 1, 5)",
        &["order_has_customer"],
    ),
    (
        "INSERT INTO new_order VALUES (2000000, 11, 1)",
        &["new_order_has_order"],
    ),
    (
        "UPDATE order_line SET ol_i_id = 100002 \
      WHERE (ol_w_id, ol_d_id, ol_o_id, ol_number) = (1, 1, 5, 1)",
        &["order_line_has_stock"],
    ),
    (
        "DELETE FROM stock WHERE (s_w_id, s_i_id) = (1, (SELECT i_id FROM item LEFT JOIN order_line \
      ON ol_i_id = i_id WHERE ol_i_id IS NULL ORDER BY i_id LIMIT 1))",
        &["a_warehouse_stocks_100000_items"],
    ),
    (
        "DELETE FROM customer WHERE (c_w_id, c_d_id, c_id) = (1, 1, 1)",
        &[
            "history_has_customer",
            "order_has_customer",
            "a_district_has_3000_customers",
        ],
    ),
    (
        "UPDATE district SET d_id = 11 WHERE d_w_id = 2 AND d_id = 10",
        &[
            "d_next_o_id_follows_newest_order",
            "d_ytd_equals_history",
            "delivered_orders_equal_c_delivery_cnt",
            "customer_has_district",
            "history_has_district",
            "a_district_has_3000_customers",
        ],
    ),
    (
        "DELETE FROM district WHERE d_w_id = 2 AND d_id = 10",
        &[
            "w_ytd_equals_sum_of_d_ytd",
            "customer_has_district",
            "history_has_district",
            "a_warehouse_has_10_districts",
        ],
    ),
    (
        "DELETE FROM warehouse WHERE w_id = 1",
        &[
            "district_has_warehouse",
            "stock_has_warehouse",
            "warehouses_are_numbered_from_1",
        ],
    ),
];

#[test]
fn every_injected_fault_is_found_by_the_invariants_that_should() {
    // The queries are the same on every version: a sample of the faults will do for the oldest.
    for (version, step) in [("18", 1), ("9.6", 5)] {
        let mut bench = Bench::new(version, false);
        bench.drive(1_500);
        assert_eq!(bench.violated(), BTreeSet::new());
        let mut seen = BTreeSet::new();
        for (fault, expected) in FAULTS.iter().step_by(step) {
            bench.session.query("BEGIN").unwrap();
            let result = bench.session.query(fault).unwrap().remove(0);
            assert!(result.tag.ends_with(" 1"), "{fault}: {}", result.tag);
            let expected: BTreeSet<&str> = expected.iter().copied().collect();
            assert_eq!(bench.violated(), expected, "{fault}");
            bench.session.query("ROLLBACK").unwrap();
            seen.extend(expected);
        }
        let all = bench.workload.data_set().unwrap().invariants().iter();
        assert!(
            step > 1
                || seen
                    .iter()
                    .eq(&all.map(|i| i.name).collect::<BTreeSet<_>>())
        );
    }
}

/// At READ COMMITTED, too, concurrent transactions lose nothing.
#[test]
fn concurrent_terminals_keep_every_invariant() {
    let mut bench = Bench::new("18", false);
    std::thread::scope(|scope| {
        for index in 0..8 {
            let (server, workload) = (&bench.server, &bench.workload);
            scope.spawn(move || {
                let mut session = open(server, workload);
                let mut user = workload.terminal(index, 8, Seed(42));
                for _ in 0..700 {
                    let (_, input) = user.draw();
                    attempt(&mut session, &input).unwrap();
                }
            });
        }
    });
    assert_eq!(bench.violated(), BTreeSet::new());
    let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = 'postgres'";
    assert_eq!(bench.number(deadlocks), 0, "locks are taken in one order");
}
