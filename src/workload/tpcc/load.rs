//! The initial rows of TPC-C 4.3.3.1, batch by batch.
//!
//! Every batch has its own random streams, named after what they decide, so batches can be made
//! in any order and orders agrees with `order_line` about the number of lines.

use super::random::{
    ALPHANUMERIC, CUSTOMERS, DIGITS, ITEMS, LETTERS, LastName, NAMES, NuRand, last_names,
};
use super::schema;
use crate::rng::{Rng, Seed};
use crate::workload::copy::CopyBuffer;

/// Item has no warehouse to be divided by.
pub const ITEM_BATCHES: u64 = 4;
const ITEMS_PER_BATCH: i32 = 25_000;

pub const DISTRICTS: i16 = 10;
/// Initial orders of a district; the first [`DELIVERED`] of them are delivered.
pub const ORDERS: i32 = 3000;
pub const DELIVERED: i32 = 2100;

/// 2026-01-01 00:00:00 in microseconds since 2000-01-01. The specification asks for the system's
/// time at load; a constant makes two loads of the same seed identical.
pub const LOADED_AT: i64 = 9497 * 86_400_000_000;

/// What decides the initial rows.
#[derive(Clone, Copy, Debug)]
pub struct Population {
    pub warehouses: i32,
    pub seed: Seed,
    last_names: NuRand,
}

impl Population {
    pub fn new(warehouses: i32, seed: Seed, c_load: i32) -> Self {
        Self {
            warehouses,
            seed,
            last_names: last_names(c_load),
        }
    }

    /// Writes batch `batch` of `schema::tables()[table]`.
    pub fn fill(&self, table: usize, batch: u64, out: &mut CopyBuffer) {
        let batch = i32::try_from(batch).unwrap_or(i32::MAX - 1);
        match table {
            schema::WAREHOUSE => self.warehouse(out),
            schema::ITEM => self.item(batch, out),
            schema::DISTRICT => self.district(batch + 1, out),
            schema::STOCK => self.stock(batch + 1, out),
            schema::CUSTOMER => self.customer(batch + 1, out),
            schema::HISTORY => self.history(batch + 1, out),
            schema::ORDERS => self.orders(batch + 1, out),
            schema::NEW_ORDER => new_order(batch + 1, out),
            schema::ORDER_LINE => self.order_line(batch + 1, out),
            _ => {}
        }
    }

    /// The stream for a warehouse (or a batch of items).
    fn stream(&self, name: &str, batch: i32) -> Rng {
        self.seed.stream(name, u64::from(batch.unsigned_abs()))
    }

    /// The stream for a district.
    fn district_stream(&self, name: &str, w_id: i32, d_id: i16) -> Rng {
        let district = u64::from(d_id.unsigned_abs());
        self.seed
            .stream(name, u64::from(w_id.unsigned_abs()) * 16 + district)
    }

    fn warehouse(&self, out: &mut CopyBuffer) {
        for w_id in 1..=self.warehouses {
            let mut rng = self.stream("warehouse", w_id);
            out.begin_row(9);
            out.int4(w_id);
            a_string(&mut rng, 6, 10, out);
            address(&mut rng, out);
            out.ratio(rng.int(0, 2000));
            out.cents(30_000_000);
            out.end_row();
        }
    }

    fn district(&self, w_id: i32, out: &mut CopyBuffer) {
        let mut rng = self.stream("district", w_id);
        for d_id in 1..=DISTRICTS {
            out.begin_row(11);
            out.int2(d_id);
            out.int4(w_id);
            a_string(&mut rng, 6, 10, out);
            address(&mut rng, out);
            out.ratio(rng.int(0, 2000));
            out.cents(3_000_000);
            out.int4(ORDERS + 1);
            out.end_row();
        }
    }

