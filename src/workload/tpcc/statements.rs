//! The SQL of the five profiles, and how a transaction sends it.
//!
//! Forms are chosen so that each is a look-up by key with one possible plan. Every change of a
//! row is one `UPDATE … RETURNING`: nothing is read, computed in the client and written back, so
//! READ COMMITTED loses no update. Row locks are taken in one order everywhere: New-Order stock
//! (sorted), then district; Payment customer, district, warehouse; Delivery district by district,
//! ending with the customer. No cycle exists.

use crate::session::{Param, Session, SessionError, Statement, StatementResult};

macro_rules! statements {
    ($($name:ident = $sql:expr;)*) => {
        #[allow(non_camel_case_types, clippy::upper_case_acronyms,
                reason = "only there to number the constants")]
        enum Number { $($name),* }
        $(pub(super) const $name: Statement = Statement(Number::$name as u16);)*
        /// All statements, in the order of their numbers.
        pub(super) static ALL: &[&str] = &[$($sql),*];
    };
}

/// One line's stock (2.4.2.2): the new quantity, the item's data and the district's text.
macro_rules! stock_update {
    ($dist:literal) => {
        concat!(
            "UPDATE stock \
             SET s_quantity = CASE WHEN s_quantity - $3::int2 >= 10 THEN s_quantity - $3::int2 \
             ELSE s_quantity - $3::int2 + 91 END, \
             s_ytd = s_ytd + $3::int2, \
             s_order_cnt = s_order_cnt + 1, \
             s_remote_cnt = s_remote_cnt + $4::int4 \
             WHERE s_w_id = $1 AND s_i_id = $2 \
             RETURNING s_quantity, s_data, ",
            $dist
        )
    };
}

statements! {
    BEGIN = "BEGIN";
    BEGIN_READ_ONLY = "BEGIN READ ONLY";
    COMMIT = "COMMIT";
    ROLLBACK = "ROLLBACK";

    SELECT_ITEMS =
        "SELECT i_id, i_price, i_name, i_data FROM item WHERE i_id = ANY ($1::int4[])";
    UPDATE_STOCK_01 = stock_update!("s_dist_01");
    UPDATE_STOCK_02 = stock_update!("s_dist_02");
    UPDATE_STOCK_03 = stock_update!("s_dist_03");
    UPDATE_STOCK_04 = stock_update!("s_dist_04");
    UPDATE_STOCK_05 = stock_update!("s_dist_05");
    UPDATE_STOCK_06 = stock_update!("s_dist_06");
    UPDATE_STOCK_07 = stock_update!("s_dist_07");
    UPDATE_STOCK_08 = stock_update!("s_dist_08");
    UPDATE_STOCK_09 = stock_update!("s_dist_09");
    UPDATE_STOCK_10 = stock_update!("s_dist_10");
    TAKE_ORDER_NUMBER =
        "UPDATE district SET d_next_o_id = d_next_o_id + 1 \
         WHERE d_w_id = $1 AND d_id = $2 \
         RETURNING d_next_o_id - 1, d_tax";
    SELECT_WAREHOUSE_TAX = "SELECT w_tax FROM warehouse WHERE w_id = $1";
    SELECT_CUSTOMER_DISCOUNT =
        "SELECT c_discount, c_last, c_credit FROM customer \
         WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3";
    INSERT_ORDER =
        "INSERT INTO orders \
         (o_w_id, o_d_id, o_id, o_c_id, o_entry_d, o_carrier_id, o_ol_cnt, o_all_local) \
         VALUES ($1, $2, $3, $4, now(), NULL, $5, $6) RETURNING o_entry_d";
    INSERT_NEW_ORDER =
        "INSERT INTO new_order (no_w_id, no_d_id, no_o_id) VALUES ($1, $2, $3)";
    // Set-based, and right for an item that stands in the order twice: each line is its own row.
    INSERT_ORDER_LINES =
        "INSERT INTO order_line (ol_w_id, ol_d_id, ol_o_id, ol_number, ol_i_id, ol_supply_w_id, \
         ol_delivery_d, ol_quantity, ol_amount, ol_dist_info) \
         SELECT $1::int4, $2::int2, $3::int4, n, i, s, NULL, q, a, x \
         FROM unnest($4::int2[], $5::int4[], $6::int4[], $7::int2[], $8::numeric[], $9::text[]) \
         AS line (n, i, s, q, a, x)";

    // Position ceil(n/2) of the n customers of that name, by first name (2.5.2.2).
    SELECT_CUSTOMER_BY_NAME =
        "SELECT c_id FROM (SELECT c_id, row_number() OVER (ORDER BY c_first, c_id) AS place, \
         count(*) OVER () AS n FROM customer \
         WHERE c_w_id = $1 AND c_d_id = $2 AND c_last = $3) AS namesake \
         WHERE place = (n + 1) / 2";
    PAY_CUSTOMER =
        "UPDATE customer SET c_balance = c_balance - $4::numeric, \
         c_ytd_payment = c_ytd_payment + $4::numeric, \
         c_payment_cnt = c_payment_cnt + 1, \
         c_data = CASE WHEN c_credit = 'BC' THEN left($5::text || c_data, 500) ELSE c_data END \
         WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3 \
         RETURNING c_first, c_middle, c_last, c_street_1, c_street_2, c_city, c_state, c_zip, \
         c_phone, c_since, c_credit, c_credit_lim, c_discount, c_balance, \
         CASE WHEN c_credit = 'BC' THEN left(c_data, 200) END";
    PAY_DISTRICT =
        "UPDATE district SET d_ytd = d_ytd + $3::numeric WHERE d_w_id = $1 AND d_id = $2 \
         RETURNING d_name, d_street_1, d_street_2, d_city, d_state, d_zip";
    PAY_WAREHOUSE =
        "UPDATE warehouse SET w_ytd = w_ytd + $2::numeric WHERE w_id = $1 \
         RETURNING w_name, w_street_1, w_street_2, w_city, w_state, w_zip";
    INSERT_HISTORY =
        "INSERT INTO history \
         (h_c_id, h_c_d_id, h_c_w_id, h_d_id, h_w_id, h_date, h_amount, h_data) \
         VALUES ($1, $2, $3, $4, $5, now(), $6, $7)";

    SELECT_CUSTOMER =
        "SELECT c_balance, c_first, c_middle, c_last FROM customer \
         WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3";
    SELECT_NEWEST_ORDER =
        "SELECT o_id, o_entry_d, o_carrier_id FROM orders \
         WHERE o_w_id = $1 AND o_d_id = $2 AND o_c_id = $3 ORDER BY o_id DESC LIMIT 1";
    SELECT_ORDER_LINES =
        "SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d FROM order_line \
         WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id = $3";

    // FOR UPDATE makes a second Delivery of the warehouse wait and then find the next order.
    // SKIP LOCKED would deliver a younger order first and leave a hole if the older one fails.
    TAKE_OLDEST_NEW_ORDER =
        "DELETE FROM new_order WHERE no_w_id = $1 AND no_d_id = $2 AND no_o_id = \
         (SELECT no_o_id FROM new_order WHERE no_w_id = $1 AND no_d_id = $2 \
         ORDER BY no_o_id LIMIT 1 FOR UPDATE) RETURNING no_o_id";
    SET_CARRIER =
        "UPDATE orders SET o_carrier_id = $4 WHERE o_w_id = $1 AND o_d_id = $2 AND o_id = $3 \
         RETURNING o_c_id, o_ol_cnt";
    DELIVER_LINES =
        "WITH line AS (UPDATE order_line SET ol_delivery_d = now() \
         WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id = $3 RETURNING ol_amount) \
         SELECT sum(ol_amount), count(*) FROM line";
    BILL_CUSTOMER =
        "UPDATE customer SET c_balance = c_balance + $4::numeric, \
         c_delivery_cnt = c_delivery_cnt + 1 WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3";

    SELECT_NEXT_ORDER_NUMBER =
        "SELECT d_next_o_id FROM district WHERE d_w_id = $1 AND d_id = $2";
    // A join could be planned as a hash join over the warehouse's whole stock once the plan is
    // generic (the width of the o_id range is unknown then); a look-up for each line cannot.
    COUNT_LOW_STOCK =
        "SELECT count(DISTINCT ol_i_id) FROM order_line \
         WHERE ol_w_id = $1 AND ol_d_id = $2 \
         AND ol_o_id >= $3::int4 - 20 AND ol_o_id < $3::int4 \
         AND (SELECT s_quantity FROM stock WHERE s_w_id = $1 AND s_i_id = ol_i_id) < $4::int2";
}

