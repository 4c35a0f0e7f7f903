//! New-Order (TPC-C 2.4): a customer orders 5 to 15 lines; 1 % are rolled back.

use super::statements::{
    INSERT_NEW_ORDER, INSERT_ORDER, INSERT_ORDER_LINES, SELECT_CUSTOMER_DISCOUNT, SELECT_ITEMS,
    SELECT_WAREHOUSE_TAX, Steps, TAKE_ORDER_NUMBER, update_stock,
};
use super::{Context, Output};
use crate::rng::Rng;
use crate::session::{Param, Row, Session, SessionError};
use crate::workload::Outcome;

pub const LINES_MIN: usize = 5;
pub const LINES_MAX: usize = 15;
/// An item that is not in ITEM (2.4.1.5).
pub const UNUSED_ITEM: i32 = super::random::ITEMS + 1;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Line {
    pub i_id: i32,
    pub supply_w_id: i32,
    pub quantity: i16,
}

/// What the user enters (2.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Input {
    pub w_id: i32,
    pub d_id: i16,
    pub c_id: i32,
    /// The last line asks for [`UNUSED_ITEM`].
    pub rollback: bool,
    pub line_count: usize,
    pub lines: [Line; LINES_MAX],
}

impl Input {
    pub fn lines(&self) -> &[Line] {
        &self.lines[..self.line_count]
    }

    pub(super) fn draw(context: &Context, rng: &mut Rng) -> Self {
        let d_id = context.district(rng);
        let c_id = context.constants.c_id.draw(rng);
        let line_count = super::random::index(rng.int(5, 15));
        let rollback = rng.int(1, 100) == 1;
        let mut lines = [Line::default(); LINES_MAX];
        for line in &mut lines[..line_count] {
            *line = Line {
                i_id: context.constants.ol_i_id.draw(rng),
                supply_w_id: if rng.int(1, 100) == 1 {
                    context.other_warehouse(rng)
                } else {
                    context.w_id
                },
                quantity: super::narrow(rng.int(1, 10)),
            };
        }
        if rollback {
            lines[line_count - 1].i_id = UNUSED_ITEM;
        }
        Self {
            w_id: context.w_id,
            d_id,
            c_id,
            rollback,
            line_count,
            lines,
        }
    }
}

/// What the server said about the lines, by position in the order.
struct Lines {
    /// Lines whose item exists: all, or all but the last.
    valid: usize,
    price: [i64; LINES_MAX],
    /// Does `i_data` hold ORIGINAL?
    original: [bool; LINES_MAX],
    amount: [i64; LINES_MAX],
    dist_info: [[u8; 24]; LINES_MAX],
    brands: u8,
}

pub(super) async fn execute(
    input: &Input,
    session: &mut Session,
    output: &mut Output,
) -> Result<Outcome, SessionError> {
    let mut steps = Steps::begin(session);
    let mut lines = read_items(input, &mut steps).await?;
    take_stock(input, &mut lines, &mut steps).await?;

    let district = [Param::Int4(input.w_id), Param::Int2(input.d_id)];
    let row = steps.run(TAKE_ORDER_NUMBER, &district).await?.one()?;
    let (o_id, d_tax) = (row.int4(0)?, row.decimal(1, 4)?);
    let row = steps
        .run(SELECT_WAREHOUSE_TAX, &district[..1])
        .await?
        .one()?;
    let w_tax = row.decimal(0, 4)?;
    let customer = [district[0], district[1], Param::Int4(input.c_id)];
    let row = steps
        .run(SELECT_CUSTOMER_DISCOUNT, &customer)
        .await?
        .one()?;
    let discount = row.decimal(0, 4)?;

    insert(input, &lines, o_id, &mut steps).await?;
    output.o_id = o_id;
    output.c_id = input.c_id;
    output.brand_lines = lines.brands;
    output.total_cents = total(&lines.amount[..lines.valid], discount, w_tax, d_tax);
    if lines.valid == input.line_count {
        steps.commit().await?;
        Ok(Outcome::Committed)
    } else {
        steps.rollback().await?;
        Ok(Outcome::RolledBack)
    }
}

/// All items in one statement; the rows come in any order, and once for an item ordered twice.
async fn read_items(input: &Input, steps: &mut Steps<'_>) -> Result<Lines, SessionError> {
    let mut ids = [0; LINES_MAX];
    for (id, line) in ids.iter_mut().zip(input.lines()) {
        *id = line.i_id;
    }
    let mut lines = Lines {
        valid: 0,
        price: [-1; LINES_MAX],
        original: [false; LINES_MAX],
        amount: [0; LINES_MAX],
        dist_info: [[0; 24]; LINES_MAX],
        brands: 0,
    };
    let ids = Param::Int4Array(&ids[..input.line_count]);
    for row in steps.run(SELECT_ITEMS, &[ids]).await?.rows() {
        let (i_id, price) = (row.int4(0)?, row.decimal(1, 2)?);
        let original = is_original(&row, 3)?;
        for (position, line) in input.lines().iter().enumerate() {
            if line.i_id == i_id {
                lines.price[position] = price;
                lines.original[position] = original;
            }
        }
    }
    lines.valid = lines.price[..input.line_count]
        .iter()
        .take_while(|&&price| price >= 0)
        .count();
    if lines.valid + usize::from(input.rollback) == input.line_count {
        Ok(lines)
    } else if lines.valid == input.line_count {
        Err(SessionError::wrong_result(format!(
            "item {UNUSED_ITEM} exists"
        )))
    } else {
        let missing = input.lines[lines.valid].i_id;
        Err(SessionError::wrong_result(format!(
            "item {missing} is missing"
        )))
    }
}

