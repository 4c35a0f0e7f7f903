//! Order-Status (TPC-C 2.6): a customer's newest order and its lines; read-only.

use super::customer::Customer;
use super::new_order::{LINES_MAX, LINES_MIN};
use super::statements::{SELECT_CUSTOMER, SELECT_NEWEST_ORDER, SELECT_ORDER_LINES, Steps};
use super::{Context, Output};
use crate::rng::Rng;
use crate::session::{Param, Session, SessionError};
use crate::workload::Outcome;

/// What the user enters (2.6.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Input {
    pub w_id: i32,
    pub d_id: i16,
    pub customer: Customer,
}

impl Input {
    pub(super) fn draw(context: &Context, rng: &mut Rng) -> Self {
        Self {
            w_id: context.w_id,
            d_id: context.district(rng),
            customer: Customer::draw(context, rng),
        }
    }
}

pub(super) async fn execute(
    input: &Input,
    session: &mut Session,
    output: &mut Output,
) -> Result<Outcome, SessionError> {
    let mut steps = Steps::begin_read_only(session);
    let c_id = input
        .customer
        .find(input.w_id, input.d_id, &mut steps)
        .await?;
    let mut key = [
        Param::Int4(input.w_id),
        Param::Int2(input.d_id),
        Param::Int4(c_id),
    ];
    let row = steps.run(SELECT_CUSTOMER, &key).await?.one()?;
    output.balance_cents = row.decimal(0, 2)?;

    // Every customer has an order from the initial data on.
    let row = steps.run(SELECT_NEWEST_ORDER, &key).await?.one()?;
    let o_id = row.int4(0)?;
    key[2] = Param::Int4(o_id);
    let mut lines = 0;
    let mut amount = 0;
    for row in steps.run(SELECT_ORDER_LINES, &key).await?.rows() {
        lines += 1;
        amount += row.decimal(3, 2)?;
    }
    if !(LINES_MIN..=LINES_MAX).contains(&lines) {
        return Err(SessionError::wrong_result(format!(
            "order {o_id} of district {} of warehouse {} has {lines} lines",
            input.d_id, input.w_id
        )));
    }
    output.c_id = c_id;
    output.o_id = o_id;
    output.total_cents = amount;
    steps.commit().await?;
    Ok(Outcome::Committed)
}