    fn item(&self, batch: i32, out: &mut CopyBuffer) {
        let mut rng = self.stream("item", batch);
        let mut original = Sample::tenth(ITEMS_PER_BATCH);
        let first = batch * ITEMS_PER_BATCH + 1;
        for i_id in first..first + ITEMS_PER_BATCH {
            out.begin_row(5);
            out.int4(i_id);
            out.int4(rng.int(1, 10_000));
            a_string(&mut rng, 14, 24, out);
            out.cents(rng.range(100, 10_000));
            data(&mut rng, &mut original, out);
            out.end_row();
        }
    }

    fn stock(&self, w_id: i32, out: &mut CopyBuffer) {
        let mut rng = self.stream("stock", w_id);
        let mut original = Sample::tenth(ITEMS);
        for i_id in 1..=ITEMS {
            out.begin_row(17);
            out.int4(i_id);
            out.int4(w_id);
            out.int2(small(&mut rng, 10, 100));
            for _ in 0..DISTRICTS {
                letters(&mut rng, 24, out);
            }
            out.int4(0);
            out.int4(0);
            out.int4(0);
            data(&mut rng, &mut original, out);
            out.end_row();
        }
    }

    fn customer(&self, w_id: i32, out: &mut CopyBuffer) {
        for d_id in 1..=DISTRICTS {
            let mut rng = self.district_stream("customer", w_id, d_id);
            let mut bad_credit = Sample::tenth(CUSTOMERS);
            for c_id in 1..=CUSTOMERS {
                self.one_customer(
                    [w_id, i32::from(d_id), c_id],
                    &mut bad_credit,
                    &mut rng,
                    out,
                );
            }
        }
    }

    fn one_customer(
        &self,
        [w_id, d_id, c_id]: [i32; 3],
        bad_credit: &mut Sample,
        rng: &mut Rng,
        out: &mut CopyBuffer,
    ) {
        let name = if c_id <= NAMES {
            c_id - 1
        } else {
            self.last_names.draw(rng)
        };
        out.begin_row(21);
        out.int4(c_id);
        out.int2(narrow(d_id));
        out.int4(w_id);
        a_string(rng, 8, 16, out);
        out.text(b"OE");
        out.text(LastName::new(name).as_str().as_bytes());
        address(rng, out);
        out.plain_text(16, |slot| DIGITS.fill(rng, slot));
        out.timestamp(LOADED_AT);
        out.text(if bad_credit.chosen(rng) { b"BC" } else { b"GC" });
        out.cents(5_000_000);
        out.ratio(rng.int(0, 5000));
        out.cents(-1000);
        out.cents(1000);
        out.int4(1);
        out.int4(0);
        a_string(rng, 300, 500, out);
        out.end_row();
    }

    fn history(&self, w_id: i32, out: &mut CopyBuffer) {
        let mut rng = self.stream("history", w_id);
        for d_id in 1..=DISTRICTS {
            for c_id in 1..=CUSTOMERS {
                out.begin_row(8);
                out.int4(c_id);
                out.int2(d_id);
                out.int4(w_id);
                out.int2(d_id);
                out.int4(w_id);
                out.timestamp(LOADED_AT);
                out.cents(1000);
                a_string(&mut rng, 12, 24, out);
                out.end_row();
            }
        }
    }

    fn orders(&self, w_id: i32, out: &mut CopyBuffer) {
        for d_id in 1..=DISTRICTS {
            let mut counts = self.line_counts(w_id, d_id);
            let mut carriers = self.district_stream("orders.carrier", w_id, d_id);
            let mut customers: Vec<i32> = (1..=CUSTOMERS).collect();
            self.district_stream("orders.customer", w_id, d_id)
                .shuffle(&mut customers);
            for (o_id, c_id) in (1..).zip(customers) {
                out.begin_row(8);
                out.int4(o_id);
                out.int2(d_id);
                out.int4(w_id);
                out.int4(c_id);
                out.timestamp(LOADED_AT);
                if o_id <= DELIVERED {
                    out.int2(small(&mut carriers, 1, 10));
                } else {
                    out.null();
                }
                out.int2(line_count(&mut counts));
                out.int2(1);
                out.end_row();
            }
        }
    }

