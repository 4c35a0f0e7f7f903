//! Delivery (TPC-C 2.7): the oldest undelivered order of each district; deferred.

use super::new_order::{LINES_MAX, LINES_MIN};
use super::statements::{BILL_CUSTOMER, DELIVER_LINES, SET_CARRIER, Steps, TAKE_OLDEST_NEW_ORDER};
use super::{Context, Output};
use crate::rng::Rng;
use crate::session::{Param, Session, SessionError};
use crate::workload::Outcome;

/// What the user enters (2.7.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Input {
    pub w_id: i32,
    pub o_carrier_id: i16,
}

impl Input {
    pub(super) fn draw(context: &Context, rng: &mut Rng) -> Self {
        Self {
            w_id: context.w_id,
            o_carrier_id: super::narrow(rng.int(1, 10)),
        }
    }
}

/// All districts in one transaction, in ascending order, which keeps two Deliveries of one
/// warehouse from deadlocking.
pub(super) async fn execute(
    input: &Input,
    session: &mut Session,
    output: &mut Output,
) -> Result<Outcome, SessionError> {
    let mut steps = Steps::begin(session);
    for d_id in 1..=super::load::DISTRICTS {
        if deliver(input, d_id, &mut steps).await? {
            output.districts_delivered += 1;
        } else {
            output.districts_skipped += 1;
        }
    }
    steps.commit().await?;
    Ok(Outcome::Committed)
}

/// `false` when the district has no undelivered order.
async fn deliver(input: &Input, d_id: i16, steps: &mut Steps<'_>) -> Result<bool, SessionError> {
    let district = [Param::Int4(input.w_id), Param::Int2(d_id)];
    let taken = steps.run(TAKE_OLDEST_NEW_ORDER, &district).await?;
    let Some(row) = taken.optional()? else {
        return Ok(false);
    };
    let o_id = Param::Int4(row.int4(0)?);
    let order = [
        district[0],
        district[1],
        o_id,
        Param::Int2(input.o_carrier_id),
    ];
    let row = steps.run(SET_CARRIER, &order).await?.one()?;
    let (c_id, expected) = (row.int4(0)?, row.int2(1)?);
    let row = steps.run(DELIVER_LINES, &order[..3]).await?.one()?;
    let (amount, lines) = (row.decimal(0, 2)?, row.int8(1)?);
    let legal = LINES_MIN as i64..=LINES_MAX as i64;
    if lines != i64::from(expected) || !legal.contains(&lines) {
        return Err(SessionError::wrong_result(format!(
            "an order of district {d_id} of warehouse {} has {lines} lines instead of {expected}",
            input.w_id
        )));
    }
    let customer = [
        district[0],
        district[1],
        Param::Int4(c_id),
        Param::Cents(amount),
    ];
    steps
        .run(BILL_CUSTOMER, &customer)
        .await?
        .expect_affected(1)?;
    Ok(true)
}
