//! How Payment and Order-Status choose their customer: by number or by last name.

use super::Context;
use super::random::LastName;
use super::statements::{SELECT_CUSTOMER_BY_NAME, Steps};
use crate::rng::Rng;
use crate::session::{Param, SessionError};

/// A customer of a district, as the terminal's user names him (2.5.1.2, 2.6.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Customer {
    ById(i32),
    /// The number of the last name, 0 to 999.
    ByName(i32),
}

impl Customer {
    /// 60 % by last name, 40 % by number.
    pub(super) fn draw(context: &Context, rng: &mut Rng) -> Self {
        if rng.int(1, 100) <= 60 {
            Customer::ByName(context.constants.c_last.draw(rng))
        } else {
            Customer::ById(context.constants.c_id.draw(rng))
        }
    }

    /// The number of the customer; by name that of the middle one of all who bear it.
    pub(super) async fn find(
        self,
        w_id: i32,
        d_id: i16,
        steps: &mut Steps<'_>,
    ) -> Result<i32, SessionError> {
        match self {
            Customer::ById(c_id) => Ok(c_id),
            Customer::ByName(number) => {
                let name = LastName::new(number);
                let key = [
                    Param::Int4(w_id),
                    Param::Int2(d_id),
                    Param::Text(name.as_str()),
                ];
                steps
                    .run(SELECT_CUSTOMER_BY_NAME, &key)
                    .await?
                    .one()?
                    .int4(0)
            }
        }
    }
}
