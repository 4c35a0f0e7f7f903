//! Payment (TPC-C 2.5): a customer pays; 15 % are customers of another warehouse.

use super::customer::Customer;
use super::statements::{INSERT_HISTORY, PAY_CUSTOMER, PAY_DISTRICT, PAY_WAREHOUSE, Steps};
use super::{Context, Output};
use crate::rng::Rng;
use crate::session::{Param, Session, SessionError};
use crate::workload::Outcome;

/// What the user enters (2.5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Input {
    pub w_id: i32,
    pub d_id: i16,
    /// Where the customer lives.
    pub c_w_id: i32,
    pub c_d_id: i16,
    pub customer: Customer,
    /// 1.00 to 5,000.00.
    pub amount_cents: i64,
}

impl Input {
    pub(super) fn draw(context: &Context, rng: &mut Rng) -> Self {
        let d_id = context.district(rng);
        let (c_w_id, c_d_id) = if rng.int(1, 100) <= 85 {
            (context.w_id, d_id)
        } else {
            let c_d_id = context.district(rng);
            (context.other_warehouse(rng), c_d_id)
        };
        Self {
            w_id: context.w_id,
            d_id,
            c_w_id,
            c_d_id,
            customer: Customer::draw(context, rng),
            amount_cents: rng.range(100, 500_000),
        }
    }
}

/// The hottest row, the warehouse, is locked last and held shortest.
pub(super) async fn execute(
    input: &Input,
    session: &mut Session,
    output: &mut Output,
) -> Result<Outcome, SessionError> {
    let mut steps = Steps::begin(session);
    let (c_w_id, c_d_id) = (input.c_w_id, input.c_d_id);
    let c_id = input.customer.find(c_w_id, c_d_id, &mut steps).await?;
    let amount = Param::Cents(input.amount_cents);

    let mut note = Text::<80>::new();
    note_payment(input, c_id, &mut note);
    let customer = [
        Param::Int4(c_w_id),
        Param::Int2(c_d_id),
        Param::Int4(c_id),
        amount,
        Param::Text(note.as_str()),
    ];
    let row = steps.run(PAY_CUSTOMER, &customer).await?.one()?;
    output.balance_cents = row.decimal(13, 2)?;

    let district = [Param::Int4(input.w_id), Param::Int2(input.d_id), amount];
    let row = steps.run(PAY_DISTRICT, &district).await?.one()?;
    let mut d_name = Text::<40>::new();
    d_name.push(row.text(0)?);
    let warehouse = [Param::Int4(input.w_id), amount];
    let row = steps.run(PAY_WAREHOUSE, &warehouse).await?.one()?;
    let mut h_data = Text::<80>::new();
    h_data.push(row.text(0)?);
    h_data.push("    ");
    h_data.push(d_name.as_str());

    let history = [
        Param::Int4(c_id),
        Param::Int2(c_d_id),
        Param::Int4(c_w_id),
        Param::Int2(input.d_id),
        Param::Int4(input.w_id),
        amount,
        Param::Text(h_data.as_str()),
    ];
    steps
        .run(INSERT_HISTORY, &history)
        .await?
        .expect_affected(1)?;
    output.c_id = c_id;
    steps.commit().await?;
    Ok(Outcome::Committed)
}

/// What a customer with bad credit gets in front of `c_data` (2.5.2.2).
fn note_payment(input: &Input, c_id: i32, note: &mut Text<80>) {
    for id in [
        i64::from(c_id),
        i64::from(input.c_d_id),
        i64::from(input.c_w_id),
        i64::from(input.d_id),
        i64::from(input.w_id),
    ] {
        note.push_number(id);
        note.push(" ");
    }
    note.push_number(input.amount_cents / 100);
    note.push(if input.amount_cents % 100 < 10 {
        ".0"
    } else {
        "."
    });
    note.push_number(input.amount_cents % 100);
    note.push("|");
}

/// A short text on the stack. What does not fit is left out, whole pieces at a time; `N` is
/// chosen so that everything fits (`w_name` and `d_name`: 10 characters of up to 4 bytes).
struct Text<const N: usize> {
    bytes: [u8; N],
    length: usize,
}

impl<const N: usize> Text<N> {
    fn new() -> Self {
        Self {
            bytes: [0; N],
            length: 0,
        }
    }

    fn push(&mut self, piece: &str) {
        if let Some(slot) = self.bytes[self.length..].get_mut(..piece.len()) {
            slot.copy_from_slice(piece.as_bytes());
            self.length += piece.len();
        }
    }

    /// A number that is not negative.
    fn push_number(&mut self, number: i64) {
        const DIGITS: &str = "0123456789";
        let mut unit = 1;
        while number / unit > 9 {
            unit *= 10;
        }
        while unit > 0 {
            let digit = usize::try_from(number / unit % 10).unwrap_or(0);
            self.push(&DIGITS[digit..=digit]);
            unit /= 10;
        }
    }

    fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.length]).unwrap_or("")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_note_for_bad_credit_is_readable_and_always_fits() {
        let mut input = Input {
            w_id: 1,
            d_id: 2,
            c_w_id: 3,
            c_d_id: 4,
            customer: Customer::ById(5),
            amount_cents: 123_405,
        };
        let mut note = Text::new();
        note_payment(&input, 1000, &mut note);
        assert_eq!(note.as_str(), "1000 4 3 2 1 1234.05|");
        input.w_id = i32::MAX;
        input.c_w_id = i32::MAX;
        input.d_id = 10;
        input.c_d_id = 10;
        input.amount_cents = 500_000;
        let mut note = Text::new();
        note_payment(&input, 3000, &mut note);
        assert_eq!(note.as_str(), "3000 10 2147483647 10 2147483647 5000.00|");
    }
}