/// The variant of the stock update that returns the text of district `d_id`.
pub(super) fn update_stock(d_id: i16) -> Statement {
    const BY_DISTRICT: [Statement; 10] = [
        UPDATE_STOCK_01,
        UPDATE_STOCK_02,
        UPDATE_STOCK_03,
        UPDATE_STOCK_04,
        UPDATE_STOCK_05,
        UPDATE_STOCK_06,
        UPDATE_STOCK_07,
        UPDATE_STOCK_08,
        UPDATE_STOCK_09,
        UPDATE_STOCK_10,
    ];
    BY_DISTRICT[usize::from(d_id.unsigned_abs()) - 1]
}

/// A transaction under way: one statement, one round trip; BEGIN rides with the first.
pub(super) struct Steps<'s> {
    session: &'s mut Session,
    begin: Option<Statement>,
}

impl<'s> Steps<'s> {
    pub(super) fn begin(session: &'s mut Session) -> Self {
        Self {
            session,
            begin: Some(BEGIN),
        }
    }

    pub(super) fn begin_read_only(session: &'s mut Session) -> Self {
        Self {
            session,
            begin: Some(BEGIN_READ_ONLY),
        }
    }

    /// Sends one statement and waits for its result.
    pub(super) async fn run(
        &mut self,
        statement: Statement,
        params: &[Param<'_>],
    ) -> Result<StatementResult<'_>, SessionError> {
        let begin = self.begin.take();
        if let Some(begin) = begin {
            self.session.queue(begin, &[]);
        }
        self.session.queue(statement, params);
        let mut reply = self.session.flush().await?;
        if begin.is_some() {
            reply.next_result()?;
        }
        reply.next_result()
    }

    pub(super) async fn commit(mut self) -> Result<(), SessionError> {
        self.run(COMMIT, &[]).await.map(|_| ())
    }

    pub(super) async fn rollback(mut self) -> Result<(), SessionError> {
        self.run(ROLLBACK, &[]).await.map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_numbered_in_their_order() {
        let sql = |statement: Statement| ALL[usize::from(statement.0)];
        assert_eq!(sql(COMMIT), "COMMIT");
        assert!(sql(COUNT_LOW_STOCK).starts_with("SELECT count(DISTINCT"));
        for d_id in 1..=10 {
            assert!(sql(update_stock(d_id)).ends_with(&format!("s_data, s_dist_{d_id:02}")));
        }
    }
}
