//! Stock-Level (TPC-C 2.8): items of the last 20 orders that run low; read-only.

use super::statements::{COUNT_LOW_STOCK, SELECT_NEXT_ORDER_NUMBER, Steps};
use super::{Context, Output};
use crate::rng::Rng;
use crate::session::{Param, Session, SessionError};
use crate::workload::Outcome;

/// What the user enters (2.8.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Input {
    pub w_id: i32,
    /// The terminal's own district.
    pub d_id: i16,
    pub threshold: i16,
}

impl Input {
    pub(super) fn draw(context: &Context, rng: &mut Rng) -> Self {
        Self {
            w_id: context.w_id,
            d_id: context.stock_level_d_id,
            threshold: super::narrow(rng.int(10, 20)),
        }
    }
}

pub(super) async fn execute(
    input: &Input,
    session: &mut Session,
    output: &mut Output,
) -> Result<Outcome, SessionError> {
    let mut steps = Steps::begin_read_only(session);
    let district = [Param::Int4(input.w_id), Param::Int2(input.d_id)];
    let row = steps
        .run(SELECT_NEXT_ORDER_NUMBER, &district)
        .await?
        .one()?;
    let recent = [
        district[0],
        district[1],
        Param::Int4(row.int4(0)?),
        Param::Int2(input.threshold),
    ];
    output.low_stock = steps.run(COUNT_LOW_STOCK, &recent).await?.one()?.int8(0)?;
    steps.commit().await?;
    Ok(Outcome::Committed)
}
