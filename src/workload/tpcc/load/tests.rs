//! The rules of 4.3.3.1 as a checker over decoded rows, and defects of other clients that it
//! must find.

use super::*;
use crate::workload::copy::CopyFormat;
use crate::workload::tpcc::random::{Constants, index};
use statrs::distribution::{ChiSquared, ContinuousCDF};
use std::collections::{BTreeMap, BTreeSet};

const C_LOAD: i32 = 40;
const LOADED: &str = "2026-01-01 00:00:00";

fn population(warehouses: i32) -> Population {
    Population::new(warehouses, Seed(42), C_LOAD)
}

/// Decoded rows of a table.
struct Rows {
    columns: &'static [&'static str],
    rows: Vec<Vec<String>>,
}

impl Rows {
    /// The first batches of a table of a population of 1,000 warehouses.
    fn new(table: usize, batches: u64) -> Self {
        let mut rows = Vec::new();
        for batch in 0..batches {
            let mut out = CopyBuffer::new(CopyFormat::Csv);
            population(1000).fill(table, batch, &mut out);
            let text = String::from_utf8(out.bytes).unwrap();
            let begin = rows.len();
            rows.extend(
                text.lines()
                    .map(|row| row.split(',').map(str::to_owned).collect()),
            );
            assert_eq!(rows.len() - begin, usize::try_from(out.rows).unwrap());
        }
        Self {
            columns: schema::tables(1000)[table].columns,
            rows,
        }
    }

    fn at(&self, column: &str) -> usize {
        self.columns
            .iter()
            .position(|name| *name == column)
            .unwrap()
    }

    fn column(&self, column: &str) -> impl Iterator<Item = &str> {
        let at = self.at(column);
        self.rows.iter().map(move |row| row[at].as_str())
    }

    /// Whole numbers; of decimals, in units of the last decimal.
    fn numbers(&self, column: &str) -> impl Iterator<Item = i64> {
        self.column(column)
            .map(|text| text.replace('.', "").parse().unwrap())
    }

    /// Rows of each district (or warehouse, when there is no district).
    fn groups<const N: usize>(&self, keys: [&str; N]) -> BTreeMap<[&str; N], Vec<&Vec<String>>> {
        let keys = keys.map(|key| self.at(key));
        let mut groups: BTreeMap<_, Vec<&Vec<String>>> = BTreeMap::new();
        for row in &self.rows {
            let key = keys.map(|key| row[key].as_str());
            groups.entry(key).or_default().push(row);
        }
        groups
    }
}

/// Names of the columns that break a rule.
#[derive(Default)]
struct Faults(BTreeSet<String>);

impl Faults {
    fn check(&mut self, column: &str, holds: bool) {
        if !holds {
            self.0.insert(column.to_owned());
        }
    }

    fn fixed(&mut self, rows: &Rows, column: &str, value: &str) {
        self.check(column, rows.column(column).all(|text| text == value));
    }

    /// Uniform from `low` to `high`, both included; `decimals` as printed.
    fn uniform(&mut self, rows: &Rows, column: &str, low: i64, high: i64, decimals: usize) {
        let printed = |text: &str| text.split_once('.').map_or(0, |(_, d)| d.len()) == decimals;
        self.check(column, rows.column(column).all(printed));
        let numbers: Vec<i64> = rows.numbers(column).collect();
        let (min, max) = (
            *numbers.iter().min().unwrap(),
            *numbers.iter().max().unwrap(),
        );
        self.check(column, min >= low && max <= high);
        // Both ends are reached, or nearly so where there are few rows for each value.
        let span = high - low + 1;
        let n = i64::try_from(numbers.len()).unwrap();
        let slack = if n >= 10 * span { 0 } else { 10 * span / n + 1 };
        self.check(column, min <= low + slack && max >= high - slack);
        // Even over ten parts: chi-squared with nine degrees of freedom, p = 1e-6.
        let mut parts = vec![0.0; usize::try_from(span.min(10)).unwrap()];
        let mut expected = parts.clone();
        let part = |v: i64| usize::try_from((v - low).clamp(0, span - 1) * span.min(10) / span);
        (low..=high).for_each(|v| expected[part(v).unwrap()] += n as f64 / span as f64);
        numbers.iter().for_each(|&v| parts[part(v).unwrap()] += 1.0);
        let chi2 = chi2(&parts, &expected);
        self.check(column, chi2 < 50.0);
    }

