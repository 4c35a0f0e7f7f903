//! What the inputs of a run really were, counted over completed transactions.

use super::random::{CUSTOMERS, ITEMS, NAMES, index};
use super::{
    Customer, DELIVERY, Input, NEW_ORDER, ORDER_STATUS, Output, PAYMENT, STOCK_LEVEL, UNUSED_ITEM,
};
use crate::workload::{Outcome, ProfileId};

/// Counts over completed transactions.
#[derive(Clone, Debug)]
pub struct Tally {
    /// By profile index.
    pub(super) completed: [u64; 5],
    /// New-Orders that really ended with ROLLBACK.
    pub(super) rolled_back: u64,
    pub(super) lines: u64,
    pub(super) remote_lines: u64,
    /// By number of lines less 5.
    pub(super) line_counts: [u64; 11],
    /// By quantity less 1.
    pub(super) quantities: [u64; 10],
    /// By district less 1: New-Order, Payment, Order-Status.
    pub(super) districts: [u64; 10],
    pub(super) remote_payments: u64,
    pub(super) payments_by_name: u64,
    pub(super) order_status_by_name: u64,
    /// Deliveries that found at least one district without an undelivered order.
    pub(super) deliveries_skipping: u64,
    pub(super) districts_skipped: u64,
    /// By value drawn: customers, items, last names.
    pub(super) c_id: Vec<u64>,
    pub(super) ol_i_id: Vec<u64>,
    pub(super) c_last: Vec<u64>,
    /// Was warehouse w - 1 home to a transaction?
    pub(super) homes: Vec<bool>,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            completed: [0; 5],
            rolled_back: 0,
            lines: 0,
            remote_lines: 0,
            line_counts: [0; 11],
            quantities: [0; 10],
            districts: [0; 10],
            remote_payments: 0,
            payments_by_name: 0,
            order_status_by_name: 0,
            deliveries_skipping: 0,
            districts_skipped: 0,
            c_id: vec![0; index(CUSTOMERS)],
            ol_i_id: vec![0; index(ITEMS)],
            c_last: vec![0; index(NAMES)],
            homes: Vec::new(),
        }
    }
}

/// Adds one to the slot for `value`, where `low` has the first; values out of range are left out.
pub(super) fn count(slots: &mut [u64], value: i32, low: i32) {
    if let Some(slot) = usize::try_from(value - low)
        .ok()
        .and_then(|i| slots.get_mut(i))
    {
        *slot += 1;
    }
}

impl Tally {
    /// Adds a completed transaction.
    pub(super) fn add(&mut self, input: &Input, output: &Output, outcome: Outcome) {
        let (profile, w_id) = match input {
            Input::NewOrder(input) => {
                self.new_order(input, outcome);
                (NEW_ORDER, input.w_id)
            }
            Input::Payment(input) => {
                self.remote_payments += u64::from(input.c_w_id != input.w_id);
                self.payments_by_name += self.customer(input.customer);
                count(&mut self.districts, i32::from(input.d_id), 1);
                (PAYMENT, input.w_id)
            }
            Input::OrderStatus(input) => {
                self.order_status_by_name += self.customer(input.customer);
                count(&mut self.districts, i32::from(input.d_id), 1);
                (ORDER_STATUS, input.w_id)
            }
            Input::Delivery(input) => {
                self.deliveries_skipping += u64::from(output.districts_skipped > 0);
                self.districts_skipped += u64::from(output.districts_skipped);
                (DELIVERY, input.w_id)
            }
            Input::StockLevel(input) => (STOCK_LEVEL, input.w_id),
        };
        self.completed[profile.index()] += 1;
        let home = index(w_id - 1);
        if home >= self.homes.len() {
            self.homes.resize(home + 1, false);
        }
        self.homes[home] = true;
    }

    fn new_order(&mut self, input: &super::NewOrder, outcome: Outcome) {
        self.rolled_back += u64::from(outcome == Outcome::RolledBack);
        count(&mut self.districts, i32::from(input.d_id), 1);
        count(&mut self.c_id, input.c_id, 1);
        self.lines += input.line_count as u64;
        if let Some(slot) = self.line_counts.get_mut(input.line_count.wrapping_sub(5)) {
            *slot += 1;
        }
        for line in input.lines() {
            self.remote_lines += u64::from(line.supply_w_id != input.w_id);
            count(&mut self.quantities, i32::from(line.quantity), 1);
            if line.i_id != UNUSED_ITEM {
                count(&mut self.ol_i_id, line.i_id, 1);
            }
        }
    }

    /// 1 when the customer was named.
    fn customer(&mut self, customer: Customer) -> u64 {
        match customer {
            Customer::ById(c_id) => {
                count(&mut self.c_id, c_id, 1);
                0
            }
            Customer::ByName(number) => {
                count(&mut self.c_last, number, 0);
                1
            }
        }
    }

    /// Adds the counts of another worker.
    pub(super) fn merge(&mut self, other: &Tally) {
        let Tally {
            completed,
            rolled_back,
            lines,
            remote_lines,
            line_counts,
            quantities,
            districts,
            remote_payments,
            payments_by_name,
            order_status_by_name,
            deliveries_skipping,
            districts_skipped,
            c_id,
            ol_i_id,
            c_last,
            homes,
        } = other;
        for (own, others) in [
            (&mut self.rolled_back, rolled_back),
            (&mut self.lines, lines),
            (&mut self.remote_lines, remote_lines),
            (&mut self.remote_payments, remote_payments),
            (&mut self.payments_by_name, payments_by_name),
            (&mut self.order_status_by_name, order_status_by_name),
            (&mut self.deliveries_skipping, deliveries_skipping),
            (&mut self.districts_skipped, districts_skipped),
        ] {
            *own += others;
        }
        for (own, others) in [
            (&mut self.completed[..], &completed[..]),
            (&mut self.line_counts, line_counts),
            (&mut self.quantities, quantities),
            (&mut self.districts, districts),
            (&mut self.c_id, c_id),
            (&mut self.ol_i_id, ol_i_id),
            (&mut self.c_last, c_last),
        ] {
            own.iter_mut().zip(others).for_each(|(own, n)| *own += n);
        }
        if self.homes.len() < homes.len() {
            self.homes.resize(homes.len(), false);
        }
        for (own, home) in self.homes.iter_mut().zip(homes) {
            *own |= home;
        }
    }

    /// Completed transactions of `profile`.
    pub(super) fn of(&self, profile: ProfileId) -> u64 {
        self.completed[profile.index()]
    }
}