/// Updates the stock of every valid line, also when the order will be rolled back (2.4.2.3), in
/// the one order that keeps New-Orders from deadlocking.
async fn take_stock(
    input: &Input,
    lines: &mut Lines,
    steps: &mut Steps<'_>,
) -> Result<(), SessionError> {
    let mut order = [0; LINES_MAX];
    for (position, slot) in order.iter_mut().enumerate() {
        *slot = position;
    }
    let order = &mut order[..lines.valid];
    order.sort_unstable_by_key(|&position| {
        let line = &input.lines[position];
        (line.supply_w_id, line.i_id, position)
    });
    let statement = update_stock(input.d_id);
    for &position in &*order {
        let line = &input.lines[position];
        let params = [
            Param::Int4(line.supply_w_id),
            Param::Int4(line.i_id),
            Param::Int2(line.quantity),
            Param::Int4(i32::from(line.supply_w_id != input.w_id)),
        ];
        let row = steps.run(statement, &params).await?.one()?;
        row.int2(0)?;
        let brand = lines.original[position] && is_original(&row, 1)?;
        lines.brands += u8::from(brand);
        lines.dist_info[position] = row.text(2)?.as_bytes().try_into().map_err(|_| {
            SessionError::wrong_result("s_dist is not 24 single-byte characters long")
        })?;
        lines.amount[position] = i64::from(line.quantity) * lines.price[position];
    }
    Ok(())
}

async fn insert(
    input: &Input,
    lines: &Lines,
    o_id: i32,
    steps: &mut Steps<'_>,
) -> Result<(), SessionError> {
    let local = input
        .lines()
        .iter()
        .all(|line| line.supply_w_id == input.w_id);
    let key = [
        Param::Int4(input.w_id),
        Param::Int2(input.d_id),
        Param::Int4(o_id),
    ];
    let order = [
        key[0],
        key[1],
        key[2],
        Param::Int4(input.c_id),
        Param::Int2(count(input.line_count)),
        Param::Int2(i16::from(local)),
    ];
    steps.run(INSERT_ORDER, &order).await?.one()?.timestamp(0)?;
    steps
        .run(INSERT_NEW_ORDER, &key)
        .await?
        .expect_affected(1)?;

    let valid = lines.valid;
    let mut number = [0; LINES_MAX];
    let mut item = [0; LINES_MAX];
    let mut supply = [0; LINES_MAX];
    let mut quantity = [0; LINES_MAX];
    let mut dist_info = [""; LINES_MAX];
    for (position, line) in input.lines[..valid].iter().enumerate() {
        number[position] = count(position + 1);
        item[position] = line.i_id;
        supply[position] = line.supply_w_id;
        quantity[position] = line.quantity;
        dist_info[position] = std::str::from_utf8(&lines.dist_info[position]).unwrap_or("");
    }
    let order_lines = [
        key[0],
        key[1],
        key[2],
        Param::Int2Array(&number[..valid]),
        Param::Int4Array(&item[..valid]),
        Param::Int4Array(&supply[..valid]),
        Param::Int2Array(&quantity[..valid]),
        Param::CentsArray(&lines.amount[..valid]),
        Param::TextArray(&dist_info[..valid]),
    ];
    let result = steps.run(INSERT_ORDER_LINES, &order_lines).await?;
    result.expect_affected(valid as u64)
}

fn is_original(row: &Row<'_>, column: usize) -> Result<bool, SessionError> {
    let data = row.text(column)?.as_bytes();
    Ok(data.windows(8).any(|part| part == b"ORIGINAL"))
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "at most 15"
)]
fn count(n: usize) -> i16 {
    n as i16
}

/// The sum of the amounts less the discount, plus both taxes (2.4.2.2), rounded half up to cents
/// once, at the end. Rates in ten-thousandths.
fn total(amounts: &[i64], discount: i64, w_tax: i64, d_tax: i64) -> i64 {
    let exact = amounts.iter().sum::<i64>() * (10_000 - discount) * (10_000 + w_tax + d_tax);
    (exact + 50_000_000) / 100_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_exact_and_rounded_once() {
        for (amounts, discount, w_tax, d_tax, cents) in [
            (&[1000][..], 0, 0, 0, 1000),
            (&[1000, 234], 1000, 500, 700, 1244), // 12.34 * 0.9 * 1.12 = 12.43872
            (&[50], 0, 100, 0, 51),               // 0.505 rounds up
            (&[100_000; 15], 5000, 2000, 2000, 1_050_000),
            (&[], 1, 2, 3, 0),
        ] {
            assert_eq!(total(amounts, discount, w_tax, d_tax), cents);
        }
    }
}