    /// Random text of `low` to `high` characters of `alphabet`, hard to compress: strings do not
    /// repeat, and no character is frequent at any end.
    fn random(&mut self, rows: &Rows, column: &str, lengths: (usize, usize), alphabet: &str) {
        let texts: Vec<&str> = rows.column(column).collect();
        let (low, high) = lengths;
        let min = texts.iter().map(|text| text.len()).min().unwrap();
        let max = texts.iter().map(|text| text.len()).max().unwrap();
        self.check(column, (min, max) == (low, high));
        self.check(
            column,
            texts
                .iter()
                .all(|text| text.chars().all(|c| alphabet.contains(c))),
        );
        let mut ends = [BTreeMap::new(), BTreeMap::new()];
        for text in &texts {
            *ends[0].entry(text.chars().next()).or_insert(0) += 1;
            *ends[1].entry(text.chars().last()).or_insert(0) += 1;
        }
        let even = texts.len() as f64 / alphabet.len() as f64;
        for end in ends {
            self.check(column, end.len() == alphabet.len());
            self.check(
                column,
                end.values().all(|&n| f64::from(n) < 2.0 * even + 30.0),
            );
        }
        if low >= 8 {
            let distinct: BTreeSet<&str> = texts.iter().copied().collect();
            self.check(column, distinct.len() == texts.len());
        }
    }

    fn address(&mut self, rows: &Rows, prefix: &str) {
        for column in ["street_1", "street_2", "city"] {
            self.random(rows, &format!("{prefix}_{column}"), (10, 20), ALNUM);
        }
        self.random(rows, &format!("{prefix}_state"), (2, 2), &ALNUM[..52]);
        let zip = format!("{prefix}_zip");
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let legal = |text: &str| text.len() == 9 && text.ends_with("11111") && digits(text);
        self.check(&zip, rows.column(&zip).all(legal));
        let distinct: BTreeSet<&str> = rows.column(&zip).collect();
        let n = rows.rows.len() as f64;
        let expected = 10_000.0 * (1.0 - (-n / 10_000.0).exp());
        self.check(&zip, (distinct.len() as f64) > 0.95 * expected);
    }

    /// ORIGINAL in exactly one of ten rows, at any place; all else is random.
    fn original(&mut self, rows: &Rows, column: &str, rows_per_batch: usize) {
        let found: Vec<Option<usize>> = rows.column(column).map(|t| t.find("ORIGINAL")).collect();
        for batch in found.chunks(rows_per_batch) {
            let n = batch.iter().flatten().count();
            self.check(column, n == rows_per_batch / 10);
        }
        let places: BTreeSet<usize> = found.iter().flatten().copied().collect();
        self.check(column, places.len() == 43);
        let lengths: BTreeSet<usize> = rows.column(column).map(str::len).collect();
        self.check(column, lengths.into_iter().eq(26..=50));
        let distinct: BTreeSet<&str> = rows.column(column).collect();
        self.check(column, distinct.len() == rows.rows.len());
    }
}

const ALNUM: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

fn chi2(seen: &[f64], expected: &[f64]) -> f64 {
    let terms = seen.iter().zip(expected);
    terms
        .map(|(seen, expected)| (seen - expected).powi(2) / expected)
        .sum()
}