    fn order_line(&self, w_id: i32, out: &mut CopyBuffer) {
        for d_id in 1..=DISTRICTS {
            let mut counts = self.line_counts(w_id, d_id);
            let mut rng = self.district_stream("order_line", w_id, d_id);
            for o_id in 1..=ORDERS {
                for number in 1..=line_count(&mut counts) {
                    out.begin_row(10);
                    out.int4(o_id);
                    out.int2(d_id);
                    out.int4(w_id);
                    out.int2(number);
                    out.int4(rng.int(1, ITEMS));
                    out.int4(w_id);
                    if o_id <= DELIVERED {
                        out.timestamp(LOADED_AT);
                        out.int2(5);
                        out.cents(0);
                    } else {
                        out.null();
                        out.int2(5);
                        out.cents(rng.range(1, 999_999));
                    }
                    letters(&mut rng, 24, out);
                    out.end_row();
                }
            }
        }
    }

    /// The stream that orders and `order_line` share: [`line_count`] for each order in turn.
    fn line_counts(&self, w_id: i32, d_id: i16) -> Rng {
        self.district_stream("orders.ol_cnt", w_id, d_id)
    }
}

fn new_order(w_id: i32, out: &mut CopyBuffer) {
    for d_id in 1..=DISTRICTS {
        for o_id in DELIVERED + 1..=ORDERS {
            out.begin_row(3);
            out.int4(o_id);
            out.int2(d_id);
            out.int4(w_id);
            out.end_row();
        }
    }
}

fn line_count(rng: &mut Rng) -> i16 {
    small(rng, 5, 15)
}

/// Uniform in `low..=high`.
fn small(rng: &mut Rng, low: i32, high: i32) -> i16 {
    narrow(rng.int(low, high))
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "districts, carriers, counts and quantities are at most 100"
)]
fn narrow(value: i32) -> i16 {
    value as i16
}

fn length(rng: &mut Rng, low: i32, high: i32) -> usize {
    super::random::index(rng.int(low, high))
}

fn a_string(rng: &mut Rng, low: i32, high: i32, out: &mut CopyBuffer) {
    let length = length(rng, low, high);
    out.plain_text(length, |slot| ALPHANUMERIC.fill(rng, slot));
}

fn letters(rng: &mut Rng, length: usize, out: &mut CopyBuffer) {
    out.plain_text(length, |slot| LETTERS.fill(rng, slot));
}

/// Two streets, city, state and zip code, as warehouses, districts and customers have them.
fn address(rng: &mut Rng, out: &mut CopyBuffer) {
    for _ in 0..3 {
        a_string(rng, 10, 20, out);
    }
    letters(rng, 2, out);
    out.plain_text(9, |slot| {
        slot.fill(b'1');
        DIGITS.fill(rng, &mut slot[..4]);
    });
}

/// `i_data` or `s_data`: 26 to 50 characters, in chosen rows with ORIGINAL somewhere in them.
fn data(rng: &mut Rng, original: &mut Sample, out: &mut CopyBuffer) {
    let length = length(rng, 26, 50);
    let chosen = original.chosen(rng);
    out.plain_text(length, |slot| {
        ALPHANUMERIC.fill(rng, slot);
        if chosen {
            let at = usize::try_from(rng.below(length as u64 - 7)).unwrap_or(0);
            slot[at..at + 8].copy_from_slice(b"ORIGINAL");
        }
    });
}

/// Exactly a tenth of the rows, drawn without replacement in one pass (Knuth, algorithm S): any
/// tolerance of the specification holds, for every batch.
struct Sample {
    rows_left: i32,
    chosen_left: i32,
}

impl Sample {
    fn tenth(rows: i32) -> Self {
        Self {
            rows_left: rows,
            chosen_left: rows / 10,
        }
    }

    fn chosen(&mut self, rng: &mut Rng) -> bool {
        let chosen = rng.int(1, self.rows_left) <= self.chosen_left;
        self.rows_left -= 1;
        self.chosen_left -= i32::from(chosen);
        chosen
    }
}

#[cfg(test)]
mod tests;