/// The columns of `rows` of `table` that break the population rules.
fn faults(table: usize, rows: &Rows) -> BTreeSet<String> {
    let mut faults = Faults::default();
    match table {
        schema::WAREHOUSE => {
            faults.check("w_id", rows.numbers("w_id").eq(1..=1000));
            faults.random(rows, "w_name", (6, 10), ALNUM);
            faults.address(rows, "w");
            faults.uniform(rows, "w_tax", 0, 2000, 4);
            faults.fixed(rows, "w_ytd", "300000.00");
        }
        schema::DISTRICT => {
            for rows in rows.groups(["d_w_id"]).values() {
                let ids: Vec<&str> = rows.iter().map(|row| row[0].as_str()).collect();
                let expected = ["1", "2", "3", "4", "5", "6", "7", "8", "9", "10"];
                faults.check("d_id", ids == expected);
            }
            faults.random(rows, "d_name", (6, 10), ALNUM);
            faults.address(rows, "d");
            faults.uniform(rows, "d_tax", 0, 2000, 4);
            faults.fixed(rows, "d_ytd", "30000.00");
            faults.fixed(rows, "d_next_o_id", "3001");
        }
        schema::ITEM => {
            faults.check("i_id", rows.numbers("i_id").eq(1..=100_000));
            faults.uniform(rows, "i_im_id", 1, 10_000, 0);
            faults.random(rows, "i_name", (14, 24), ALNUM);
            faults.uniform(rows, "i_price", 100, 10_000, 2);
            faults.original(rows, "i_data", 25_000);
        }
        schema::STOCK => {
            faults.check("s_i_id", rows.numbers("s_i_id").eq(1..=100_000));
            faults.fixed(rows, "s_w_id", "1");
            faults.uniform(rows, "s_quantity", 10, 100, 0);
            for d_id in 1..=10 {
                faults.random(rows, &format!("s_dist_{d_id:02}"), (24, 24), &ALNUM[..52]);
            }
            for column in ["s_ytd", "s_order_cnt", "s_remote_cnt"] {
                faults.fixed(rows, column, "0");
            }
            faults.original(rows, "s_data", 100_000);
        }
        schema::CUSTOMER => customer_faults(rows, &mut faults),
        schema::HISTORY => {
            let keys = ["h_c_id", "h_c_d_id", "h_c_w_id", "h_d_id", "h_w_id"].map(|k| rows.at(k));
            let same =
                |row: &Vec<String>| row[keys[1]] == row[keys[3]] && row[keys[2]] == row[keys[4]];
            faults.check("h_d_id", rows.rows.iter().all(same));
            each_once(rows, "h_c_id", ["h_c_w_id", "h_c_d_id"], 2, &mut faults);
            faults.fixed(rows, "h_date", LOADED);
            faults.fixed(rows, "h_amount", "10.00");
            faults.random(rows, "h_data", (12, 24), ALNUM);
        }
        schema::ORDERS => order_faults(rows, &mut faults),
        schema::NEW_ORDER => {
            for rows in rows.groups(["no_w_id", "no_d_id"]).values() {
                let ids = rows.iter().map(|row| row[0].parse::<i32>().unwrap());
                faults.check("no_o_id", ids.eq(2101..=3000));
            }
            let groups = rows.groups(["no_w_id", "no_d_id"]).len();
            faults.check("no_d_id", groups == 20);
        }
        _ => line_faults(rows, &mut faults),
    }
    faults.0
}

/// Each district of `warehouses` has the numbers 1 to 3,000 in `column` once.
fn each_once(rows: &Rows, column: &str, keys: [&str; 2], warehouses: usize, faults: &mut Faults) {
    let at = rows.at(column);
    let groups = rows.groups(keys);
    faults.check(column, groups.len() == 10 * warehouses);
    for rows in groups.values() {
        let ids: BTreeSet<i32> = rows.iter().map(|row| row[at].parse().unwrap()).collect();
        faults.check(column, rows.len() == 3000 && ids.into_iter().eq(1..=3000));
    }
}

fn customer_faults(rows: &Rows, faults: &mut Faults) {
    each_once(rows, "c_id", ["c_w_id", "c_d_id"], 2, faults);
    let (c_last, c_credit) = (rows.at("c_last"), rows.at("c_credit"));
    let numbers: BTreeMap<String, usize> = (0..1000)
        .map(|number| (LastName::new(number).as_str().to_owned(), index(number)))
        .collect();
    let mut drawn = vec![0.0; 1000];
    for rows in rows.groups(["c_w_id", "c_d_id"]).values() {
        let bad = rows.iter().filter(|row| row[c_credit] == "BC").count();
        faults.check("c_credit", bad == 300);
        faults.check(
            "c_credit",
            rows.iter()
                .all(|row| ["GC", "BC"].contains(&&*row[c_credit])),
        );
        for (position, row) in rows.iter().enumerate() {
            match numbers.get(&row[c_last]) {
                Some(&number) if position < 1000 => faults.check("c_last", number == position),
                Some(&number) => drawn[number] += 1.0,
                None => faults.check("c_last", false),
            }
        }
    }
    let n: f64 = drawn.iter().sum();
    let expected: Vec<f64> = last_names(C_LOAD)
        .probabilities()
        .iter()
        .map(|p| p * n)
        .collect();
    let p = ChiSquared::new(999.0).unwrap().sf(chi2(&drawn, &expected));
    faults.check("c_last", p > 1e-6);
    faults.random(rows, "c_first", (8, 16), ALNUM);
    faults.address(rows, "c");
    faults.random(rows, "c_phone", (16, 16), &ALNUM[52..]);
    faults.uniform(rows, "c_discount", 0, 5000, 4);
    faults.random(rows, "c_data", (300, 500), ALNUM);
    for (column, value) in [
        ("c_middle", "OE"),
        ("c_since", LOADED),
        ("c_credit_lim", "50000.00"),
        ("c_balance", "-10.00"),
        ("c_ytd_payment", "10.00"),
        ("c_payment_cnt", "1"),
        ("c_delivery_cnt", "0"),
    ] {
        faults.fixed(rows, column, value);
    }
}

fn order_faults(rows: &Rows, faults: &mut Faults) {
    each_once(rows, "o_id", ["o_w_id", "o_d_id"], 1, faults);
    each_once(rows, "o_c_id", ["o_w_id", "o_d_id"], 1, faults);
    let customer = rows.at("o_c_id");
    let permutations: BTreeSet<Vec<&String>> = rows
        .groups(["o_w_id", "o_d_id"])
        .values()
        .map(|rows| rows.iter().map(|row| &row[customer]).collect())
        .collect();
    faults.check("o_c_id", permutations.len() == 10);
    let in_order = |p: &Vec<&String>| p.windows(2).filter(|w| w[0].len() <= w[1].len()).count();
    faults.check("o_c_id", permutations.iter().all(|p| in_order(p) < 2999));
    let carrier = rows.at("o_carrier_id");
    let delivered = |row: &&Vec<String>| row[0].parse::<i32>().unwrap() <= 2100;
    let (delivered, open): (Vec<_>, Vec<_>) = rows.rows.iter().partition(delivered);
    faults.check(
        "o_carrier_id",
        open.iter().all(|row| row[carrier].is_empty()),
    );
    faults.check(
        "o_carrier_id",
        delivered.iter().all(|row| !row[carrier].is_empty()),
    );
    let carriers: Vec<Vec<String>> = delivered
        .iter()
        .filter(|row| !row[carrier].is_empty())
        .map(|row| row.to_vec())
        .collect();
    let carriers = Rows {
        columns: rows.columns,
        rows: carriers,
    };
    faults.uniform(&carriers, "o_carrier_id", 1, 10, 0);
    faults.uniform(rows, "o_ol_cnt", 5, 15, 0);
    faults.fixed(rows, "o_all_local", "1");
    faults.fixed(rows, "o_entry_d", LOADED);
}

fn line_faults(rows: &Rows, faults: &mut Faults) {
    let at = |column| rows.at(column);
    let [number, amount, date] = [at("ol_number"), at("ol_amount"), at("ol_delivery_d")];
    let orders = Rows::new(schema::ORDERS, 1);
    let counts: BTreeMap<[&str; 3], usize> = orders
        .rows
        .iter()
        .map(|row| ([&*row[2], &*row[1], &*row[0]], row[6].parse().unwrap()))
        .collect();
    let groups = rows.groups(["ol_w_id", "ol_d_id", "ol_o_id"]);
    faults.check("ol_o_id", groups.len() == counts.len());
    for (key, rows) in &groups {
        let numbers = rows.iter().map(|row| row[number].parse::<usize>().unwrap());
        let expected = counts.get(key).copied().unwrap_or(0);
        faults.check("ol_number", numbers.eq(1..=expected));
    }
    let mut open = Vec::new();
    for row in &rows.rows {
        if row[0].parse::<i32>().unwrap() <= 2100 {
            faults.check("ol_delivery_d", row[date] == LOADED);
            faults.check("ol_amount", row[amount] == "0.00");
        } else {
            faults.check("ol_delivery_d", row[date].is_empty());
            open.push(row.clone());
        }
    }
    let open = Rows {
        columns: rows.columns,
        rows: open,
    };
    faults.uniform(&open, "ol_amount", 1, 999_999, 2);
    faults.uniform(rows, "ol_i_id", 1, 100_000, 0);
    let mut hottest = BTreeMap::new();
    rows.column("ol_i_id")
        .for_each(|item| *hottest.entry(item).or_insert(0) += 1);
    faults.check("ol_i_id", hottest.values().all(|&n| n < 25));
    faults.fixed(rows, "ol_quantity", "5");
    let (supply, home) = (at("ol_supply_w_id"), at("ol_w_id"));
    faults.check(
        "ol_supply_w_id",
        rows.rows.iter().all(|row| row[supply] == row[home]),
    );
    faults.random(rows, "ol_dist_info", (24, 24), &ALNUM[..52]);
}

/// Batches that the checker wants of each table.
fn batches(table: usize) -> u64 {
    match table {
        schema::WAREHOUSE | schema::STOCK | schema::ORDERS | schema::ORDER_LINE => 1,
        schema::DISTRICT => 100,
        schema::ITEM => ITEM_BATCHES,
        _ => 2,
    }
}

#[test]
fn every_table_follows_the_population_rules() {
    for (table, definition) in schema::tables(1000).iter().enumerate() {
        let rows = Rows::new(table, batches(table));
        assert_eq!(faults(table, &rows), BTreeSet::new(), "{}", definition.name);
        assert!(
            rows.rows
                .iter()
                .all(|row| row.len() == definition.columns.len())
        );
        let expected = definition.rows_per_batch * batches(table);
        let n = rows.rows.len() as u64;
        if table == schema::ORDER_LINE {
            assert!(n.abs_diff(expected) < expected / 100, "{n} lines");
        } else {
            assert_eq!(n, expected, "{}", definition.name);
        }
    }
}

/// Defects of other clients' loaders (peers.md 1a and the digest, section 6).
#[test]
#[allow(clippy::too_many_lines, reason = "one entry for each defect")]
fn each_defect_of_other_loaders_is_found() {
    type Spoil = fn(&mut Rows, &mut Rng);
    type Defect = (&'static str, usize, Spoil, &'static str);
    fn each(rows: &mut Rows, column: &str, mut change: impl FnMut(&mut String)) {
        let at = rows.at(column);
        rows.rows.iter_mut().for_each(|row| change(&mut row[at]));
    }
    let defects: [Defect; 25] = [
        (
            "HammerDB: half of the credit is bad",
            schema::CUSTOMER,
            |rows, rng| {
                each(rows, "c_credit", |v| {
                    *v = ["BC", "GC"][index(rng.int(0, 1))].to_owned()
                });
            },
            "c_credit",
        ),
        (
            "BenchmarkSQL 4: 90 % of the credit is bad",
            schema::CUSTOMER,
            |rows, _| {
                each(rows, "c_credit", |v| {
                    *v = if v == "BC" { "GC" } else { "BC" }.to_owned()
                });
            },
            "c_credit",
        ),
        (
            "HammerDB: \"original\" in lower case",
            schema::ITEM,
            |rows, _| {
                each(rows, "i_data", |v| *v = v.replace("ORIGINAL", "original"));
            },
            "i_data",
        ),
        (
            "sysbench: no ORIGINAL in the stock",
            schema::STOCK,
            |rows, _| {
                each(rows, "s_data", |v| *v = v.replace("ORIGINAL", "abcdefgh"));
            },
            "s_data",
        ),
        (
            "sysbench: one character repeated",
            schema::STOCK,
            |rows, _| {
                each(rows, "s_dist_07", |v| *v = v[..1].repeat(24));
            },
            "s_dist_07",
        ),
        (
            "BenchmarkSQL 6: 100 strings put together again and again",
            schema::CUSTOMER,
            |rows, _| {
                let at = rows.at("c_data");
                for i in 0..rows.rows.len() {
                    rows.rows[i][at] = rows.rows[i % 100][at].clone();
                }
            },
            "c_data",
        ),
        (
            "BenchmarkSQL 4: strings one short",
            schema::CUSTOMER,
            |rows, _| {
                each(rows, "c_first", |v| drop(v.pop()));
            },
            "c_first",
        ),
        (
            "BenchmarkSQL 4: a constant phone number",
            schema::CUSTOMER,
            |rows, _| {
                each(rows, "c_phone", |v| "7327441700732744".clone_into(v));
            },
            "c_phone",
        ),
        (
            "BenchmarkSQL 4: a constant zip code",
            schema::WAREHOUSE,
            |rows, _| {
                each(rows, "w_zip", |v| "123456789".clone_into(v));
            },
            "w_zip",
        ),
        (
            "the sample program: nine random digits of zip code",
            schema::DISTRICT,
            |rows, rng| {
                each(rows, "d_zip", |v| {
                    *v = rng.int(100_000_000, 999_999_999).to_string()
                });
            },
            "d_zip",
        ),
        (
            "the sample program: taxes from 0.10",
            schema::WAREHOUSE,
            |rows, rng| {
                each(rows, "w_tax", |v| *v = format!("0.{}", rng.int(1000, 2000)));
            },
            "w_tax",
        ),
        (
            "the sample program: ten times the year-to-date",
            schema::WAREHOUSE,
            |rows, _| {
                each(rows, "w_ytd", |v| "3000000.00".clone_into(v));
            },
            "w_ytd",
        ),
        (
            "the sample program: discounts in whole percent",
            schema::CUSTOMER,
            |rows, rng| {
                each(rows, "c_discount", |v| {
                    *v = format!("0.{:02}", rng.int(0, 50))
                });
            },
            "c_discount",
        ),
        (
            "BenchmarkSQL 4: no discount of zero",
            schema::CUSTOMER,
            |rows, rng| {
                each(rows, "c_discount", |v| {
                    *v = format!("0.{:04}", rng.int(1, 5000))
                });
            },
            "c_discount",
        ),
        (
            "BenchmarkSQL 4: the first thousand names are random too",
            schema::CUSTOMER,
            |rows, rng| {
                each(rows, "c_last", |v| {
                    *v = LastName::new(last_names(C_LOAD).draw(rng))
                        .as_str()
                        .to_owned();
                });
            },
            "c_last",
        ),
        (
            "sysbench: names with a new constant for each",
            schema::CUSTOMER,
            |rows, rng| {
                let (c_id, c_last) = (rows.at("c_id"), rows.at("c_last"));
                for row in &mut rows.rows {
                    if row[c_id].parse::<i32>().unwrap() > 1000 {
                        let number = last_names(rng.int(0, 255)).draw(rng);
                        row[c_last] = LastName::new(number).as_str().to_owned();
                    }
                }
            },
            "c_last",
        ),
        (
            "BenchmarkSQL 5: a delivery is counted already",
            schema::CUSTOMER,
            |rows, _| {
                each(rows, "c_delivery_cnt", |v| "1".clone_into(v));
            },
            "c_delivery_cnt",
        ),
        (
            "BenchmarkSQL 4: customers of orders are random",
            schema::ORDERS,
            |rows, rng| {
                each(rows, "o_c_id", |v| *v = rng.int(1, 3000).to_string());
            },
            "o_c_id",
        ),
        (
            "HammerDB: the shuffle forgets to swap",
            schema::ORDERS,
            |rows, rng| {
                each(rows, "o_c_id", |v| {
                    if rng.int(1, 10) == 1 {
                        "1".clone_into(v)
                    }
                });
            },
            "o_c_id",
        ),
        (
            "sysbench: one permutation for all districts",
            schema::ORDERS,
            |rows, _| {
                let at = rows.at("o_c_id");
                for i in 3000..rows.rows.len() {
                    rows.rows[i][at] = rows.rows[i % 3000][at].clone();
                }
            },
            "o_c_id",
        ),
        (
            "BenchmarkSQL 4: every order has a carrier",
            schema::ORDERS,
            |rows, rng| {
                each(rows, "o_carrier_id", |v| *v = rng.int(1, 10).to_string());
            },
            "o_carrier_id",
        ),
        (
            "BenchmarkSQL 4: every line is delivered",
            schema::ORDER_LINE,
            |rows, _| {
                each(rows, "ol_delivery_d", |v| LOADED.clone_into(v));
            },
            "ol_delivery_d",
        ),
        (
            "BenchmarkSQL 4: lines are supplied from anywhere",
            schema::ORDER_LINE,
            |rows, rng| {
                each(rows, "ol_supply_w_id", |v| *v = rng.int(1, 2).to_string());
            },
            "ol_supply_w_id",
        ),
        (
            "HammerDB: amounts the other way round",
            schema::ORDER_LINE,
            |rows, rng| {
                let at = rows.at("ol_amount");
                for row in &mut rows.rows {
                    row[at] = if row[0].parse::<i32>().unwrap() <= 2100 {
                        format!("{}.{:02}", rng.int(0, 99), rng.int(10, 99))
                    } else {
                        "0.00".to_owned()
                    };
                }
            },
            "ol_amount",
        ),
        (
            "initial items are skewed",
            schema::ORDER_LINE,
            |rows, rng| {
                let constants = Constants::for_run(Seed(1), C_LOAD);
                each(rows, "ol_i_id", |v| {
                    *v = constants.ol_i_id.draw(rng).to_string()
                });
            },
            "ol_i_id",
        ),
    ];
    // Defects of different columns share the rows they spoil: making and checking them is slow.
    let mut rounds: BTreeMap<(usize, usize), Vec<_>> = BTreeMap::new();
    for (i, defect) in defects.iter().enumerate() {
        let same_column = |other: &&Defect| (other.1, other.3) == (defect.1, defect.3);
        let round = defects[..i].iter().filter(same_column).count();
        rounds.entry((defect.1, round)).or_default().push(defect);
    }
    for ((table, _), defects) in rounds {
        let mut rows = Rows::new(table, batches(table));
        let mut expected = BTreeMap::new();
        for (defect, _, spoil, column) in defects {
            spoil(&mut rows, &mut Seed(1).stream("defect", 0));
            expected.insert((*column).to_owned(), defect);
        }
        let found = faults(table, &rows);
        assert!(
            found.iter().eq(expected.keys()),
            "{found:?} instead of {expected:?}"
        );
    }
}

#[test]
fn equal_seeds_give_equal_bytes_and_other_seeds_and_batches_others() {
    let bytes = |seed, batch| {
        let population = Population::new(3, Seed(seed), C_LOAD);
        (0..9).map(move |table| {
            let mut out = CopyBuffer::new(CopyFormat::Binary);
            population.fill(table, batch, &mut out);
            out.bytes
        })
    };
    for (table, (first, second)) in bytes(42, 1).zip(bytes(42, 1)).enumerate() {
        assert!(first == second, "table {table}");
    }
    for (table, (one, other)) in bytes(42, 1).zip(bytes(43, 1)).enumerate() {
        assert_eq!(one == other, table == schema::NEW_ORDER, "table {table}");
    }
    for (table, (one, other)) in bytes(42, 1).zip(bytes(42, 2)).enumerate() {
        assert_eq!(one == other, table == schema::WAREHOUSE, "table {table}");
    }
}

/// Decodes the binary form with the help of the CSV form: field by field the same value.
#[test]
fn binary_and_csv_describe_the_same_rows() {
    let population = population(2);
    for (table, definition) in schema::tables(2).iter().enumerate() {
        let [csv, binary] = [CopyFormat::Csv, CopyFormat::Binary].map(|format| {
            let mut out = CopyBuffer::new(format);
            population.fill(table, 1.min(definition.batches - 1), &mut out);
            out
        });
        assert_eq!(csv.rows, binary.rows);
        let text = String::from_utf8(csv.bytes).unwrap();
        let mut rest = &binary.bytes[..];
        let mut take = |n: usize| {
            let (head, tail) = rest.split_at(n);
            rest = tail;
            head
        };
        for row in text.lines() {
            let fields = i16::from_be_bytes(take(2).try_into().unwrap());
            assert_eq!(usize::try_from(fields).unwrap(), definition.columns.len());
            for field in row.split(',') {
                let length = i32::from_be_bytes(take(4).try_into().unwrap());
                assert_eq!(length < 0, field.is_empty(), "{row}");
                let value = take(usize::try_from(length).unwrap_or(0));
                assert!(same(field, value), "{}: {field} {value:?}", definition.name);
            }
        }
        assert!(rest.is_empty());
    }
}

/// Is the binary `value` what `field` says?
fn same(field: &str, value: &[u8]) -> bool {
    let mut expected = CopyBuffer::new(CopyFormat::Binary);
    if field.is_empty() || field.as_bytes() == value {
        return true;
    } else if field == LOADED {
        expected.timestamp(LOADED_AT);
    } else if let Some((_, decimals)) = field.split_once('.') {
        let units: i64 = field.replace('.', "").parse().unwrap();
        match decimals.len() {
            2 => expected.cents(units),
            _ => expected.ratio(i32::try_from(units).unwrap()),
        }
    } else if value.len() == 2 {
        expected.int2(field.parse().unwrap());
    } else {
        expected.int4(field.parse().unwrap());
    }
    expected.bytes[4..] == *value
}
